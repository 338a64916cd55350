//! READDIR and READDIRPLUS.

use std::collections::BTreeMap;

use holdfast_base::Cookie;
use holdfast_wire::nfs3::*;

use crate::world::*;

type Entries = Vec<(String, u64, Cookie)>;

fn readdir(w: &mut World, dir: &[u8], cookie: u64, count: u32) -> Result<(Entries, bool), NfsStat3> {
    let args = ReadDir3Args { dir: Fh3(dir), cookie: Cookie(cookie), cookieverf: [0; 8], count };
    let reply = w.call(Proc3::ReadDir, &args);
    match decode::<ReadDir3Res<'_>>(&reply) {
        Res3::Ok(ok) => {
            assert!(ok.header.dir_attributes.is_some());
            assert!(reply.len() - 4 <= count as usize, "the listing exceeds {count}");
            let entries = ok.entries.iter();
            Ok((
                entries.map(|e| (String::from_utf8_lossy(e.name).into_owned(), e.fileid, e.cookie)).collect(),
                ok.eof,
            ))
        }
        Res3::Fail(status, _) => Err(status),
    }
}

fn plus(
    w: &mut World,
    dir: &[u8],
    cookie: u64,
    dircount: u32,
    maxcount: u32,
) -> Vec<(String, Vec<u8>, PostOpAttr, Cookie)> {
    let args =
        ReadDirPlus3Args { dir: Fh3(dir), cookie: Cookie(cookie), cookieverf: [0; 8], dircount, maxcount };
    let reply = w.call(Proc3::ReadDirPlus, &args);
    match decode::<ReadDirPlus3Res<'_>>(&reply) {
        Res3::Ok(ok) => {
            assert!(reply.len() - 4 <= maxcount as usize, "the listing exceeds {maxcount}");
            let name = |e: &EntryPlus3<'_>| String::from_utf8_lossy(e.entry.name).into_owned();
            let fh = |e: &EntryPlus3<'_>| e.name_handle.map_or_else(Vec::new, |fh| fh.0.to_vec());
            ok.entries.iter().map(|e| (name(e), fh(e), e.name_attributes, e.entry.cookie)).collect()
        }
        Res3::Fail(status, _) => panic!("{status}"),
    }
}

#[test]
fn dots_come_first_with_their_own_numbers() {
    let mut w = World::new();
    let (root, d) = (w.root(), w.mkdir("d"));
    let f = w.create_in(&d, "f", 0o644);
    let (d_id, root_id, f_id) = (w.getattr(&d).fileid, w.getattr(&root).fileid, w.getattr(&f).fileid);
    let (entries, eof) = readdir(&mut w, &d, 0, 4096).unwrap();
    let expected = [
        (".".to_owned(), d_id, Cookie(1)),
        ("..".to_owned(), root_id, Cookie(2)),
        ("f".to_owned(), f_id, Cookie(3)),
    ];
    assert_eq!((entries.as_slice(), eof), (&expected[..], true));
    assert_eq!(readdir(&mut w, &d, 1, 4096).unwrap().0, expected[1..]);
    assert_eq!(readdir(&mut w, &d, 2, 4096).unwrap().0, expected[2..]);
    assert_eq!(readdir(&mut w, &d, 3, 4096).unwrap(), (Vec::new(), true));
}

#[test]
fn a_directory_is_listed_whole_in_any_portions() {
    let mut w = World::new();
    let d = w.mkdir("d");
    for i in 0..150 {
        w.create_in(&d, &format!("file-{i}"), 0o644);
    }
    for count in [150, 200, 1000, 100_000] {
        let (mut seen, mut cookie, mut eof) = (BTreeMap::new(), 0, false);
        while !eof {
            let (entries, end) = readdir(&mut w, &d, cookie, count).unwrap();
            assert!(end || !entries.is_empty());
            for (name, fileid, next) in entries {
                assert_eq!(seen.insert(name, fileid), None);
                cookie = next.0;
            }
            eof = end;
        }
        assert_eq!(seen.len(), 152);
    }
}

#[test]
fn a_count_too_small_for_one_entry_is_told() {
    let mut w = World::new();
    let root = w.root();
    assert_eq!(readdir(&mut w, &root, 0, 60), Err(NfsStat3::TooSmall));
    assert_eq!(readdir(&mut w, &root, 0, 0), Err(NfsStat3::TooSmall));
}

#[test]
fn cookies_under_a_foreign_verifier_or_beyond_reason_are_bad() {
    let mut w = World::new();
    let (root, f) = (w.root(), w.create("f"));
    let args = ReadDir3Args { dir: Fh3(&root), cookie: Cookie(3), cookieverf: [1; 8], count: 4096 };
    assert_eq!(status(&w.call(Proc3::ReadDir, &args)), NfsStat3::BadCookie);
    assert_eq!(readdir(&mut w, &root, u64::MAX, 4096), Err(NfsStat3::BadCookie));
    assert_eq!(readdir(&mut w, &f, 0, 4096), Err(NfsStat3::NotDir));
}

#[test]
fn readdirplus_brings_handles_and_attributes() {
    let mut w = World::new();
    let (root, d) = (w.root(), w.mkdir("d"));
    let f = w.create_in(&d, "f", 0o644);
    let entries = plus(&mut w, &d, 0, 4096, 8192);
    for (entry, (name, fh)) in entries.iter().zip([(".", &d), ("..", &root), ("f", &f)]) {
        let attrs = w.getattr(fh);
        assert_eq!((entry.0.as_str(), &entry.1, entry.2), (name, fh, Some(attrs)));
    }
    assert_eq!(entries.len(), 3);
}

#[test]
fn dircount_bounds_the_names_and_maxcount_the_whole() {
    let mut w = World::new();
    let d = w.mkdir("d");
    for i in 0..20 {
        w.create_in(&d, &format!("f{i:02}"), 0o644);
    }
    // Each of these names counts 8 + 4 + 4 + 8 bytes.
    assert_eq!(plus(&mut w, &d, 2, 5 * 24, 100_000).len(), 5);
    assert_eq!(plus(&mut w, &d, 2, 1, 100_000).len(), 1);
    let some = plus(&mut w, &d, 2, 100_000, 1000).len();
    assert!((2..20).contains(&some), "{some}");
}

#[test]
fn pseudo_directories_are_listed_with_what_the_peer_may_see() {
    let mut w = World::new();
    let top = w.handle_at(b"/");
    let (entries, eof) = readdir(&mut w, &top, 0, 4096).unwrap();
    let names: Vec<_> = entries.iter().map(|e| e.0.as_str()).collect();
    assert_eq!((names, eof), (vec![".", "..", "data", "more"], true));
    assert_eq!(entries[0].1, entries[1].1, "above the root is the root");
    let rest = plus(&mut w, &top, entries[2].2.0, 4096, 8192);
    assert_eq!(rest.len(), 1);
    assert_eq!((rest[0].0.as_str(), &rest[0].1), ("more", &w.handle_at(b"/more")));
    let first = readdir(&mut w, &top, 0, 160).unwrap().0;
    assert!(first.len() < 4);
    let root = w.root();
    let data = readdir(&mut w, &root, 0, 4096).unwrap().0;
    assert_eq!(data[1].1, entries[0].1, "above an export lies the pseudo directory");
}
