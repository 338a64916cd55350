//! What runs on a mount: looks, makes, opens, reads, writes and removes in a directory that all mounts share, as chance has it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use holdfast_cache::{
    Access, Attributes, Attrs, Changes, Device, Errno, Fh, Kind, Lookup, NodeId, OpenFlags, RenameMode, Step,
};

mod listing;

use super::Mount;
use crate::oracle::mounts::Sureness;
use crate::oracle::mounts::model::{BLOCK, Deed, Look, Outcome};
use crate::rng::Rng;

/// The directory that all use.
pub(crate) const BASE: &str = "m";

/// Names: few, so that all meet.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Blocks that are read and written: some beyond what travels with the stream.
const BLOCKS: [u64; 4] = [0, 1, 2, 9_000];

/// Modes that anybody may have.
const MODES: [u32; 3] = [0o600, 0o640, 0o644];

/// Descriptors that a process has at once, at most.
const OPENS_MAX: usize = 3;

/// How a process goes about its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) steps: u64,
    pub(crate) pace_ms: u64,
    /// Each mostly uses a directory of its mount's, so that much is done without the server.
    pub(crate) is_peaceful: bool,
    /// All is put on the disk in the end.
    pub(crate) is_synced: bool,
}

fn own_name(host: usize) -> String {
    format!("own{host}")
}

/// A process on a mount.
pub(crate) struct Application {
    mount: Rc<Mount>,
    number: u64,
    rng: RefCell<Rng>,
    dirs: RefCell<Vec<NodeId>>,
    files: RefCell<Vec<NodeId>>,
    /// Descriptors, and whether they may be written through.
    opens: RefCell<Vec<(Fh, NodeId, bool)>>,
    marks: Cell<u64>,
    /// The directory that it mostly uses, where each has its own.
    own: Cell<Option<NodeId>>,
}

fn look(attrs: &Attrs) -> Look {
    let is_dir = attrs.kind == Kind::Dir;
    let (nlink, size) = if is_dir { (0, 0) } else { (attrs.nlink, attrs.size) };
    Look { is_dir, mode: attrs.mode, nlink, size }
}

fn outcome<T>(done: Result<T, Errno>, of: impl FnOnce(T) -> Outcome) -> Outcome {
    done.map_or_else(Outcome::Failed, of)
}

impl Application {
    pub(crate) fn new(mount: &Rc<Mount>, number: u64, rng: Rng) -> Self {
        Self {
            mount: Rc::clone(mount),
            number,
            rng: RefCell::new(rng),
            dirs: RefCell::default(),
            files: RefCell::default(),
            opens: RefCell::default(),
            marks: Cell::new(0),
            own: Cell::new(None),
        }
    }

    fn below(&self, n: usize) -> usize {
        usize::try_from(self.rng.borrow_mut().below(n as u64)).unwrap_or(0)
    }

    fn percent(&self, n: u64) -> bool {
        self.rng.borrow_mut().percent(n)
    }

    pub(crate) fn who(&self) -> String {
        format!("{}, process {}", self.mount.name(), self.number)
    }

    fn doing(&self, what: impl Into<String>) {
        let (world, who, what) = (&self.mount.world, self.who(), what.into());
        world.oracles.progress(|progress| progress.doing(&who, world.now(), what));
    }

    /// Counts it among those who have to end.
    pub(crate) fn expect(&self) {
        self.doing("begins");
    }

    /// Runs to its end; the last one puts everything on the disk, if it is to.
    pub(crate) async fn run(self, base: NodeId, plan: Pace) {
        self.dirs.borrow_mut().push(base);
        let exec = Rc::clone(&self.mount.world.exec);
        let Pace { steps, pace_ms, is_peaceful, is_synced } = plan;
        if is_peaceful {
            self.has_its_own(base).await;
        }
        for _ in 0..steps {
            let ms = self.rng.borrow_mut().below(pace_ms);
            exec.sleep(ms).await;
            self.mount.world.undisturbed().await;
            self.step().await;
        }
        let opens = std::mem::take(&mut *self.opens.borrow_mut());
        for (fh, node, _) in opens {
            self.close(fh, node).await;
        }
        if is_synced {
            self.sync().await;
        }
        let who = self.who();
        self.mount.world.oracles.progress(|progress| progress.done(&who));
    }

    /// Makes a directory for its mount, or finds that another process of that has.
    async fn has_its_own(&self, base: NodeId) {
        let name = own_name(self.mount.host);
        self.mkdir((base, name.clone())).await;
        // Others use the name, too: it may be a file's.
        if let Outcome::Found(node, Look { is_dir: true, .. }) = self.look_up((base, name)).await {
            self.own.set(Some(node));
        }
    }

    fn name(&self) -> String {
        if self.own.get().is_some() && self.percent(10) {
            return own_name(self.below(3));
        }
        NAMES[self.below(NAMES.len())].into()
    }

    fn dir(&self) -> NodeId {
        if let Some(own) = self.own.get().filter(|own| self.percent(75) && !self.is_dead(*own)) {
            return own;
        }
        let mut dirs = self.dirs.borrow_mut();
        dirs.retain(|dir| !self.is_dead(*dir));
        dirs[if self.percent(60) { 0 } else { self.below(dirs.len()) }]
    }

    fn is_dead(&self, dir: NodeId) -> bool {
        self.mount.dead.borrow().contains(&dir)
    }

    fn file(&self) -> Option<NodeId> {
        let files = self.files.borrow();
        (!files.is_empty()).then(|| files[self.below(files.len())])
    }

    fn open_file(&self) -> Option<(Fh, NodeId, bool)> {
        let opens = self.opens.borrow();
        (!opens.is_empty()).then(|| opens[self.below(opens.len())])
    }

    async fn step(&self) {
        let place = (self.dir(), self.name());
        match self.below(100) {
            0..16 => drop(self.look_up(place).await),
            // By the clock, so that chance is not asked once more.
            16..22 if self.mount.world.now().is_multiple_of(2) => self.list_with_attributes(place).await,
            16..22 => self.list(place.0).await,
            22..60 => self.change_names(place, (self.dir(), self.name())).await,
            60..66 => self.stat().await,
            66..70 => self.set_attributes().await,
            70..76 => self.open().await,
            _ => self.use_open().await,
        }
    }

    async fn change_names(&self, place: (NodeId, String), other: (NodeId, String)) {
        self.mount.names.take().await;
        if !self.is_dead(place.0) && !self.is_dead(other.0) {
            match self.below(38) {
                0..12 => self.create(place).await,
                12..18 => self.mkdir(place).await,
                18..25 => self.unlink(place).await,
                25..28 => self.rmdir(place).await,
                28..35 => self.rename(place, other).await,
                _ => self.link(place).await,
            }
        }
        self.mount.names.pass();
    }

    /// A directory that has a name now, if there is one: a kernel looks before it removes.
    async fn directory_at(&self, place: (NodeId, String)) -> Option<NodeId> {
        match self.look_up(place).await {
            Outcome::Found(node, look) if look.is_dir => Some(node),
            _ => None,
        }
    }

    /// Notes the beginning of an operation and its end.
    async fn tell(&self, deed: Deed, does: impl Future<Output = Outcome>) -> Outcome {
        let (world, who) = (&self.mount.world, self.who());
        world.tell(|| format!("{who}: {deed:?}"));
        self.doing(format!("{deed:?}"));
        let (now, host) = (world.now(), self.mount.host);
        let (doubts, cuts) = (self.mount.doubts.get(), world.power_cuts.get());
        let id = world.oracles.mounts(|mounts| mounts.does(now, host, deed.clone()));
        let outcome = does.await;
        world.tell(|| format!("{who}: {deed:?}: {outcome:?}"));
        let now = world.now();
        let sureness = Sureness {
            may_be_done: self.mount.doubts.get() != doubts,
            is_disturbed: world.power_cuts.get() != cuts,
        };
        world.oracles.mounts(|mounts| mounts.ends(now, id, (outcome.clone(), sureness)));
        self.doing("waits");
        if let Outcome::Found(node, look) = &outcome {
            let mut all = if look.is_dir { self.dirs.borrow_mut() } else { self.files.borrow_mut() };
            if !all.contains(node) {
                all.push(*node);
            }
        }
        outcome
    }

    async fn look_up(&self, (dir, name): (NodeId, String)) -> Outcome {
        let deed = Deed::Lookup { dir, name: name.clone() };
        self.tell(deed, self.find((dir, &name))).await
    }

    async fn find(&self, (dir, name): (NodeId, &str)) -> Outcome {
        let found = self.mount.run(|m, turn, now| m.lookup(turn, dir, name.as_bytes(), now)).await;
        outcome(found, |found| match found {
            Lookup::Found(entry) => Outcome::Found(entry.node, look(&entry.attrs)),
            Lookup::Absent { .. } => Outcome::Absent,
        })
    }

    async fn create(&self, (dir, name): (NodeId, String)) {
        let flags = OpenFlags {
            access: Access { read: true, write: true },
            exclusive: self.percent(40),
            ..OpenFlags::default()
        };
        let deed = Deed::Create { dir, name: name.clone(), exclusive: flags.exclusive };
        // By the clock, so that chance is not asked once more.
        if flags.exclusive && self.mount.world.now().is_multiple_of(3) {
            return self.make_closed(deed, (dir, name)).await;
        }
        let mut fh = None;
        let made = self.tell(deed, async {
            let create =
                self.mount.run(|m, turn, now| m.create(turn, dir, name.as_bytes(), 0o644, flags, now));
            outcome(create.await, |(entry, opened)| {
                fh = Some(opened.fh);
                Outcome::Found(entry.node, look(&entry.attrs))
            })
        });
        if let (Outcome::Found(node, _), Some(fh)) = (made.await, fh) {
            self.has_opened(fh, node, true).await;
        }
    }

    /// Makes a file that nobody has open (`mknod`).
    async fn make_closed(&self, deed: Deed, (dir, name): (NodeId, String)) {
        let what = (Kind::File, Device::default());
        self.tell(deed, async {
            let make = self.mount.run(|m, turn, now| m.mknod(turn, dir, name.as_bytes(), what, 0o644, now));
            outcome(make.await, |entry| Outcome::Found(entry.node, look(&entry.attrs)))
        })
        .await;
    }

    async fn has_opened(&self, fh: Fh, node: NodeId, may_write: bool) {
        self.opens.borrow_mut().push((fh, node, may_write));
        if self.opens.borrow().len() > OPENS_MAX {
            let (fh, node, _) = self.opens.borrow_mut().remove(0);
            self.close(fh, node).await;
        }
    }

    async fn open(&self) {
        let Some(node) = self.file() else { return };
        let write = self.percent(60);
        let access = Access { read: true, write };
        let flags = OpenFlags { access, truncate: write && self.percent(20), ..OpenFlags::default() };
        let mut fh = None;
        let deed = Deed::Open { node, truncate: flags.truncate };
        self.tell(deed, async {
            let mut given = None;
            let open = self.mount.run(|m, turn, now| {
                let step = m.open(turn, node, flags, now);
                if let Step::Done(opened) = &step {
                    given = m.store_at_open(opened, now);
                }
                step
            });
            let opened = open.await;
            if let Some((node, _)) = given {
                let ms = if self.percent(80) { 0 } else { self.rng.borrow_mut().below(30) };
                self.mount.world.exec.sleep(ms).await;
                self.mount.touched(|machine, _| machine.stored(node, true));
            }
            outcome(opened, |opened| {
                fh = Some(opened.fh);
                Outcome::Done
            })
        })
        .await;
        if let Some(fh) = fh {
            self.has_opened(fh, node, write).await;
        }
    }

    async fn close(&self, fh: Fh, node: NodeId) {
        self.tell(Deed::Close { node }, async {
            let flushed = self.mount.run(|m, turn, now| m.flush(turn, fh, now)).await;
            self.mount.touched(|machine, now| machine.release(fh, now));
            outcome(flushed, |()| Outcome::Done)
        })
        .await;
    }

    async fn mkdir(&self, (dir, name): (NodeId, String)) {
        let deed = Deed::Mkdir { dir, name: name.clone() };
        self.tell(deed, async {
            let make = self.mount.run(|m, turn, now| m.mkdir(turn, dir, name.as_bytes(), 0o755, now));
            outcome(make.await, |entry| Outcome::Found(entry.node, look(&entry.attrs)))
        })
        .await;
    }

    async fn unlink(&self, (dir, name): (NodeId, String)) {
        let deed = Deed::Unlink { dir, name: name.clone() };
        self.tell(deed, async {
            let remove = self.mount.run(|m, turn, now| m.unlink(turn, dir, name.as_bytes(), now));
            outcome(remove.await, |()| Outcome::Done)
        })
        .await;
    }

    async fn rmdir(&self, (dir, name): (NodeId, String)) {
        let victim = self.directory_at((dir, name.clone())).await;
        let deed = Deed::Rmdir { dir, name: name.clone() };
        let removed = self.tell(deed, async {
            let remove = self.mount.run(|m, turn, now| m.rmdir(turn, dir, name.as_bytes(), now));
            outcome(remove.await, |()| Outcome::Done)
        });
        if removed.await == Outcome::Done {
            self.mount.dead.borrow_mut().extend(victim);
        }
    }

    async fn rename(&self, (from, name): (NodeId, String), (to, new_name): (NodeId, String)) {
        let is_same = (from, &name) == (to, &new_name);
        let over = if is_same { None } else { self.directory_at((to, new_name.clone())).await };
        let deed = Deed::Rename { from: (from, name.clone()), to: (to, new_name.clone()) };
        let renamed = self.tell(deed, async {
            let rename = self.mount.run(|m, turn, now| {
                let (from, to) = ((from, name.as_bytes()), (to, new_name.as_bytes()));
                m.rename(turn, from, to, RenameMode::Replace, now)
            });
            outcome(rename.await, |()| Outcome::Done)
        });
        if renamed.await == Outcome::Done {
            self.mount.dead.borrow_mut().extend(over);
        }
    }

    async fn link(&self, (dir, name): (NodeId, String)) {
        let Some(node) = self.file() else { return };
        let deed = Deed::Link { node, dir, name: name.clone() };
        self.tell(deed, async {
            let link = self.mount.run(|m, turn, now| m.link(turn, node, dir, name.as_bytes(), now));
            outcome(link.await, |entry| Outcome::Found(entry.node, look(&entry.attrs)))
        })
        .await;
    }

    async fn stat(&self) {
        let Some(node) = self.file() else { return };
        self.tell(Deed::Stat { node }, async {
            let got = self.mount.run(|m, turn, now| m.getattr(turn, node, now)).await;
            outcome(got, |Attributes { attrs, .. }| Outcome::Looks(look(&attrs)))
        })
        .await;
    }

    async fn set_attributes(&self) {
        let Some(node) = self.file() else { return };
        let (deed, changes) = if self.percent(50) {
            let mode = MODES[self.below(MODES.len())];
            (Deed::Chmod { node, mode }, Changes { mode: Some(mode), ..Changes::default() })
        } else {
            let blocks = self.below(4) as u64;
            let size = Some(blocks * BLOCK);
            (Deed::Resize { node, blocks }, Changes { size, ..Changes::default() })
        };
        self.tell(deed, async {
            let set = self.mount.run(|m, turn, now| m.setattr(turn, node, &changes, now)).await;
            outcome(set, |Attributes { attrs, .. }| Outcome::Looks(look(&attrs)))
        })
        .await;
    }

    async fn use_open(&self) {
        let Some((fh, node, may_write)) = self.open_file() else { return };
        match self.below(10) {
            0..4 if may_write => self.write(fh, node).await,
            0..7 => self.read(fh, node).await,
            7 => self.fsync(fh, node).await,
            _ => {
                self.opens.borrow_mut().retain(|(of, ..)| *of != fh);
                self.close(fh, node).await;
            }
        }
    }

    async fn write(&self, fh: Fh, node: NodeId) {
        let block = BLOCKS[self.below(BLOCKS.len())];
        self.marks.set(self.marks.get() + 1);
        let mark = (self.mount.host as u64 + 1) * 1_000_000 + self.number * 10_000 + self.marks.get();
        let data = Bytes::copy_from_slice(&mark.to_be_bytes());
        self.tell(Deed::Write { node, block, mark }, async {
            let write = self.mount.run(|m, turn, now| m.write(turn, fh, block * BLOCK, &data, now)).await;
            outcome(write, |_| Outcome::Done)
        })
        .await;
    }

    async fn read(&self, fh: Fh, node: NodeId) {
        let block = BLOCKS[self.below(BLOCKS.len())];
        self.tell(Deed::Read { node, block }, async {
            let read =
                self.mount.run(|m, turn, now| m.read(turn, fh, block * BLOCK, BLOCK as u32, now)).await;
            outcome(read, |pieces| Outcome::Data(pieces.concat()))
        })
        .await;
    }

    async fn fsync(&self, fh: Fh, node: NodeId) {
        self.tell(Deed::Fsync { node }, async {
            let synced = self.mount.run(|m, turn, now| m.fsync(turn, node, Some(fh), now)).await;
            outcome(synced, |()| Outcome::Done)
        })
        .await;
    }

    async fn sync(&self) {
        self.tell(Deed::Sync, async {
            let synced = self.mount.run(|m, turn, now| m.sync(turn, now)).await;
            outcome(synced, |()| Outcome::Done)
        })
        .await;
    }
}
