use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use holdfast_cache::{
    Access, Answer, Ask, Attrs, Caller, CapSet, Errno, Fh, Grant, Handle, Kind, Lookup, NodeId, Object,
    OpenFlags, OpenToken, Question, ReadInto, Settings,
};
use holdfast_client::Cancel;
use parking_lot::Mutex;

use super::{Plain, Waiting};
use crate::stub::{self, Stub};
use crate::{Volume, VolumeOptions};

const DATA: &[u8] = b"data";

/// A server with one file, all of which may be read here; and as whom it was asked for its data.
#[derive(Default)]
struct Readable {
    readers: Mutex<Vec<Caller>>,
}

fn root() -> Object {
    let caps = CapSet::ALL_S;
    let (plain, group_of_directory, listed) = (false, false, false);
    stub::root(
        0o755,
        Grant { caps, seq: 1, plain, group_of_directory, listed, hands_on_none: true, changed_since: false },
    )
}

fn file() -> Object {
    let Object { attrs, grant, .. } = root();
    let size = DATA.len() as u64;
    let attrs = Attrs { kind: Kind::File, mode: 0o644, nlink: 1, fileid: 2, size, ..attrs };
    Object { handle: Handle::new(b"file"), attrs, grant }
}

impl Stub for Readable {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        match &ask.question {
            Question::Lookup { .. } => {
                Ok(Answer::Looked { found: Some(file()), dir: root().grant, promise: None })
            }
            Question::Read { .. } => {
                self.readers.lock().push(ask.caller.clone());
                Ok(Answer::Read { data: Bytes::from_static(DATA), eof: true })
            }
            Question::Open { .. } => {
                self.readers.lock().push(ask.caller.clone());
                Ok(Answer::Opened { open: Some(OpenToken(1)), attrs: file().attrs, grant: None })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// Who has groups that he must not be asked for as long as the machine is held.
struct Grouped<'a>(Caller, &'a Volume, &'a Cancel);

impl Waiting for Grouped<'_> {
    fn caller(&self) -> Caller {
        self.0.clone()
    }

    fn whole_caller(&self) -> Caller {
        let _ = self.1.stats();
        Caller { groups: [5, 6].into(), ..self.0.clone() }
    }

    fn cancel(&self) -> Cancel {
        self.2.clone()
    }
}

fn opened(server: &Arc<Readable>, never: &Cancel) -> (Volume, NodeId, Fh) {
    let options = VolumeOptions { settings: Settings::full(), flushers: 1, patience: None };
    let volume = Volume::start(&root(), Arc::clone(server) as _, &options).unwrap();
    let who = Grouped(Caller::new(7, 7), &volume, never);
    let Lookup::Found(file) = volume.lookup(&who, (NodeId::ROOT, b"f")).unwrap() else {
        panic!("it is there")
    };
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let fh = volume.open(&who, file.node, flags).unwrap().fh;
    (volume, file.node, fh)
}

#[test]
fn what_is_read_is_asked_for_in_the_name_of_who_opened_the_file() {
    let (server, never) = (Arc::new(Readable::default()), Cancel::new());
    let (volume, _, fh) = opened(&server, &never);
    let who = Plain(Caller::new(8, 8), &never);
    let read = volume.read(&who, fh, (0, 64), ReadInto::Pages).unwrap();
    assert_eq!(read.pieces.concat(), DATA);
    let opener = Caller { groups: [5, 6].into(), ..Caller::new(7, 7) };
    assert_eq!(*server.readers.lock(), [opener], "with all groups that he had");
    volume.release(fh);
    assert!(matches!(volume.read(&who, fh, (0, 64), ReadInto::Pages), Err(Errno::EBADF)));
    volume.close();
}

#[test]
fn what_is_known_is_read_under_the_lock_once() {
    let (server, never) = (Arc::new(Readable::default()), Cancel::new());
    let (volume, _, fh) = opened(&server, &never);
    let who = Plain(Caller::new(8, 8), &never);
    let read = || volume.read(&who, fh, (0, 64), ReadInto::Pages).unwrap();
    read();
    let taken = || volume.0.machine.taken.load(Ordering::Relaxed);
    let times = |_| {
        let before = taken();
        read();
        taken() - before
    };
    // Others, in the background, may take it as well.
    assert_eq!((0..20).map(times).min(), Some(1));
    assert_eq!(server.readers.lock().len(), 1);
    volume.close();
}
