use super::*;

fn pieces(sink: &DataSink) -> usize {
    let mut slices = Vec::new();
    sink.slices(&mut slices);
    assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), sink.bytes());
    slices.len()
}

#[test]
fn pieces_come_out_in_order_and_shared_ones_are_not_copied() {
    let mut sink = DataSink::with_room(100);
    let shared = Bytes::from(vec![1; 10]);
    sink.push(shared.clone());
    sink.zeros(3);
    sink.copy(&[2; 4]);
    sink.fill(8, |into| {
        into[..5].fill(3);
        5
    });
    sink.push(Bytes::new());
    let expected: Vec<u8> = [vec![1; 10], vec![0; 3], vec![2; 4], vec![3; 5]].concat();
    assert_eq!((sink.to_vec(), sink.room()), (expected, 78));
    let mut slices = Vec::new();
    sink.slices(&mut slices);
    assert_eq!(slices[0].as_ptr(), shared.as_ptr());
    assert_eq!(slices.len(), 3, "what was copied lies in one piece");
}

#[test]
fn what_does_not_fit_is_left() {
    let mut sink = DataSink::with_room(5);
    sink.push(Bytes::from_static(b"abc"));
    sink.copy(b"defg");
    sink.zeros(9);
    sink.push(Bytes::from_static(b"x"));
    sink.fill(7, |into| into.len());
    assert_eq!((sink.to_vec(), sink.room()), (b"abcde".to_vec(), 0));
}

#[test]
fn a_filler_that_claims_more_than_it_was_given_is_cut() {
    let mut sink = DataSink::with_room(4);
    sink.fill(2, |_| 99);
    assert_eq!(sink.bytes(), 2);
}

#[test]
fn any_number_of_pieces_becomes_as_many_as_the_kernel_takes() {
    const ROOM: usize = 1 << 20;
    let mut sink = DataSink::with_room(ROOM);
    let mut expected = Vec::new();
    for i in 0..5000u32 {
        let byte = u8::try_from(i % 255).expect("a byte") + 1;
        sink.push(Bytes::from(vec![byte; 7]));
        sink.zeros(5);
        sink.copy(&[byte; 3]);
        expected.extend([vec![byte; 7], vec![0; 5], vec![byte; 3]].concat());
    }
    assert!(sink.to_vec() == expected);
    assert!(pieces(&sink) < 1000, "{}", pieces(&sink));
    let mut hole = DataSink::with_room(ROOM);
    hole.zeros(ROOM);
    assert_eq!((pieces(&hole), hole.bytes()), (16, ROOM));
}

#[test]
fn a_sink_is_as_new_after_a_reset() {
    let mut sink = DataSink::with_room(10);
    sink.copy(b"old");
    sink.reset(4);
    assert_eq!((sink.bytes(), sink.room(), sink.to_vec()), (0, 4, Vec::new()));
    sink.copy(b"new");
    assert_eq!(sink.to_vec(), b"new");
}

fn item(name: &[u8]) -> DirItem<'_> {
    DirItem { name, ino: 7, kind: EntryKind::of_mode(0o100_644), next: 3 }
}

#[test]
fn a_listing_takes_what_fits_and_says_so_before_a_lookup_is_counted() {
    let mut out = vec![9; 16];
    let mut sink = DirSink::new(&mut out, 64, false);
    assert!(sink.is_empty() && sink.has_room(b"12345678"));
    assert!(sink.push(&item(b"12345678"), None));
    assert!(sink.push(&item(b"1"), None), "aligned to eight bytes");
    assert!(!sink.has_room(b"1"));
    assert!(!sink.push(&item(b"1"), None));
    assert_eq!(out.len(), 16 + 64);
}

#[test]
fn a_listing_with_nodes_counts_none_for_dots() {
    let mut out = Vec::new();
    let mut sink = DirSink::new(&mut out, 4096, true);
    let entry = Entry { node: NodeId(77), ..Entry::absent(crate::FOREVER) };
    assert!(sink.push(&item(b".."), Some(&entry)));
    assert!(sink.push(&item(b"a"), Some(&entry)));
    assert_eq!(out.len(), 2 * (encode::ENTRY_BYTES + encode::DIRENT_BYTES + 8));
    let node = |at: usize| u64::from_ne_bytes(out[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((node(0), node(out.len() / 2)), (0, 77));
}
