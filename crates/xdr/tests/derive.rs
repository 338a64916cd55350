//! What the derives make of each kind of type: round trips, bounds, unknown discriminants.

use holdfast_xdr::{Decode, Encode, Error, Reader, from_bytes, to_bytes};
use proptest::collection::vec;
use proptest::prelude::*;

const NAME_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
enum Colour {
    Red = 1,
    Green,
    Blue = 7,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct Item<'a> {
    id: u64,
    #[xdr(max = NAME_MAX)]
    name: &'a [u8],
    colour: Option<Colour>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct Pair<A, B>(A, B);

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct Everything<'a> {
    #[xdr(max = 3)]
    list: Vec<Item<'a>>,
    #[xdr(max = 2 + 1, chain)]
    chain: Vec<Item<'a>>,
    #[xdr(max = 16)]
    owned: Vec<u8>,
    fixed: [u8; 5],
    pair: Pair<bool, i64>,
    shape: Shape<'a>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
enum Shape<'a> {
    Nothing,
    Named(#[xdr(max = NAME_MAX)] &'a [u8]),
    #[xdr(case = Colour::Blue as u32 + 3)]
    Sized {
        width: u32,
        depth: u64,
    },
    #[xdr(default)]
    Other(u32, Colour),
}

fn colour() -> impl Strategy<Value = Colour> {
    prop_oneof![Just(Colour::Red), Just(Colour::Green), Just(Colour::Blue)]
}

/// Owned stand-ins for what borrows.
type ItemParts = (u64, Vec<u8>, Option<Colour>);

fn item() -> impl Strategy<Value = ItemParts> {
    (any::<u64>(), vec(any::<u8>(), 0..=NAME_MAX), proptest::option::of(colour()))
}

fn items(parts: &[ItemParts]) -> Vec<Item<'_>> {
    parts.iter().map(|(id, name, colour)| Item { id: *id, name, colour: *colour }).collect()
}

fn shape(kind: u32, name: &[u8], n: u32, c: Colour) -> Shape<'_> {
    match kind {
        0 => Shape::Nothing,
        1 => Shape::Named(name),
        2 => Shape::Sized { width: n, depth: u64::from(n) << 9 },
        // 0, 1 and 10 belong to the others.
        _ => Shape::Other(n.max(11), c),
    }
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same_and_encodes_to_the_same_bytes(
        list in vec(item(), 0..=3), chain in vec(item(), 0..=3), owned in vec(any::<u8>(), 0..=16),
        fixed in any::<[u8; 5]>(), pair in any::<(bool, i64)>(),
        kind in 0u32..4, name in vec(any::<u8>(), 0..=NAME_MAX), n in any::<u32>(), c in colour(),
    ) {
        let (pair, shape) = (Pair(pair.0, pair.1), shape(kind, &name, n, c));
        let value = Everything { list: items(&list), chain: items(&chain), owned, fixed, pair, shape };
        let bytes = to_bytes(&value);
        prop_assert_eq!(bytes.len() % 4, 0);
        let back: Everything<'_> = from_bytes(&bytes).unwrap();
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(to_bytes(&back), bytes);
    }

    #[test]
    fn no_cut_of_a_message_decodes_as_the_message(parts in vec(item(), 0..=3), cut in any::<prop::sample::Index>()) {
        let pair = Pair(true, -1);
        let list = items(&parts);
        let shape = Shape::Named(b"abc");
        let whole = Everything { list, chain: vec![], owned: vec![1], fixed: [2; 5], pair, shape };
        let bytes = to_bytes(&whole);
        prop_assert_eq!(from_bytes::<Everything<'_>>(&bytes[..cut.index(bytes.len())]), Err(Error::Truncated));
    }

    #[test]
    fn arbitrary_bytes_decode_to_what_encodes_to_them_or_fail(mut words in vec(0u32..4, 0..40)) {
        words.push(0);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let mut r = Reader::new(&bytes);
        if let Ok(value) = Everything::decode(&mut r) {
            // The padding is the one thing that decoding forgives.
            let again = to_bytes(&value);
            prop_assert_eq!(again.len(), r.position());
            prop_assert_eq!(from_bytes::<Everything<'_>>(&again), Ok(value));
        }
    }
}

#[test]
fn a_struct_is_its_fields_in_order() {
    let item = Item { id: 3, name: b"abcde", colour: Some(Colour::Green) };
    assert_eq!(to_bytes(&item), b"\0\0\0\0\0\0\0\x03\0\0\0\x05abcde\0\0\0\0\0\0\x01\0\0\0\x02");
}

#[test]
fn discriminants_are_given_or_one_more_than_the_last() {
    assert_eq!(to_bytes(&Colour::Red), [0, 0, 0, 1]);
    assert_eq!(to_bytes(&Colour::Green), [0, 0, 0, 2]);
    assert_eq!(to_bytes(&Colour::Blue), [0, 0, 0, 7]);
    assert_eq!(to_bytes(&Shape::Nothing), [0, 0, 0, 0]);
    assert_eq!(to_bytes(&Shape::Named(b"")), [0, 0, 0, 1, 0, 0, 0, 0]);
    let sized = Shape::Sized { width: 1, depth: 2 };
    assert_eq!(to_bytes(&sized), [0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
}

#[test]
fn a_discriminant_without_a_variant_is_refused_by_name() {
    assert_eq!(from_bytes::<Colour>(&[0, 0, 0, 3]), Err(Error::BadEnum { name: "Colour", value: 3 }));
}

#[test]
fn a_default_variant_keeps_its_discriminant() {
    let bytes = [0, 0, 0, 99, 0, 0, 0, 7];
    assert_eq!(from_bytes::<Shape<'_>>(&bytes), Ok(Shape::Other(99, Colour::Blue)));
    assert_eq!(to_bytes(&Shape::Other(99, Colour::Blue)), bytes);
}

#[test]
fn each_bound_holds() {
    let name = [0, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0];
    assert_eq!(from_bytes::<Shape<'_>>(&name), Err(Error::TooLong { length: 9, max: 8 }));
    let list = [0, 0, 0, 4];
    assert_eq!(from_bytes::<Everything<'_>>(&list), Err(Error::TooLong { length: 4, max: 3 }));
    let link = [&[0, 0, 0, 1], &to_bytes(&Item { id: 1, name: b"", colour: None })[..]].concat();
    let four = [&[0, 0, 0, 0][..], &link, &link, &link, &link, &[0; 64]].concat();
    assert_eq!(from_bytes::<Everything<'_>>(&four), Err(Error::TooLong { length: 4, max: 3 }));
}

#[test]
fn opaque_data_is_borrowed_from_the_message() {
    let bytes = to_bytes(&Item { id: 0, name: b"xyz", colour: None });
    let item: Item<'_> = from_bytes(&bytes).unwrap();
    assert!(std::ptr::eq(item.name.as_ptr(), &raw const bytes[12]));
}

#[test]
fn bytes_after_the_message_are_refused() {
    assert_eq!(from_bytes::<Colour>(&[0, 0, 0, 1, 0, 0, 0, 0]), Err(Error::Trailing(4)));
}
