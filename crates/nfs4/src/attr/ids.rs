//! Owners and groups as text (RFC 8881 section 5.9): numbers, or names of a domain.

use holdfast_xdr::Writer;

/// Turns user and group ids into the text of `owner` and `owner_group`, and back. Answers come from memory:
/// neither way waits.
pub trait IdNames: Send + Sync {
    /// Writes a user's text, as opaque data.
    fn write_user(&self, uid: u32, to: &mut Writer);

    /// Writes a group's text, as opaque data.
    fn write_group(&self, gid: u32, to: &mut Writer);

    /// The user of a text.
    fn user(&self, text: &[u8]) -> Id;

    /// The group of a text.
    fn group(&self, text: &[u8]) -> Id;
}

/// What a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// This user or group.
    Known(u32),
    /// Nobody: NFS4ERR_BADOWNER.
    Unknown,
    /// It is being asked for: NFS4ERR_DELAY.
    NotYet,
}

impl From<Option<u32>> for Id {
    fn from(id: Option<u32>) -> Self {
        id.map_or(Self::Unknown, Self::Known)
    }
}

/// Ids as decimal numbers, which Linux clients send and take under AUTH_SYS (RFC 8881 section 5.9,
/// `nfs4_disable_idmapping`).
#[derive(Clone, Copy, Debug)]
pub struct NumericIds;

impl IdNames for NumericIds {
    fn write_user(&self, uid: u32, to: &mut Writer) {
        write_number(uid, to);
    }

    fn write_group(&self, gid: u32, to: &mut Writer) {
        write_number(gid, to);
    }

    fn user(&self, text: &[u8]) -> Id {
        parse_number(text).into()
    }

    fn group(&self, text: &[u8]) -> Id {
        parse_number(text).into()
    }
}

fn write_number(mut n: u32, to: &mut Writer) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    to.opaque(&digits[at..]);
}

/// The number that a text is.
///
/// Digits alone, without leading zeros: "0x10", "+1" and "01" are names, and as such unknown.
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<u32> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
            // Digits are ASCII; more than 32 bits hold fails here.
            std::str::from_utf8(text).ok()?.parse().ok().filter(|n| *n != u32::MAX)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_linux_reads_them() {
        for (n, text) in [(0, "0"), (7, "7"), (65534, "65534"), (u32::MAX - 1, "4294967294")] {
            let mut w = Writer::new();
            NumericIds.write_user(n, &mut w);
            let mut expected = Writer::new();
            expected.opaque(text.as_bytes());
            assert_eq!(w.as_slice(), expected.as_slice());
            assert_eq!(NumericIds.group(text.as_bytes()), Id::Known(n));
        }
    }

    #[test]
    fn what_is_no_plain_number_is_no_owner() {
        for text in ["", "01", "+1", "-1", "1 ", "root", "1@x", "4294967295", "99999999999"] {
            assert_eq!(NumericIds.user(text.as_bytes()), Id::Unknown, "{text:?}");
        }
    }
}
