//! A byte stream cut anywhere gives the records, and the error, that it gives whole; and those of a slow reading
//! of RFC 5531 section 11.

use bytes_of::Cut;
use holdfast_base::limits::{RECORD_BYTES_MAX, RECORD_FRAGMENTS_MAX};
use holdfast_rpc::record::Assembler;

/// Records in order, and whether the stream ended in an error.
type Heard = (Vec<Vec<u8>>, bool);

/// See the module.
///
/// # Panics
/// When they differ.
pub fn run(data: &[u8]) {
    let Some((seed, stream)) = data.split_first_chunk::<4>() else { return };
    let expected = slowly(stream);
    assert_eq!(heard(stream, std::iter::repeat(usize::MAX), false), expected, "whole");
    assert_eq!(heard(stream, std::iter::repeat(1), false), expected, "byte by byte");
    for reads_directly in [false, true] {
        assert_eq!(heard(stream, Cut(u32::from_be_bytes(*seed)), reads_directly), expected, "cut");
    }
}

fn heard(mut stream: &[u8], cuts: impl Iterator<Item = usize>, reads_directly: bool) -> Heard {
    let mut assembler = Assembler::new();
    let mut records = Vec::new();
    for cut in cuts {
        let (mut piece, rest) = stream.split_at(cut.min(stream.len()));
        stream = rest;
        if reads_directly && let Some(room) = assembler.room() {
            let n = bytes_of::fill(room, piece);
            assembler.filled(n);
            piece = &piece[n..];
        }
        loop {
            match assembler.next(&mut piece) {
                Ok(Some(record)) => records.push(record.record().bytes().to_vec()),
                Ok(None) => break,
                Err(_) => return (records, true),
            }
        }
        assert!(piece.is_empty(), "what was not taken is lost");
        assert!(
            assembler.held_bytes() <= 2 * (RECORD_BYTES_MAX + (128 << 10)),
            "holds {}",
            assembler.held_bytes()
        );
        if stream.is_empty() {
            break;
        }
    }
    (records, false)
}

fn slowly(mut stream: &[u8]) -> Heard {
    let (mut records, mut record, mut fragments) = (Vec::new(), Vec::new(), 0);
    while let Some((header, rest)) = stream.split_first_chunk::<4>() {
        let header = u32::from_be_bytes(*header);
        let bytes = (header & 0x7fff_ffff) as usize;
        fragments += 1;
        if record.len() + bytes > RECORD_BYTES_MAX || fragments > RECORD_FRAGMENTS_MAX {
            return (records, true);
        }
        let Some((fragment, rest)) = rest.split_at_checked(bytes) else { break };
        record.extend_from_slice(fragment);
        stream = rest;
        if header >> 31 == 1 {
            records.push(std::mem::take(&mut record));
            fragments = 0;
        }
    }
    (records, false)
}

mod bytes_of {
    use bytes::BufMut;

    /// Lengths of pieces, mostly small, from a seed.
    pub(super) struct Cut(pub(super) u32);

    impl Iterator for Cut {
        type Item = usize;

        fn next(&mut self) -> Option<usize> {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bits = self.0 >> 29;
            Some(((self.0 >> 8) as usize & ((1 << (2 * bits)) - 1)) + 1)
        }
    }

    /// Puts as much of `piece` where there is room; says how much.
    pub(super) fn fill(mut room: impl BufMut, piece: &[u8]) -> usize {
        let n = room.remaining_mut().min(piece.len());
        room.put_slice(&piece[..n]);
        n
    }
}
