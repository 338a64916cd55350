//! The same where local processes change what is listed: whatever one has finished, the next page shows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use holdfast_backend_local::LocalUse;
use holdfast_base::Cookie;
use holdfast_vfs::{
    AttrMask, Backend as _, Caller, Cx, File, FsError, Handle, NewNode, RemoveKind, SetAttrs, Stability,
    Wait, WriteAt,
};

use super::disk::Disk;
use super::disk::neighbour::{done, shell};
use super::{KINDS, NAMES, Part, World, name, world};

/// A directory of several pages, filled by a local process.
fn filled(w: &World) {
    std::fs::create_dir(w.top.join("d")).unwrap();
    for n in NAMES {
        std::fs::write(w.top.join("d").join(n), n).unwrap();
    }
}

fn directory(w: &World) -> Handle {
    let caller = Caller::root();
    w.backend.lookup(&Cx::new(&caller, Wait::Yes), &w.root, name("d"), AttrMask::NONE).unwrap().handle
}

/// What a local process can do to an entry, or to the directory, that a listing shows.
const DEEDS: [&str; 16] = [
    "echo more >> \"$1/a\"",
    "chmod 640 \"$1/bb\"",
    "touch -d 2001-02-03 \"$1/c\"",
    "chown 12:13 \"$1/dddd\"",
    "python3 -c 'import os,sys;os.truncate(sys.argv[1]+\"/e\",99)' \"$1\"",
    "python3 -c 'import os,sys;os.setxattr(sys.argv[1]+\"/f\",\"user.x\",b\"y\")' \"$1\"",
    "rm \"$1/g\"",
    "mv \"$1/h\" \"$1/hh\"",
    "mv \"$1/hh\" \"$1/i\"",
    "echo new > \"$1/n\"",
    "ln \"$1/n\" \"$1/m\"",
    "echo linked >> \"$1/m\"",
    "mkdir \"$1/sub\"",
    "echo below > \"$1/sub/file\"",
    "rm -r \"$1/sub\"",
    "rm \"$1/m\"; mv \"$1/n\" \"$1/../n\"; echo away >> \"$1/../n\"; mv \"$1/../n\" \"$1/n\"",
];

#[test]
fn what_a_local_process_has_done_shows_in_the_next_page() {
    for kind in KINDS {
        let disk = Disk::make(kind, &[]);
        let w = world(&disk, LocalUse::Lazy);
        filled(&w);
        let dir = directory(&w);
        assert_eq!(w.through_pages(&dir).unwrap().1, 0);
        let mut kept_pages = 0;
        for deed in DEEDS {
            // One listing more than begins to be watched, so that all its pages may be kept.
            let _ = w.through_pages(&dir).unwrap();
            let (text, kept) = w.through_pages(&dir).unwrap();
            assert_eq!(text, w.uncached(&dir).unwrap(), "{kind}: before {deed}");
            kept_pages += kept;
            done(shell(deed, &[&w.top.join("d")]));
            assert_eq!(w.through_pages(&dir).unwrap().0, w.uncached(&dir).unwrap(), "{kind}: after {deed}");
        }
        assert!(kept_pages > DEEDS.len(), "{kind}: {kept_pages} pages came from memory");
    }
}

/// A process that sets the sizes it is told, and says so when it has.
fn setter(path: &std::path::Path) -> (ChildStdin, BufReader<ChildStdout>, std::process::Child) {
    let program = "import os,sys\nfor line in sys.stdin:\n f,n=line.split()\n os.truncate(sys.argv[1]+'/'+f,int(n))\n \
                   print(n,flush=True)\n";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()), child)
}

#[test]
fn no_page_is_older_than_what_a_local_process_has_finished() {
    for kind in KINDS {
        let disk = Disk::make(kind, &[]);
        let w = world(&disk, LocalUse::Lazy);
        filled(&w);
        let dir = directory(&w);
        let (mut tell, mut told, mut child) = setter(&w.top.join("d"));
        let mut kept_pages = 0;
        for size in 1..400_usize {
            let file = NAMES[size % NAMES.len()];
            writeln!(tell, "{file} {size}").unwrap();
            told.read_line(&mut String::new()).unwrap();
            let (text, kept) = w.through_pages(&dir).unwrap();
            kept_pages += kept;
            let line = text.lines().find(|line| line.starts_with(&format!("{file} "))).unwrap();
            assert!(line.contains(&format!(" size: {size},")), "{kind}: {line} after {size}");
        }
        drop(tell);
        assert!(child.wait().unwrap().success());
        assert!(kept_pages > 200, "{kind}: {kept_pages} pages came from memory");
    }
}

#[test]
fn a_short_directory_is_not_watched_and_an_entry_that_is_a_directory_not_kept() {
    let disk = Disk::make("xfs", &[]);
    let w = world(&disk, LocalUse::Lazy);
    filled(&w);
    for _ in 0..3 {
        assert_eq!(w.through_pages(&w.root).unwrap().1, 0, "the root has one entry");
    }
    let dir = directory(&w);
    std::fs::create_dir(w.top.join("d/zz")).unwrap();
    // A page lives three seconds, which on a busy machine may pass between two looks.
    let began = std::time::Instant::now();
    let are_kept = || {
        let parts = all_parts(&w, &dir);
        assert!(parts.iter().all(|part| !part.was_kept || !part.text.contains("kind: Directory")));
        parts.iter().all(|part| part.was_kept || part.text.contains("kind: Directory"))
    };
    while !are_kept() {
        assert!(began.elapsed().as_secs() < 60, "some page is made anew each time");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn all_parts(w: &World, dir: &Handle) -> Vec<Part> {
    let (mut parts, mut from) = (Vec::new(), Some(Cookie(0)));
    while let Some(at) = from {
        let part = w.part(&Caller::root(), dir, at).unwrap();
        from = part.next;
        parts.push(part);
    }
    parts
}

#[test]
fn a_watched_directory_that_a_client_removes_is_let_go() {
    let disk = Disk::make("xfs", &[]);
    let w = world(&disk, LocalUse::Lazy);
    filled(&w);
    let dir = directory(&w);
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    w.through_pages(&dir).unwrap();
    // Its first page is made anew, the others come from memory: what was opened for the first is left open.
    assert!(w.through_pages(&dir).unwrap().1 > 0);
    for n in NAMES {
        w.backend.remove(&cx, &dir, name(n), RemoveKind::NonDirectory).unwrap();
    }
    // A local process may have it open, which makes no difference.
    let held = std::fs::File::open(w.top.join("d")).unwrap();
    w.backend.remove(&cx, &w.root, name("d"), RemoveKind::Directory).unwrap();
    assert_eq!(w.backend.getattr(&cx, &dir, AttrMask::STAT), Err(FsError::Stale));
    drop(held);
    // Another one in its place is a new directory.
    let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
    let again = w.backend.make(&cx, &w.root, name("d"), NewNode::Directory, &set).unwrap().0.handle;
    assert_eq!(w.through_pages(&again).unwrap().0, "");
}

#[test]
fn changes_by_a_client_and_by_a_local_process_in_turn_show_both() {
    let disk = Disk::make("ext4", &[]);
    let w = world(&disk, LocalUse::Lazy);
    filled(&w);
    let dir = directory(&w);
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let file = w.backend.lookup(&cx, &dir, name("a"), AttrMask::NONE).unwrap().handle;
    for n in 0..20 {
        w.through_pages(&dir).unwrap();
        let at = WriteAt { offset: 2 * n, stability: Stability::Unstable, want_change: n % 2 == 0 };
        w.backend.write(&cx, File::Stateless(&file), at, b"x").unwrap();
        assert_eq!(w.through_pages(&dir).unwrap().0, w.uncached(&dir).unwrap());
        done(shell("echo >> \"$1/a\"", &[&w.top.join("d")]));
        assert_eq!(w.through_pages(&dir).unwrap().0, w.uncached(&dir).unwrap());
    }
}
