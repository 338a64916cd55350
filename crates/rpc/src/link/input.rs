//! What comes: records, read by one thread. A record that lies whole in the input buffer is copied out of it; the rest
//! of a longer one is read to where it stays.

use std::net::TcpStream;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read};

use holdfast_base::limits::{LINK_INPUT_BYTES, LINK_RECORD_BYTES_MAX, RECORD_FRAGMENTS_MAX};
use holdfast_wire::rpc::AcceptStat;

use super::calls::Reply;
use super::{Inner, Link, Owner, PeerCall, Target};
use crate::message::{self, Failure, HeaderError, Message};

/// Reads until the link breaks, then tells everybody.
pub(super) fn run(inner: &Arc<Inner>, owner: &Weak<Owner>) {
    let mut input = Input { socket: &inner.socket, buffer: Vec::with_capacity(LINK_INPUT_BYTES), at: 0 };
    while let Some(record) = input.record() {
        if !take(inner, owner, &record) {
            break;
        }
    }
    inner.close();
    if let Some(owner) = owner.upgrade() {
        inner.peer.broke(&Link(Arc::clone(inner), owner));
    }
}

/// Handles one record; false when the peer makes no sense.
fn take(inner: &Arc<Inner>, owner: &Weak<Owner>, record: &Bytes) -> bool {
    let at = |rest: &[u8]| record.len() - rest.len();
    match message::read(record) {
        Ok(Message::Reply(xid, outcome)) => {
            let outcome = outcome.map(|results| Reply::new(record.clone(), at(results)));
            // Nobody waits for what was given up.
            inner.calls.finish(xid, outcome);
            true
        }
        Ok(Message::Call(call)) => {
            let Some(owner) = owner.upgrade() else { return false };
            let target =
                Target { program: call.body.prog, version: call.body.vers, procedure: call.body.proc };
            let args = record.slice(at(call.args.rest())..);
            inner.peer.called(PeerCall { target, args, xid: call.xid, link: Link(Arc::clone(inner), owner) });
            true
        }
        Err(HeaderError::Answer(xid, why)) => {
            let Some(owner) = owner.upgrade() else { return false };
            let stat = match why {
                Failure::Accepted(stat) => stat,
                Failure::Denied(_) => AcceptStat::GarbageArgs,
            };
            let target = Target { program: 0, version: 0, procedure: 0 };
            PeerCall { target, args: Bytes::new(), xid, link: Link(Arc::clone(inner), owner) }.refuse(stat);
            true
        }
        Err(HeaderError::NotRpc) => false,
    }
}

struct Input<'a> {
    socket: &'a TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer was taken.
    at: usize,
}

impl Input<'_> {
    /// The next record; nothing when the stream ended or breaks a bound.
    fn record(&mut self) -> Option<Bytes> {
        let mut gathered = Vec::new();
        for _ in 0..RECORD_FRAGMENTS_MAX {
            let header = self.header()?;
            let length = (header & 0x7fff_ffff) as usize;
            if gathered.len() + length > LINK_RECORD_BYTES_MAX {
                return None;
            }
            let is_last = header >> 31 == 1;
            if is_last && gathered.is_empty() && length <= self.buffer.len() - self.at {
                self.at += length;
                return Some(Bytes::copy_from_slice(&self.buffer[self.at - length..self.at]));
            }
            self.gather(&mut gathered, length)?;
            if is_last {
                return Some(gathered.into());
            }
        }
        None
    }

    fn header(&mut self) -> Option<u32> {
        while self.buffer.len() - self.at < 4 {
            self.buffer.drain(..self.at);
            self.at = 0;
            fill(self.socket, &mut self.buffer)?;
        }
        let header = self.buffer[self.at..].first_chunk::<4>()?;
        self.at += 4;
        Some(u32::from_be_bytes(*header))
    }

    /// Appends a fragment: what is in the buffer, then straight from the socket.
    fn gather(&mut self, gathered: &mut Vec<u8>, length: usize) -> Option<()> {
        gathered.reserve_exact(length);
        let whole = gathered.len() + length;
        let here = length.min(self.buffer.len() - self.at);
        gathered.extend_from_slice(&self.buffer[self.at..self.at + here]);
        self.at += here;
        while gathered.len() < whole {
            // Room for exactly the rest, so that nothing of the next record is taken.
            let mut rest = std::mem::take(gathered);
            if rest.capacity() > whole {
                let mut part = Vec::with_capacity(whole - rest.len());
                fill(self.socket, &mut part)?;
                rest.extend_from_slice(&part);
            } else {
                fill(self.socket, &mut rest)?;
            }
            *gathered = rest;
        }
        Some(())
    }
}

/// Reads once into what room there is.
fn fill(socket: &TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    loop {
        match read(socket, spare_capacity(buffer)) {
            Ok(0) => return None,
            Ok(_) => return Some(()),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
