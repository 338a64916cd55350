//! A Holdfast mount: the machine of `cache`, driven as `volume` drives it, over the simulation's network. Its words are those of
//! `volume`; what is played are its threads (tasks here), its NFSv4.1 client ([`Client4`]) and its kernel, which believes
//! nothing and says of each invalidation, a moment later, that it has followed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use holdfast_base::{Instant, Timestamp};
use holdfast_cache::{
    Caller, CapSet, Errno, Forget, Handle, Invalidation, Machine, NodeId, Now, Object, Pending, Settings,
    Step, Turn, invariant,
};
use holdfast_volume::sheets::Ledger;

use self::hearing::Hearing;
use self::hello::Greeting;
use self::opens::Opens;
use crate::client::v4::Client4;
use crate::exec::{Promise, Turn as Place};
use crate::rng::Rng;
use crate::world::World;

pub(crate) mod app;
mod calling;
mod flusher;
mod hearing;
mod hello;
mod lease;
mod nfs;
mod opens;
mod questions;

/// The calendar of mounts: never that of the server, and it does not jump.
const CALENDAR_SECONDS: i64 = 1_700_000_000;

/// A mount of the whole export.
pub struct Mount {
    this: Weak<Self>,
    pub(crate) world: Rc<World>,
    pub(crate) client: Rc<Client4>,
    pub(crate) host: usize,
    rng: RefCell<Rng>,
    /// Once the root is known.
    machine: RefCell<Option<Machine>>,
    settings: Settings,
    root: RefCell<Option<Handle>>,
    incarnation: [u8; 16],
    greeting: Cell<Option<Greeting>>,
    /// Taken by whoever says HELLO.
    renewing: Place,
    ledger: RefCell<Ledger>,
    opens: Opens,
    /// It relies on nothing, as it has heard nothing of the server for so long.
    has_lapsed: Cell<bool>,
    /// When SEQUENCE was last sent that was answered without a doubt.
    promised_at: Cell<Option<u64>>,
    /// What is known of whether its promises go on, for who judges.
    hearing: Hearing,
    relied_ms: Cell<u64>,
    /// The machine's progress at which those who wait were last woken.
    last_progress: Cell<u64>,
    waiting: RefCell<Vec<Promise<()>>>,
    wakes_at: Cell<u64>,
    invalidations: RefCell<VecDeque<Invalidation>>,
    is_invalidating: Cell<bool>,
    /// How often something was asked anew that may have been done: its session was lost meanwhile (`exactly-once.md`).
    doubts: Cell<u64>,
    /// Names change one after the other, as a kernel has it (it locks directories, here all of them).
    names: Place,
    /// Directories that were removed through this mount: a kernel does nothing in them any more.
    dead: RefCell<BTreeSet<NodeId>>,
}

impl Mount {
    /// A mount by a client, whose sessions are its own.
    pub(crate) fn new(client: &Rc<Client4>, mut rng: Rng) -> Rc<Self> {
        let world = Rc::clone(&client.world);
        let mut incarnation = [0; 16];
        incarnation[..8].copy_from_slice(&rng.number().to_be_bytes());
        incarnation[8..].copy_from_slice(&rng.number().to_be_bytes());
        let settings = settings(&mut rng);
        let mount = Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            client: Rc::clone(client),
            host: client.host,
            machine: RefCell::default(),
            settings,
            root: RefCell::default(),
            incarnation,
            greeting: Cell::new(None),
            renewing: Place::new(&world.exec),
            ledger: RefCell::default(),
            opens: Opens::default(),
            has_lapsed: Cell::new(false),
            promised_at: Cell::new(None),
            hearing: Hearing::default(),
            relied_ms: Cell::new(0),
            last_progress: Cell::new(0),
            waiting: RefCell::default(),
            wakes_at: Cell::new(u64::MAX),
            invalidations: RefCell::default(),
            is_invalidating: Cell::new(false),
            doubts: Cell::new(0),
            names: Place::new(&world.exec),
            dead: RefCell::default(),
            rng: RefCell::new(rng),
            world,
        });
        client.mounted(&mount);
        mount.world.mounts.borrow_mut().push(Rc::downgrade(&mount));
        mount
    }

    pub(crate) fn name(&self) -> String {
        format!("mount {}", self.host)
    }

    fn tell(&self, words: impl FnOnce() -> String) {
        self.world.tell(|| format!("mount {}: {}", self.host, words()));
    }

    fn violated(&self, what: &str) {
        self.world.oracles.violated(format!("mount {}: {what}", self.host));
    }

    /// Finds its root, and begins.
    pub(crate) async fn start(self: Rc<Self>) -> Result<(), Errno> {
        let root = self.find_root().await?;
        *self.root.borrow_mut() = Some(root.clone());
        let (attrs, _) = self.acquire_one(&root, CapSet::NONE).await?;
        let machine = Machine::new(&Object { handle: root, attrs, grant: None }, self.settings);
        *self.machine.borrow_mut() = Some(machine);
        // What was said to HELLO before there was anybody to hear it is said once more.
        self.greeting.set(None);
        self.world.exec.spawn(Rc::clone(&self).watch_lease());
        Ok(())
    }

    fn now(&self) -> Now {
        let ms = self.world.now();
        let seconds = CALENDAR_SECONDS + i64::try_from(ms / 1000).unwrap_or(0);
        let nanos = u32::try_from(ms % 1000).unwrap_or(0) * 1_000_000;
        Now { mono: Instant(ms), wall: Timestamp { seconds, nanos } }
    }

    /// Touches the machine, if it is there. Whatever is to be done then is done by who calls [`Mount::look`].
    fn touch<R>(&self, act: impl FnOnce(&mut Machine, Now) -> R) -> Option<R> {
        let now = self.now();
        let mut machine = self.machine.borrow_mut();
        let machine = machine.as_mut()?;
        self.hearing.looks(now.mono.0, machine);
        let done = act(machine, now);
        self.hearing.looks(now.mono.0, machine);
        if let Err(broken) = invariant::check(machine) {
            self.violated(&format!("the machine does not hold together: {broken}"));
        }
        Some(done)
    }

    /// The same, and what is to be done then is begun.
    fn touched(&self, act: impl FnOnce(&mut Machine, Now)) {
        self.touch(act);
        self.look();
    }

    /// Runs an operation of an application to its end.
    pub(crate) async fn run<T>(
        self: &Rc<Self>,
        mut operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        let mut turn = Turn::new(Caller::new(0, 0));
        loop {
            let called = self.touch(|machine, now| {
                let seen = machine.progress();
                (seen, operation(machine, &mut turn, now))
            });
            let Some((seen, step)) = called else { return Err(Errno::EIO) };
            match step {
                Step::Done(value) => {
                    self.look();
                    return Ok(value);
                }
                Step::Failed(errno) => {
                    self.look();
                    return Err(errno);
                }
                Step::Ask(ask) => {
                    let answer = self.answer(&ask).await;
                    self.touch(|machine, now| machine.absorb(&mut turn, *ask, answer, now));
                }
                Step::Wait(_) => {
                    self.look();
                    self.moved(seen).await;
                }
            }
        }
    }

    /// Waits until the machine has moved. As with threads, nobody is woken but by who looks for what is to be done.
    async fn moved(&self, seen: u64) {
        loop {
            let has_moved = self.machine.borrow().as_ref().is_none_or(|machine| machine.progress() != seen);
            if has_moved {
                return;
            }
            let promise = Promise::new(&self.world.exec);
            self.waiting.borrow_mut().push(promise.clone());
            promise.within(u64::MAX / 2).await;
        }
    }

    /// After the machine was touched: begins what is to be done, and wakes who waits for it.
    fn look(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let Some((jobs, forgets, ahead, due, progress)) = self.touch(|machine, now| {
            let jobs = machine.take_jobs(now);
            let forgets = machine.take_invalidations();
            let ahead: Vec<_> = std::iter::from_fn(|| machine.take_ahead(now)).collect();
            (jobs, forgets, ahead, machine.next_wake(now), machine.progress())
        }) else {
            return;
        };
        for job in jobs {
            self.world.exec.spawn(Rc::clone(&this).perform(job));
        }
        for out in ahead {
            self.world.exec.spawn(Rc::clone(&this).read_ahead(out));
        }
        self.invalidations.borrow_mut().extend(forgets);
        self.invalidate();
        if let Some(due) = due {
            self.wake_at(due.0);
        }
        if self.last_progress.replace(progress) != progress {
            self.waiting.borrow_mut().drain(..).for_each(|promise| promise.keep(()));
        }
        self.world.compare_mounts();
    }

    fn wake_at(&self, ms: u64) {
        let now = self.world.now();
        if self.wakes_at.get() > now && self.wakes_at.get() <= ms {
            return;
        }
        self.wakes_at.set(ms);
        let this = Weak::clone(&self.this);
        self.world.exec.after(ms.saturating_sub(now), move || {
            if let Some(mount) = this.upgrade() {
                if mount.wakes_at.get() == ms {
                    mount.wakes_at.set(u64::MAX);
                }
                mount.look();
            }
        });
    }

    /// The kernel forgets, one thing after the other.
    fn invalidate(&self) {
        let next = self.invalidations.borrow().front().cloned();
        let Some(Invalidation { number, what }) = next.filter(|_| !self.is_invalidating.replace(true)) else {
            return;
        };
        let this = Weak::clone(&self.this);
        let stored = self.touch(|machine, _| {
            machine.forgetting(number);
            match &what {
                Forget::Store(id, whole) => machine.begin_store(*id, whole).then_some(*id),
                _ => None,
            }
        });
        let ms = {
            let mut rng = self.rng.borrow_mut();
            if rng.percent(80) { 0 } else { rng.below(30) }
        };
        self.world.exec.after(ms, move || {
            let Some(mount) = this.upgrade() else { return };
            mount.is_invalidating.set(false);
            if mount.is_being_stored(&what) {
                return mount.invalidate();
            }
            mount.invalidations.borrow_mut().pop_front();
            mount.touched(|machine, _| {
                if let Some(id) = stored.flatten() {
                    machine.stored(id, true);
                }
                machine.invalidated(number);
            });
        });
    }

    /// Whether it is to come behind what the kernel is being given of this file.
    fn is_being_stored(&self, what: &Forget) -> bool {
        let (Forget::Data(id) | Forget::Pages(id, ..)) = what else { return false };
        self.touch(|machine, _| machine.waits_for_store(*id)) == Some(true)
    }

    /// What is relied on, of everything.
    pub(crate) fn held(&self) -> Vec<(Handle, CapSet)> {
        self.machine.try_borrow().ok().and_then(|m| m.as_ref().map(invariant::held)).unwrap_or_default()
    }

    /// What has still to reach the server's disk.
    fn pending(&self) -> Pending {
        self.machine.borrow().as_ref().map(Machine::pending).unwrap_or_default()
    }

    /// Whether anything has.
    pub(crate) fn has_more(&self) -> bool {
        self.machine.borrow().as_ref().is_some_and(hearing::has_more)
    }

    /// What had returned and failed after it.
    pub(crate) fn failures(&self) -> Vec<String> {
        let reports = self.touch(|machine, _| machine.take_reports()).unwrap_or_default();
        reports.iter().map(|report| format!("{report:?}")).collect()
    }

    /// Tells what it is at, for people.
    pub(crate) fn tell_all(&self) {
        self.tell(|| format!("{:?}, has still to send {:?}", self.counts(), self.pending()));
        self.tell(|| format!("{:?}", self.machine.borrow()));
    }

    /// What it counts, for people.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let stats = self.machine.borrow().as_ref().map(Machine::stats).unwrap_or_default();
        BTreeMap::from([
            ("operations", stats.operations),
            ("asked", stats.asks),
            ("batches", stats.batches_sent),
            ("batches again", stats.batches_resent),
            ("recalls", stats.recalls),
            ("put off", stats.mutations_queued),
            ("stored", stats.stores),
        ])
    }
}

/// Small enough that small worlds meet all of it.
fn settings(rng: &mut Rng) -> Settings {
    let mut settings = Settings::full();
    settings.batch_ops_max = rng.pick(&[1, 2, 4, 256]);
    // A quarter of them asks twice, as of a server that cannot answer when it is on the disk.
    settings.forces = settings.batch_ops_max != 2;
    settings.batches_in_flight_max = rng.pick(&[1, 3, 8]);
    settings.pooled_after = rng.pick(&[1, 4]);
    settings.ahead_after = rng.pick(&[1, 3]);
    settings.direct = rng.percent(50);
    settings.clean_bytes_max = rng.pick(&[0, 1000, 1 << 20]);
    settings
}
