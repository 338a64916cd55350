//! Tests of files whose data the kernel is given, over one that takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use holdfast_cache::{
    Access, Acting, Answer, Ask, Attrs, Batch, Born, Caller, CapSet, Changes, Errno, Forget, Grant, Handle,
    Kind, Mutation, MutationResult, NodeId, Object, OpenFlags, Question, Settings, WriteTo,
};
use holdfast_client::Cancel;
use parking_lot::Mutex;

use super::wait_for;
use crate::caps::Promises;
use crate::running::Plain;
use crate::server::{BatchDone, Settled, Undone};
use crate::stub::{self, Stub};
use crate::{Invalidate, Volume, VolumeOptions};

/// A server that does what it is told.
struct Willing;

const GRANT: Grant = Grant {
    caps: CapSet::ALL_X,
    seq: 1,
    plain: true,
    group_of_directory: false,
    listed: false,
    hands_on_none: true,
    changed_since: false,
};

fn root() -> Object {
    stub::root(0o755, GRANT)
}

fn file() -> Object {
    let attrs = Attrs { kind: Kind::File, mode: 0o644, nlink: 1, fileid: 2, size: 4, ..root().attrs };
    Object { handle: Handle::new(b"file"), attrs, grant: Some(GRANT) }
}

impl Stub for Willing {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::Lookup { .. } => Ok(Answer::Looked { found: None, dir: Some(GRANT), promise: None }),
            Question::WhoAmI => Ok(Answer::Acts(Acting::AsItself)),
            Question::Acquire { .. } => Ok(Answer::Acquired { items: vec![Ok((file().attrs, GRANT))] }),
            Question::Open { .. } => {
                Ok(Answer::Opened { open: None, attrs: file().attrs, grant: Some(GRANT) })
            }
            Question::SetAttr { .. } => Ok(Answer::Attrs { attrs: file().attrs, grant: Some(GRANT) }),
            Question::Create { .. } => {
                Ok(Answer::Created { object: file(), open: None, made: false, dir: None, dir_attrs: None })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        let born = || Born { handle: Handle::new(b"file"), grant: Some(GRANT) };
        let done = |op: &Mutation| {
            let made = matches!(op, Mutation::Make { .. }).then(born);
            MutationResult::Done { made, other_name: None, attrs: None }
        };
        let results = batch.ops.iter().map(done).collect();
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn, failed: Vec::new() })
    }

    fn stable(&self, through: u64, _: &Cancel) -> Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }
}

/// A kernel that takes a file's data when it is let.
#[derive(Default)]
struct Slow {
    is_let: AtomicBool,
    begun: AtomicU64,
    done: AtomicU64,
    /// How many it had taken when it forgot some.
    forgot_after: Mutex<Vec<u64>>,
}

impl Invalidate for Slow {
    fn forget(&self, what: &Forget) -> bool {
        if matches!(what, Forget::Store(..)) {
            self.begun.fetch_add(1, Ordering::SeqCst);
            wait_for(|| self.is_let.load(Ordering::SeqCst));
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        if matches!(what, Forget::Data(_)) {
            self.forgot_after.lock().push(self.done.load(Ordering::SeqCst));
        }
        true
    }

    fn forget_names(&self, _: &[NodeId]) {}
}

const READ: OpenFlags = OpenFlags {
    access: Access { read: true, write: false },
    append: false,
    truncate: false,
    exclusive: false,
    execute: false,
};
const BOTH: OpenFlags = OpenFlags { access: Access { read: true, write: true }, ..READ };

/// A file that was sent, and is being stored.
struct Storing {
    volume: Volume,
    kernel: Arc<Slow>,
    node: NodeId,
}

impl Storing {
    /// It goes to make room.
    fn new() -> Self {
        let storing = Self::keeping(0);
        let stats = || storing.volume.stats();
        assert!(wait_for(|| storing.kernel.begun.load(Ordering::SeqCst) == 1), "{:?}", stats());
        storing
    }

    fn keeping(clean_bytes_max: usize) -> Self {
        let never = Cancel::new();
        let who = &Plain(Caller::new(0, 0), &never);
        let settings = Settings { clean_bytes_max, pooled_max: 0, ..Settings::full() };
        let options = VolumeOptions { settings, flushers: 1, patience: None };
        let volume = Volume::start(&root(), Arc::new(Willing), &options).unwrap();
        let kernel = Arc::new(Slow::default());
        let told: Arc<dyn Invalidate> = Arc::clone(&kernel) as _;
        volume.invalidate_by(&told).unwrap();
        volume.lookup(who, (NodeId::ROOT, b"f")).unwrap();
        let (made, open) = volume.create(who, (NodeId::ROOT, b"f"), 0o644, BOTH).unwrap();
        volume.write(who, open.fh, (0, WriteTo::Place), &Bytes::from_static(b"data")).unwrap();
        volume.flush(who, open.fh).unwrap();
        volume.release(open.fh);
        volume.sync(&never).unwrap();
        Self { volume, kernel, node: made.node }
    }

    fn done(&self) -> u64 {
        self.kernel.done.load(Ordering::SeqCst)
    }

    /// Does something while it is being stored, and calls `meanwhile` once that waits. What came of it, and how many files were
    /// stored by then.
    fn beside(&self, act: Act<'_>, cancel: &Cancel, meanwhile: impl FnOnce()) -> (Result<(), Errno>, u64) {
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| (act(self, &Plain(Caller::new(0, 0), cancel)), self.done()));
            let waits = wait_for(|| self.volume.0.progressed.count() > 0 || acting.is_finished());
            assert!(waits && self.done() == 0);
            meanwhile();
            acting.join().unwrap()
        })
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.kernel.is_let.store(true, Ordering::SeqCst);
        self.volume.close();
    }
}

type Act<'a> = &'a (dyn Fn(&Storing, &Plain<'_>) -> Result<(), Errno> + Sync);

const SIZE: Changes = Changes { size: Some(2), mode: None, uid: None, gid: None, atime: None, mtime: None };

/// What must not be done while the file is being stored.
const ACTS: [Act<'static>; 5] = [
    &|on, who| on.volume.open(who, on.node, READ).map(drop),
    &|on, who| on.volume.open(who, on.node, BOTH).map(drop),
    &|on, who| on.volume.open(who, on.node, OpenFlags { truncate: true, ..READ }).map(drop),
    &|on, who| on.volume.setattr(who, on.node, &SIZE).map(drop),
    &|on, who| on.volume.create(who, (NodeId::ROOT, b"f"), 0o644, BOTH).map(drop),
];

/// Nor to read it: whoever reads holds its pages locked, for which a store waits, until he is answered, by a thread that may wait for
/// the store.
#[test]
fn nobody_has_opened_a_file_nor_set_its_size_while_it_is_being_stored() {
    for (which, act) in ACTS.into_iter().enumerate() {
        let on = Storing::new();
        let (done, stored) =
            on.beside(act, &Cancel::new(), || on.kernel.is_let.store(true, Ordering::SeqCst));
        assert_eq!((done, stored), (Ok(()), 1), "{which}");
        assert_eq!(on.volume.stats().stores, 1);
    }
}

#[test]
fn what_is_given_with_an_open_comes_before_what_is_forgotten_for_a_recall() {
    let on = Storing::keeping(1 << 20);
    let (never, on) = (Cancel::new(), &on);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| on.volume.open(&Plain(Caller::new(0, 0), &never), on.node, READ));
        assert!(wait_for(|| on.kernel.begun.load(Ordering::SeqCst) == 1), "{:?}", on.volume.stats());
        on.volume.0.recalled(&Handle::new(b"file"), CapSet::NONE, 9);
        assert!(wait_for(|| on.volume.0.progressed.count() > 0 || !on.kernel.forgot_after.lock().is_empty()));
        assert!(!opening.is_finished());
        on.kernel.is_let.store(true, Ordering::SeqCst);
        opening.join().unwrap().unwrap();
    });
    assert!(wait_for(|| !on.kernel.forgot_after.lock().is_empty()));
    assert_eq!(*on.kernel.forgot_after.lock(), [1], "it had come");
}

#[test]
fn who_waits_for_a_file_to_be_stored_may_give_up_and_has_done_nothing() {
    for (which, act) in ACTS.into_iter().enumerate() {
        let (on, cancel) = (Storing::new(), Cancel::new());
        let (done, stored) = on.beside(act, &cancel, || cancel.cancel());
        assert_eq!((done, stored), (Err(Errno::EINTR), 0), "{which}");
        let size = on.volume.getattr(&Plain(Caller::new(0, 0), &Cancel::new()), on.node).unwrap().attrs.size;
        assert_eq!(size, 4, "{which}");
    }
}
