//! A connection of ours to somebody's programs, for callers that block: many calls under way at once over one TCP
//! connection, each caller writing its own call and sleeping until the one reading thread wakes it. Calls of the
//! peer's over the same connection (the back channel of NFSv4.1) are handed to a [`Peer`].
//!
//! A link that broke stays broken: making another, and asking again what was under way, is for the layer above.

mod calls;
mod cancel;
mod connect;
mod input;
mod output;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use holdfast_wire::rpc::{
    AcceptStat, AcceptedReply, MsgType, OpaqueAuth, RPC_VERSION, ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Encode, Writer};

use crate::callback::CallError;
use crate::message;
use crate::record;

pub use calls::{Pending, Reply};
pub use cancel::{Cancel, Stopped, Wakers};
pub use connect::LinkOptions;

/// What to call.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
}

/// A credential as a call carries it, with the verifier that goes with it: encoded once, used in every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedAuth(Arc<[u8]>);

impl EncodedAuth {
    /// Encodes a credential.
    #[must_use]
    pub fn new(auth: &crate::Auth) -> Self {
        let mut w = Writer::new();
        auth.encode(&mut w);
        crate::Auth::None.encode(&mut w);
        Self(w.as_slice().into())
    }
}

/// A call of the peer's.
#[derive(Debug)]
pub struct PeerCall {
    /// What is called.
    pub target: Target,
    /// Its encoded arguments.
    pub args: Bytes,
    xid: u32,
    link: Link,
}

impl PeerCall {
    /// Answers with encoded results.
    pub fn answer(self, results: &[u8]) {
        let mut w = Writer::new();
        message::begin_reply(&mut w, self.xid);
        w.put(results);
        message::seal(&mut w, 0);
        self.link.0.output.push(w.into_vec().into());
    }

    /// Answers that it was not run.
    pub fn refuse(self, stat: AcceptStat) {
        let mut w = Writer::new();
        w.u32(0);
        let body = ReplyBody::Accepted(AcceptedReply { verf: OpaqueAuth::NONE, stat });
        ReplyHeader { xid: self.xid, mtype: MsgType::Reply, body }.encode(&mut w);
        message::seal(&mut w, 0);
        self.link.0.output.push(w.into_vec().into());
    }

    /// The link it came over.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.link
    }
}

/// Who hears what a link's peer does by itself. Runs on the reading thread: nothing here may block.
pub trait Peer: Send + Sync {
    /// The peer calls.
    fn called(&self, call: PeerCall);
    /// The link broke; every call under way has been told.
    fn broke(&self, link: &Link);
}

/// One connection. Clones are the same connection; when only its own threads know it any more it is closed.
#[derive(Clone)]
pub struct Link(Arc<Inner>, Arc<Owner>);

struct Inner {
    socket: TcpStream,
    address: SocketAddr,
    calls: calls::Calls,
    output: output::Output,
    peer: Arc<dyn Peer>,
}

/// Closes the connection when nobody holds it any more: the threads hold only [`Inner`].
struct Owner(std::sync::Weak<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.close();
        }
    }
}

impl Inner {
    fn close(&self) {
        // Fails where it is closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.output.close();
        self.calls.close();
    }
}

impl Link {
    /// Connects and starts the threads of the link.
    ///
    /// # Errors
    /// Those of connecting; `TimedOut` after the time the options give.
    pub fn connect(address: SocketAddr, options: &LinkOptions, peer: Arc<dyn Peer>) -> io::Result<Self> {
        let socket = connect::open(address, options)?;
        let output = output::Output::new(socket.try_clone()?);
        let inner = Arc::new(Inner { socket, address, calls: calls::Calls::new(), output, peer });
        let link = Self(Arc::clone(&inner), Arc::new(Owner(Arc::downgrade(&inner))));
        let (reader, writer) = (Arc::clone(&inner), inner);
        // The reading thread hands out links to those who hear of calls, without keeping the connection open itself.
        let owner = Arc::downgrade(&link.1);
        std::thread::Builder::new().name("link-write".into()).spawn(move || writer.output.run())?;
        std::thread::Builder::new().name("link-read".into()).spawn(move || input::run(&reader, &owner))?;
        Ok(link)
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether it broke.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.calls.is_closed()
    }

    /// Breaks it.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether the two are the same connection.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sends a call whose arguments are `args`, one part after the other; the parts are not copied where the
    /// connection takes them at once.
    ///
    /// # Errors
    /// [`CallError::Closed`] when the link is broken, [`CallError::Busy`] when too many calls are unanswered,
    /// [`CallError::TimedOut`] when `deadline` passed or `cancel` was given before anything was sent.
    pub fn start(
        &self,
        target: Target,
        auth: &EncodedAuth,
        args: &[Bytes],
        (cancel, deadline): (&Cancel, Option<Instant>),
    ) -> Result<Pending, CallError> {
        self.0.output.wait_for_room(cancel, deadline).map_err(|_| CallError::TimedOut)?;
        let pending = self.0.calls.begin(&self.0)?;
        let bytes: usize = args.iter().map(Bytes::len).sum();
        let first = args.first().map_or(0, |first| if args.len() == 1 { first.len() } else { 0 });
        let mut w = Writer::from_vec(Vec::with_capacity(64 + auth.0.len() + first));
        let head = [0, pending.xid(), MsgType::Call as u32, RPC_VERSION];
        head.iter().chain(&[target.program, target.version, target.procedure]).for_each(|word| w.u32(*word));
        w.put(&auth.0);
        let header = record::header_of(w.len() - 4 + bytes);
        let mut vec = w.into_vec();
        vec[..4].copy_from_slice(&header);
        if args.len() == 1 {
            vec.extend_from_slice(&args[0]);
            self.0.output.send(&[vec.into()])?;
        } else {
            let mut parts = Vec::with_capacity(1 + args.len());
            parts.push(Bytes::from(vec));
            parts.extend(args.iter().filter(|part| !part.is_empty()).cloned());
            self.0.output.send(&parts)?;
        }
        Ok(pending)
    }

    /// Sends a call and waits for its answer.
    ///
    /// # Errors
    /// Those of [`Link::start`] and of [`Pending::wait`]; a call given up is passed over when it is answered late.
    pub fn call(
        &self,
        target: Target,
        auth: &EncodedAuth,
        args: &[Bytes],
        (cancel, deadline): (&Cancel, Option<Instant>),
    ) -> Result<Reply, CallError> {
        let pending = self.start(target, auth, args, (cancel, deadline))?;
        pending.wait(cancel, deadline).map_err(|_| CallError::TimedOut)?
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("address", &self.0.address).field("broken", &self.is_broken()).finish()
    }
}

#[cfg(test)]
mod tests;
