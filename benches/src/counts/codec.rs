//! The codec alone. Each scenario is of many values that differ in contents and length, so that what is counted is no luck
//! with one of them, and much enough that a few instructions each are told from none.

use crate::scenarios::Once;
use crate::scene::{Request, Scene};
use holdfast_base::{Cookie, Offset};
use holdfast_wire::nfs3::{Entry3, EntryPlus3, Fattr3, Fh3, StableHow, Write3Args};
use holdfast_wire::nfs4::{ArgOp, CompoundArgsHeader};
use holdfast_xdr::{Decode, Encode, Reader, Writer, from_bytes};
use std::hint::black_box;

/// In each scenario; their names say it.
const VALUES: usize = 256;

const DATA: [u8; 4096] = [7; 4096];

pub(crate) fn getattr3_arguments() -> Once {
    decoding(numbers().map(|n| Fh3(handle(n))), |r| {
        let _ = black_box(Fh3::decode(r).expect("it was encoded here"));
    })
}

pub(crate) fn attributes3() -> Once {
    encoding(numbers().map(fattr3))
}

pub(crate) fn entries_plus3() -> Once {
    encoding(numbers().map(|n| {
        let name = leak(format!("some-name-{}.txt", 7u64.pow(n as u32 % 16)).into_bytes());
        let entry = Entry3 { fileid: n as u64, name, cookie: Cookie(n as u64 + 3) };
        EntryPlus3 { entry, name_attributes: Some(fattr3(n)), name_handle: Some(Fh3(handle(n))) }
    }))
}

pub(crate) fn write3_arguments() -> Once {
    decoding(numbers().map(|n| write3(handle(n), n as u64 * 4096)), |r| {
        let _ = black_box(Write3Args::decode(r).expect("it was encoded here"));
    })
}

/// Of three and four operations: what clients ask most.
pub(crate) fn compounds(scene: &Scene) -> Once {
    let kinds: [fn(&Scene) -> Request; 4] =
        [Scene::getattr4, Scene::lookup4, Scene::access4, |scene| scene.read4(4096)];
    let all: Vec<_> = numbers().map(|n| kinds[n % kinds.len()](scene).arguments()).collect();
    Box::new(move || black_box(&all).iter().for_each(|bytes| decode_compound(bytes)))
}

/// WRITE of 4 KiB.
pub(crate) fn write3(file: &[u8], offset: u64) -> Write3Args<'_> {
    let (offset, stable) = (Offset(offset), StableHow::Unstable);
    Write3Args { file: Fh3(file), offset, count: DATA.len() as u32, stable, data: &DATA }
}

fn numbers() -> impl Iterator<Item = usize> {
    0..VALUES
}

/// Values borrow from what lives as long as the program.
fn leak(bytes: Vec<u8>) -> &'static [u8] {
    Vec::leak(bytes)
}

/// As long as handles are, more or less.
fn handle(n: usize) -> &'static [u8] {
    leak(vec![n as u8; 28 + n % 24])
}

fn fattr3(n: usize) -> Fattr3 {
    let kind = 1 + n as u32 % 7;
    let words = std::iter::once(kind).chain((1..21).map(|word| word * n as u32));
    let bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    from_bytes(&bytes).expect("84 bytes of attributes")
}

fn encoding<E: Encode + 'static>(values: impl Iterator<Item = E>) -> Once {
    let (values, mut w): (Vec<E>, _) = (values.collect(), Writer::new());
    Box::new(move || {
        w.truncate(0);
        black_box(&values).iter().for_each(|value| value.encode(&mut w));
        black_box(w.as_slice());
    })
}

fn decoding<E: Encode>(values: impl Iterator<Item = E>, decode: fn(&mut Reader<'_>)) -> Once {
    let mut w = Writer::new();
    values.for_each(|value| value.encode(&mut w));
    let bytes = w.into_vec();
    Box::new(move || {
        let mut r = Reader::new(black_box(&bytes));
        (0..VALUES).for_each(|_| decode(&mut r));
    })
}

fn decode_compound(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let header = CompoundArgsHeader::decode(&mut r).expect("it was encoded here");
    for _ in 0..header.ops {
        drop(black_box(ArgOp::decode(&mut r)));
    }
}
