use std::sync::Arc;

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_cache::{
    Access, Acting, Answer, Ask, Attrs, Batch, Caller, CapSet, Changes, Errno, Fh, Grant, Handle, Kind,
    Lookup, Mutation, MutationResult, NodeId, Object, OpenFlags, OpenToken, Question, ReadInto, Settings,
    WriteOut, WriteTo,
};
use holdfast_client::Cancel;
use parking_lot::Mutex;

use super::*;
use crate::VolumeOptions;
use crate::running::Plain;
use crate::server::{BatchDone, Settled, Undone, WriteDone};
use crate::stub::{self, Stub};

/// A server with one file, all of which is promised, and one lock.
#[derive(Default)]
struct Locking(Mutex<State>);

#[derive(Default)]
struct State {
    content: Vec<u8>,
    is_held: bool,
    is_lost: bool,
    /// What was written by batch, and what by WRITE.
    batched: Vec<Bytes>,
    written: Vec<Bytes>,
    /// What the file was when the lock was asked for.
    was: Option<Vec<u8>>,
}

const MINE: LockOwner = LockOwner { owner: 7, class: LockClass::Range };

fn grant(caps: CapSet) -> Grant {
    Grant {
        caps,
        seq: 1,
        plain: true,
        group_of_directory: false,
        listed: false,
        hands_on_none: true,
        changed_since: false,
    }
}

impl Locking {
    fn attrs(&self, object: &Handle) -> Attrs {
        let Object { attrs, handle, .. } = stub::root(0o755, grant(CapSet::ALL_S));
        let size = self.0.lock().content.len() as u64;
        let file = Attrs { kind: Kind::File, mode: 0o644, nlink: 1, size, fileid: 2, ..attrs };
        if *object == handle { attrs } else { file }
    }

    fn put(&self, offset: u64, data: &[u8]) {
        let (mut state, offset) = (self.0.lock(), usize::try_from(offset).unwrap());
        let end = state.content.len().max(offset + data.len());
        state.content.resize(end, 0);
        state.content[offset..offset + data.len()].copy_from_slice(data);
    }
}

impl Stub for Locking {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer> {
        let given = Some(grant(CapSet::ALL_X));
        match &ask.question {
            Question::Lookup { name, .. } => {
                let handle = Handle::new(name.as_bytes());
                let found = Object { attrs: self.attrs(&handle), handle, grant: given };
                Ok(Answer::Looked { found: Some(found), dir: None, promise: None })
            }
            Question::GetAttr { object, .. } => Ok(Answer::Attrs { attrs: self.attrs(object), grant: given }),
            Question::Acquire { items } => {
                let items = items.iter().map(|(h, caps)| Ok((self.attrs(h), grant(*caps)))).collect();
                Ok(Answer::Acquired { items })
            }
            Question::WhoAmI => Ok(Answer::Acts(Acting::AsItself)),
            Question::Open { object, .. } => {
                let (open, attrs) = (Some(OpenToken(1)), self.attrs(object));
                Ok(Answer::Opened { open, attrs, grant: given })
            }
            Question::Close { .. } => Ok(Answer::Done),
            Question::Read { offset, length, .. } => {
                let content = Bytes::copy_from_slice(&self.0.lock().content);
                let from = usize::try_from(*offset).unwrap().min(content.len());
                let to = (from + *length as usize).min(content.len());
                Ok(Answer::Read { data: content.slice(from..to), eof: to == content.len() })
            }
            _ => panic!("{ask:?}"),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> std::result::Result<BatchDone, Undone> {
        for op in &batch.ops {
            if let Mutation::Write { data, .. } = op {
                data.iter().for_each(|(offset, bytes)| self.put(*offset, bytes));
                self.0.lock().batched.extend(data.iter().map(|(_, bytes)| bytes.clone()));
            }
        }
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        let results = batch.ops.iter().map(|_| done.clone()).collect();
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn, failed: Vec::new() })
    }

    fn stable(&self, through: u64, _: &Cancel) -> std::result::Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }

    fn write(&self, write: &WriteOut) -> std::result::Result<WriteDone, Undone> {
        assert!(write.is_bound);
        if self.0.lock().is_lost {
            return Err(Undone::Failed(Errno::EIO));
        }
        self.put(write.offset, &write.data);
        self.0.lock().written.push(write.data.clone());
        Ok(WriteDone { count: u32::try_from(write.data.len()).unwrap(), stable: true, verifier: 1 })
    }

    fn lock(&self, _: &LockRequest<'_>) -> Result<()> {
        let mut state = self.0.lock();
        state.is_held = true;
        state.was = Some(state.content.clone());
        Ok(())
    }

    fn unlock(&self, _: &Handle, owner: LockOwner) -> Result<()> {
        assert_eq!(owner, MINE);
        let mut state = self.0.lock();
        (state.is_held, state.is_lost) = (false, false);
        Ok(())
    }

    fn holds_locks(&self, _: &Handle, owner: &[u8]) -> bool {
        owner == MINE.bytes() && self.0.lock().is_held
    }

    fn has_lost_locks(&self, _: &Handle) -> bool {
        self.0.lock().is_lost
    }
}

/// A mount that has the file open.
struct Mounted {
    server: Arc<Locking>,
    volume: Volume,
    never: Cancel,
    node: NodeId,
    fh: Fh,
}

impl Mounted {
    fn new() -> Self {
        let (server, never) = (Arc::new(Locking::default()), Cancel::new());
        let options = VolumeOptions { settings: Settings::full(), flushers: 2, patience: None };
        let root = stub::root(0o755, grant(CapSet::ALL_S));
        let volume = Volume::start(&root, Arc::clone(&server) as _, &options).unwrap();
        let who = Plain(Caller::new(0, 0), &never);
        let Lookup::Found(entry) = volume.lookup(&who, (NodeId::ROOT, b"file")).unwrap() else { panic!() };
        let access = Access { read: true, write: true };
        let opened = volume.open(&who, entry.node, OpenFlags { access, ..OpenFlags::default() }).unwrap();
        Self { server, volume, never: never.clone(), node: entry.node, fh: opened.fh }
    }

    fn who(&self) -> Plain<'_> {
        Plain(Caller::new(0, 0), &self.never)
    }

    fn lock(&self) {
        let wanted = LockWanted { fh: self.fh, owner: MINE, range: ByteRange::ALL, exclusive: true };
        self.volume.lock(&self.who(), self.node, &wanted, false).unwrap();
    }

    fn write(&self, offset: u64, data: &'static [u8]) -> Result<u32> {
        let data = Bytes::from_static(data);
        self.volume.write(&self.who(), self.fh, (offset, WriteTo::Place), &data)
    }

    fn read(&self) -> Result<Vec<u8>> {
        let read = self.volume.read(&self.who(), self.fh, (0, 100), ReadInto::Memory)?;
        Ok(read.pieces.concat())
    }

    fn lose(&self) {
        self.server.0.lock().is_lost = true;
        self.volume.loss_signal().locks_lost(b"file");
    }

    fn fsync(&self) -> Result<()> {
        self.volume.fsync(&self.who(), self.node, self.fh)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.volume.close();
    }
}

#[test]
fn what_waits_when_a_lock_is_lost_is_not_sent_and_who_wrote_it_is_told() {
    let mounted = Mounted::new();
    mounted.lock();
    assert_eq!(mounted.write(0, b"ours"), Ok(4));
    assert_eq!(mounted.read(), Ok(b"ours".to_vec()));
    mounted.server.put(0, b"theirs");
    mounted.lose();
    assert_eq!(mounted.read(), Err(Errno::EIO));
    assert_eq!(mounted.write(0, b"more"), Err(Errno::EIO));
    let changes = Changes { size: Some(0), ..Changes::default() };
    let cut = mounted.volume.setattr(&mounted.who(), mounted.node, &changes);
    assert_eq!(cut.map(|told| told.attrs.size), Err(Errno::EIO));
    assert_eq!(mounted.volume.flush(&mounted.who(), mounted.fh), Err(Errno::EIO), "close");
    assert_eq!([mounted.fsync(), mounted.fsync()], [Err(Errno::EIO), Ok(())]);
    let told: Vec<_> = mounted.volume.take_reports().into_iter().map(|r| (r.path, r.what)).collect();
    let file = || b"file".to_vec();
    let (lock, write) = ("lock, which others may have had meanwhile", "write under a lock that was lost");
    assert_eq!(told, [(file(), lock.to_owned()), (file(), write.to_owned())]);
    mounted.volume.unlock(&mounted.who(), mounted.node, MINE, ByteRange::ALL).unwrap();
    assert_eq!(mounted.read(), Ok(b"theirs".to_vec()));
    assert_eq!(mounted.write(0, b"last"), Ok(4));
    mounted.fsync().unwrap();
    let state = mounted.server.0.lock();
    assert_eq!((&state.content[..], state.written.len() + state.batched.len()), (&b"lastrs"[..], 1));
}

#[test]
fn a_lock_that_was_lost_with_nothing_waiting_fails_no_fsync() {
    let mounted = Mounted::new();
    mounted.lock();
    mounted.write(0, b"ours").unwrap();
    mounted.fsync().unwrap();
    mounted.lose();
    mounted.lose();
    assert_eq!(mounted.read(), Err(Errno::EIO));
    assert_eq!(mounted.fsync(), Ok(()));
    assert_eq!(mounted.volume.sync(&mounted.never), Ok(()));
    assert_eq!(mounted.volume.take_reports().len(), 1, "it is told once");
}

#[test]
fn what_is_written_under_a_lock_goes_by_write_and_what_was_before_has_gone_out_before() {
    let mounted = Mounted::new();
    mounted.write(0, b"before").unwrap();
    mounted.lock();
    mounted.write(0, b"under").unwrap();
    mounted.fsync().unwrap();
    let state = mounted.server.0.lock();
    assert_eq!(state.was, Some(b"before".to_vec()));
    assert!(state.batched.is_empty(), "in no batch, which would come out again");
    assert_eq!(state.written, [&b"before"[..], b"under"]);
}
