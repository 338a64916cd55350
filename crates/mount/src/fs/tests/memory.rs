//! A server that has nothing but memory, one client, and no secrets from it: all that is made may be changed there.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use holdfast_base::{ByteRange, Timestamp};
use holdfast_volume::cache::{
    Acting, Answer, Ask, Attrs, Batch, Born, CapSet, Changes, CommitOut, Device, Errno, Grant, Handle, Kind,
    Mutation, MutationResult, NewObject, Object, Question, Release, Room, Target, WriteOut,
};
use holdfast_volume::{
    BatchDone, Cancel, LockConflict, LockOwner, LockRequest, Server, Settled, Undone, WriteDone,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

#[derive(Default)]
struct Files {
    data: FxHashMap<Handle, Vec<u8>>,
    made: FxHashMap<(u64, u32), Handle>,
}

#[derive(Default)]
pub(super) struct Memory {
    files: Mutex<Files>,
    /// How often it was asked for data.
    pub(super) reads: AtomicU64,
}

const GRANT: Grant = Grant {
    caps: CapSet::ALL_X,
    seq: 1,
    plain: true,
    group_of_directory: false,
    listed: false,
    hands_on_none: true,
    changed_since: false,
};

fn attrs(kind: Kind, mode: u32, size: u64) -> Attrs {
    let at = Timestamp { seconds: 1, nanos: 0 };
    let (fileid, change, nlink) = if kind == Kind::Dir { (1, 1, 2) } else { (2, 1, 1) };
    let (uid, gid, allocated, device) = (0, 0, size, Device::default());
    let (atime, mtime, ctime, btime) = (at, at, at, None);
    Attrs { kind, mode, nlink, uid, gid, size, allocated, device, atime, mtime, ctime, btime, change, fileid }
}

pub(super) fn root() -> Object {
    Object { handle: Handle::new(b"root"), attrs: attrs(Kind::Dir, 0o755, 0), grant: Some(GRANT) }
}

fn put(file: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let at = usize::try_from(offset).unwrap();
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

impl Files {
    fn looks(&self, object: &Handle) -> Attrs {
        match self.data.get(object) {
            Some(data) => attrs(Kind::File, 0o644, data.len() as u64),
            None => root().attrs,
        }
    }

    fn file(&mut self, target: &Target) -> &mut Vec<u8> {
        let handle = match target {
            Target::Handle(handle) => handle.clone(),
            Target::Made { txn, op } => self.made[&(*txn, *op)].clone(),
        };
        self.data.entry(handle).or_default()
    }

    fn execute(&mut self, txn: u64, at: u32, op: &Mutation) -> Option<Born> {
        match op {
            Mutation::Make { object, .. } => {
                let handle = Handle::new(format!("{txn} {at}").as_bytes());
                self.made.insert((txn, at), handle.clone());
                if let NewObject::File { data, size, .. } = object {
                    let file = self.data.entry(handle.clone()).or_default();
                    data.iter().for_each(|(offset, data)| put(file, *offset, data));
                    size.iter().for_each(|size| file.resize(usize::try_from(*size).unwrap(), 0));
                }
                return Some(Born { handle, grant: Some(GRANT) });
            }
            Mutation::Write { object, data, .. } => {
                let file = self.file(object);
                data.iter().for_each(|(offset, data)| put(file, *offset, data));
            }
            Mutation::SetAttr { object, changes: Changes { size: Some(size), .. } } => {
                self.file(object).resize(usize::try_from(*size).unwrap(), 0);
            }
            _ => {}
        }
        None
    }
}

impl Server for Memory {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        let mut files = self.files.lock();
        match &ask.question {
            Question::WhoAmI => Ok(Answer::Acts(Acting::AsItself)),
            Question::Lookup { .. } => Ok(Answer::Looked { found: None, dir: Some(GRANT), promise: None }),
            Question::GetAttr { object, .. } => {
                Ok(Answer::Attrs { attrs: files.looks(object), grant: Some(GRANT) })
            }
            Question::Acquire { items } => {
                let items = items.iter().map(|(object, _)| Ok((files.looks(object), GRANT))).collect();
                Ok(Answer::Acquired { items })
            }
            Question::SetAttr { object, changes, .. } => {
                if let Some(size) = changes.size {
                    files.data.entry(object.clone()).or_default().resize(usize::try_from(size).unwrap(), 0);
                }
                Ok(Answer::Attrs { attrs: files.looks(object), grant: Some(GRANT) })
            }
            Question::Read { object, offset, length, .. } => {
                self.reads.fetch_add(1, Ordering::SeqCst);
                let data = files.data.get(object).ok_or(Errno::ESTALE)?;
                let from = usize::try_from(*offset).unwrap().min(data.len());
                let to = (from + *length as usize).min(data.len());
                Ok(Answer::Read { data: Bytes::copy_from_slice(&data[from..to]), eof: to == data.len() })
            }
            Question::Open { object, truncate, .. } => {
                if *truncate {
                    files.data.entry(object.clone()).or_default().clear();
                }
                Ok(Answer::Opened { open: None, attrs: files.looks(object), grant: Some(GRANT) })
            }
            Question::Write { object, offset, data, .. } => {
                put(files.data.entry(object.clone()).or_default(), *offset, data);
                let (count, attrs) = (u32::try_from(data.len()).unwrap(), Some(files.looks(object)));
                Ok(Answer::Written { count, stable: true, verifier: 1, attrs })
            }
            Question::Append { object, data, .. } => {
                let offset = files.looks(object).size;
                put(files.data.entry(object.clone()).or_default(), offset, data);
                let (count, attrs) = (u32::try_from(data.len()).unwrap(), Some(files.looks(object)));
                Ok(Answer::Appended { offset, count, stable: true, verifier: 1, attrs })
            }
            Question::StatFs { .. } => Ok(Answer::Room { room: Room::default() }),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        let (mut files, mut at) = (self.files.lock(), 0);
        let mut results = Vec::new();
        for op in &batch.ops {
            let made = files.execute(batch.txn, at, op);
            at += u32::try_from(op.operations()).unwrap();
            results.push(MutationResult::Done { made, other_name: None, attrs: None });
        }
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn, failed: Vec::new() })
    }

    fn stable(&self, through: u64, _: &Cancel) -> Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }

    fn write(&self, write: &WriteOut, _: &Cancel) -> Result<WriteDone, Undone> {
        put(self.files.lock().data.entry(write.object.clone()).or_default(), write.offset, &write.data);
        let count = u32::try_from(write.data.len()).unwrap();
        Ok(WriteDone { count, stable: true, verifier: 1 })
    }

    fn commit(&self, _: &CommitOut, _: &Cancel) -> Result<u64, Undone> {
        Ok(1)
    }

    fn release(&self, _: &[Release], _: &Cancel) -> Result<(), Undone> {
        Ok(())
    }

    fn lock(&self, _: &LockRequest<'_>, _: bool, _: &Cancel) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn unlock(&self, _: &Handle, _: LockOwner, _: ByteRange, _: &Cancel) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn lock_test(&self, _: &LockRequest<'_>, _: &Cancel) -> Result<Option<LockConflict>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn holds_locks(&self, _: &Handle, _: &[u8]) -> bool {
        false
    }
}
