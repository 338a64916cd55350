//! Keys of the journal's entries. The first byte says whose they are, so that a restart can tell them apart.

use holdfast_base::{SessionId, SlotId};

/// First byte of a slot's key. The duplicate-request cache of `rpc` takes another.
pub const SLOT: u8 = b's';

/// The key of a slot's last reply: the newest entry of a slot stays until the session goes.
#[must_use]
pub fn slot_key(session: SessionId, slot: SlotId) -> [u8; 21] {
    let mut key = [SLOT; 21];
    key[1..17].copy_from_slice(&session.0);
    key[17..].copy_from_slice(&slot.0.to_be_bytes());
    key
}

/// The slot that a key names; `None` when it is none of [`slot_key`]'s.
#[must_use]
pub fn parse_slot_key(key: &[u8]) -> Option<(SessionId, SlotId)> {
    let (kind, rest) = key.split_first()?;
    let (session, slot) = rest.split_first_chunk()?;
    (*kind == SLOT).then_some((SessionId(*session), SlotId(u32::from_be_bytes(slot.try_into().ok()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_key_names_its_slot_and_no_other_key_does() {
        let (session, slot) = (SessionId([7; 16]), SlotId(0x0102));
        let key = slot_key(session, slot);
        assert_eq!(parse_slot_key(&key), Some((session, slot)));
        assert_eq!(parse_slot_key(&key[..20]), None);
        assert_eq!(parse_slot_key(&[&b"d"[..], &key[1..]].concat()), None);
        assert_eq!(parse_slot_key(&[]), None);
    }
}
