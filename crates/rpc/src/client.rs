//! A thin caller: connects, asks one thing at a time, within a deadline. For the callbacks of NFSv4.0, which go to
//! an address of the client's, and for rpcbind.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use holdfast_base::limits::CALL_BACK_REPLY_BYTES_MAX;
use holdfast_xdr::Writer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::callback::{CallError, OutgoingCall};
use crate::message::{self, Message};
use crate::record::Assembler;

/// Answers to calls given up earlier that are passed over before the one expected.
const STALE_ANSWERS_MAX: usize = 8;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to somebody else's programs.
pub struct Caller {
    stream: Box<dyn Stream>,
    assembler: Assembler,
    xid: u32,
    is_broken: bool,
}

impl Caller {
    /// Connects over TCP within `patience`.
    ///
    /// # Errors
    /// Those of connecting; `TimedOut` after `patience`.
    pub async fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = tokio::time::timeout(patience, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self::over(Box::new(stream)))
    }

    /// Connects to a local socket.
    ///
    /// # Errors
    /// Those of connecting; `TimedOut` after `patience`.
    pub async fn connect_local(path: &Path, patience: Duration) -> io::Result<Self> {
        let stream = tokio::time::timeout(patience, UnixStream::connect(path)).await??;
        Ok(Self::over(Box::new(stream)))
    }

    fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, assembler: Assembler::new(), xid: 0, is_broken: false }
    }

    /// Calls and returns the encoded results. After [`CallError::Closed`], [`CallError::TimedOut`] and
    /// [`CallError::Garbled`] the stream cannot be trusted: further calls answer [`CallError::Closed`].
    ///
    /// # Errors
    /// Any [`CallError`] but [`CallError::Busy`].
    pub async fn call(&mut self, call: &OutgoingCall<'_>, patience: Duration) -> Result<Vec<u8>, CallError> {
        if self.is_broken {
            return Err(CallError::Closed);
        }
        // A future dropped half-way leaves half a record on the stream.
        self.is_broken = true;
        let deadline = Instant::now() + patience;
        let answer = timeout_at(deadline, self.exchange(call)).await.unwrap_or(Err(CallError::TimedOut));
        self.is_broken = matches!(
            answer,
            Err(CallError::Closed | CallError::TimedOut | CallError::Garbled | CallError::Busy)
        );
        answer
    }

    async fn exchange(&mut self, call: &OutgoingCall<'_>) -> Result<Vec<u8>, CallError> {
        self.xid = self.xid.wrapping_add(1);
        let mut record = Writer::new();
        message::write_call(&mut record, self.xid, call);
        self.stream.write_all(record.as_slice()).await.map_err(|_| CallError::Closed)?;
        let mut buf = [0; 4096];
        let mut stale = 0;
        loop {
            let n = self.stream.read(&mut buf).await.map_err(|_| CallError::Closed)?;
            let mut input = &buf[..n];
            if n == 0 || self.assembler.held_bytes() > CALL_BACK_REPLY_BYTES_MAX {
                return Err(if n == 0 { CallError::Closed } else { CallError::Garbled });
            }
            while let Some(assembled) = self.assembler.next(&mut input).map_err(|_| CallError::Garbled)? {
                match message::read(assembled.record().bytes()) {
                    Ok(Message::Reply(xid, result)) if xid == self.xid => return result.map(<[u8]>::to_vec),
                    Ok(Message::Reply(..)) if stale < STALE_ANSWERS_MAX => stale += 1,
                    _ => return Err(CallError::Garbled),
                }
            }
        }
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("is_broken", &self.is_broken).finish_non_exhaustive()
    }
}

/// Connects, calls once, and closes, all within `patience`.
///
/// # Errors
/// Any [`CallError`]; [`CallError::Closed`] when there is no connecting.
pub async fn call_once(
    address: SocketAddr,
    call: &OutgoingCall<'_>,
    patience: Duration,
) -> Result<Vec<u8>, CallError> {
    let deadline = Instant::now() + patience;
    let mut caller = Caller::connect(address, patience).await.map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => CallError::TimedOut,
        _ => CallError::Closed,
    })?;
    caller.call(call, deadline.saturating_duration_since(Instant::now())).await
}
