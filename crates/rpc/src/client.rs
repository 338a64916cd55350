//! A thin caller: connects, asks one thing at a time, within a deadline. For the callbacks of NFSv4.0, which go to
//! an address of the client's, and for rpcbind.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdfast_base::limits::CALL_BACK_REPLY_BYTES_MAX;
use holdfast_xdr::Writer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::callback::{CallError, OutgoingCall};
use crate::message::{self, Message};
use crate::record::Assembler;

/// Answers to calls given up earlier that are passed over before the one expected.
const STALE_ANSWERS_MAX: usize = 8;

/// When a call by UDP is first sent again; later after twice as long each time.
const DATAGRAM_PAUSE: Duration = Duration::from_millis(500);

/// Ports of the superuser's that no service is known by, as glibc's `bindresvport` has them.
const RESERVED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

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
        Self::connect_from(None, address, patience).await
    }

    /// The same from an address of ours, any port.
    ///
    /// # Errors
    /// Those of [`Caller::connect`], and those of binding.
    pub async fn connect_from(
        from: Option<IpAddr>,
        address: SocketAddr,
        patience: Duration,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(from) = from.filter(|from| from.is_ipv4() == address.is_ipv4()) {
            socket.bind((from, 0).into())?;
        }
        let stream = tokio::time::timeout(patience, socket.connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self::over(Box::new(stream)))
    }

    /// The same from a port that only the superuser gets, where there is one: by it programs of one host know each other.
    ///
    /// # Errors
    /// Those of [`Caller::connect`].
    pub async fn connect_reserved(from: IpAddr, address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let until = Instant::now() + patience;
        for port in RESERVED_PORTS.rev() {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            match socket.bind((from, port).into()) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => continue,
                Err(_) => break,
            }
            match timeout_at(until, socket.connect(address)).await? {
                // The pair of ports was used a moment ago.
                Err(e) if matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => {}
                Err(e) => return Err(e),
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::over(Box::new(stream)));
                }
            }
        }
        Self::connect_from(Some(from), address, until.saturating_duration_since(Instant::now())).await
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
    call_once_from(None, address, call, patience).await
}

/// The same from an address of ours: peers of NLM and NSM know us by it.
///
/// # Errors
/// Those of [`call_once`]; [`CallError::Closed`] also when the address is not ours any more.
pub async fn call_once_from(
    from: Option<IpAddr>,
    address: SocketAddr,
    call: &OutgoingCall<'_>,
    patience: Duration,
) -> Result<Vec<u8>, CallError> {
    let deadline = Instant::now() + patience;
    let mut caller = Caller::connect_from(from, address, patience).await.map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => CallError::TimedOut,
        _ => CallError::Closed,
    })?;
    caller.call(call, deadline.saturating_duration_since(Instant::now())).await
}

/// Calls once by UDP, from an address of ours where one is given, and sends again until there is an answer or
/// `patience` is over.
///
/// # Errors
/// Any [`CallError`]; [`CallError::Closed`] when nobody listens there.
pub async fn call_datagram(
    from: Option<IpAddr>,
    address: SocketAddr,
    call: &OutgoingCall<'_>,
    patience: Duration,
) -> Result<Vec<u8>, CallError> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = from.filter(|from| from.is_ipv4() == address.is_ipv4()).unwrap_or(any);
    let socket = UdpSocket::bind((from, 0)).await.map_err(|_| CallError::Closed)?;
    // Only what comes from there is read.
    socket.connect(address).await.map_err(|_| CallError::Closed)?;
    // Not to be guessed by others, who might answer in its place.
    let xid = RandomState::new().hash_one(address) as u32;
    let mut record = Writer::new();
    message::write_call(&mut record, xid, call);
    let deadline = Instant::now() + patience;
    let mut pause = DATAGRAM_PAUSE;
    while Instant::now() < deadline {
        socket.send(&record.as_slice()[4..]).await.map_err(|_| CallError::Closed)?;
        let until = deadline.min(Instant::now() + pause);
        if let Ok(answer) = timeout_at(until, answer_to(&socket, xid)).await {
            return answer;
        }
        pause *= 2;
    }
    Err(CallError::TimedOut)
}

async fn answer_to(socket: &UdpSocket, xid: u32) -> Result<Vec<u8>, CallError> {
    let mut buf = vec![0; CALL_BACK_REPLY_BYTES_MAX];
    loop {
        let n = socket.recv(&mut buf).await.map_err(|_| CallError::Closed)?;
        if let Ok(Message::Reply(of, result)) = message::read(&buf[..n])
            && of == xid
        {
            return result.map(<[u8]>::to_vec);
        }
    }
}
