//! Messages to the echo server, as long as those of a GETATTR.

use super::pump::{Lane, Load};
use anyhow::{Result, ensure};
use holdfast_xdr::Writer;

/// Bytes of a message and of its reply, without record marks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoLoad {
    /// The call's, the first eight of which are number and reply length.
    pub(crate) call_bytes: usize,
    /// The reply's.
    pub(crate) reply_bytes: usize,
}

impl EchoLoad {
    /// NFSv3 GETATTR with a handle of 32 bytes and AUTH_SYS without groups, and its reply with `fattr3`.
    pub(crate) const GETATTR: Self = Self { call_bytes: 108, reply_bytes: 112 };
}

impl Load for EchoLoad {
    fn encode(&mut self, _: Lane, w: &mut Writer) {
        w.length(self.reply_bytes);
        w.put(&[0; 256][..self.call_bytes - 8]);
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        ensure!(reply.len() == self.reply_bytes, "an echo of {} bytes", reply.len());
        Ok(1)
    }
}
