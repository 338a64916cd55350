use super::*;

fn engine() -> holdfast_state::Engine {
    let config = holdfast_state::Config {
        boot: holdfast_state::BootInstance::from_counter(7),
        lease_ms: 60_000,
        grace: holdfast_state::Grace::Over,
    };
    holdfast_state::Engine::new(config, Box::new(holdfast_base::SystemEntropy::new().unwrap()))
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
        engine: Some(engine().freeze()),
        nfs4: holdfast_nfs4::Image::default(),
        nlm: Default::default(),
        caps: Default::default(),
        records: Default::default(),
    }
}

#[test]
fn what_is_written_is_read() {
    let written = image();
    let bytes = encode(&written, &[17, 4]).unwrap();
    let (version, numbers, body) = head(&bytes).unwrap();
    assert_eq!((version, numbers), (VERSION, vec![17, 4]));
    let read = decode(version, body).unwrap();
    assert_eq!(format!("{read:?}"), format!("{written:?}"));
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
    assert_eq!(decode(VERSION, &body).unwrap().epoch, 7);
}

#[test]
fn an_image_of_before_owed_records_went_along_is_read() {
    let body = rmp_serde::to_vec_named(&image()).unwrap();
    // The last of sixteen fields.
    let name = b"\xa7records";
    let at = body.windows(name.len()).rposition(|bytes| bytes == name).unwrap();
    assert_eq!(body[..3], [0xde, 0, 16], "a map of sixteen");
    let older = [&[0x8f], &body[3..at]].concat();
    let read = decode(VERSION, &older).unwrap();
    // Nothing is owed, and nothing else is missing.
    assert_eq!(rmp_serde::to_vec_named(&read).unwrap(), body);
}

#[test]
fn any_damage_is_an_error_and_the_descriptors_of_an_unknown_version_are_still_known() {
    let bytes = encode(&image(), &[17, 4]).unwrap();
    for cut in 0..bytes.len() {
        let read = head(&bytes[..cut]).map(|(version, _, body)| decode(version, body).is_ok());
        assert_ne!(read, Some(true), "cut at {cut}");
    }
    let mut newer = bytes;
    newer[11] += 1;
    let (version, numbers, body) = head(&newer).unwrap();
    assert_eq!(numbers, [17, 4]);
    assert!(decode(version, body).unwrap_err().to_string().contains("version 2"));
    assert!(head(b"HOLDFAST\0\0\0\x01\xff\xff\xff\xff").is_none(), "a count beyond the end");
    assert!(head(b"something else entirely").is_none());
}
