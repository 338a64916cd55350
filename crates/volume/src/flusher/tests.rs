use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_cache::{
    Acting, Answer, Ask, Batch, Caller, CapSet, Changes, Errno, Grant, MutationResult, NodeId, Object,
    Question, Settings,
};
use holdfast_client::Cancel;
use parking_lot::{Condvar, Mutex};

use crate::caps::Promises as _;
use crate::running::Plain;
use crate::server::{BatchDone, Settled, Undone};
use crate::stub::{self, Stub};
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
    let grant = Grant {
        caps: CapSet::ALL_X,
        seq: 1,
        plain: true,
        group_of_directory: false,
        listed: false,
        hands_on_none: true,
    };
    stub::root(0o755, grant)
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

impl Stub for Twice {
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
