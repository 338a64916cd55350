use proptest::prelude::*;

use super::*;

/// A record cut into fragments of these lengths, the rest in the last.
fn marked(record: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = record;
    for &cut in cuts {
        let (fragment, tail) = rest.split_at(cut.min(rest.len()));
        out.extend((fragment.len() as u32).to_be_bytes());
        out.extend(fragment);
        rest = tail;
    }
    out.extend(header_of(rest.len()));
    out.extend(rest);
    out
}

fn own(assembled: &Assembled<'_>) -> Vec<u8> {
    assembled.record().bytes().to_vec()
}

/// Feeds `stream` in chunks, every other time through the room for direct reads where there is some.
fn assemble(stream: &[u8], chunks: &[usize]) -> Result<Vec<Vec<u8>>, RecordError> {
    let mut assembler = Assembler::new();
    let mut records = Vec::new();
    let mut rest = stream;
    let mut turn = 0;
    while !rest.is_empty() {
        let n = chunks[turn % chunks.len()].clamp(1, rest.len());
        turn += 1;
        let (chunk, tail) = rest.split_at(n);
        if turn % 2 == 0
            && let Some(mut room) = assembler.room()
        {
            let n = n.min(room.remaining_mut());
            room.put_slice(&rest[..n]);
            assembler.filled(n);
            rest = &rest[n..];
            let mut none: &[u8] = &[];
            records.extend(assembler.next(&mut none)?.as_ref().map(own));
            continue;
        }
        rest = tail;
        let mut input = chunk;
        while let Some(record) = assembler.next(&mut input)? {
            records.push(own(&record));
        }
        assert!(input.is_empty(), "what completes no record is taken");
    }
    assert!(!assembler.is_partial());
    Ok(records)
}

proptest! {
    #[test]
    fn records_survive_any_fragments_and_any_chunks(
        records in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(0usize..100, 0..5)),
            1..10,
        ),
        chunks in prop::collection::vec(1usize..200, 1..20),
    ) {
        let stream: Vec<u8> = records.iter().flat_map(|(r, cuts)| marked(r, cuts)).collect();
        let wanted: Vec<Vec<u8>> = records.into_iter().map(|(r, _)| r).collect();
        prop_assert_eq!(assemble(&stream, &chunks).unwrap(), wanted);
    }

    #[test]
    fn garbage_never_makes_it_hold_more_than_came(
        garbage in prop::collection::vec(any::<u8>(), 0..4000),
        chunk in 1usize..500,
    ) {
        let mut assembler = Assembler::new();
        let mut came = 0;
        'stream: for chunk in garbage.chunks(chunk) {
            came += chunk.len();
            let mut input = chunk;
            loop {
                match assembler.next(&mut input) {
                    Ok(Some(record)) => prop_assert!(record.record().bytes().len() <= came),
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            prop_assert!(assembler.held_bytes() <= 2 * came + 64);
        }
    }
}

#[test]
fn a_whole_record_is_not_copied() {
    let stream = marked(b"whole", &[]);
    let mut input = &stream[..];
    assert_eq!(Assembler::new().next(&mut input), Ok(Some(Assembled::Borrowed(&stream[4..]))));
}

#[test]
fn four_gibibytes_are_refused_by_their_header() {
    let mut assembler = Assembler::new();
    let mut input: &[u8] = &[0xff; 4];
    assert_eq!(assembler.next(&mut input), Err(RecordError::TooLong(0x7fff_ffff)));
    assert_eq!(assembler.held_bytes(), 0);
}

#[test]
fn fragments_together_stay_below_the_bound() {
    let mut assembler = Assembler::new();
    let half = RECORD_BYTES_MAX / 2 + 1;
    let mut stream = (half as u32).to_be_bytes().to_vec();
    stream.resize(4 + half, 1);
    stream.extend(header_of(half));
    assert_eq!(assembler.next(&mut &stream[..]), Err(RecordError::TooLong(2 * half)));
}

#[test]
fn empty_fragments_come_to_an_end() {
    let stream = vec![0; 4 * (RECORD_FRAGMENTS_MAX + 1)];
    assert_eq!(Assembler::new().next(&mut &stream[..]), Err(RecordError::TooManyFragments));
}

#[test]
fn a_promise_of_a_mebibyte_costs_what_came_and_a_little() {
    let mut assembler = Assembler::new();
    let mut stream = header_of(1 << 20).to_vec();
    stream.push(1);
    assert_eq!(assembler.next(&mut &stream[..]), Ok(None));
    let room = assembler.room().map(|r| r.remaining_mut()).unwrap();
    assert!(room <= GROWTH_BYTES);
    assert!(assembler.held_bytes() <= 2 * GROWTH_BYTES);
}

#[test]
fn a_part_kept_from_an_own_record_is_shared_and_others_are_copied() {
    let bytes = Bytes::from_static(b"header and data");
    let record = Record::own(&bytes);
    let part = record.keep_part(&record.bytes()[11..]);
    assert_eq!(part.as_ptr(), bytes[11..].as_ptr());
    let elsewhere = b"elsewhere".to_vec();
    assert_eq!(record.keep_part(&elsewhere)[..], elsewhere[..]);
    let borrowed = Record::borrowed(&bytes).keep();
    assert_ne!(borrowed.as_ptr(), bytes.as_ptr());
    assert_eq!(borrowed, bytes);
}

#[test]
fn the_buffer_of_a_large_record_serves_the_next_one_unless_a_part_was_kept() {
    let record = |byte: u8| [&header_of(1 << 20)[..], &vec![byte; 1 << 20]].concat();
    let gather = |stream: &[u8]| {
        let mut assembler = Assembler::new();
        let (first, rest) = stream.split_at(64 << 10);
        assert_eq!(assembler.next(&mut &first[..]), Ok(None));
        match assembler.next(&mut &rest[..]) {
            Ok(Some(Assembled::Own(bytes))) => bytes,
            other => panic!("{other:?}"),
        }
    };
    drop_spares();
    let first = gather(&record(1));
    let kept = Record::own(&first).keep_part(&first[5..9]);
    recycle(Assembled::Own(first));
    let second = gather(&record(2));
    assert_eq!(kept, [1; 4][..], "what was kept is not written over");
    assert_eq!(second, vec![2; 1 << 20]);
    let place = second.as_ptr();
    recycle(Assembled::Own(second));
    let third = gather(&record(3));
    assert_eq!((third.as_ptr(), &third[..]), (place, &vec![3; 1 << 20][..]));
}
