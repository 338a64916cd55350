//! The echo server: reads records and answers each with one as long as it asks for. One thread a connection, one
//! read for all calls that have come, one write for all their replies: nothing is left that could be saved.
//!
//! A call is its number, the reply's length in bytes, and whatever makes it as long as wanted. The reply is the
//! number and zeros.

use crate::client::record::{self, Records};
use anyhow::{Context, Result};
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::thread;

/// Bytes of a reply at most.
const REPLY_BYTES_MAX: usize = 2 << 20;

/// Serves on an address until the process ends.
///
/// Errors when it cannot be had.
pub(crate) fn serve(address: SocketAddrV4) -> Result<()> {
    let listener = TcpListener::bind(address).context("the echo server's address")?;
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        thread::spawn(move || {
            // A client that went away is no fault of ours.
            let _ = serve_one(stream);
        });
    }
    Ok(())
}

fn serve_one(mut stream: TcpStream) -> Result<()> {
    let (mut records, mut replies) = (Records::new(), Vec::new());
    while records.read_from(&mut stream)? > 0 {
        replies.clear();
        while let Some(call) = records.next()? {
            let (xid, rest) = call.split_at_checked(4).context("a short call")?;
            let wanted = rest.first_chunk::<4>().context("a short call")?;
            let bytes = (u32::from_be_bytes(*wanted) as usize).clamp(4, REPLY_BYTES_MAX);
            replies.extend_from_slice(&record::mark(bytes));
            replies.extend_from_slice(xid);
            replies.resize(replies.len() + bytes - 4, 0);
        }
        stream.write_all(&replies)?;
    }
    Ok(())
}
