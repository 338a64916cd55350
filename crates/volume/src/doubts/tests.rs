use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_cache::{
    Answer, Ask, Caller, CapSet, Errno, Grant, NodeId, Object, Question, Settings, XattrMode,
};
use holdfast_client::Cancel;
use parking_lot::{Condvar, Mutex};

use crate::running::Plain;
use crate::stub::{self, Stub};
use crate::{Volume, VolumeOptions};

const LIST: &[u8] = b"system.posix_acl_access";
const BEFORE: &[u8] = b"before";
const AFTER: &[u8] = b"after";

/// A server with one object, all of which is promised. Its list is set when the test says so, long after that was given up.
#[derive(Default)]
struct Late {
    list: Mutex<Option<Bytes>>,
    lists_asked: AtomicU64,
    given_up: Mutex<Option<Ask>>,
    may_settle: Mutex<bool>,
    bell: Condvar,
}

fn root() -> Object {
    let grant = Grant {
        caps: CapSet::ALL_S,
        seq: 1,
        plain: false,
        group_of_directory: false,
        listed: true,
        hands_on_none: false,
        changed_since: false,
    };
    stub::root(0o750, grant)
}

impl Late {
    fn settle(&self) {
        *self.list.lock() = Some(Bytes::from_static(AFTER));
        *self.may_settle.lock() = true;
        self.bell.notify_all();
    }
}

impl Stub for Late {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::GetAttr { .. } => {
                let Object { attrs, grant, .. } = root();
                Ok(Answer::Attrs { attrs, grant })
            }
            Question::GetXattr { .. } => {
                self.lists_asked.fetch_add(1, Ordering::SeqCst);
                let list = self.list.lock().clone().unwrap_or(Bytes::from_static(BEFORE));
                Ok(Answer::Value { value: list })
            }
            Question::SetXattr { .. } => {
                *self.given_up.lock() = Some(ask.clone());
                cancel.wait::<()>(None, || None).map(|()| Answer::Done).map_err(|_| Errno::EINTR)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn may_yet_be_done(&self, ask: &Ask) -> bool {
        self.given_up.lock().as_ref() == Some(ask)
    }

    fn settle_given_up(&self, cancel: &Cancel) -> Result<(), Errno> {
        let mut may_settle = self.may_settle.lock();
        while !*may_settle {
            if cancel.is_cancelled() {
                return Err(Errno::EINTR);
            }
            self.bell.wait_for(&mut may_settle, Duration::from_millis(5));
        }
        *self.given_up.lock() = None;
        Ok(())
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_list_set_after_its_setting_was_given_up_is_seen() {
    let server = Arc::new(Late::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let never = Cancel::new();
    let list = || volume.getxattr(&Plain(Caller::new(0, 0), &never), NodeId::ROOT, LIST);
    volume.getattr(&Plain(Caller::new(0, 0), &never), NodeId::ROOT).unwrap();
    for _ in 0..2 {
        assert_eq!(list(), Ok(Bytes::from_static(BEFORE)));
    }
    assert_eq!(server.lists_asked.load(Ordering::SeqCst), 1, "it is kept as long as nobody changes it");

    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let setting = scope.spawn(|| {
            let value = Bytes::from_static(AFTER);
            let who = Plain(Caller::new(0, 0), &cancel);
            volume.setxattr(&who, NodeId::ROOT, (LIST, &value), XattrMode::Either)
        });
        wait_until("it is asked for", || server.given_up.lock().is_some());
        cancel.cancel();
        assert_eq!(setting.join().unwrap(), Err(Errno::EINTR), "who gives up does not wait");
    });
    // It is not done yet: what is told now is so, and is not to be kept.
    volume.getattr(&Plain(Caller::new(0, 0), &never), NodeId::ROOT).unwrap();
    assert_eq!(list(), Ok(Bytes::from_static(BEFORE)));
    server.settle();
    assert_eq!(list(), Ok(Bytes::from_static(AFTER)));
    wait_until("once it is settled it is kept again", || {
        volume.getattr(&Plain(Caller::new(0, 0), &never), NodeId::ROOT).unwrap();
        let asked = server.lists_asked.load(Ordering::SeqCst);
        assert_eq!(list(), Ok(Bytes::from_static(AFTER)));
        server.lists_asked.load(Ordering::SeqCst) == asked
    });
    volume.close();
}

#[test]
fn a_volume_is_closed_while_what_was_given_up_is_not_settled() {
    let server = Arc::new(Late::default());
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let volume = Volume::start(&root(), Arc::clone(&server) as _, &options).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let (value, who) = (Bytes::from_static(AFTER), Plain(Caller::new(0, 0), &cancel));
    assert_eq!(volume.setxattr(&who, NodeId::ROOT, (LIST, &value), XattrMode::Either), Err(Errno::EINTR));
    volume.close();
}
