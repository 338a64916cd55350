//! What is sent: by the caller itself where the connection takes it at once, else by a thread that waits for room.
//! So nobody ever blocks on a server that does not read, and everybody who waits can be woken.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::TcpStream;
use std::time::Instant;

use bytes::{Buf, Bytes};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use holdfast_base::limits::LINK_OUTPUT_BYTES_MAX;

use super::{Cancel, Stopped, Wakers};
use crate::callback::CallError;

/// Parts given to the kernel at once.
const PARTS_AT_ONCE: usize = 64;

pub(super) struct Output {
    socket: TcpStream,
    queue: Mutex<Queue>,
    is_filled: Condvar,
    drained: Wakers,
}

#[derive(Default)]
struct Queue {
    /// What the connection did not take yet, in order.
    parts: VecDeque<Bytes>,
    bytes: usize,
    is_closed: bool,
}

impl Output {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, queue: Mutex::default(), is_filled: Condvar::new(), drained: Wakers::default() }
    }

    /// Waits until less is queued than the bound.
    pub(super) fn wait_for_room(&self, cancel: &Cancel, deadline: Option<Instant>) -> Result<(), Stopped> {
        self.drained.wait(cancel, deadline, || {
            let queue = self.queue.lock();
            (queue.is_closed || queue.bytes < LINK_OUTPUT_BYTES_MAX).then_some(())
        })
    }

    /// Sends the parts of one record, or queues what the connection does not take.
    pub(super) fn send(&self, parts: &[Bytes]) -> Result<(), CallError> {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Err(CallError::Closed);
        }
        let mut sent = 0;
        if queue.parts.is_empty() {
            match self.write(parts.iter()) {
                Ok(n) => sent = n,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The reading thread hears of it too and tells everybody.
                Err(_) => return Err(CallError::Closed),
            }
        }
        let mut is_queued = false;
        for part in parts {
            let skipped = sent.min(part.len());
            sent -= skipped;
            if skipped < part.len() {
                queue.bytes += part.len() - skipped;
                queue.parts.push_back(part.slice(skipped..));
                is_queued = true;
            }
        }
        drop(queue);
        if is_queued {
            self.is_filled.notify_one();
        }
        Ok(())
    }

    /// Sends an answer of ours; where the link is broken nobody waits for it.
    pub(super) fn push(&self, record: Bytes) {
        let _ = self.send(&[record]);
    }

    fn write<'a>(&self, parts: impl Iterator<Item = &'a Bytes>) -> Result<usize, Errno> {
        let slices: Vec<_> = parts.take(PARTS_AT_ONCE).map(|part| IoSlice::new(part)).collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Sends what is queued, until the link is closed.
    pub(super) fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            while queue.parts.is_empty() && !queue.is_closed {
                self.is_filled.wait(&mut queue);
            }
            if queue.is_closed {
                return;
            }
            drop(queue);
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None);
            let mut queue = self.queue.lock();
            match self.write(queue.parts.iter()) {
                Ok(n) => queue.sent(n),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => queue.is_closed = true,
            }
            drop(queue);
            self.drained.wake_all();
        }
    }

    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        queue.parts.clear();
        drop(queue);
        self.is_filled.notify_one();
        self.drained.wake_all();
    }
}

impl Queue {
    fn sent(&mut self, mut n: usize) {
        self.bytes -= n.min(self.bytes);
        while n > 0
            && let Some(part) = self.parts.front_mut()
        {
            if n < part.len() {
                part.advance(n);
                return;
            }
            n -= part.len();
            self.parts.pop_front();
        }
    }
}
