//! The connection to the server's socket.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// What is said first.
const GREETING: [u8; 8] = *b"HFlocal1";

const GIVEN: u8 = 0;

/// A server that takes longer is not one to wait for.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Link(UnixStream);

impl Link {
    /// Goes there and says the nonce; `None` where nobody expects that.
    ///
    /// # Errors
    /// Those of the system: nobody is there, for instance because it is another host.
    pub(super) fn connect(path: &Path, nonce: &[u8; 16]) -> io::Result<Option<Self>> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&[&GREETING[..], nonce].concat())?;
        let mut answer = [0; 1];
        stream.read_exact(&mut answer)?;
        Ok((answer[0] == GIVEN).then_some(Self(stream)))
    }

    /// The descriptor behind a token; `None` where there is none.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn fetch(&mut self, token: &[u8; 16]) -> io::Result<Option<OwnedFd>> {
        self.0.write_all(token)?;
        let mut answer = [0; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut answer)];
        let received = loop {
            match recvmsg(self.0.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rights = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        Ok(rights.filter(|_| answer[0] == GIVEN))
    }
}
