//! What the journal is told in place of what a reply says: what does not outlive the server must not be told by another life.

use std::borrow::Cow;
use std::ops::Range;

use holdfast_xdr::{Encode, Writer};

use crate::cx::Cx;

/// A stretch of a reply, and what is recorded in its place.
#[derive(Debug)]
struct StandIn {
    said: Range<usize>,
    recorded: Vec<u8>,
}

/// Those of a compound, in their order. Hardly any has one, and all are moved about.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "one word, for a compound is moved more often than this is used")]
pub(crate) struct StandIns(Option<Box<Vec<StandIn>>>);

impl StandIns {
    /// A reply's results, which begin there, as they are told should the server have died meanwhile.
    pub(crate) fn told<'r>(&self, reply: &'r [u8], start: usize) -> Cow<'r, [u8]> {
        let Some(all) = &self.0 else { return Cow::Borrowed(&reply[start..]) };
        let (mut told, mut from) = (Vec::with_capacity(reply.len() - start), start);
        for StandIn { said, recorded } in &**all {
            told.extend_from_slice(&reply[from..said.start]);
            told.extend_from_slice(recorded);
            from = said.end;
        }
        told.extend_from_slice(&reply[from..]);
        Cow::Owned(told)
    }

    /// The reply is cut off here, and goes on with something else.
    pub(crate) fn forget(&mut self, from: usize) {
        if let Some(all) = &mut self.0 {
            all.retain(|of| of.said.end <= from);
        }
    }

    fn add(&mut self, said: Range<usize>, recorded: Vec<u8>) {
        self.0.get_or_insert_default().push(StandIn { said, recorded });
    }
}

impl Cx<'_> {
    /// Has the journal told something else than the result, which begins here: a retry hears it in another life of the server. Should
    /// the request leave a record at all, by an operation before this one or behind it.
    pub(crate) fn record_instead<T: Encode>(&mut self, said: &T, recorded: &T) {
        let encoded = |what: &T| {
            let mut writer = Writer::new();
            what.encode(&mut writer);
            writer.into_vec()
        };
        let at = self.reply.len();
        self.compound.stand_ins.add(at..at + encoded(said).len(), encoded(recorded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_is_told_in_its_place_and_nothing_else_changes() {
        let mut all = StandIns::default();
        assert_eq!(&*all.told(b"head:one two", 5), b"one two");
        all.add(5..8, b"un".to_vec());
        all.add(9..12, b"deux".to_vec());
        assert_eq!(&*all.told(b"head:one two three", 5), b"un deux three");
        // The second result is cut off, and an error is there in its place.
        all.forget(9);
        assert_eq!(&*all.told(b"head:one !", 5), b"un !");
        all.forget(5);
        assert_eq!(&*all.told(b"head:!", 5), b"!");
    }
}
