//! The numbers of `holdfast-base` on the wire: each is its inner number.

use holdfast_base::caps::CapSet;
use holdfast_base::ids::{ChangeId, ClientId, Cookie, Length, Offset, Seqid, SessionId, SlotId};

use crate::{Decode, Encode, Reader, Result, Writer};

macro_rules! number {
    ($($name:ident),*) => {$(
        impl Encode for $name {
            #[inline]
            fn encode(&self, w: &mut Writer) {
                self.0.encode(w);
            }
        }

        impl Decode<'_> for $name {
            #[inline]
            fn decode(r: &mut Reader<'_>) -> Result<Self> {
                Decode::decode(r).map(Self)
            }
        }
    )*};
}
number!(CapSet, ChangeId, ClientId, Cookie, Length, Offset, Seqid, SessionId, SlotId);
