//! Telling a local rpcbind where our programs listen, for clients that ask port 111. Optional in every respect:
//! stock clients are told the port at mount, and failing to register is the caller's to warn about.
//!
//! The local socket speaks rpcbind version 4 (RFC 1833 section 2.1) and proves who we are; where there is none,
//! the port mapper of version 2 on 127.0.0.1 is asked, which knows IPv4 only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdfast_xdr::{Reader, Writer};

use crate::auth::Auth;
use crate::callback::{CallError, OutgoingCall};
use crate::client::Caller;

const PROGRAM: u32 = 100_000;
const PORTMAP_VERSION: u32 = 2;
const RPCBIND_VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
const TCP: u32 = 6;

/// Where rpcbind listens locally.
const LOCAL_SOCKET: &str = "/run/rpcbind.sock";
const PORTMAP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

/// For all calls of one registration together: the server's start waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program version at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Where it listens, over TCP.
    pub address: SocketAddr,
}

/// Why a registration failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// No rpcbind answers here.
    #[error("no rpcbind answers: {0}")]
    NoAnswer(CallError),
    /// It does not want this: somebody else has it, or we are not root.
    #[error("rpcbind refuses {0:?}")]
    Refused(Mapping),
}

/// Registers all mappings in place of what stood there; stops at the first that fails.
///
/// # Errors
/// [`RegisterError`].
pub async fn register(mappings: &[Mapping]) -> Result<(), RegisterError> {
    within(register_at(Path::new(LOCAL_SOCKET), PORTMAP, mappings)).await
}

/// Takes all mappings back.
///
/// # Errors
/// [`RegisterError::NoAnswer`]; that a mapping was not there is none.
pub async fn unregister(mappings: &[Mapping]) -> Result<(), RegisterError> {
    within(unregister_at(Path::new(LOCAL_SOCKET), PORTMAP, mappings)).await
}

async fn within(work: impl Future<Output = Result<(), RegisterError>> + Send) -> Result<(), RegisterError> {
    let late = Err(RegisterError::NoAnswer(CallError::TimedOut));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(late)
}

async fn register_at(socket: &Path, portmap: SocketAddr, mappings: &[Mapping]) -> Result<(), RegisterError> {
    unregister_at(socket, portmap, mappings).await?;
    let mut binder = Binder::connect(socket, portmap).await?;
    for mapping in mappings {
        if !binder.ask(SET, mapping).await? {
            return Err(RegisterError::Refused(*mapping));
        }
    }
    Ok(())
}

async fn unregister_at(
    socket: &Path,
    portmap: SocketAddr,
    mappings: &[Mapping],
) -> Result<(), RegisterError> {
    let mut binder = Binder::connect(socket, portmap).await?;
    for mapping in mappings {
        binder.ask(UNSET, mapping).await?;
    }
    Ok(())
}

struct Binder {
    caller: Caller,
    version: u32,
}

impl Binder {
    async fn connect(socket: &Path, portmap: SocketAddr) -> Result<Self, RegisterError> {
        if let Ok(caller) = Caller::connect_local(socket, PATIENCE).await {
            return Ok(Self { caller, version: RPCBIND_VERSION });
        }
        let caller = Caller::connect(portmap, PATIENCE).await;
        let caller = caller.map_err(|_| RegisterError::NoAnswer(CallError::Closed))?;
        Ok(Self { caller, version: PORTMAP_VERSION })
    }

    /// Asks for SET or UNSET; whether it was done.
    async fn ask(&mut self, procedure: u32, mapping: &Mapping) -> Result<bool, RegisterError> {
        if self.version == PORTMAP_VERSION && mapping.address.is_ipv6() {
            return Ok(true);
        }
        let args = match self.version {
            PORTMAP_VERSION => portmap_args(mapping),
            _ => rpcbind_args(mapping),
        };
        let (version, args) = (self.version, args.as_slice());
        let call = OutgoingCall { program: PROGRAM, version, procedure, auth: &Auth::None, args };
        let results = self.caller.call(&call, PATIENCE).await.map_err(RegisterError::NoAnswer)?;
        Ok(Reader::new(&results).u32() == Ok(1))
    }
}

/// `struct mapping` (RFC 1833 section 3.1).
fn portmap_args(mapping: &Mapping) -> Writer {
    let mut w = Writer::new();
    for word in [mapping.program, mapping.version, TCP, u32::from(mapping.address.port())] {
        w.u32(word);
    }
    w
}

/// `struct rpcb` (RFC 1833 section 2.1).
fn rpcbind_args(mapping: &Mapping) -> Writer {
    let mut w = Writer::new();
    w.u32(mapping.program);
    w.u32(mapping.version);
    w.opaque(if mapping.address.is_ipv6() { b"tcp6" } else { b"tcp" });
    w.opaque(universal(mapping.address).as_bytes());
    // The owner: rpcbind puts the socket's peer in its place.
    w.opaque(b"superuser");
    w
}

/// A universal address (RFC 5665 section 5.2.3): the address, then the port's two bytes.
#[must_use]
pub fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn universal_addresses_end_in_the_ports_bytes() {
        assert_eq!(universal("192.0.2.1:2049".parse().unwrap()), "192.0.2.1.8.1");
        assert_eq!(universal("[::]:20490".parse().unwrap()), "::.80.10");
    }

    /// Answers every call with this boolean, and returns the procedures asked for.
    async fn portmap(listener: TcpListener, answer: u32) -> Vec<u32> {
        let mut procedures = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut call = [0; 60];
            while stream.read_exact(&mut call).await.is_ok() {
                procedures.push(u32::from_be_bytes(call[24..28].try_into().unwrap()));
                let mut reply = Writer::new();
                message_reply(&mut reply, &call[4..8]);
                reply.u32(answer);
                crate::message::seal(&mut reply, 0);
                stream.write_all(reply.as_slice()).await.unwrap();
                if procedures.len() == 2 {
                    return procedures;
                }
            }
        }
        procedures
    }

    fn message_reply(w: &mut Writer, xid: &[u8]) {
        crate::message::begin_reply(w, u32::from_be_bytes(xid.try_into().unwrap()));
    }

    #[tokio::test]
    async fn a_mapping_is_unset_then_set_with_the_port_mapper() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(portmap(listener, 1));
        let mapping = Mapping { program: 100_003, version: 3, address: "127.0.0.1:2049".parse().unwrap() };
        assert_eq!(register_at(Path::new("/nonexistent"), address, &[mapping]).await, Ok(()));
        assert_eq!(server.await.unwrap(), [UNSET, SET]);
    }

    #[tokio::test]
    async fn a_refusal_and_a_missing_rpcbind_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(portmap(listener, 0));
        let mapping = Mapping { program: 100_003, version: 3, address: "127.0.0.1:2049".parse().unwrap() };
        let refused = register_at(Path::new("/nonexistent"), address, &[mapping]).await;
        assert_eq!(refused, Err(RegisterError::Refused(mapping)));
        server.await.unwrap();
        let nobody = register_at(Path::new("/nonexistent"), address, &[mapping]).await;
        assert_eq!(nobody, Err(RegisterError::NoAnswer(CallError::Closed)));
    }
}
