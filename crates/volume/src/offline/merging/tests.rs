use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{
    Access, Answer, Ask, Attrs, Batch, Caller, CapSet, Errno, Grant, Handle, Kind, Listed, Lookup,
    MutationResult, Name, NodeId, Object, OpenFlags, Pending, Question, Settings, Turn, WriteOut, WriteTo,
};
use holdfast_client::Cancel;
use parking_lot::Mutex;

use crate::caps::Promises as _;
use crate::offline::journal::tests::SmallDisk;
use crate::running::Plain;
use crate::server::{BatchDone, Undone, WriteDone};
use crate::stub::{self, Stub};
use crate::{Kept, Standing, Volume, VolumeOptions};

mod full;
mod told;

/// More than one call asks for.
const FILES: usize = CAPS_ITEMS_MAX + 100;

/// What happens when something is asked for, before that is answered.
type Event = Box<dyn FnOnce(&Volume) + Send>;

/// A server whose promises end, or which goes away, in the middle of a comparing.
#[derive(Default)]
struct Fickle {
    volume: OnceLock<Volume>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_away: bool,
    /// Sizes of files that somebody else has written.
    sizes: BTreeMap<Handle, u64>,
    /// Calls of comparings so far.
    calls: usize,
    /// Attributes asked for, one object at a time.
    looks: usize,
    /// As whom a name was looked up last.
    looked_as: Option<Caller>,
    /// What is sent is taken and never answered.
    is_deaf: bool,
    /// Batches and WRITEs that it was sent.
    sent: usize,
    /// What happens once this call of a comparing was answered at the server, and the answer is on its way.
    events: BTreeMap<usize, Event>,
}

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

impl Fickle {
    fn attrs(&self, handle: &Handle) -> Attrs {
        let Object { attrs, handle: root, .. } = stub::root(0o755, grant(CapSet::ALL_S));
        if *handle == root {
            return attrs;
        }
        let size = self.state.lock().sizes.get(handle).copied().unwrap_or(0);
        let number = handle.as_bytes().iter().fold(7, |sum: u64, byte| sum * 31 + u64::from(*byte));
        Attrs { kind: Kind::File, mode: 0o644, nlink: 1, size, change: 1 + size, fileid: number, ..attrs }
    }

    fn take_sent(&self) -> Result<(), Undone> {
        let mut state = self.state.lock();
        state.sent += 1;
        if state.is_deaf { Err(Undone::Lost) } else { Ok(()) }
    }

    fn object(&self, name: &Name) -> Object {
        let handle = Handle::new(name.as_bytes());
        Object { attrs: self.attrs(&handle), handle, grant: Some(grant(CapSet::ALL_S)) }
    }

    fn list(&self) -> Answer {
        let entry = |number: usize| {
            let name = Name::new(number.to_string().as_bytes());
            let object = self.object(&name);
            let brief = (Some(Kind::File), object.attrs.fileid);
            Listed { name, cookie: number as u64 + 1, object: Some(object), brief }
        };
        let entries = (0..FILES).map(entry).collect();
        Answer::Listed { entries, eof: true, verifier: 0, dir: None, dir_attrs: None }
    }

    fn acquire(&self, items: &[(Handle, CapSet)]) -> Answer {
        let items: Vec<_> = items.iter().map(|(h, caps)| Ok((self.attrs(h), grant(*caps)))).collect();
        let is_probe = matches!(&items[..], [Ok((_, Grant { caps: CapSet::NONE, .. }))]);
        if !is_probe {
            let event = {
                let mut state = self.state.lock();
                state.calls += 1;
                let number = state.calls;
                state.events.remove(&number)
            };
            if let (Some(event), Some(volume)) = (event, self.volume.get()) {
                event(volume);
            }
        }
        Answer::Acquired { items }
    }
}

impl Stub for Fickle {
    fn perform(&self, ask: &Ask, _: &Cancel) -> Result<Answer, Errno> {
        if self.state.lock().is_away {
            return Err(Errno::ETIMEDOUT);
        }
        match &ask.question {
            Question::Lookup { name, .. } => {
                self.state.lock().looked_as = Some(ask.caller.clone());
                let found = Some(self.object(name));
                Ok(Answer::Looked { found, dir: None, promise: None })
            }
            Question::List { .. } => Ok(self.list()),
            Question::GetAttr { object, .. } => {
                self.state.lock().looks += 1;
                Ok(Answer::Attrs { attrs: self.attrs(object), grant: Some(grant(CapSet::ALL_S)) })
            }
            Question::Acquire { items } => Ok(self.acquire(items)),
            Question::WhoAmI => Ok(Answer::Acts(holdfast_cache::Acting::AsItself)),
            _ => panic!("{ask:?}"),
        }
    }

    fn batch(&self, batch: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        self.take_sent()?;
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        let (results, through) = (vec![done; batch.ops.len()], batch.txn);
        Ok(BatchDone { results, executed_through: through, stable_through: through, failed: Vec::new() })
    }

    fn write(&self, write: &WriteOut) -> Result<WriteDone, Undone> {
        self.take_sent()?;
        Ok(WriteDone { count: u32::try_from(write.data.len()).unwrap(), stable: true, verifier: 1 })
    }
}

/// A volume that knows all files of its server, which is away.
struct Lonely {
    volume: Volume,
    server: Arc<Fickle>,
    nodes: Vec<NodeId>,
    _dir: Option<tempfile::TempDir>,
}

impl Lonely {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut lonely = Self::keeping(&dir.path().join("journal"));
        lonely._dir = Some(dir);
        lonely
    }

    fn keeping(journal: &Path) -> Self {
        let kept = Kept::open(journal, "server:/export", [7; 16]).unwrap();
        let server = Arc::new(Fickle::default());
        let options = VolumeOptions {
            settings: Settings::full(),
            flushers: 1,
            patience: Some(Duration::from_secs(10)),
        };
        let root = stub::root(0o755, grant(CapSet::ALL_S));
        let volume =
            Volume::start_kept(Some(&root), kept, "server:/export", Arc::clone(&server) as _, &options);
        let volume = volume.unwrap();
        assert!(server.volume.set(volume.clone()).is_ok());
        let mut lonely = Self { volume, server, nodes: Vec::new(), _dir: None };
        for number in 0..FILES {
            let never = Cancel::new();
            let who = Plain(Caller::new(0, 0), &never);
            let found = lonely.volume.lookup(&who, (NodeId::ROOT, number.to_string().as_bytes()));
            let Ok(Lookup::Found(entry)) = found else { panic!("{found:?}") };
            lonely.nodes.push(entry.node);
        }
        assert_eq!(lonely.sizes(), [0].into());
        // As whom this caller acts is known from here on.
        let never = Cancel::new();
        lonely.volume.opendir(&Plain(another(), &never), NodeId::ROOT).unwrap();
        lonely.volume.0.went_away();
        assert_eq!(lonely.volume.standing(), Some(Standing::Away));
        lonely
    }

    /// What comes after this call of the comparing.
    fn after(&self, call: usize, event: impl FnOnce(&Volume) + Send + 'static) {
        self.server.state.lock().events.insert(call, Box::new(event));
    }

    /// Somebody else writes all files, as he may: nothing is promised any more.
    fn written_by_another(server: &Fickle, size: u64) {
        let mut state = server.state.lock();
        state.sizes = (0..FILES).map(|n| (Handle::new(n.to_string().as_bytes()), size)).collect();
    }

    fn calls(&self) -> usize {
        self.server.state.lock().calls
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.volume.standing());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_online(&self) -> bool {
        self.volume.standing() == Some(Standing::Online)
    }

    fn sizes(&self) -> BTreeSet<u64> {
        sizes(&self.volume, &self.nodes)
    }
}

impl Drop for Lonely {
    fn drop(&mut self) {
        self.volume.close();
    }
}

/// All sizes that are shown of files.
fn sizes(volume: &Volume, nodes: &[NodeId]) -> BTreeSet<u64> {
    let never = Cancel::new();
    let who = Plain(Caller::new(0, 0), &never);
    nodes.iter().map(|node| volume.getattr(&who, *node).unwrap().attrs.size).collect()
}

/// Long enough for a thread to do what it must not.
const MOMENT: Duration = Duration::from_millis(200);

#[test]
fn promises_that_end_in_the_middle_of_the_comparing_are_not_believed() {
    let lonely = Lonely::new();
    let server = Arc::clone(&lonely.server);
    // The first call was answered, in the second the server is heard to have begun anew.
    lonely.after(2, move |volume| {
        Lonely::written_by_another(&server, 9);
        volume.0.renewed(Vec::new());
        volume.0.resume(None, 0, true);
    });
    lonely.volume.0.came_back();
    lonely.wait_for("it goes on", Lonely::is_online);
    assert_eq!(lonely.sizes(), [9].into(), "what the first call was told of is void");
    assert_eq!(lonely.calls(), 4, "all was asked for again");
    lonely.wait_for("nothing is held back", |lonely| !lonely.volume.0.offline.as_ref().unwrap().must_merge());
}

#[test]
fn the_comparing_begins_again_when_the_greeting_is_over() {
    let lonely = Lonely::new();
    let server = Arc::clone(&lonely.server);
    lonely.after(2, move |volume| {
        Lonely::written_by_another(&server, 9);
        volume.0.renewed(Vec::new());
    });
    lonely.volume.0.came_back();
    lonely.wait_for("the first comparing", |lonely| lonely.calls() == 2);
    std::thread::sleep(MOMENT);
    assert_eq!((lonely.calls(), lonely.volume.standing()), (2, Some(Standing::Merging)));
    lonely.volume.0.resume(None, 0, true);
    lonely.wait_for("it goes on", Lonely::is_online);
    assert_eq!((lonely.sizes(), lonely.calls()), ([9].into(), 4));
}

#[test]
fn a_server_that_goes_away_behind_its_last_answer_is_away() {
    let lonely = Lonely::new();
    let server = Arc::clone(&lonely.server);
    lonely.after(2, move |volume| {
        server.state.lock().is_away = true;
        volume.0.went_away();
    });
    lonely.volume.0.came_back();
    lonely.wait_for("the comparing", |lonely| lonely.calls() == 2);
    let until = Instant::now() + MOMENT;
    while Instant::now() < until {
        assert_eq!(lonely.volume.standing(), Some(Standing::Away));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(lonely.sizes(), [0].into(), "what is known is used");
    Lonely::written_by_another(&lonely.server, 9);
    lonely.server.state.lock().is_away = false;
    lonely.wait_for("it is asked now and then", Lonely::is_online);
    assert_eq!(lonely.sizes(), [9].into());
}

#[test]
fn a_comparing_that_was_overtaken_by_another_takes_nothing_in() {
    let lonely = Lonely::new();
    let (server, nodes) = (Arc::clone(&lonely.server), lonely.nodes.clone());
    // While an answer of the first is on its way, the server goes, is written to, and comes back: another is done first.
    lonely.after(2, move |volume| {
        volume.0.went_away();
        Lonely::written_by_another(&server, 9);
        volume.0.came_back();
        let since = Instant::now();
        while volume.standing() != Some(Standing::Online) {
            assert!(since.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sizes(volume, &nodes), [9].into());
        server.state.lock().looks = 0;
    });
    lonely.volume.0.came_back();
    lonely.wait_for("both are done", |lonely| lonely.calls() == 4 && lonely.is_online());
    std::thread::sleep(MOMENT);
    assert_eq!((lonely.sizes(), lonely.calls()), ([9].into(), 4));
    assert_eq!(lonely.server.state.lock().looks, 0, "it is known still");
}

/// Not the mount's own user.
fn another() -> Caller {
    Caller::new(0, 5)
}

/// A file was removed without the server, and that is sent when it is back.
fn sent(lonely: &Lonely) -> Batch {
    let never = Cancel::new();
    lonely.volume.unlink(&Plain(another(), &never), (NodeId::ROOT, b"0")).unwrap();
    let shared = &lonely.volume.0;
    let mut machine = shared.machine.lock();
    machine.hold(false);
    let _ = machine.sync(&mut Turn::new(another()), shared.now());
    machine.take_batch(shared.now()).expect("it was sent")
}

/// It may be executed by who sent it while it is looked for what was executed: twice, then.
#[test]
fn what_is_on_its_way_to_a_server_that_has_forgotten_is_not_sent_to_it() {
    let lonely = Lonely::new();
    let (batch, shared) = (sent(&lonely), &lonely.volume.0);
    assert!(shared.awaits(&batch));
    // Nothing can be looked for yet.
    lonely.server.state.lock().is_away = true;
    shared.renewed(Vec::new());
    shared.resume(Some(0), 0, false);
    assert!(!shared.awaits(&batch));
    let held = shared.machine.lock().take_batch(shared.now());
    assert!(held.is_none(), "nothing goes out before it was looked for: {held:?}");
}

/// The mount's own user may be nobody there, and see nothing in a directory that is for its owner alone.
#[test]
fn what_a_server_has_forgotten_is_looked_for_as_who_has_done_it() {
    let lonely = Lonely::new();
    let (_, shared) = (sent(&lonely), &lonely.volume.0);
    shared.renewed(Vec::new());
    shared.resume(Some(0), 0, false);
    lonely.wait_for("it goes on", Lonely::is_online);
    assert_eq!(lonely.server.state.lock().looked_as, Some(another()));
}

/// What was fsynced without the server is in the journal, and what came behind that in memory alone.
#[test]
fn nothing_is_sent_before_all_that_was_done_without_the_server_is_kept() {
    let Some(disk) = SmallDisk::new() else { return };
    let journal = disk.path().join("journal");
    let lonely = Lonely::keeping(&journal);
    let never = Cancel::new();
    let who = Plain(another(), &never);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let fh = lonely.volume.open(&who, lonely.nodes[0], flags).unwrap().fh;
    let filler = disk.fill();
    let much = bytes::Bytes::from(vec![7; 3 << 20]);
    lonely.volume.write(&who, fh, (0, WriteTo::Place), &much).unwrap();
    assert_eq!(lonely.volume.fsync(&who, lonely.nodes[0], fh), Err(Errno::EIO), "there is no room");
    lonely.volume.0.came_back();
    std::thread::sleep(MOMENT);
    assert_eq!((lonely.volume.standing(), lonely.calls()), (Some(Standing::Merging), 0));
    assert!(journal.exists(), "it has all that was fsynced");
    std::fs::remove_file(filler).unwrap();
    lonely.wait_for("there is room", Lonely::is_online);
    assert!(journal.exists());
}

#[test]
fn what_is_known_to_be_lost_is_told_though_the_server_is_away() {
    let lonely = Lonely::new();
    let never = Cancel::new();
    let who = Plain(another(), &never);
    let fh = lonely.volume.opendir(&who, NodeId::ROOT).unwrap().fh;
    let (batch, shared) = (sent(&lonely), &lonely.volume.0);
    shared.machine.lock().hold(true);
    lonely.volume.unlink(&who, (NodeId::ROOT, b"1")).unwrap();
    let failed = vec![MutationResult::Failed(Errno::EDQUOT)];
    shared.machine.lock().batch_done(batch.txn, failed, 0, shared.now());
    assert_eq!(lonely.volume.fsync(&who, NodeId::ROOT, fh), Err(Errno::EDQUOT));
    assert_eq!(lonely.volume.fsync(&who, NodeId::ROOT, fh), Ok(()), "it was heard");
}
