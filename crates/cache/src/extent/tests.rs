use proptest::prelude::*;

use super::*;

fn flat(map: &Extents, len: u64) -> Vec<Option<u8>> {
    let mut bytes = vec![None; usize::try_from(len).unwrap()];
    for piece in map.read(0, len, Generation(0)) {
        for (i, b) in piece.data.iter().enumerate() {
            bytes[usize::try_from(piece.offset).unwrap() + i] = Some(*b);
        }
    }
    bytes
}

#[test]
fn what_is_appended_lies_in_one_extent() {
    let mut map = Extents::default();
    for i in 0..100_u64 {
        map.write(i * 10, &[u8::try_from(i).unwrap(); 10], Generation(1));
    }
    assert_eq!(map.len(), 1);
    assert_eq!(map.weights().unsent, 1000);
}

#[test]
fn a_write_over_data_on_its_way_leaves_the_rest_of_it_on_its_way() {
    let mut map = Extents::default();
    map.write(0, &[1; 30], Generation(1));
    let sent = map.take_for_write(WriteId(1), (&[], false), 1 << 20).unwrap();
    assert_eq!(sent.data.len(), 30);
    map.write(10, &[2; 10], Generation(2));
    assert!(
        map.take_for_write(WriteId(2), (&[(0, 30)], false), 1 << 20).is_none(),
        "not before the first has arrived"
    );
    map.turn(|p, _| if p == Progress::Sent(WriteId(1)) { None } else { Some(p) });
    assert_eq!(map.take_for_write(WriteId(3), (&[], false), 1 << 20).unwrap().offset, 10);
}

proptest! {
    #[test]
    fn the_map_is_as_an_array_of_bytes(ops in prop::collection::vec((0..6_u8, 0..200_u64, 1..60_usize, any::<u8>()), 1..60)) {
        let mut map = Extents::default();
        let mut model = vec![None; 300];
        for (what, at, len, byte) in ops {
            let range = usize::try_from(at).unwrap()..usize::try_from(at).unwrap() + len;
            match what {
                0 | 1 => {
                    map.write(at, &vec![byte; len], Generation(1));
                    model[range].fill(Some(byte));
                }
                2 => {
                    map.cut(at, at + len as u64);
                    model[range].fill(None);
                }
                3 => {
                    map.take_for_write(WriteId(u64::from(byte)), (&[], false), len);
                }
                4 => {
                    let is_sent = |p| matches!(p, Progress::Sent(_));
                    let verifier = u64::from(byte % 3);
                    let unstable = Progress::Unstable { verifier, since: Generation(1) };
                    let range = (at, at + len as u64);
                    map.turn_within(range, |p, _| Some(if is_sent(p) { unstable } else { p }));
                }
                _ => map.turn(|p, _| match p {
                    Progress::Unstable { verifier, .. } if verifier == u64::from(byte % 3) => Some(Progress::Dirty),
                    p => Some(p),
                }),
            }
            prop_assert_eq!(map.check(), Ok(()));
            prop_assert_eq!(map.has_dirty(), map.any(|p, _| p == Progress::Dirty));
            prop_assert_eq!(map.has_unsent(Generation(1)), map.weights().unsent > 0);
            let is_first = |p| matches!(p, Progress::Unstable { verifier: 1, .. });
            prop_assert_eq!(map.has_verifier(|verifier| verifier == 1), map.any(|p, _| is_first(p)));
            prop_assert_eq!(&flat(&map, 300), &model);
        }
    }
}
