use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::{ByteRange, Timestamp};
use holdfast_cache::{
    Acting, Answer, Ask, Attrs, Batch, Caller, CapSet, Changes, CommitOut, Device, Errno, Grant, Handle,
    Kind, MutationResult, NodeId, Object, Question, Release, Settings, WriteOut,
};
use holdfast_client::Cancel;
use parking_lot::{Condvar, Mutex};

use crate::caps::Promises as _;
use crate::locks::{LockConflict, LockOwner, LockRequest};
use crate::running::Plain;
use crate::server::{BatchDone, Server, Settled, Undone, WriteDone};
use crate::{Volume, VolumeOptions};

/// Longer than it takes to take in what became of a call.
const MOMENT: Duration = Duration::from_millis(100);

/// How far the two calls with the one batch have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Nothing,
    First,
    Second,
    FirstIsRefused,
}

/// A server with one object, all of which is promised. A batch is sent to it twice: before and after it was greeted anew. The
/// first call is refused, once the second is there.
#[derive(Default)]
struct Twice {
    stage: Mutex<Stage>,
    bell: Condvar,
}

fn root() -> Object {
    let at = Timestamp { seconds: 1, nanos: 0 };
    let attrs = Attrs {
        kind: Kind::Dir,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 0,
        allocated: 0,
        device: Device::default(),
        atime: at,
        mtime: at,
        ctime: at,
        btime: None,
        change: 1,
        fileid: 1,
    };
    let grant = Grant {
        caps: CapSet::ALL_X,
        seq: 1,
        plain: true,
        group_of_directory: false,
        listed: false,
        hands_on_none: true,
    };
    Object { handle: Handle::new(b"root"), attrs, grant: Some(grant) }
}

impl Twice {
    fn is_at(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.bell.notify_all();
    }

    fn wait_for(&self, stage: Stage) {
        let mut at = self.stage.lock();
        let until = Instant::now() + Duration::from_secs(20);
        while *at < stage {
            assert!(!self.bell.wait_until(&mut at, until).timed_out(), "{at:?}, and not {stage:?}");
        }
    }
}

impl Server for Twice {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::GetAttr { .. } => {
                let Object { attrs, grant, .. } = root();
                Ok(Answer::Attrs { attrs, grant })
            }
            Question::WhoAmI => Ok(Answer::Acts(Acting::AsItself)),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        let is_first = *self.stage.lock() == Stage::Nothing;
        if is_first {
            self.is_at(Stage::First);
            self.wait_for(Stage::Second);
            self.is_at(Stage::FirstIsRefused);
            return Err(Undone::Failed(Errno::EIO));
        }
        self.is_at(Stage::Second);
        self.wait_for(Stage::FirstIsRefused);
        std::thread::sleep(MOMENT);
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        let results = batch.ops.iter().map(|_| done.clone()).collect();
        Ok(BatchDone { results, executed_through: batch.txn, stable_through: batch.txn })
    }

    fn stable(&self, through: u64, _: &Cancel) -> Result<Settled, Undone> {
        Ok(Settled { through, failed: Vec::new() })
    }

    fn write(&self, _: &WriteOut, _: &Cancel) -> Result<WriteDone, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn commit(&self, _: &CommitOut, _: &Cancel) -> Result<u64, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
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

#[test]
fn what_becomes_of_a_batch_is_told_by_who_has_sent_it_last() {
    let server = Arc::new(Twice::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 2, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    volume.getattr(&who, NodeId::ROOT).unwrap();
    let changes = Changes { mode: Some(0o700), ..Changes::default() };
    volume.setattr(&who, NodeId::ROOT, &changes).unwrap();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| volume.sync(&never));
        server.wait_for(Stage::First);
        volume.0.resume(Some(0), 0, true);
        assert_eq!(synced.join().unwrap(), Ok(()));
    });
    assert_eq!(volume.take_reports(), []);
    volume.close();
}
