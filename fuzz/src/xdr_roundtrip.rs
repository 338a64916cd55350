//! Whatever decodes is encoded to no more bytes than were read, and these bytes decode to the same again.

use holdfast_wire::nfs4::{ArgOp, CbArgOp};
use holdfast_wire::{mount3, nfs3, rpc};
use holdfast_xdr::{Decode, Reader, from_bytes, to_bytes};

/// Decodes, encodes, decodes again; gives how many bytes the value took. A macro, as the second value borrows from
/// other bytes than the first.
macro_rules! survives {
    ($type:ty, $data:expr) => {{
        let mut r = Reader::new($data);
        <$type>::decode(&mut r).ok().map(|value| {
            let bytes = to_bytes(&value);
            assert!(bytes.len() <= r.position(), "{value:?} grew from {} to {} bytes", r.position(), bytes.len());
            let back = from_bytes::<$type>(&bytes);
            // A bitmap with bits that nobody knows forgets them, and that it had any is no part of its encoding.
            if back.as_ref() != Ok(&value) {
                assert!(format!("{value:?}").contains("beyond: true"), "{value:?} became {back:?}");
            }
            assert_eq!(back.map(|value| to_bytes(&value)).as_ref(), Ok(&bytes), "{value:?} is encoded in two ways");
            r.position()
        })
    }};
}

/// See the module.
///
/// # Panics
/// When it is not so.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let _ = match kind % 16 {
        0 => survives!(CbArgOp<'_>, data),
        1 => survives!(rpc::CallHeader<'_>, data),
        2 => survives!(rpc::ReplyHeader<'_>, data),
        3 => survives!(nfs3::SetAttr3Args<'_>, data),
        4 => survives!(nfs3::Create3Args<'_>, data),
        5 => survives!(nfs3::Mknod3Args<'_>, data),
        6 => survives!(nfs3::Write3Args<'_>, data),
        7 => survives!(mount3::MountList<'_>, data),
        8 => survives!(mount3::Exports<'_>, data),
        _ => return compound(data),
    };
}

/// Operations one after the other, as a compound has them.
fn compound(mut data: &[u8]) {
    while let Some(taken) = survives!(ArgOp<'_>, data) {
        data = &data[taken..];
    }
}
