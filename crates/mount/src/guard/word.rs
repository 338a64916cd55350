//! What a daemon says to its guard, a line each. A line that is not whole says nothing.

use std::fmt;
use std::str::FromStr;

use holdfast_client::KnownAs;

/// One of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// The server there knows the mount's client by this.
    Known(KnownAs),
    /// The mount is gone; what was taken in may still be on its way to the server.
    Unmounted,
    /// The daemon ends as it should.
    Over,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(KnownAs { owner, address, minor }) => {
                write!(f, "known {address} {minor} ")?;
                owner.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Unmounted => f.write_str("unmounted"),
            Self::Over => f.write_str("over"),
        }
    }
}

impl FromStr for Word {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut parts = line.split(' ');
        let word = match parts.next() {
            Some("known") => {
                let mut part = || parts.next().ok_or(());
                let (address, minor, owner) = (part()?, part()?, part()?);
                Self::Known(KnownAs {
                    address: address.parse().map_err(drop)?,
                    minor: minor.parse().map_err(drop)?,
                    owner: bytes(owner).ok_or(())?,
                })
            }
            Some("unmounted") => Self::Unmounted,
            Some("over") => Self::Over,
            _ => return Err(()),
        };
        if parts.next().is_some() { Err(()) } else { Ok(word) }
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() {
        return None;
    }
    let pair = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(|two| pair(two).filter(|_| two.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(owner: &[u8], address: &str) -> Word {
        Word::Known(KnownAs { owner: owner.to_vec(), address: address.parse().unwrap(), minor: 2 })
    }

    #[test]
    fn what_is_said_is_understood_whatever_a_host_is_called() {
        let owners: [&[u8]; 4] = [b"holdfast host 00ff", b"over\n", b"\0\xff\n unmounted", b"h"];
        let addresses = ["192.0.2.7:2049", "[2001:db8::1]:20490", "[fe80::1%3]:2049"];
        let known = owners.iter().flat_map(|owner| addresses.map(|address| known(owner, address)));
        for word in known.chain([Word::Unmounted, Word::Over]) {
            let line = word.to_string();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(line.parse(), Ok(word), "{line}");
        }
    }

    #[test]
    fn what_is_no_word_is_none() {
        let wrong = ["", ".", "Over", "over ", "over it", "unmounted.", "known", "known 192.0.2.7:2049 2"];
        let halves = ["known 192.0.2.7:2049 2 ", "known 192.0.2.7:2049 2 6f7", "known 192.0.2.7:2049 2 6g"];
        let others = ["known 192.0.2.7 2 6f", "known 192.0.2.7:2049 x 6f", "known 192.0.2.7:2049 2 6f 6f"];
        for line in wrong.iter().chain(&halves).chain(&others) {
            assert_eq!(line.parse::<Word>(), Err(()), "{line}");
        }
    }
}
