//! What the journal is told in place of what a reply says: what does not outlive the server must not be told by another life.

use std::borrow::Cow;
use std::ops::Range;

use holdfast_xdr::{Encode, Writer};

use crate::compound::Compound;
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

impl Compound {
    /// The results as they are told should the server have died meanwhile.
    pub(crate) fn for_another_life<'r>(&self, reply: &'r [u8]) -> Cow<'r, [u8]> {
        let Some(all) = &self.stand_ins.0 else { return Cow::Borrowed(&reply[self.start..]) };
        let (mut told, mut from) = (Vec::with_capacity(reply.len() - self.start), self.start);
        for StandIn { said, recorded } in &**all {
            told.extend_from_slice(&reply[from..said.start]);
            told.extend_from_slice(recorded);
            from = said.end;
        }
        told.extend_from_slice(&reply[from..]);
        Cow::Owned(told)
    }

    /// The reply goes on here, after all.
    pub(crate) fn forget_stand_ins(&mut self, from: usize) {
        if let Some(all) = &mut self.stand_ins.0 {
            all.retain(|of| of.said.end <= from);
        }
    }
}

impl Cx<'_> {
    /// Has the journal told something else than the reply, which the result begins with here: a retry hears it in another life of
    /// the server. Of a request that leaves no record nothing is told.
    pub(crate) fn record_instead<T: Encode>(&mut self, said: &T, recorded: &T) {
        if self.compound.undertaking.is_none() {
            return;
        }
        let encoded = |what: &T| {
            let mut writer = Writer::new();
            what.encode(&mut writer);
            writer.into_vec()
        };
        let at = self.reply.len();
        let said = at..at + encoded(said).len();
        let stand_in = StandIn { said, recorded: encoded(recorded) };
        self.compound.stand_ins.0.get_or_insert_default().push(stand_in);
    }
}
