//! Parts of listings that are kept show what a listing made at that moment would show, whoever changes what.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

#[path = "pages/beside.rs"]
mod beside;
mod disk;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions, LocalUse};
use holdfast_base::Cookie;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CopySpan, CreateHow, CreateMode, Cx, DirEntry, DirListing, File, Flow,
    FsError, FsResult, Grounds, Handle, ListEnd, Name, NewNode, OpenMode, Page, PageKey, Pledge, Region,
    RemoveKind, RenameFlags, SetAttrs, SetTime, Stability, Wait, WriteAt, XattrMode,
};
use proptest::prelude::*;

const KINDS: [&str; 2] = ["ext4", "xfs"];
/// Entries of a page: the listings are several pages long.
const PAGE_ENTRIES: usize = 4;

struct World {
    backend: Arc<LocalBackend>,
    root: Handle,
    /// The exported directory.
    top: PathBuf,
    _state: tempfile::TempDir,
}

fn world(disk: &Disk, local: LocalUse) -> World {
    let state = tempfile::tempdir().unwrap();
    let mut options = LocalOptions::new(state.path().to_owned());
    (options.local, options.is_sole_writer) = (local, local == LocalUse::None);
    let top = disk.fresh();
    let backend = Arc::new(LocalBackend::open(&top, options).unwrap());
    World { root: backend.root().unwrap(), backend, top, _state: state }
}

fn name(n: &str) -> Name<'_> {
    Name::new(n.as_bytes()).unwrap()
}

/// An entry in words; the directory's space is the file system's affair.
fn told(out: &mut String, entry: &DirEntry<'_>) {
    let mut node = entry.node.unwrap().unwrap();
    node.attrs.used = 0;
    writeln!(out, "{} {:?} {} {node:?}", entry.name.escape_ascii(), entry.next, entry.fileid).unwrap();
}

struct Part {
    text: String,
    next: Option<Cookie>,
    was_kept: bool,
}

impl World {
    fn list(&self, cx: &Cx<'_>, dir: &Handle, from: Cookie, grounds: Option<&mut Grounds>) -> FsResult<Page> {
        let (mut text, mut entries) = (String::new(), 0);
        let listing = DirListing { dir, from, want: Some(AttrMask::ALL) };
        let mut last = from;
        let mut take = |entry: DirEntry<'_>| {
            if entries == PAGE_ENTRIES {
                return Flow::Stop;
            }
            told(&mut text, &entry);
            (entries, last) = (entries + 1, entry.next);
            Flow::Continue
        };
        let end = match grounds {
            Some(grounds) => self.backend.readdir_on(cx, listing, grounds, &mut take)?,
            None => self.backend.readdir(cx, listing, &mut take)?,
        };
        let bytes = format!("{}\n{text}", last.0).into_bytes().into();
        Ok(Page { bytes, entries, end })
    }

    /// As a protocol does it.
    fn part(&self, caller: &Caller, dir: &Handle, from: Cookie) -> FsResult<Part> {
        let cx = Cx::new(caller, Wait::Yes);
        let key = PageKey { from, form: [7, 0, 0, 0] };
        let kept = self.backend.kept_page(&cx, dir, &key);
        let was_kept = kept.is_some();
        let page = match kept {
            Some(page) => page,
            None => {
                let mut grounds = Grounds::default();
                let page = self.list(&cx, dir, from, Some(&mut grounds))?;
                let copy = Page { bytes: page.bytes.clone(), ..page };
                self.backend.keep_page(dir, &key, (copy, grounds));
                Arc::new(page)
            }
        };
        let text = String::from_utf8(page.bytes.to_vec()).unwrap();
        let (last, text) = text.split_once('\n').unwrap();
        let next = (page.end == ListEnd::Stopped).then(|| Cookie(last.parse().unwrap()));
        Ok(Part { text: text.to_owned(), next, was_kept })
    }

    /// The whole directory through pages; also how many of them were kept ones.
    fn through_pages(&self, dir: &Handle) -> FsResult<(String, usize)> {
        let (mut all, mut kept, mut from) = (String::new(), 0, Cookie(0));
        loop {
            let part = self.part(&Caller::root(), dir, from)?;
            all += &part.text;
            kept += usize::from(part.was_kept);
            match part.next {
                Some(next) => from = next,
                None => return Ok((all, kept)),
            }
        }
    }

    fn uncached(&self, dir: &Handle) -> FsResult<String> {
        let root = Caller::root();
        let mut all = String::new();
        let listing = DirListing { dir, from: Cookie(0), want: Some(AttrMask::ALL) };
        self.backend.readdir(&Cx::new(&root, Wait::Yes), listing, &mut |entry| {
            told(&mut all, &entry);
            Flow::Continue
        })?;
        Ok(all)
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Create(usize, usize),
    Mkdir(usize, usize),
    Symlink(usize, usize),
    Link(usize, usize, usize, usize),
    Rename(usize, usize, usize, usize, u8),
    Remove(usize, usize),
    Write(usize, usize, bool),
    Set(usize, usize, u8),
    Read(usize, usize),
    Xattr(usize, usize, bool),
    Copy(usize, usize, usize),
    Region(usize, usize),
    Pledge(usize, usize),
    List(usize),
    Shed,
}

const NAMES: [&str; 9] = ["a", "bb", "c", "dddd", "e", "f", "g", "h", "i"];

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let (d, n) = (0..3_usize, 0..NAMES.len());
    let deed = prop_oneof![
        3 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Create(d, n)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Mkdir(d, n)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Symlink(d, n)),
        1 => (d.clone(), n.clone(), d.clone(), n.clone()).prop_map(|(a, b, c, e)| Deed::Link(a, b, c, e)),
        2 => (d.clone(), n.clone(), d.clone(), n.clone(), 0..3_u8).prop_map(|(a, b, c, e, f)| Deed::Rename(a, b, c, e, f)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Remove(d, n)),
        2 => (d.clone(), n.clone(), any::<bool>()).prop_map(|(d, n, w)| Deed::Write(d, n, w)),
        2 => (d.clone(), n.clone(), 0..5_u8).prop_map(|(d, n, w)| Deed::Set(d, n, w)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Read(d, n)),
        1 => (d.clone(), n.clone(), any::<bool>()).prop_map(|(d, n, w)| Deed::Xattr(d, n, w)),
        1 => (d.clone(), n.clone(), n.clone()).prop_map(|(d, n, m)| Deed::Copy(d, n, m)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Region(d, n)),
        1 => (d.clone(), n.clone()).prop_map(|(d, n)| Deed::Pledge(d, n)),
        4 => d.prop_map(Deed::List),
        1 => Just(Deed::Shed),
    ];
    prop::collection::vec(deed, 20..120)
}

/// One of five settings.
fn attributes(which: u8, client: u32) -> SetAttrs {
    match which {
        0 => SetAttrs { mode: Some(0o600 + client), ..SetAttrs::default() },
        1 => SetAttrs { size: Some(u64::from(client)), ..SetAttrs::default() },
        2 => SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() },
        3 => SetAttrs { uid: Some(client), ..SetAttrs::default() },
        _ => SetAttrs::default(),
    }
}

struct Play<'w> {
    w: &'w World,
    /// The root and two directories below it.
    dirs: [Handle; 3],
}

impl<'w> Play<'w> {
    fn new(w: &'w World) -> Self {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let make = |n| {
            let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
            w.backend.make(&cx, &w.root, name(n), NewNode::Directory, &set).unwrap().0.handle
        };
        Self { dirs: [w.root, make("one"), make("two")], w }
    }

    /// Does it, as one of two clients; what fails has changed nothing.
    fn act(&self, deed: &Deed, client: u32) -> FsResult<()> {
        let caller = Caller { uid: 0, gid: client, ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        let (b, dir) = (&*self.w.backend, |d: usize| &self.dirs[d]);
        let find =
            |d: usize, n: usize| b.lookup(&cx, dir(d), name(NAMES[n]), AttrMask::ALL).map(|x| x.handle);
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let at = |offset, want_change| WriteAt { offset, stability: Stability::Unstable, want_change };
        match *deed {
            Deed::Create(d, n) => {
                let how =
                    CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::ALL };
                b.create(&cx, dir(d), name(NAMES[n]), &how).map(drop)
            }
            Deed::Mkdir(d, n) => b.make(&cx, dir(d), name(NAMES[n]), NewNode::Directory, &set).map(drop),
            Deed::Symlink(d, n) => {
                b.make(&cx, dir(d), name(NAMES[n]), NewNode::Symlink(b"x"), &set).map(drop)
            }
            Deed::Link(d, n, e, m) => b.link(&cx, &find(d, n)?, dir(e), name(NAMES[m])).map(drop),
            Deed::Rename(d, n, e, m, how) => {
                let flags = [RenameFlags::Replace, RenameFlags::NoReplace, RenameFlags::Exchange];
                let (from, to) = ((dir(d), name(NAMES[n])), (dir(e), name(NAMES[m])));
                b.rename(&cx, from, to, flags[usize::from(how)]).map(drop)
            }
            Deed::Remove(d, n) => b.remove(&cx, dir(d), name(NAMES[n]), RemoveKind::Any).map(drop),
            Deed::Write(d, n, is_open) => {
                let file = find(d, n)?;
                if !is_open {
                    return b
                        .write(&cx, File::Stateless(&file), at(u64::from(client), true), b"data")
                        .map(drop);
                }
                let mode = OpenMode { read: false, write: true, nfs_exceptions: false };
                let open = b.open(&cx, &file, mode)?;
                b.write(&cx, File::Open(&file, &open), at(7, false), b"more data").map(drop)
            }
            Deed::Set(d, n, what) => {
                b.setattr(&cx, File::Stateless(&find(d, n)?), &attributes(what, client), None).map(drop)
            }
            Deed::Read(d, n) => {
                let file = find(d, n)?;
                match b.read(&cx, File::Stateless(&file), 0, &mut [0; 16]) {
                    Err(FsError::IsSymlink) => b.readlink(&cx, &file).map(drop),
                    Err(FsError::IsDir) => self.w.uncached(&file).map(drop),
                    other => other.map(drop),
                }
            }
            Deed::Xattr(d, n, sets) => {
                let file = find(d, n)?;
                if !sets {
                    return b.removexattr(&cx, &file, b"user.x").map(drop);
                }
                b.setxattr(&cx, &file, b"user.x", b"y", XattrMode::Either).map(drop)
            }
            Deed::Copy(d, n, m) => {
                let (from, to) = (find(d, n)?, find(d, m)?);
                let span = CopySpan { from: 0, to: 3, bytes: 0 };
                b.copy(&cx, File::Stateless(&from), File::Stateless(&to), span).map(drop)
            }
            Deed::Region(d, n) => b.region(&cx, File::Stateless(&find(d, n)?), 10, 5000, Region::Allocate),
            Deed::Pledge(d, n) => b.pledge(&find(d, n)?, Pledge::WriteFile, None).map(drop),
            Deed::List(d) => {
                let pages = self.w.through_pages(dir(d)).map(|(text, _)| text);
                assert_eq!(pages, self.w.uncached(dir(d)), "directory {d}");
                Ok(())
            }
            Deed::Shed => {
                b.shed(50);
                Ok(())
            }
        }
    }
}

#[test]
fn pages_show_what_an_uncached_listing_shows_after_every_change_of_two_clients() {
    for (kind, local) in [("ext4", LocalUse::None), ("xfs", LocalUse::None), ("xfs", LocalUse::Lazy)] {
        let disk = Disk::make(kind, &[]);
        let mut kept = 0;
        let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let kept_pages = std::cell::Cell::new(0);
        let done = runner.run(&deeds(), |deeds| {
            let w = world(&disk, local);
            let play = Play::new(&w);
            for (i, deed) in deeds.iter().enumerate() {
                let _ = play.act(deed, i as u32 % 2 + 1);
                for dir in &play.dirs {
                    let Ok((pages, kept)) = w.through_pages(dir) else { continue };
                    kept_pages.set(kept_pages.get() + kept);
                    prop_assert_eq!(Ok(pages), w.uncached(dir), "{} after {:?}", kind, deed);
                }
            }
            Ok(())
        });
        done.unwrap();
        kept += kept_pages.get();
        // Beside local processes pages with directories in them are not kept.
        let least = if local == LocalUse::None { 1000 } else { 100 };
        assert!(kept > least, "{kind}, {local:?}: only {kept} pages came from memory");
        holdfast_backend_local::release_thread();
    }
}

#[test]
fn what_was_acknowledged_or_seen_is_never_shown_older() {
    const FILES: usize = 12;
    for kind in KINDS {
        let disk = Disk::make(kind, &[]);
        let w = world(&disk, LocalUse::None);
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let how = |set| CreateHow { mode: CreateMode::Guarded, set, open: None, want: AttrMask::ALL };
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let files: Vec<Handle> = (0..FILES)
            .map(|n| {
                let name = format!("f{n:02}");
                w.backend
                    .create(&cx, &w.root, Name::new(name.as_bytes()).unwrap(), &how(&set))
                    .unwrap()
                    .node
                    .handle
            })
            .collect();
        let acknowledged: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        let kept = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cx = Cx::new(&caller, Wait::Yes);
                for size in 1..4000_u64 {
                    let n = (size * 7 % FILES as u64) as usize;
                    let at =
                        WriteAt { offset: size, stability: Stability::Unstable, want_change: size % 2 == 0 };
                    w.backend.write(&cx, File::Stateless(&files[n]), at, b"x").unwrap();
                    acknowledged[n].store(size + 1, Ordering::SeqCst);
                    if size % 5 == 0 {
                        // Pages are to come from memory as well.
                        std::thread::sleep(std::time::Duration::from_micros(300));
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let cx = Cx::new(&caller, Wait::Yes);
                    while !is_over.load(Ordering::SeqCst) {
                        let mut least: Vec<u64> =
                            acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).collect();
                        for (n, file) in files.iter().enumerate() {
                            let seen = w.backend.getattr(&cx, file, AttrMask::STAT).unwrap().size;
                            least[n] = least[n].max(seen);
                        }
                        let (text, from_memory) = w.through_pages(&w.root).unwrap();
                        kept.fetch_add(from_memory as u64, Ordering::Relaxed);
                        for line in text.lines() {
                            let n: usize = line[1..3].parse().unwrap();
                            let size = line.split(" size: ").nth(1).unwrap().split(',').next().unwrap();
                            let size: u64 = size.parse().unwrap();
                            assert!(
                                size >= least[n],
                                "{kind}: file {n} is shown with {size}, was {}",
                                least[n]
                            );
                        }
                    }
                });
            }
        });
        assert!(kept.load(Ordering::Relaxed) > 100, "{kind}: pages came from memory");
    }
}

#[test]
fn nothing_is_kept_where_only_what_leases_guard_is_promised() {
    let disk = Disk::make("ext4", &[]);
    let w = world(&disk, LocalUse::Strict);
    let play = Play::new(&w);
    (0..NAMES.len()).for_each(|n| play.act(&Deed::Create(1, n), 1).unwrap());
    for _ in 0..3 {
        assert_eq!(w.through_pages(&play.dirs[1]).unwrap().1, 0);
    }
}

#[test]
fn a_page_is_shown_to_nobody_who_may_not_list_the_directory() {
    for kind in KINDS {
        let disk = Disk::make(kind, &[]);
        let w = world(&disk, LocalUse::None);
        let play = Play::new(&w);
        play.act(&Deed::Create(1, 0), 1).unwrap();
        let dir = play.dirs[1];
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let user = Caller { uid: 1000, gid: 1000, groups: Arc::from([]) };
        for mode in [0o755, 0o700, 0o755, 0o711, 0o744, 0o755] {
            let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
            w.backend.setattr(&cx, File::Stateless(&dir), &set, None).unwrap();
            assert!(!w.part(&caller, &dir, Cookie(0)).unwrap().was_kept);
            assert!(w.part(&caller, &dir, Cookie(0)).unwrap().was_kept);
            let key = PageKey { from: Cookie(0), form: [7, 0, 0, 0] };
            let shown = w.backend.kept_page(&Cx::new(&user, Wait::Yes), &dir, &key);
            assert_eq!(shown.is_some(), mode == 0o755, "{mode:o}");
        }
    }
}

#[test]
fn a_page_with_a_file_that_is_pledged_to_a_writer_is_not_shown_again() {
    let disk = Disk::make("xfs", &[]);
    let w = world(&disk, LocalUse::None);
    let play = Play::new(&w);
    play.act(&Deed::Create(1, 0), 1).unwrap();
    let (caller, dir) = (Caller::root(), play.dirs[1]);
    assert!(!w.part(&caller, &dir, Cookie(0)).unwrap().was_kept);
    assert!(w.part(&caller, &dir, Cookie(0)).unwrap().was_kept);
    let file = w.backend.lookup(&Cx::new(&caller, Wait::Yes), &dir, name(NAMES[0]), AttrMask::ALL).unwrap();
    let read = w.backend.pledge(&file.handle, Pledge::ReadFile, None).unwrap();
    assert!(read.is_some() && w.part(&caller, &dir, Cookie(0)).unwrap().was_kept, "readers change nothing");
    let written = w.backend.pledge(&file.handle, Pledge::WriteFile, None).unwrap();
    assert!(written.is_some() && !w.part(&caller, &dir, Cookie(0)).unwrap().was_kept);
}
