//! What Linux keeps of a file, and when it drops it (`nfs_update_inode`, `nfs_inode_attach_open_context`, `do_setlk`; 6.1
//! and 7.3 alike), against the engine's delegations: whatever the order of OPENs, replies and other people's writes, under a
//! delegation nobody reads what another has overwritten.

use crate::world::*;
use holdfast_base::limits::RECENT_RECALL_MS;
use holdfast_base::{ChangeId, ClientId, Entropy, FileKey, SeededEntropy, SessionId, SlotId};
use holdfast_state::*;

const FILE: FileKey = FileKey(1);
const PROCESSES: usize = 3;
/// All processes are of one user and one mount.
const OWNER: &str = "open id:AAAA1";

/// How far a process has come with opening the file.
#[derive(Debug)]
enum Stage {
    Closed,
    /// The kernel counts a writer by now, before it asks.
    Asking,
    Granted(StateId),
    LookedAt(StateId, ChangeId),
    Offered(DelegationTicket),
    /// Whether with a delegation.
    Delegated(Option<Delegated>),
    /// GETATTR has run: the reply, on its way.
    Answered(Option<Delegated>, u64),
    Open,
    /// Open under the delegation: the server was not asked.
    OpenLocally,
}

struct Process {
    access: Access,
    stage: Stage,
}

/// The client's inode.
#[derive(Debug, Default)]
struct Inode {
    change: u64,
    /// The data that it keeps: how many of the others' writes are in it.
    kept: Option<u64>,
    is_invalidation_deferred: bool,
    open_files: usize,
    delegation: Option<Delegated>,
}

struct Linux {
    world: World,
    random: SeededEntropy,
    a: ClientId,
    b: ClientId,
    sessions: [SessionId; 2],
    seqid: u32,
    /// Whether OPENs want a delegation; as it falls out.
    wants_none: Option<bool>,
    /// The others write at every so many opportunities.
    quiet: usize,
    processes: [Process; PROCESSES],
    inode: Inode,
    /// All OPENs of the client's owner.
    stateid: Option<StateId>,
    /// How often others have written.
    foreign: u64,
    reads_under_delegation: u64,
    later_delegations: u64,
}

impl Linux {
    fn new(seed: u64) -> Self {
        let mut world = World::new();
        let (a, of_a) = world.client("a", 1);
        let (b, of_b) = world.client("b", 1);
        let processes = std::array::from_fn(|_| Process { access: R, stage: Stage::Closed });
        let inode = Inode { change: world.change, kept: Some(0), ..Inode::default() };
        Self {
            world,
            random: SeededEntropy(seed),
            a,
            b,
            sessions: [of_a, of_b],
            seqid: 0,
            wants_none: None,
            quiet: [1, 4, 16][seed as usize % 3],
            processes,
            inode,
            stateid: None,
            foreign: 0,
            reads_under_delegation: 0,
            later_delegations: 0,
        }
    }

    fn pick(&mut self, of: usize) -> usize {
        (self.random.u64() % of as u64) as usize
    }

    /// `inode_is_open_for_write`: counted when a process begins to open a file that is known already.
    fn has_writers(&self) -> bool {
        let writes = |p: &Process| p.access.contains(W) && !matches!(p.stage, Stage::Closed);
        self.processes.iter().any(writes)
    }

    fn step(&mut self) {
        let who = self.pick(PROCESSES);
        match self.pick(24) {
            0..8 => self.go_on(who),
            8..10 => (0..6).for_each(|_| self.go_on(who)),
            10..12 => self.close(who),
            12..16 => self.read(who),
            16 => self.lock_and_write(who),
            17..19 if self.pick(self.quiet) > 0 => {}
            17 => self.write_elsewhere(),
            18 => self.stateless_write(),
            19..21 => self.hear_of_recall(),
            _ => self.pass(),
        }
        self.world.settle();
    }

    /// Time passes in which both clients show that they live; not so much that a recall's comes to its end.
    fn pass(&mut self) {
        if self.world.engine.census().recalls > 0 {
            return;
        }
        self.world.pass(RECENT_RECALL_MS);
        self.seqid += 1;
        for session in self.sessions {
            self.world.sequence(session, 0, self.seqid).unwrap();
            let now = self.world.now;
            self.world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
        }
    }

    fn go_on(&mut self, who: usize) {
        let stage = std::mem::replace(&mut self.processes[who].stage, Stage::Closed);
        let next = match stage {
            Stage::Closed => self.begin(who),
            Stage::Asking => self.open_at_server(who),
            // It wants none: nobody looks.
            Stage::Granted(_) if self.wants_none.unwrap_or_else(|| self.random.u64().is_multiple_of(8)) => {
                Stage::Delegated(None)
            }
            Stage::Granted(open) => Stage::LookedAt(open, ChangeId(self.world.change)),
            Stage::LookedAt(open, change) => self.ask_for_delegation(who, open, change),
            Stage::Offered(ticket) => self.take_delegation(ticket),
            Stage::Delegated(of) => Stage::Answered(of, self.world.change),
            Stage::Answered(of, change) => self.answered(of, change),
            stage @ (Stage::Open | Stage::OpenLocally) => stage,
        };
        self.processes[who].stage = next;
    }

    fn begin(&mut self, who: usize) -> Stage {
        let access = [R, R, RW][self.pick(3)];
        self.processes[who].access = access;
        match self.inode.delegation {
            Some(of) if of.kind == DelegationKind::Write || access == R => {
                self.attach();
                Stage::OpenLocally
            }
            _ => Stage::Asking,
        }
    }

    fn open_at_server(&mut self, who: usize) -> Stage {
        let access = self.processes[who].access;
        let open = self.world.open(self.a, OWNER, 1, share(access, NONE));
        let open = open.unwrap_or_else(|error| panic!("nobody is in its way: {error:?}"));
        self.stateid = Some(open);
        Stage::Granted(open)
    }

    fn ask_for_delegation(&mut self, who: usize, open: StateId, change: ChangeId) -> Stage {
        let access = self.processes[who].access;
        let request = DelegationRequest {
            client: self.a,
            file: FILE,
            kind: if access == R { DelegationKind::Read } else { DelegationKind::Write },
            grounds: Grounds::Open(open),
            delegates_timestamps: false,
            seen: Some(Seen { change, size: 0 }),
            unchanged_ms: u64::MAX,
        };
        match self.world.engine.delegation_prepare(&request, self.world.now).unwrap() {
            Offer::Offered(ticket) => Stage::Offered(ticket),
            Offer::Declined(_) => Stage::Delegated(None),
        }
    }

    fn take_delegation(&mut self, ticket: DelegationTicket) -> Stage {
        let expected = ticket.if_change_is();
        if expected.is_some_and(|change| change != ChangeId(self.world.change)) {
            self.world.engine.delegation_abort(ticket, self.world.now);
            return Stage::Delegated(None);
        }
        let granted = self.world.engine.delegation_commit(ticket, self.world.now).ok();
        self.later_delegations += u64::from(granted.is_some() && expected.is_some());
        Stage::Delegated(granted)
    }

    /// The OPEN's reply: attributes first, then the delegation, then the open file.
    fn answered(&mut self, of: Option<Delegated>, change: u64) -> Stage {
        if change > self.inode.change {
            if self.inode.delegation.is_none() {
                if self.has_writers() {
                    self.inode.is_invalidation_deferred = true;
                } else {
                    self.inode.kept = None;
                }
            }
            self.inode.change = change;
        }
        if let Some(of) = of {
            let held = self.inode.delegation;
            // What was given back before its reply came is not taken up; and of two, the later counts.
            let is_known = self.world.engine.delegation_of(of.token).is_some();
            if is_known && held.is_none_or(|held| held.stateid.seqid.0 < of.stateid.seqid.0) {
                self.inode.delegation = Some(of);
            }
        }
        self.attach();
        Stage::Open
    }

    fn attach(&mut self) {
        if self.inode.open_files == 0 && std::mem::take(&mut self.inode.is_invalidation_deferred) {
            self.inode.kept = None;
        }
        self.inode.open_files += 1;
    }

    /// The client's owner closes when no process has the file open or is about to.
    fn close(&mut self, who: usize) {
        if !matches!(self.processes[who].stage, Stage::Open | Stage::OpenLocally) {
            return;
        }
        self.processes[who].stage = Stage::Closed;
        self.inode.open_files -= 1;
        let is_used = |p: &Process| !matches!(p.stage, Stage::Closed | Stage::Asking | Stage::OpenLocally);
        if !self.processes.iter().any(is_used)
            && let Some(open) = self.stateid.take()
        {
            self.world.engine.close(Caller::V41(self.a), current(open), FILE, self.world.now).unwrap();
        }
    }

    fn read(&mut self, who: usize) {
        if !matches!(self.processes[who].stage, Stage::Open | Stage::OpenLocally) {
            return;
        }
        let read = *self.inode.kept.get_or_insert(self.foreign);
        if self.inode.delegation.is_some() {
            assert_eq!(read, self.foreign, "stale under a delegation: {:?}", self.inode);
            self.reads_under_delegation += 1;
        }
    }

    /// Locks are where Linux drops what it keeps, unless it has a delegation. Its own write moves the change attribute on,
    /// and it takes that for its own.
    fn lock_and_write(&mut self, who: usize) {
        let process = &self.processes[who];
        if !matches!(process.stage, Stage::Open | Stage::OpenLocally) || !process.access.contains(W) {
            return;
        }
        match self.inode.delegation {
            Some(of) if of.kind == DelegationKind::Write => {}
            _ if self.world.contend(1, Deed::WriteData, Some(self.a)) => return,
            Some(_) => {}
            None => self.inode.kept = None,
        }
        self.read(who);
        self.world.change += 1;
        self.inode.change = self.world.change;
    }

    /// Another client opens the file, writes, and closes it.
    fn write_elsewhere(&mut self) {
        let Ok(open) = self.world.open(self.b, "o", 1, share(RW, NONE)) else { return };
        self.foreign += 1;
        self.world.change += 1;
        self.world.engine.close(Caller::V41(self.b), open, FILE, self.world.now).unwrap();
    }

    /// So does one that opens nothing.
    fn stateless_write(&mut self) {
        if !self.world.contend(1, Deed::WriteData, None) {
            self.foreign += 1;
            self.world.change += 1;
        }
    }

    /// What is open under the delegation is opened at the server, then it is given back.
    fn hear_of_recall(&mut self) {
        let Some(of) = self.inode.delegation else { return };
        if self.world.engine.census().recalls == 0 && self.pick(3) > 0 {
            return;
        }
        let current = self.world.engine.delegation_of(of.token).map(|(.., stateid)| stateid);
        let Some(stateid) = current.filter(|stateid| *stateid == of.stateid) else {
            // A reply with more of it is on its way.
            return;
        };
        for process in &mut self.processes {
            if matches!(process.stage, Stage::OpenLocally) {
                let (access, claim) = (share(process.access, NONE), Claim::Delegated(stateid));
                self.stateid = Some(self.world.open_claiming(self.a, OWNER, 1, access, claim).unwrap());
                process.stage = Stage::Open;
            }
        }
        let caller = Caller::V41(self.a);
        self.world.engine.delegation_return(caller, stateid, FILE, self.world.now).unwrap();
        self.inode.delegation = None;
    }
}

/// As 4.1 lets a client name a state whatever has become of it.
fn current(stateid: StateId) -> StateId {
    StateId { seqid: holdfast_base::Seqid(0), ..stateid }
}

#[test]
fn nobody_reads_what_another_has_overwritten_under_a_delegation() {
    let (mut reads, mut later) = (0, 0);
    for seed in 0..900 {
        let mut linux = Linux::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..150).for_each(|_| linux.step());
        }));
        assert!(run.is_ok(), "seed {seed}");
        reads += linux.reads_under_delegation;
        later += linux.later_delegations;
    }
    // The rule is no good if it is kept by giving nothing.
    assert!(reads > 1_000 && later > 200, "{reads} reads, {later} delegations with later OPENs");
}

/// The interleaving that no server can see: the OPEN to write has not reached it when the other OPEN is answered.
#[test]
fn an_open_to_write_that_is_still_on_its_way_makes_no_delegation_of_a_reader_stale() {
    for wants_none in [false, true] {
        let mut linux = Linux::new(0);
        let open = |linux: &mut Linux, who: usize, access: Access, stages: usize| {
            linux.processes[who] = Process { access, stage: Stage::Asking };
            (0..stages).for_each(|_| linux.go_on(who));
        };
        // A process has read the file, and keeps it open; a second one is about to write.
        let theirs = linux.world.open(linux.b, "o", 1, share(RW, NONE)).unwrap();
        linux.wants_none = Some(wants_none);
        open(&mut linux, 0, R, 6);
        linux.read(0);
        open(&mut linux, 1, RW, 0);
        // Another client writes, and a third process opens the file to read.
        (linux.foreign, linux.world.change) = (linux.foreign + 1, linux.world.change + 1);
        linux.world.engine.close(Caller::V41(linux.b), theirs, FILE, linux.world.now).unwrap();
        linux.wants_none = Some(false);
        open(&mut linux, 2, R, 6);
        assert!(matches!(linux.processes[2].stage, Stage::Open));
        assert!(linux.inode.delegation.is_none(), "what is kept is of before the other's write");
    }
}
