//! Hosts that lock, wait, cancel, unlock and restart; a host that sends anything; processes outside that lock too;
//! a server whose worker is behind, and whose GRANTEDs and their answers get lost. Nobody holds what another holds, calls
//! are answered alike when sent again, and when all are gone nothing is left.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_base::ByteRange;
use holdfast_nlm::{Answered, NoAnswer, OwnerFileReport, PeerCall};
use holdfast_rpc::CallError;
use holdfast_rpc::detached::Detached;
use holdfast_vfs::LockKind;
use holdfast_wire::nlm4::{NLM_PROGRAM, NLM_V4, NlmProc4, NlmRes4, NlmStat4, TestArgs4};
use holdfast_wire::nsm::{NSM_PROGRAM, NSM_V1};
use holdfast_wire::portmap::{PMAP_PROGRAM, PMAP_V2};
use holdfast_xdr::{from_bytes, to_bytes};

use crate::field::{self, Field, Known};
use crate::input::Input;
use crate::nlm_clients::{BYTES, HOSTS, Host, PROCESSES, Wish, check, host_of};
use crate::nlm_world::{NlmWorld, call};

/// Steps in one input at most.
const STEPS_MAX: usize = 200;

/// After how many rounds of asking again everybody has had what it waits for.
const ROUNDS: usize = 20;

const LOCK: &[Field] = &[Field::Name, Field::Handle, Field::Name, Field::Upto(2), Field::U64, Field::U64];
const SHARE: &[Field] =
    &[Field::Name, Field::Name, Field::Handle, Field::Name, Field::Upto(3), Field::Upto(3), Field::Bool];
const MON_ID: [Field; 5] = [Field::Name, Field::Name, Field::U32, Field::U32, Field::U32];

struct Run {
    world: NlmWorld,
    hosts: Vec<Host>,
    /// One that sends anything.
    rogue: Detached,
    /// A privileged program of this machine, which does so too.
    neighbour: Detached,
    xid: u32,
    fhs: Vec<Vec<u8>>,
    /// Answers of hosts on their way to the server.
    late: VecDeque<(Answered, Result<Vec<u8>, NoAnswer>)>,
    /// What processes outside have of each file.
    outside: Vec<[Option<bool>; BYTES]>,
}

/// See the module.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let world = NlmWorld::new();
    let mut run = Run {
        hosts: (0..HOSTS).map(|n| Host::new(&world, n)).collect(),
        rogue: world.connect([198, 51, 100, 1].into(), 40_000),
        neighbour: world.connect([127, 0, 0, 1].into(), 701),
        xid: 0,
        late: VecDeque::new(),
        fhs: world.files.iter().map(|file| file.fh.clone()).collect(),
        outside: vec![[None; BYTES]; world.files.len()],
        world,
    };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
        check(&run.hosts, &run.outside);
        run.world.check();
    }
    run.finish();
    run.hosts.iter_mut().for_each(Host::restart);
    run.world.check_ports();
    run.world.end();
}

impl Run {
    /// All that is on its way arrives; strangers and processes outside let go; everybody lets go of what it gets. Then
    /// everybody gets what it waits for, and in the end nobody has anything.
    fn finish(&mut self) {
        let is_host = |of: &OwnerFileReport, hosts: &[Host]| hosts.iter().any(|host| host.ip() == of.ip);
        for of in self.world.lockd.report() {
            if !is_host(&of, &self.hosts) {
                self.world.lockd.take_away(of.owner, of.file);
            }
        }
        for file in self.world.files.iter().filter(|file| file.has_outsiders) {
            file.backend.unlock_outside(&file.handle);
        }
        self.outside.iter_mut().for_each(|taken| taken.fill(None));
        for _ in 0..ROUNDS {
            self.late.drain(..).for_each(|(answered, answer)| answered(answer));
            self.deliver_all();
            self.hosts.iter_mut().for_each(|host| host.finish(&self.fhs));
            check(&self.hosts, &self.outside);
            self.world.clock.advance(Duration::from_secs(31));
        }
        let waits: usize = self.hosts.iter().map(Host::waits).sum();
        assert_eq!(waits, 0, "locks that nobody has are waited for");
        self.deliver_all();
        let left = self.world.lockd.report().into_iter().find(|of| is_host(of, &self.hosts));
        assert!(left.is_none(), "{left:?} is left of those who let go of everything");
    }

    /// The worker works, and all that it has to tell arrives.
    fn deliver_all(&mut self) {
        self.world.lockd.run_due();
        while let Some((call, answered)) = self.world.next_call() {
            let is_granted = (call.program, call.procedure) == (NLM_PROGRAM, NlmProc4::Granted.as_u32());
            match host_of(&mut self.hosts, &call).filter(|_| is_granted) {
                Some(host) => answered(Self::deliver_to(host, &self.fhs, &call, 0)),
                None => answered(Err(NoAnswer { why: CallError::Closed, may_have_run: false })),
            }
            self.world.lockd.run_due();
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() {
            0..=79 => self.lock(input),
            80..=129 => {
                let (host, wish) = self.wish(input);
                self.deliver_crossing(host, wish, true);
                self.hosts[host].unlock(&self.fhs, wish, input.one_in(4));
            }
            130..=149 => {
                let (host, which) = (input.below(HOSTS), input.below(8));
                self.hosts[host].cancel(&self.fhs, which, input.one_in(4));
            }
            150..=171 => self.world.lockd.run_due(),
            172..=179 => {
                // Answers overtake each other.
                let which = input.below(self.late.len());
                if let Some((answered, answer)) = self.late.remove(which) {
                    answered(answer);
                }
            }
            180..=204 => self.deliver(input),
            205..=214 => self.world.clock.advance(Duration::from_millis(u64::from(input.u8()) * 100)),
            215..=226 => self.outsider(input),
            227..=231 => self.hosts[input.below(HOSTS)].restart(),
            _ => self.anything(input),
        }
    }

    fn wish(&self, input: &mut Input<'_>) -> (usize, Wish) {
        let (host, process) = (input.below(HOSTS), input.below(PROCESSES));
        // Mostly one file, or nobody would meet.
        let file = if input.one_in(4) {
            input.below(self.fhs.len())
        } else {
            input.below(2) * crate::nlm_world::FILES
        };
        let (a, b) = (input.below(BYTES), input.below(BYTES));
        (
            host,
            Wish { process, file, first: a.min(b), last: a.max(b), exclusive: input.u8().is_multiple_of(2) },
        )
    }

    fn lock(&mut self, input: &mut Input<'_>) {
        let (host, wish) = self.wish(input);
        let block = !input.u8().is_multiple_of(4);
        self.deliver_crossing(host, wish, false);
        let stat = self.hosts[host].lock(&self.fhs, wish, block, input.one_in(4));
        let is_usual =
            matches!(stat, NlmStat4::Granted | NlmStat4::Denied | NlmStat4::Blocked | NlmStat4::Deadlck);
        assert!(is_usual, "LOCK is answered {stat}");
    }

    /// The oldest of the server's calls arrives, or not, and its answer, or not.
    fn deliver(&mut self, input: &mut Input<'_>) {
        let Some((call, answered)) = self.world.next_call() else { return };
        let is_granted = (call.program, call.procedure) == (NLM_PROGRAM, NlmProc4::Granted.as_u32());
        let host = if is_granted { host_of(&mut self.hosts, &call) } else { None };
        let fate = input.u8();
        let lost = |may_have_run| Err(NoAnswer { why: CallError::TimedOut, may_have_run });
        match (host, fate) {
            (Some(host), 0..=199) => {
                let answer = Self::deliver_to(host, &self.fhs, &call, fate);
                // Every third answer is on its way for a while.
                match fate % 3 {
                    0 => self.late.push_back((answered, answer)),
                    _ => answered(answer),
                }
            }
            (_, 200..=219) => answered(lost(true)),
            (_, 220..=239) => answered(lost(false)),
            (_, 240..=247) => drop(answered),
            _ => answered(Ok(call.args[..call.args.len().min(12)].to_vec())),
        }
    }

    /// What would cross a request arrives before it is sent: see [`Host::would_cross`].
    fn deliver_crossing(&mut self, host: usize, wish: Wish, is_unlock: bool) {
        let ip = self.hosts[host].ip();
        loop {
            let (hosts, fhs) = (&self.hosts, &self.fhs);
            let crosses = |call: &PeerCall| {
                let args = from_bytes::<TestArgs4<'_>>(&call.args);
                call.peer == ip && args.is_ok_and(|args| hosts[host].would_cross(fhs, wish, is_unlock, &args))
            };
            let Some((call, answered)) = self.world.next_call_that(crosses) else { return };
            let answer = Self::deliver_to(&mut self.hosts[host], &self.fhs, &call, 0);
            answered(answer);
        }
    }

    /// A GRANTED arrives; what the server hears.
    fn deliver_to(host: &mut Host, fhs: &[Vec<u8>], call: &PeerCall, fate: u8) -> Result<Vec<u8>, NoAnswer> {
        let args: TestArgs4<'_> = from_bytes(&call.args).expect("GRANTED well formed");
        match fate {
            180..=189 => Ok(to_bytes(&NlmRes4 { cookie: args.cookie, stat: NlmStat4::DeniedGracePeriod })),
            _ => {
                let stat = host.granted(fhs, &args);
                match fate {
                    0..=149 => Ok(to_bytes(&NlmRes4 { cookie: args.cookie, stat })),
                    _ => Err(NoAnswer { why: CallError::TimedOut, may_have_run: true }),
                }
            }
        }
    }

    /// A process outside locks, or lets go of all it has of a file.
    fn outsider(&mut self, input: &mut Input<'_>) {
        let n = input.below(self.fhs.len());
        let file = &self.world.files[n];
        if !file.has_outsiders {
            return;
        }
        let (a, b, exclusive) = (input.below(BYTES), input.below(BYTES), input.u8().is_multiple_of(2));
        let (first, last) = (a.min(b), a.max(b));
        // One lock at a time of each file: those outside do not stand in each other's way here.
        if input.u8().is_multiple_of(2) || self.outside[n].iter().any(Option::is_some) {
            file.backend.unlock_outside(&file.handle);
            return self.outside[n].fill(None);
        }
        let range = ByteRange::from_bounds(first as u64, last as u64).expect("not backwards");
        let kind = if exclusive { LockKind::Write } else { LockKind::Read };
        if file.backend.lock_outside(&file.handle, range, kind).is_ok() {
            self.outside[n][first..=last].fill(Some(exclusive));
        }
    }

    /// A call of any kind from somebody who keeps to nothing.
    fn anything(&mut self, input: &mut Input<'_>) {
        let known = Known { handles: self.fhs.clone(), ..Known::default() };
        let (proc, fields) = match input.u8() {
            0..=149 => {
                let procedure = u32::from(input.u8() % 25);
                ((NLM_PROGRAM, NLM_V4, procedure), nlm_fields(procedure))
            }
            150..=199 => {
                let procedure = u32::from(input.u8() % 8);
                ((NSM_PROGRAM, NSM_V1, procedure), nsm_fields(procedure))
            }
            _ => {
                let version = PMAP_V2 + u32::from(input.u8() % 4);
                let fields = if version == PMAP_V2 {
                    vec![Field::U32, Field::Upto(4), Field::Upto(20), Field::U32]
                } else {
                    vec![Field::U32, Field::Upto(4), Field::Name, Field::Name, Field::Name]
                };
                ((PMAP_PROGRAM, version, u32::from(input.u8() % 13)), fields)
            }
        };
        let mut args = Vec::new();
        match input.one_in(8) {
            true => args.extend(input.bytes(64)),
            false => field::write_all(&fields, input, &known, &mut args),
        }
        self.xid += 1;
        let from = if input.u8().is_multiple_of(4) { &mut self.neighbour } else { &mut self.rogue };
        call(from, self.xid, proc, &args);
    }
}

fn nlm_fields(procedure: u32) -> Vec<Field> {
    let (before, body, after): (&[Field], &[Field], &[Field]) = match procedure {
        1 | 5 | 6 | 10 => (&[Field::Name, Field::Bool], LOCK, &[]),
        2 | 7 | 22 => (&[Field::Name, Field::Bool, Field::Bool], LOCK, &[Field::Bool, Field::Upto(3)]),
        3 | 8 => (&[Field::Name, Field::Bool, Field::Bool], LOCK, &[]),
        4 | 9 => (&[Field::Name], LOCK, &[]),
        20 | 21 => (&[], SHARE, &[]),
        23 => (&[Field::Name, Field::Upto(3)], &[], &[]),
        _ => (&[Field::Data(8), Field::Upto(9)], &[], &[]),
    };
    [before, body, after].concat()
}

fn nsm_fields(procedure: u32) -> Vec<Field> {
    match procedure {
        2 => [&MON_ID[..], &[Field::Fixed(16)]].concat(),
        3 => MON_ID.to_vec(),
        4 => MON_ID[1..].to_vec(),
        6 => vec![Field::Name, Field::Upto(5)],
        _ => vec![Field::Name],
    }
}
