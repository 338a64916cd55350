use super::super::engine::tests::file_with;
use super::*;

fn engine() -> holdfast_state::Engine {
    let config = holdfast_state::Config {
        boot: holdfast_state::BootInstance::from_counter(7),
        lease_ms: 60_000,
        grace: holdfast_state::Grace::Over,
    };
    holdfast_state::Engine::new(config, Box::new(holdfast_base::SeededEntropy(1)))
}

fn image() -> Image {
    Image {
        epoch: 7,
        clock_ms: 1234,
        lease_ms: 60_000,
        held_at: 5,
        frozen_at: 6,
        listeners: vec![0],
        connections: vec![ConnectionImage {
            id: 3,
            peer: "[2001:db8::1]:700".parse().unwrap(),
            local: "192.0.2.1:2049".parse().unwrap(),
            socket: 1,
            unread: vec![1, 2, 255].into(),
            is_at_end: false,
            unsent: vec![0; 300].into(),
            last_xid: 9,
        }],
        lost: vec![4],
        files: Vec::new(),
        verifiers: vec![(1, [9; 8])],
        replies: vec![(vec![1].into(), vec![2, 200].into())],
        engine: None,
        nfs4: holdfast_nfs4::Image::default(),
        nlm: Default::default(),
        caps: Default::default(),
        records: Default::default(),
    }
}

/// As it would be written, of two descriptors of which the second is the state engine's file; and what comes with it.
fn written() -> (Vec<u8>, Vec<Option<OwnedFd>>) {
    let bytes = memory::read(super::written(&image(), 1, &[17, 4]).unwrap().into()).unwrap();
    (bytes, vec![None, Some(file_with(&engine(), 60_000))])
}

#[test]
fn what_is_written_is_read() {
    let (bytes, mut descriptors) = written();
    let (version, numbers, body) = head(&bytes).unwrap();
    assert_eq!((version, numbers), (VERSION, vec![17, 4]));
    let (read, arriving) = decode(version, body, &mut descriptors).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", image()));
    assert_eq!(format!("{:?}", arriving.end(7).unwrap().freeze()), format!("{:?}", engine().freeze()));
    assert!(descriptors[1].is_none(), "nobody else closes it");
}

/// Those of the program before this one have the same form.
#[test]
fn what_version_2_wrote_is_read() {
    let (bytes, mut descriptors) = written();
    let (_, _, body) = head(&bytes).unwrap();
    let (read, _) = decode(2, body, &mut descriptors).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", image()));
}

#[test]
fn state_that_did_not_come_or_is_of_another_start_is_an_error() {
    let (bytes, mut descriptors) = written();
    let (version, _, body) = head(&bytes).unwrap();
    let (_, arriving) = decode(version, body, &mut descriptors).unwrap();
    assert!(arriving.end(8).unwrap_err().to_string().contains("another start"));
    assert!(decode(version, body, &mut descriptors).is_err(), "it was taken");
    assert!(decode(version, body, &mut []).is_err());
}

#[test]
fn fields_of_a_newer_program_do_not_keep_this_one_from_reading() {
    #[derive(Serialize)]
    struct Newer<'a> {
        #[serde(flatten)]
        image: &'a Image,
        added_later: u64,
    }
    let image = image();
    let body = rmp_serde::to_vec_named(&Newer { image: &image, added_later: 1 }).unwrap();
    assert_eq!(unpacked::<Image>(&body).unwrap().epoch, 7);
}

/// The image as its first version was written.
fn of_version_1() -> Vec<u8> {
    #[derive(Serialize)]
    struct First<'a> {
        #[serde(flatten)]
        image: &'a Image,
        engine: holdfast_state::Frozen,
    }
    rmp_serde::to_vec_named(&First { image: &image(), engine: engine().freeze() }).unwrap()
}

#[test]
fn an_image_of_the_first_version_is_read_with_the_state_within_it() {
    let (read, arriving) = decode(1, &of_version_1(), &mut []).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", image()));
    assert_eq!(format!("{:?}", arriving.end(7).unwrap().freeze()), format!("{:?}", engine().freeze()));
    let without = rmp_serde::to_vec_named(&image()).unwrap();
    assert!(decode(1, &without, &mut []).is_err(), "nobody's state");
}

#[test]
fn an_image_of_before_owed_records_went_along_is_read() {
    let body = rmp_serde::to_vec_named(&image()).unwrap();
    // The last of fifteen fields.
    let name = b"\xa7records";
    let at = body.windows(name.len()).rposition(|bytes| bytes == name).unwrap();
    assert_eq!(body[0], 0x8f, "a map of fifteen");
    let older = [&[0x8e], &body[1..at]].concat();
    let read: Image = unpacked(&older).unwrap();
    // Nothing is owed, and nothing else is missing.
    assert_eq!(rmp_serde::to_vec_named(&read).unwrap(), body);
}

#[test]
fn any_damage_is_an_error_and_the_descriptors_of_an_unknown_version_are_still_known() {
    let (bytes, _) = written();
    for cut in 0..bytes.len() {
        let mut descriptors = vec![None, Some(file_with(&engine(), 60_000))];
        let read =
            head(&bytes[..cut]).map(|(version, _, body)| decode(version, body, &mut descriptors).is_ok());
        assert_ne!(read, Some(true), "cut at {cut}");
    }
    let mut newer = bytes;
    newer[11] += 1;
    let (version, numbers, body) = head(&newer).unwrap();
    assert_eq!(numbers, [17, 4]);
    let error = decode(version, body, &mut []).err().unwrap();
    assert!(error.to_string().contains("version 4, and this program reads versions 1 to 3"), "{error}");
    assert!(head(b"HOLDFAST\0\0\0\x01\xff\xff\xff\xff").is_none(), "a count beyond the end");
    assert!(head(b"something else entirely").is_none());
}
