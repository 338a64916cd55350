//! What is said over one connection: the visitor's nonce first, then tokens, each answered by a descriptor or by none.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::SAME_HOST_WAIT_MS;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::table::{Secret, Visit};
use super::{Seat, Shared};

/// What a visitor begins with: so that what came here by mistake is not taken for one.
const GREETING: [u8; 8] = *b"HFlocal1";

/// The answers.
const GIVEN: u8 = 0;
const REFUSED: u8 = 1;

/// Until the visitor leaves.
pub(super) fn with(shared: &Arc<Shared>, stream: &UnixStream, mut seat: Seat) {
    let Ok(Some(visit)) = greeted(shared, stream) else { return };
    seat.known();
    // How it ended is nobody's concern: he who was cut off comes again.
    let _ = serve(shared, stream, visit);
    shared.go(visit);
}

fn greeted(shared: &Shared, mut stream: &UnixStream) -> io::Result<Option<Visit>> {
    stream.set_read_timeout(Some(Duration::from_millis(SAME_HOST_WAIT_MS)))?;
    stream.set_write_timeout(Some(Duration::from_millis(SAME_HOST_WAIT_MS)))?;
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting)?;
    let mut nonce: Secret = [0; 16];
    stream.read_exact(&mut nonce)?;
    stream.set_read_timeout(None)?;
    let visit = if greeting == GREETING { shared.come(&nonce, stream) } else { None };
    let answered = stream.write_all(&[if visit.is_some() { GIVEN } else { REFUSED }]);
    if let (Err(error), Some(visit)) = (answered, visit) {
        shared.go(visit);
        return Err(error);
    }
    Ok(visit)
}

fn serve(shared: &Shared, mut stream: &UnixStream, visit: Visit) -> io::Result<()> {
    loop {
        let mut token: Secret = [0; 16];
        stream.read_exact(&mut token)?;
        let found = shared.table.lock().take(visit, &token, Instant::now());
        match found {
            Some(descriptor) => give(stream.as_fd(), &descriptor)?,
            None => stream.write_all(&[REFUSED])?,
        }
    }
}

fn give(stream: BorrowedFd<'_>, descriptor: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [descriptor.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(stream, &[IoSlice::new(&[GIVEN])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
