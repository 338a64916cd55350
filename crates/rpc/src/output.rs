//! The sending half of a connection: whoever has a reply sends it himself when nobody else is sending and the
//! socket takes it; what it does not take is queued, and the connection's task goes on when there is room.
//!
//! One writer at a time: he has taken the socket's half out of its place. Nobody holds the lock across a system
//! call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use crate::service::FileBody;

/// Parts of replies given to the kernel in one call.
const GATHER_MAX: usize = 64;

enum Chunk {
    Bytes { buf: Vec<u8>, sent: usize },
    File { fd: Arc<OwnedFd>, offset: u64, left: usize },
}

impl Chunk {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Bytes { buf, sent } => buf.len() - sent,
            Self::File { .. } => 0,
        }
    }
}

#[derive(Default)]
struct State {
    half: Option<OwnedWriteHalf>,
    queue: VecDeque<Chunk>,
    /// The socket took no more, or the thread that had the half was not to go on: the task sends the rest.
    is_blocked: bool,
    is_closed: bool,
    /// The half, while nothing is to be sent: the connection is being handed over.
    sealed: Option<OwnedWriteHalf>,
}

/// What became of something handed over for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All is with the kernel, or with another thread that is sending.
    Done,
    /// The socket is full, or others have queued more: the task has to go on, when there is room.
    Blocked,
    /// The connection is of no more use.
    Broken,
}

/// How far a thread goes on that has the socket's half.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Until its own bytes are sent.
    Own,
    /// Until nothing waits: the connection's task.
    All,
}

/// The queue and the socket's half.
#[derive(Default)]
pub(crate) struct Output {
    state: Mutex<State>,
    held_bytes: AtomicUsize,
    chunks: AtomicUsize,
    taken_bytes: AtomicUsize,
}

impl Output {
    pub(crate) fn new(half: Option<OwnedWriteHalf>) -> Self {
        Self { state: Mutex::new(State { half, ..State::default() }), ..Self::default() }
    }

    /// The output of a connection of a predecessor, with what it had not sent.
    pub(crate) fn with_unsent(half: OwnedWriteHalf, unsent: &[u8]) -> Self {
        let output = Self::new(Some(half));
        if !unsent.is_empty() {
            let mut state = output.state.lock();
            output.enqueue(&mut state, unsent, None);
            state.is_blocked = true;
        }
        output
    }

    /// Stops sending, and gives the socket (a descriptor of its own) and what was not sent. `None` while somebody is
    /// sending, and when the connection is of no more use: what it promised cannot be read any more, or is more than
    /// `bytes_max`.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub(crate) fn seal(&self, bytes_max: usize) -> io::Result<Option<(OwnedFd, Vec<u8>)>> {
        let mut state = self.state.lock();
        if let Some(half) = state.half.take() {
            state.sealed = Some(half);
            // Nobody has to wait for room meanwhile.
            state.is_blocked = false;
        }
        let Some(half) = &state.sealed else { return Ok(None) };
        let socket = half.as_ref().as_fd().try_clone_to_owned()?;
        let mut unsent = Vec::new();
        for chunk in &state.queue {
            match chunk {
                Chunk::Bytes { buf, sent } => unsent.extend_from_slice(&buf[*sent..]),
                Chunk::File { fd, offset, left } => {
                    let bytes = read_file(fd, *offset, *left);
                    if bytes.len() < *left {
                        return Ok(None);
                    }
                    unsent.extend_from_slice(&bytes);
                }
            }
            if unsent.len() > bytes_max {
                return Ok(None);
            }
        }
        Ok(Some((socket, unsent)))
    }

    /// Sends again after [`Output::seal`].
    pub(crate) fn unseal(&self) {
        let mut state = self.state.lock();
        if let Some(half) = state.sealed.take() {
            state.half = Some(half);
            state.is_blocked = !state.queue.is_empty();
        }
    }

    /// Bytes waiting.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of those that waited which the peer has taken since the connection began; wraps around.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Parts of replies waiting.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Whether the task has to wait for room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.chunks() > 0 && self.state.lock().is_blocked
    }

    /// Sends `head`, then the file's stretch and its trailer. Only what the socket does not take is copied, or queued.
    pub(crate) fn send(&self, head: &[u8], file: Option<FileBody>) -> Sent {
        let mut state = self.state.lock();
        if state.is_closed {
            return Sent::Broken;
        }
        let is_free = state.queue.is_empty();
        let Some(half) = (if is_free { state.half.take() } else { None }) else {
            self.enqueue(&mut state, head, file);
            return Sent::Done;
        };
        drop(state);
        let mut file = file;
        let sent = match send_at_once(half.as_ref(), head, &mut file) {
            Ok(sent) => sent,
            Err(_) => return Sent::Broken,
        };
        if sent == head.len() && file.is_none() {
            return self.put_back(half);
        }
        let mut rest = VecDeque::new();
        self.append(&mut rest, &head[sent..], file);
        self.go_on(half, rest, Whose::Own)
    }

    /// Sends what is queued, if nobody else is at it.
    pub(crate) fn drain(&self) -> Sent {
        let mut state = self.state.lock();
        if state.is_closed {
            return Sent::Broken;
        }
        let Some(half) = state.half.take() else { return Sent::Done };
        // Whoever has the half tells anew whether the socket is full; until then nobody has to wait for it.
        state.is_blocked = false;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.go_on(half, queue, Whose::All)
    }

    /// Gives the half back after what was our own. What others queued meanwhile is the task's to send: this may be
    /// a thread that others wait for (a committer's), and the reading of files takes as long as it takes.
    fn put_back(&self, half: OwnedWriteHalf) -> Sent {
        let mut state = self.state.lock();
        if state.is_closed {
            return Sent::Broken;
        }
        state.half = Some(half);
        state.is_blocked = !state.queue.is_empty();
        if state.is_blocked { Sent::Blocked } else { Sent::Done }
    }

    fn go_on(&self, half: OwnedWriteHalf, mut rest: VecDeque<Chunk>, whose: Whose) -> Sent {
        loop {
            match self.send_chunks(half.as_ref(), &mut rest) {
                Ok(true) => {}
                Ok(false) => {
                    let mut state = self.state.lock();
                    rest.append(&mut state.queue);
                    state.queue = rest;
                    if state.is_closed {
                        self.forget(std::mem::take(&mut state.queue));
                        return Sent::Broken;
                    }
                    state.half = Some(half);
                    state.is_blocked = true;
                    return Sent::Blocked;
                }
                Err(_) => {
                    self.forget(rest);
                    return Sent::Broken;
                }
            }
            if whose == Whose::Own {
                return self.put_back(half);
            }
            let mut state = self.state.lock();
            if state.is_closed {
                return Sent::Broken;
            }
            if state.queue.is_empty() {
                state.half = Some(half);
                state.is_blocked = false;
                return Sent::Done;
            }
            std::mem::swap(&mut rest, &mut state.queue);
        }
    }

    fn enqueue(&self, state: &mut State, head: &[u8], file: Option<FileBody>) {
        let mut queue = std::mem::take(&mut state.queue);
        self.append(&mut queue, head, file);
        state.queue = queue;
    }

    fn append(&self, queue: &mut VecDeque<Chunk>, head: &[u8], file: Option<FileBody>) {
        let mut push = |chunk: Chunk| {
            self.held_bytes.fetch_add(chunk.held_bytes(), Ordering::Relaxed);
            self.chunks.fetch_add(1, Ordering::Relaxed);
            queue.push_back(chunk);
        };
        if !head.is_empty() {
            push(Chunk::Bytes { buf: head.to_vec(), sent: 0 });
        }
        if let Some(file) = file {
            push(Chunk::File { fd: file.fd, offset: file.offset, left: file.bytes });
            if !file.trailer.is_empty() {
                push(Chunk::Bytes { buf: file.trailer, sent: 0 });
            }
        }
    }

    /// Sends from the front of `queue`; true when nothing is left, false when the socket is full.
    fn send_chunks(&self, stream: &TcpStream, queue: &mut VecDeque<Chunk>) -> io::Result<bool> {
        while let Some(front) = queue.front_mut() {
            match front {
                Chunk::File { left: 0, .. } => self.pop(queue),
                Chunk::File { fd, offset, left } => {
                    let Some(n) = full_is_none(send_stretch(stream, fd, offset, *left))? else {
                        return Ok(false);
                    };
                    *left -= n;
                }
                Chunk::Bytes { .. } => {
                    let Some(n) = full_is_none(send_gathered(stream, queue))? else { return Ok(false) };
                    self.consume(queue, n);
                }
            }
        }
        Ok(true)
    }

    fn consume(&self, queue: &mut VecDeque<Chunk>, mut n: usize) {
        self.held_bytes.fetch_sub(n, Ordering::Relaxed);
        self.taken_bytes.fetch_add(n, Ordering::Relaxed);
        while let Some(Chunk::Bytes { buf, sent }) = queue.front_mut() {
            let step = n.min(buf.len() - *sent);
            *sent += step;
            n -= step;
            if *sent < buf.len() {
                return;
            }
            self.pop(queue);
        }
    }

    fn pop(&self, queue: &mut VecDeque<Chunk>) {
        if queue.pop_front().is_some() {
            self.chunks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops the socket's half and what is queued. A writer under way drops his half when he comes back.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let half = (state.half.take(), state.sealed.take());
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.forget(queue);
        drop(half);
    }

    /// Drops what will not be sent.
    fn forget(&self, queue: VecDeque<Chunk>) {
        for chunk in queue {
            self.held_bytes.fetch_sub(chunk.held_bytes(), Ordering::Relaxed);
            self.chunks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the bytes queued: for connections that have no socket.
    pub(crate) fn take_queued(&self) -> Vec<Vec<u8>> {
        let queue = std::mem::take(&mut self.state.lock().queue);
        let mut out = Vec::new();
        for chunk in queue {
            self.chunks.fetch_sub(1, Ordering::Relaxed);
            self.held_bytes.fetch_sub(chunk.held_bytes(), Ordering::Relaxed);
            match chunk {
                Chunk::Bytes { buf, .. } => out.push(buf),
                Chunk::File { fd, offset, left } => out.push(read_file(&fd, offset, left)),
            }
        }
        out
    }
}

fn read_file(fd: &OwnedFd, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buf = vec![0; bytes];
    let n = rustix::io::pread(fd, &mut buf, offset).unwrap_or(0);
    buf.truncate(n);
    buf
}

fn full_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

const fn flags(is_more_to_come: bool) -> SendFlags {
    if is_more_to_come { SendFlags::NOSIGNAL.union(SendFlags::MORE) } else { SendFlags::NOSIGNAL }
}

/// Sends as much of `bytes` as the socket takes.
fn send_bytes(stream: &TcpStream, bytes: &[u8], is_more_to_come: bool) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        let attempt = stream.try_io(Interest::WRITABLE, || {
            Ok(rustix::io::retry_on_intr(|| {
                rustix::net::send(stream, &bytes[sent..], flags(is_more_to_come))
            })?)
        });
        match full_is_none(attempt)? {
            Some(n) => sent += n,
            None => break,
        }
    }
    Ok(sent)
}

/// Sends as much as the socket takes, without a queue. Gives how much of `head` that was; what is left of the file stays in
/// its place.
fn send_at_once(stream: &TcpStream, head: &[u8], file: &mut Option<FileBody>) -> io::Result<usize> {
    let sent = send_bytes(stream, head, file.is_some())?;
    let Some(body) = file.as_mut().filter(|_| sent == head.len()) else { return Ok(sent) };
    while body.bytes > 0 {
        let Some(n) = full_is_none(send_stretch(stream, &body.fd, &mut body.offset, body.bytes))? else {
            return Ok(sent);
        };
        body.bytes -= n;
    }
    let ended = send_bytes(stream, &body.trailer, false)?;
    body.trailer.drain(..ended);
    if body.trailer.is_empty() {
        *file = None;
    }
    Ok(sent)
}

fn send_gathered(stream: &TcpStream, queue: &VecDeque<Chunk>) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); GATHER_MAX];
    let mut n = 0;
    let mut is_file_next = false;
    for chunk in queue.iter() {
        match chunk {
            Chunk::Bytes { buf, sent } if n < GATHER_MAX => {
                slices[n] = IoSlice::new(&buf[*sent..]);
                n += 1;
            }
            Chunk::Bytes { .. } => break,
            Chunk::File { .. } => {
                is_file_next = true;
                break;
            }
        }
    }
    stream.try_io(Interest::WRITABLE, || {
        let mut control = SendAncillaryBuffer::default();
        let send = || rustix::net::sendmsg(stream, &slices[..n], &mut control, flags(is_file_next));
        Ok(rustix::io::retry_on_intr(send)?)
    })
}

/// Sends of a stretch of a file as much as the socket takes: something, or an error.
fn send_stretch(stream: &TcpStream, fd: &OwnedFd, offset: &mut u64, bytes: usize) -> io::Result<usize> {
    let sent = stream.try_io(Interest::WRITABLE, || {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::sendfile(stream, fd, Some(offset), bytes))?)
    })?;
    // The length is already on the wire, and no data is left to keep the promise with.
    if sent == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(sent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_queued_is_left_to_the_task() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (peer, _) = listener.accept().await.unwrap();
            stream.writable().await.unwrap();
            let (_read, half) = stream.into_split();
            let output = Output::new(Some(half));
            // A thread that sends has the half; meanwhile others have replies.
            let half = output.state.lock().half.take().unwrap();
            assert_eq!(output.send(b"one", None), Sent::Done);
            assert_eq!(output.send(b"two", None), Sent::Done);
            assert_eq!(output.put_back(half), Sent::Blocked);
            assert!(output.is_blocked() && output.chunks() == 2, "the task has to go on");
            assert_eq!(output.drain(), Sent::Done);
            assert_eq!((output.chunks(), output.held_bytes(), output.taken_bytes()), (0, 0, 6));
            peer.readable().await.unwrap();
            let mut got = [0; 8];
            assert_eq!((peer.try_read(&mut got).unwrap(), &got[..6]), (6, &b"onetwo"[..]));
        });
    }

    #[test]
    fn nothing_counts_as_held_when_a_send_has_failed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (_peer, _) = listener.accept().await.unwrap();
            stream.writable().await.unwrap();
            let (_read, half) = stream.into_split();
            let output = Output::new(Some(half));
            // A stretch that the file does not have.
            let fd = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
            let file = FileBody { fd, offset: 0, bytes: 100, trailer: vec![0; 8] };
            assert_eq!(output.send(b"head", Some(file)), Sent::Broken);
            assert_eq!((output.chunks(), output.held_bytes()), (0, 0));
        });
    }
}
