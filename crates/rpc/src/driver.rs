//! One connection's task: reads, handles all records of a wake-up, sends all their replies at once, and stops
//! reading while too much of this connection is on its way.

use std::cell::RefCell;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::BytesMut;
use bytes::buf::Limit;
use holdfast_base::batch;
use holdfast_base::limits::{INPUT_BYTES, OUTPUT_FLUSH_BYTES};
use holdfast_xdr::Writer;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;

use crate::auth::AuthCache;
use crate::connection::Connection;
use crate::crew;
use crate::dispatch::{self, Step};
use crate::handover::Unread;
use crate::pool::Job;
use crate::record::{self, Assembler, RecordError};

/// A reply above this is sent at once, with those before it: others do not wait behind it.
const GATHER_BYTES_MAX: usize = 32 << 10;

/// Wake-ups after which a connection that always has input lets the others in.
const TURNS_MAX: u32 = 8;

/// Buffers of one worker. A task has them from a read to the end of the wake-up, in which it never waits; so an
/// idle connection has none.
struct Scratch {
    input: Vec<u8>,
    /// The replies of the wake-up, one behind the other, as they are sent.
    replies: Writer,
}

thread_local! {
    static SCRATCH: RefCell<Option<Box<Scratch>>> = const { RefCell::new(None) };
}

impl Scratch {
    fn take() -> Box<Self> {
        SCRATCH
            .with_borrow_mut(Option::take)
            .unwrap_or_else(|| Box::new(Self { input: vec![0; INPUT_BYTES], replies: Writer::new() }))
    }

    fn put_back(mut self: Box<Self>) {
        self.replies.clear();
        // A program that wrote a large reply leaves its buffer behind, once a worker: keep it.
        SCRATCH.set(Some(self));
    }
}

/// What there is to do.
enum Wake {
    /// So many bytes are in the scratch input.
    Input(Box<Scratch>, usize),
    /// Calls left over from an earlier wake-up can go on, or a record read to its place may be whole.
    Again,
    /// The connection ends.
    End,
}

pub(crate) struct Driver {
    connection: Arc<Connection>,
    read: OwnedReadHalf,
    assembler: Assembler,
    auths: AuthCache,
    /// Input read but not handled, because reading had to stop.
    backlog: Vec<u8>,
    /// A call that the pool had no room for.
    stalled: Option<Job>,
    is_at_end: bool,
    /// What there is to hand over was left with the connection ([`crate::handover`]).
    is_resting: bool,
}

impl Driver {
    pub(crate) fn new(connection: Arc<Connection>, read: OwnedReadHalf) -> Self {
        Self {
            connection,
            read,
            assembler: Assembler::new(),
            auths: AuthCache::default(),
            backlog: Vec::new(),
            stalled: None,
            is_at_end: false,
            is_resting: false,
        }
    }

    /// Goes on with what a predecessor has read.
    pub(crate) fn with_input(mut self, read: Vec<u8>, is_at_end: bool) -> Self {
        self.backlog = read;
        self.is_at_end = is_at_end;
        self
    }

    /// Serves the connection until it ends.
    pub(crate) async fn run(mut self) {
        let mut turns = 0u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_MAX) {
                crew::pass().await;
            }
            let mut has_waited = false;
            let wake = std::future::poll_fn(|cx| {
                let wake = self.poll_wake(cx);
                has_waited |= wake.is_pending();
                wake
            });
            let wake = wake.await;
            if has_waited {
                // The others had their turn.
                turns = 0;
            }
            let worked = match wake {
                Wake::Input(mut scratch, n) => {
                    let input = std::mem::take(&mut scratch.input);
                    let worked = self.work(&input[..n], &mut scratch);
                    scratch.input = input;
                    scratch.put_back();
                    worked
                }
                Wake::Again => {
                    let backlog = std::mem::take(&mut self.backlog);
                    let mut scratch = Scratch::take();
                    let worked = self.work(&backlog, &mut scratch);
                    scratch.put_back();
                    worked
                }
                Wake::End => break,
            };
            if let Err(error) = worked {
                tracing::debug!(connection = ?self.connection, %error, "dropping a connection");
                break;
            }
        }
        self.connection.close();
        if let Some(job) = self.stalled.take() {
            // One a connection, so room need not be asked for.
            self.connection.core.pool.push(job);
        }
    }

    fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<Wake> {
        // First of all, so that what changes from here on wakes this task again.
        self.connection.kick.poll(cx);
        if self.connection.is_closed() {
            return Poll::Ready(Wake::End);
        }
        while self.connection.output.is_blocked() {
            match self.read.as_ref().poll_write_ready(cx) {
                Poll::Ready(Ok(())) => self.connection.drain(),
                Poll::Ready(Err(_)) => return Poll::Ready(Wake::End),
                Poll::Pending => break,
            }
        }
        if !self.push_stalled() || self.must_rest() {
            return Poll::Pending;
        }
        if !self.connection.may_read() {
            self.connection.pause_reading();
            if !self.connection.may_read() {
                return Poll::Pending;
            }
        }
        if !self.backlog.is_empty() {
            return Poll::Ready(Wake::Again);
        }
        if self.is_at_end || self.connection.core.is_draining() {
            // What was asked before the end of input is still answered (a client may shut down its half).
            self.connection.pause_reading();
            return if self.connection.is_quiet() { Poll::Ready(Wake::End) } else { Poll::Pending };
        }
        self.connection.is_paused.store(false, Ordering::Relaxed);
        self.poll_input(cx)
    }

    /// Whether the server holds still. What was read and not handled is then left where the handover finds it.
    fn must_rest(&mut self) -> bool {
        let is_holding = self.connection.core.is_holding();
        if is_holding != self.is_resting {
            self.is_resting = is_holding;
            let left = || Unread { bytes: self.unread(), is_at_end: self.is_at_end };
            *self.connection.unread.lock() = is_holding.then(left);
        }
        is_holding
    }

    /// The input that was not handled, as it came but for the bounds of fragments.
    fn unread(&self) -> Vec<u8> {
        let mut bytes = self.assembler.begun();
        bytes.extend_from_slice(&self.backlog);
        bytes
    }

    /// Gives the pool the call it had no room for; false when there still is none.
    fn push_stalled(&mut self) -> bool {
        let Some(job) = self.stalled.take() else { return true };
        self.stalled = self.connection.core.pool.try_push(job, &self.connection).err();
        self.stalled.is_none()
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Wake> {
        if let Some(mut room) = self.assembler.room() {
            let n = std::task::ready!(poll_read_to(&mut self.read, &mut room, cx));
            return Poll::Ready(match n {
                Ok(n) if n > 0 => {
                    self.assembler.filled(n);
                    Wake::Again
                }
                _ => Wake::End,
            });
        }
        let mut scratch = Scratch::take();
        let mut buf = ReadBuf::new(&mut scratch.input);
        let polled = Pin::new(&mut self.read).poll_read(cx, &mut buf);
        let n = buf.filled().len();
        match polled {
            Poll::Ready(Ok(())) if n > 0 => Poll::Ready(Wake::Input(scratch, n)),
            Poll::Ready(Ok(())) => {
                scratch.put_back();
                self.is_at_end = true;
                Poll::Ready(Wake::Again)
            }
            Poll::Ready(Err(_)) => {
                scratch.put_back();
                Poll::Ready(Wake::End)
            }
            Poll::Pending => {
                scratch.put_back();
                Poll::Pending
            }
        }
    }

    /// Handles the records in `input`.
    fn work(&mut self, mut input: &[u8], scratch: &mut Scratch) -> Result<(), RecordError> {
        let connection = Arc::clone(&self.connection);
        let tick = connection.core.tick();
        connection.active_at.store(tick, Ordering::Relaxed);
        let (mut handled, mut has_others) = (0usize, false);
        let _handling = batch::handling();
        while self.stalled.is_none() && connection.may_read() {
            let Some(assembled) = self.assembler.next(&mut input)? else { break };
            handled += 1;
            let record = assembled.record().followed_by(input);
            let replies = &mut scratch.replies;
            let step = dispatch::handle(&connection, record, &mut self.auths, replies, &mut has_others);
            record::recycle(assembled);
            match step {
                Step::Reply => gather(&connection, &mut scratch.replies),
                Step::ReplyFile(file) => {
                    connection.send(scratch.replies.all(), Some(file));
                    scratch.replies.clear();
                }
                Step::Nothing => {}
                Step::Stalled(job) => self.stalled = Some(job),
                Step::Close => {
                    connection.close();
                    return Ok(());
                }
            }
        }
        // Of a call that is not answered yet nothing is sent.
        scratch.replies.truncate(0);
        if !scratch.replies.all().is_empty() {
            connection.send(scratch.replies.all(), None);
            scratch.replies.clear();
        }
        self.backlog.extend_from_slice(input);
        self.note_partial(handled, tick);
        Ok(())
    }

    /// Tells the server's clock since when a record is not whole.
    fn note_partial(&self, handled: usize, tick: u32) {
        let connection = &self.connection;
        if !self.assembler.is_partial() {
            connection.partial_since.store(0, Ordering::Relaxed);
        } else if handled > 0 || connection.partial_since.load(Ordering::Relaxed) == 0 {
            connection.partial_since.store(tick, Ordering::Relaxed);
        }
        let held = self.assembler.held_bytes() + self.backlog.capacity();
        connection.partial_bytes.store(held, Ordering::Relaxed);
    }
}

/// Leaves a reply with the others of the wake-up; sends them when they are many, or this one is large.
fn gather(connection: &Arc<Connection>, replies: &mut Writer) {
    let is_large = replies.len() > GATHER_BYTES_MAX;
    replies.begin_next();
    if is_large || replies.all().len() > OUTPUT_FLUSH_BYTES {
        connection.send(replies.all(), None);
        replies.clear();
    }
}

fn poll_read_to(
    read: &mut OwnedReadHalf,
    room: &mut Limit<&mut BytesMut>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    pin!(read.read_buf(room)).poll(cx)
}
