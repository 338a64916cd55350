//! The answer to a client's last CREATE_SESSION, as part of its record: its reply cache of one slot (RFC 8881 section
//! 18.36.4) that outlives the server.

use holdfast_base::{Seqid, SessionId};
use holdfast_xdr::{Decode, Encode, Error, Reader, Writer};

use crate::records::ChannelRecord;

/// The last CREATE_SESSION that made a session, and what a retry of it is answered. The session may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedRecord {
    /// Its number: `csa_sequence`.
    pub seqid: Seqid,
    /// The session it made.
    pub session: SessionId,
    /// The fore channel as it was granted.
    pub fore: ChannelRecord,
    /// The back channel as it was granted; without slots when none was.
    pub back: ChannelRecord,
    /// `csr_flags`.
    pub flags: u32,
}

impl CreatedRecord {
    /// Whether it came after another of the same client, or is it once more. Numbers wrap.
    #[must_use]
    pub const fn is_not_before(&self, other: &Self) -> bool {
        self.seqid.0.wrapping_sub(other.seqid.0) <= u32::MAX / 2
    }
}

impl Encode for CreatedRecord {
    fn encode(&self, w: &mut Writer) {
        self.seqid.encode(w);
        self.session.encode(w);
        self.fore.encode(w);
        self.back.encode(w);
        w.u32(self.flags);
    }
}

impl Decode<'_> for CreatedRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            seqid: Seqid::decode(r)?,
            session: SessionId::decode(r)?,
            fore: ChannelRecord::decode(r)?,
            back: ChannelRecord::decode(r)?,
            flags: r.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_they_wrap() {
        let numbered = |n| CreatedRecord {
            seqid: Seqid(n),
            session: SessionId([0; 16]),
            fore: ChannelRecord::default(),
            back: ChannelRecord::default(),
            flags: 0,
        };
        for (n, other, is_not_before) in
            [(2, 1, true), (1, 1, true), (1, 2, false), (0, u32::MAX, true), (u32::MAX, 0, false)]
        {
            assert_eq!(numbered(n).is_not_before(&numbered(other)), is_not_before, "{n} and {other}");
        }
    }
}
