use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::limits::KEPT_BLOCK_BYTES;
use holdfast_cache::{
    Access, Acting, Attrs, Caller, CapSet, Grant, Handle, Kind, Lookup, NodeId, Object, OpenFlags, ReadInto,
    Settings,
};
use holdfast_client::Cancel;

use super::*;
use crate::running::Plain;
use crate::stub::{self, Stub};
use crate::{Kept, Volume, VolumeOptions};

fn block(number: u64, slot: u32, data: &[u8], base: Option<(BlockAt, u32)>) -> BlockOut {
    let (base, at) = base.map_or((None, 0), |(base, at)| (Some(base), at));
    BlockOut { number, slot, base, at, data: Bytes::copy_from_slice(data) }
}

fn at(out: &BlockOut, bytes: u32, sum: u64) -> BlockAt {
    BlockAt { number: out.number, slot: out.slot, bytes, sum, len: bytes, index: 0 }
}

fn store(dir: &tempfile::TempDir, bytes: u64) -> Blocks {
    Blocks::open(&dir.path().join("journal"), bytes, [7; 16]).unwrap().unwrap()
}

#[test]
fn what_was_written_is_read_again_and_what_is_torn_or_gone_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = store(&dir, 1 << 20);
    assert_eq!(blocks.slots(), 16);
    let whole = block(1, 3, &[5; 1000], None);
    let first = at(&whole, 1000, blocks.write(&whole).unwrap().unwrap());
    assert_eq!(blocks.read(&first).unwrap().unwrap(), vec![5; 1000]);
    // A part of it over the first 600, and zeros between.
    let patched = block(2, 7, &[9; 50], Some((BlockAt { len: 600, ..first }, 650)));
    let second = at(&patched, 700, blocks.write(&patched).unwrap().unwrap());
    let expected = [vec![5; 600], vec![0; 50], vec![9; 50]].concat();
    assert_eq!(blocks.read(&second).unwrap().unwrap(), expected);
    drop(blocks);
    let blocks = store(&dir, 1 << 20);
    assert_eq!(blocks.read(&second).unwrap().unwrap(), expected, "in another life");
    blocks.file.write_all_at(b"x", place(7) + 699).unwrap();
    assert_eq!(blocks.read(&second).unwrap(), None, "torn");
    assert_eq!(
        blocks.write(&block(3, 8, b"z", Some((second, 0)))).unwrap(),
        None,
        "nor is anything made of it"
    );
    assert_eq!(blocks.read(&BlockAt { slot: 12, ..first }).unwrap(), None, "behind the file's end");
    let other = Blocks::open(&dir.path().join("journal"), 1 << 20, [8; 16]).unwrap().unwrap();
    assert_eq!(other.read(&first).unwrap(), None, "another mount's");
    drop(other);
    let smaller = store(&dir, 4 << 16);
    assert!(smaller.file.metadata().unwrap().len() <= 4 << 16);
    assert!(smaller.read(&first).unwrap().is_some() && smaller.read(&second).unwrap().is_none());
}

#[test]
fn they_are_written_in_the_order_in_which_they_came() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = store(&dir, 1 << 20);
    for number in 0..50 {
        blocks.add(vec![block(2 * number, 1, &[1], None), block(2 * number + 1, 1, &[2], None)]);
    }
    let came: Vec<u64> = std::iter::from_fn(|| blocks.next(Duration::ZERO)).map(|out| out.number).collect();
    assert_eq!(came, (0..100).collect::<Vec<_>>());
}

/// A server with one file, and nobody else.
struct Simple {
    data: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_away: bool,
    reads: u64,
    commits: u64,
}

fn grant() -> Grant {
    let (group_of_directory, listed) = (false, false);
    Grant {
        caps: CapSet::ALL_S,
        seq: 1,
        plain: true,
        group_of_directory,
        listed,
        hands_on_none: true,
        changed_since: false,
    }
}

impl Simple {
    fn new(size: usize) -> Arc<Self> {
        let data = (0..size).map(|at| (at / 251) as u8 ^ at as u8).collect();
        Arc::new(Self { data, state: Mutex::default() })
    }

    fn attrs(&self, handle: &Handle) -> Attrs {
        let Object { attrs, handle: root, .. } = stub::root(0o755, grant());
        let size = self.data.len() as u64;
        if *handle == root { attrs } else { Attrs { kind: Kind::File, nlink: 1, size, fileid: 9, ..attrs } }
    }
}

impl Stub for Simple {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        let mut state = self.state.lock();
        if state.is_away {
            return Err(Errno::ETIMEDOUT);
        }
        Ok(match &ask.question {
            Question::Lookup { name, .. } => {
                let handle = Handle::new(name.as_bytes());
                let object = Object { attrs: self.attrs(&handle), handle, grant: Some(grant()) };
                Answer::Looked { found: Some(object), dir: None, promise: None }
            }
            Question::GetAttr { object, .. } => {
                Answer::Attrs { attrs: self.attrs(object), grant: Some(grant()) }
            }
            Question::Acquire { items } => {
                let items = items.iter().map(|(handle, _)| Ok((self.attrs(handle), grant()))).collect();
                Answer::Acquired { items }
            }
            Question::Read { offset, length, .. } => {
                state.reads += 1;
                let from = (*offset as usize).min(self.data.len());
                let to = (from + *length as usize).min(self.data.len());
                Answer::Read {
                    data: Bytes::copy_from_slice(&self.data[from..to]),
                    eof: to == self.data.len(),
                }
            }
            Question::Commit { .. } => {
                state.commits += 1;
                Answer::Committed { verifier: 1 }
            }
            Question::WhoAmI => Answer::Acts(Acting::AsItself),
            _ => panic!("{ask:?}"),
        })
    }
}

fn begin(dir: &tempfile::TempDir, server: &Arc<Simple>, bytes: u64) -> Volume {
    let kept = Kept::open(&dir.path().join("journal"), "server:/export", [7; 16]).unwrap();
    let kept = kept.with_contents(bytes);
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let root = stub::root(0o755, grant());
    Volume::start_kept(Some(&root), kept, "server:/export", Arc::clone(server) as _, &options).unwrap()
}

/// Reads all of the file, as the kernel does: in parts, and none of it from its own pages.
fn read(volume: &Volume) -> Result<Vec<u8>, Errno> {
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    let Lookup::Found(entry) = volume.lookup(&who, (NodeId::ROOT, b"f"))? else { panic!("it is there") };
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let fh = volume.open(&who, entry.node, flags)?.fh;
    let mut all = Vec::new();
    loop {
        let part = volume.read(&who, fh, (all.len() as u64, 200_000), ReadInto::Memory);
        let part = part.inspect_err(|_| volume.release(fh))?.pieces.concat();
        if part.is_empty() {
            volume.release(fh);
            return Ok(all);
        }
        all.extend_from_slice(&part);
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// So many records of blocks the journal has.
fn records(dir: &tempfile::TempDir) -> BTreeMap<Vec<u8>, Bytes> {
    let kept = Kept::open(&dir.path().join("journal"), "server:/export", [7; 16]).unwrap();
    kept.records.into_iter().filter(|(key, _)| key[0] == b'S').collect()
}

#[test]
fn a_large_file_is_read_without_the_server_in_this_life_and_the_next() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Simple::new(700_001));
    let volume = begin(&dir, &server, 1 << 24);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    let asked = server.state.lock().reads;
    assert!(asked > 0);
    wait("the server is asked to put it on its disk", || server.state.lock().commits > 0);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    assert_eq!(server.state.lock().reads, asked, "it is read from here");
    server.state.lock().is_away = true;
    volume.0.went_away();
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    let stats = volume.stats().contents;
    assert_eq!((stats.blocks, stats.lost), (11, 0));
    volume.close();
    drop(volume);
    assert_eq!(records(&dir).len(), 11);
    let volume = begin(&dir, &server, 1 << 24);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data), "in the next");
    volume.close();
}

#[test]
fn what_is_closed_at_once_is_kept_all_the_same() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Simple::new(300_000));
    let volume = begin(&dir, &server, 1 << 24);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    volume.close();
    drop(volume);
    assert_eq!(records(&dir).len(), 5);
}

#[test]
fn a_disk_that_fails_switches_it_off_and_the_mount_goes_on() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Simple::new(300_000));
    let volume = begin(&dir, &server, 1 << 24);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    wait("all is written", || server.state.lock().commits > 0);
    volume.0.keeps_no_blocks(&io::Error::from(io::ErrorKind::StorageFull));
    let reads = server.state.lock().reads;
    assert_eq!(read(&volume).as_ref(), Ok(&server.data), "from the server");
    assert!(server.state.lock().reads > reads);
    assert_eq!(volume.stats().contents.blocks, 0);
    assert_eq!(
        std::fs::metadata(dir.path().join("journal.blocks")).unwrap().len(),
        0,
        "the room is given back"
    );
    volume.close();
    drop(volume);
    assert_eq!(records(&dir).len(), 0);
}

#[test]
fn none_is_kept_where_none_is_wanted() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Simple::new(u64::from(KEPT_BLOCK_BYTES) as usize * 3));
    let volume = begin(&dir, &server, 1 << 24);
    assert_eq!(read(&volume).as_ref(), Ok(&server.data));
    volume.close();
    drop(volume);
    assert_eq!(records(&dir).len(), 3);
    let volume = begin(&dir, &server, 0);
    server.state.lock().is_away = true;
    assert_eq!(read(&volume), Err(Errno::ETIMEDOUT));
    volume.close();
    drop(volume);
    assert_eq!(records(&dir).len(), 0);
}
