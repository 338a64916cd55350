//! The world between the clients and the server: time, the network, and the server's lives and deaths.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use holdfast_base::Instant;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_rpc::detached::Detached;

use self::calls::Callee;
use crate::disk::Loss;
use crate::exec::Exec;
use crate::life::{Life, Plant, Start};
use crate::machine::{Image, Machine};
use crate::mount::Mount;
use crate::oracle::Oracles;
use crate::peers::Waiting;
use crate::rng::Rng;
use crate::trace::Trace;

mod budgets;
pub(crate) mod calls;
mod faults;
mod handover;
mod mounts;
mod network;
#[cfg(test)]
mod tests;

/// Names a connection.
pub type LinkId = u64;

/// The client's end of connections.
pub trait Endpoint {
    /// A record came.
    fn received(&self, link: LinkId, record: &[u8]);

    /// The connection is gone.
    fn lost(&self, link: LinkId);
}

/// How a server's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its process is killed between two steps.
    Kill,
    /// Its process is killed at a point between the steps of a mutation, the next time but so many that it is passed.
    KillAt(Point, u32),
    /// Power fails.
    PowerCut(Loss),
}

/// Kinds of what is noted in the trace.
#[repr(u8)]
pub(crate) enum Noted {
    ToServer = 1,
    ToClient,
    Connected,
    Lost,
    Started,
    Died,
    Fault,
    Oracle,
    Replaced,
}

struct Link {
    host: usize,
    endpoint: Weak<dyn Endpoint>,
    /// The server's end, while it has one.
    side: Option<Detached>,
    /// Deliveries keep their order: not before this.
    to_server_at: u64,
    to_client_at: u64,
    /// Whether the client still has it.
    is_open: bool,
    /// What would reach the server later than this is lost.
    deaf_after: u64,
    /// Calls of the server's over it, and when each was made. They have no answer yet, or the server knows.
    called: VecDeque<(u32, u64)>,
}

/// Everything of one seed.
pub struct World {
    this: Weak<Self>,
    /// Time and tasks.
    pub exec: Rc<Exec>,
    /// The server's machine.
    pub machine: Rc<Machine>,
    /// What happened.
    pub trace: Trace,
    /// Who watches.
    pub oracles: Oracles,
    seed: u64,
    plant: Option<Plant>,
    rng: RefCell<Rng>,
    life: RefCell<Option<Life>>,
    lives: Cell<u64>,
    links: RefCell<BTreeMap<LinkId, Link>>,
    last_link: Cell<LinkId>,
    partitioned_until: RefCell<Vec<u64>>,
    frozen_until: Cell<u64>,
    is_calm: Cell<bool>,
    is_pump_due: Cell<bool>,
    is_work_due: Cell<bool>,
    armed: Rc<Cell<Option<(Point, u32)>>>,
    image: Rc<RefCell<Option<Image>>>,
    death: Cell<Option<(Death, u64)>>,
    swallowed: Cell<u64>,
    left_over: Cell<u64>,
    /// How often a server's process was replaced by another, as planned.
    handovers: Cell<u64>,
    /// Whether servers tell holders of directory delegations what changes.
    notifies: bool,
    /// Each client mostly uses one file, and mostly reads it: so it has that delegated for a while.
    pub(crate) is_peaceful: bool,
    /// Clients keep what they read over CLOSE, and often come back to it.
    pub(crate) keeps: bool,
    /// The server is short of memory now and then, and clients ask for more slots than they would be left.
    pub(crate) is_scarce: bool,
    /// Whom the server calls, by host.
    callees: RefCell<BTreeMap<usize, Weak<dyn Callee>>>,
    /// Calls on ways of the server's own that are under way.
    calls_out: RefCell<BTreeMap<u64, Waiting>>,
    last_call: Cell<u64>,
    is_worker_due: Cell<bool>,
    /// Those there are.
    pub(crate) mounts: RefCell<Vec<Weak<Mount>>>,
    /// Power has failed, and mounts have still to do again what was lost with it.
    is_disturbed: Cell<bool>,
    looks_at_mounts: Cell<u64>,
    /// How often power has failed.
    pub(crate) power_cuts: Cell<u64>,
}

impl World {
    /// A world of a seed, with so many clients. Its server does not run yet.
    ///
    /// # Errors
    /// When there is no place for the journal's file.
    pub fn new(seed: u64, hosts: usize, plant: Option<Plant>, is_told: bool) -> std::io::Result<Rc<Self>> {
        let machine = Rc::new(Machine::new()?);
        Ok(Rc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            exec: Exec::new(),
            machine,
            trace: Trace::new(is_told),
            oracles: Oracles::default(),
            seed,
            plant,
            rng: RefCell::new(Rng::new(seed ^ 0x6e65_7477_6f72_6b00)),
            life: RefCell::default(),
            lives: Cell::new(0),
            links: RefCell::default(),
            last_link: Cell::new(0),
            partitioned_until: RefCell::new(vec![0; hosts]),
            frozen_until: Cell::new(0),
            is_calm: Cell::new(false),
            is_pump_due: Cell::new(false),
            is_work_due: Cell::new(false),
            armed: Rc::default(),
            image: Rc::default(),
            death: Cell::new(None),
            swallowed: Cell::new(0),
            left_over: Cell::new(0),
            handovers: Cell::new(0),
            notifies: Rng::new(seed ^ 0x6e6f_7469_6679).percent(60),
            is_peaceful: Rng::new(seed ^ 0x0070_6561_6365).percent(30),
            keeps: Rng::new(seed ^ 0x6b65_6570_7300).percent(40),
            is_scarce: Rng::new(seed ^ 0x7363_6172_6365).percent(30),
            callees: RefCell::default(),
            calls_out: RefCell::default(),
            last_call: Cell::new(0),
            is_worker_due: Cell::new(false),
            mounts: RefCell::default(),
            is_disturbed: Cell::new(false),
            looks_at_mounts: Cell::new(0),
            power_cuts: Cell::new(0),
        }))
    }

    /// Now, in milliseconds.
    pub fn now(&self) -> u64 {
        self.exec.now()
    }

    /// How many clients there are, one that lies included.
    pub fn hosts(&self) -> usize {
        self.partitioned_until.borrow().len()
    }

    /// A line for people.
    pub fn tell(&self, words: impl FnOnce() -> String) {
        self.trace.tell(self.now(), words);
    }

    pub(crate) fn note(&self, kind: Noted, bytes: &[u8]) {
        self.trace.note(self.now(), kind as u8, bytes);
    }

    /// From now on nothing fails any more.
    pub fn calm_down(&self) {
        self.is_calm.set(true);
        self.armed.set(None);
        self.tell(|| "from now on nothing fails".into());
    }

    /// Whether nothing fails any more.
    pub const fn is_calm(&self) -> bool {
        self.is_calm.get()
    }

    /// Which of the server's lives this is; the same after its end, until the next begins.
    pub const fn lives(&self) -> u64 {
        self.lives.get()
    }

    /// How often one process of the server took another's place, as planned.
    pub const fn handovers(&self) -> u64 {
        self.handovers.get()
    }

    /// Whether servers tell holders of directory delegations what changes in the directory.
    pub const fn notifies(&self) -> bool {
        self.notifies
    }

    /// Whether this defect was planted.
    pub fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Whether a server runs.
    pub fn is_up(&self) -> bool {
        self.life.borrow().is_some()
    }

    /// Looks at the server that runs.
    pub fn with_life<R>(&self, look: impl FnOnce(&Life) -> R) -> Option<R> {
        self.life.borrow().as_ref().map(look)
    }

    fn later(&self, ms: u64, event: impl FnOnce(&Rc<Self>) + 'static) {
        let this = Weak::clone(&self.this);
        self.exec.after(ms, move || {
            if let Some(world) = this.upgrade() {
                event(&world);
            }
        });
    }

    /// Starts the server; its life will end by `death`, once that is due in so many milliseconds.
    pub fn start_server(&self, death: Option<(Death, u64)>, down_ms: u64) {
        self.machine.set_time(self.now());
        self.machine.store.heal();
        self.lives.set(self.lives.get() + 1);
        let number = self.lives.get();
        let start = Start {
            machine: Rc::clone(&self.machine),
            number,
            seed: self.seed,
            plant: self.plant,
            is_power_cut_to_come: matches!(death, Some((Death::PowerCut(_), _))),
            notifies: self.notifies,
        };
        let life = match Life::start(start) {
            Ok(life) => life,
            Err(error) => return self.oracles.violated(format!("the server does not start: {error:#}")),
        };
        self.note(Noted::Started, &number.to_be_bytes());
        self.tell(|| format!("server: life {number} begins; its end: {death:?}"));
        *self.life.borrow_mut() = Some(life);
        self.death.set(death.map(|(death, _)| (death, down_ms)));
        self.tick(number);
        if let Some((death, due_ms)) = death {
            self.later(due_ms, move |world| world.die_of(number, death));
        }
    }

    fn tick(&self, number: u64) {
        self.later(1000, move |world| {
            if world.lives() == number && world.is_up() {
                if world.is_awake() {
                    let machine = Rc::clone(&world.machine);
                    world.serve(|life, now| life.tick(&machine, now));
                    world.give_up_calls();
                    world.work();
                    world.collect();
                }
                world.tick(number);
            }
        });
    }

    fn is_awake(&self) -> bool {
        self.now() >= self.frozen_until.get()
    }

    fn die_of(&self, number: u64, death: Death) {
        if self.lives() != number || !self.is_up() || self.is_calm() {
            return;
        }
        match death {
            Death::Kill | Death::PowerCut(_) => self.die(),
            Death::KillAt(point, times) => {
                self.tell(|| format!("server: to be killed at {}, after {times} more", point.name()));
                self.armed.set(Some((point, times)));
            }
        }
    }

    /// Ends the server's life as it was meant to end, and starts the next.
    fn die(&self) {
        let Some((death, down_ms)) = self.death.take() else { return };
        self.frozen_until.set(self.now());
        let Some(image) = self.kill() else { return };
        self.tell(|| format!("server: dead by {death:?}, down for {down_ms} ms"));
        let done = match death {
            Death::PowerCut(loss) => self.cut_power(&image, loss),
            Death::Kill | Death::KillAt(..) => self.machine.killed(&image),
        };
        if let Err(error) = done {
            self.oracles.violated(format!("the simulated machine failed: {error}"));
        }
        self.later(down_ms, |world| world.start_server(world.next_death(), world.next_down_ms()));
    }

    fn cut_power(&self, image: &Image, loss: Loss) -> std::io::Result<()> {
        let mut rng = self.rng.borrow_mut().fork();
        let lost = self.machine.power_cut(image, loss, &mut rng)?;
        self.tell(|| format!("disk: {lost} mutations lost"));
        self.oracles.power_cut(self.now());
        self.is_disturbed.set(true);
        self.power_cuts.set(self.power_cuts.get() + 1);
        if self.machine.disk.has_lost_failed() {
            self.oracles.forget_looks(self.now());
        }
        Ok(())
    }

    /// Takes the server and its ends of all connections away. What it leaves behind is that of the moment at which it
    /// was to be killed, or of now.
    fn kill(&self) -> Option<Image> {
        failpoint::watch(None);
        self.armed.set(None);
        let life = self.life.borrow_mut().take()?;
        self.calls_out.borrow_mut().clear();
        // However long the machine was to be suspended: what the next one asks of its disk does not wait for that.
        self.is_pump_due.set(false);
        let image = self.image.borrow_mut().take().unwrap_or_else(|| self.machine.image());
        let sides = self.links.borrow_mut().values_mut().filter_map(|link| link.side.take()).collect();
        if life.bury(&self.machine, sides) {
            self.left_over.set(self.left_over.get() + 1);
        }
        let number = self.lives();
        self.note(Noted::Died, &number.to_be_bytes());
        self.oracles.server_died(self.now());
        let open: Vec<LinkId> =
            self.links.borrow().iter().filter(|(_, l)| l.is_open).map(|(id, _)| *id).collect();
        for link in open {
            // Sometimes nobody is told, and the client finds out when it sends.
            if self.rng.borrow_mut().percent(70) {
                self.tell_lost(link);
            }
        }
        Some(image)
    }

    /// How many dead servers are still held by something of their own.
    pub const fn left_over(&self) -> u64 {
        self.left_over.get()
    }

    /// Ends the server for good, by a power cut that loses all it can.
    pub fn end_server(&self) {
        self.death.set(None);
        let image = self.kill().unwrap_or_else(|| self.machine.image());
        if let Err(error) = self.cut_power(&image, Loss::All) {
            self.oracles.violated(format!("the simulated machine failed: {error}"));
        }
    }

    /// When and how the life that begins now is to end.
    pub fn next_death(&self) -> Option<(Death, u64)> {
        let mut rng = self.rng.borrow_mut();
        if self.is_calm() || !rng.percent(75) {
            return None;
        }
        let death = match rng.below(10) {
            0..4 => {
                let point = rng.pick(&Point::ALL);
                Death::KillAt(point, rng.below(6) as u32)
            }
            4..7 => Death::Kill,
            7..9 => Death::PowerCut(Loss::All),
            _ => Death::PowerCut(rng.pick(&[Loss::Tail, Loss::Nothing])),
        };
        Some((death, rng.between(500, 20_000)))
    }

    /// How long the server will be down after the life that begins now.
    pub fn next_down_ms(&self) -> u64 {
        let mut rng = self.rng.borrow_mut();
        if rng.percent(80) { rng.between(20, 3_000) } else { rng.between(3_000, 15_000) }
    }

    /// Lets the server do something, and takes its picture should it be killed in the middle of it.
    fn serve(&self, step: impl FnOnce(&Life, Instant)) {
        self.machine.set_time(self.now());
        if self.armed.get().is_some() {
            let (machine, armed, image) =
                (Rc::clone(&self.machine), Rc::clone(&self.armed), Rc::clone(&self.image));
            failpoint::watch(Some(Rc::new(move |point| match armed.get() {
                Some((target, 0)) if target == point => {
                    armed.set(None);
                    *image.borrow_mut() = Some(machine.image());
                }
                Some((target, times)) if target == point => armed.set(Some((target, times - 1))),
                _ => {}
            })));
        }
        if let Some(life) = &*self.life.borrow() {
            step(life, Instant(self.now()));
        }
        failpoint::watch(None);
        if self.image.borrow().is_some() && self.is_up() {
            self.die();
        }
    }

    /// Takes what the server sends, and has it do later what it left to do.
    fn collect(&self) {
        let mut sent = Vec::new();
        self.serve(|_, _| {
            for (id, link) in self.links.borrow().iter() {
                if let Some(side) = &link.side {
                    sent.extend(side.sent().into_iter().map(|record| (*id, record)));
                }
            }
        });
        if !self.is_up() {
            // It died on the way: nothing of this left.
            return;
        }
        self.check();
        for (link, record) in sent {
            self.to_client(link, record);
        }
        self.wake_worker();
        self.carry();
        if !self.is_pump_due.replace(true) {
            self.pump_in(self.disk_ms(), self.lives());
        }
    }

    fn check(&self) {
        // Costly, and a broken invariant stays broken for a while.
        if self.trace.events().is_multiple_of(16)
            && let Some(Err(broken)) = self.with_life(|life| life.check(&self.machine))
        {
            self.oracles.violated(format!("an invariant of the server does not hold: {broken}"));
        }
    }

    /// The disk has done what it was asked for by the life of this number.
    fn pump_in(&self, ms: u64, number: u64) {
        self.later(ms, move |world| {
            if world.lives() == number && world.is_up() {
                world.pump(number);
            }
        });
    }

    fn pump(&self, number: u64) {
        if !self.is_awake() {
            return self.pump_in(self.frozen_until.get() - self.now(), number);
        }
        self.is_pump_due.set(false);
        let (mut pumped, machine) = (0, Rc::clone(&self.machine));
        self.serve(|life, _| pumped = life.pump(&machine));
        if pumped > 0 && self.is_up() {
            self.collect();
        }
    }

    fn disk_ms(&self) -> u64 {
        let mut rng = self.rng.borrow_mut();
        if !self.is_calm() && rng.percent(4) { rng.between(100, 3_000) } else { rng.between(1, 12) }
    }
}
