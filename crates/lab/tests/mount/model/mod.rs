//! Random operations on two mounts of one export, each against a file system in memory: in turns, where every result is
//! the model's, and two at once, where one order or the other explains both.
//!
//! The seed is told; `HOLDFAST_SEED=N` begins with the same operations again.

mod by_name;
pub(crate) mod chance;
mod memory;
mod op;
mod real;

use crate::apart::{self, Apart};
use crate::fixture::Served;
use anyhow::{Context as _, Result, bail, ensure};
use chance::Chance;
use holdfast_lab::{Mount, Scale, Trial};
use memory::Memory;
use op::{How, Op, Seen, Told};
use real::Real;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Operations in one directory, before it is compared whole and another one is begun.
const EPISODE: usize = 250;
/// How long one call may take before it counts as hanging: a recall's time is well below.
const PATIENCE: Duration = Duration::from_secs(60);
/// A call that takes longer has had to wait for something.
const SLOW: Duration = Duration::from_secs(1);
/// Operations that are told when something is not as it should be.
const TOLD: usize = 60;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [
        ("two_mounts_taking_turns", ["", ""], 0),
        ("two_mounts_at_once", ["", ""], 2),
        // Of a server on this host nothing is read ahead.
        ("two_mounts_at_once_over_the_network", ["nolocal", "nolocal"], 2),
        ("a_mount_beside_one_that_caches_nothing", ["", "cache=none"], 4),
        ("two_mounts_with_delegations", ["cache=delegations", "cache=delegations"], 4),
        ("delegations_beside_capabilities", ["cache=delegations", ""], 4),
    ];
    let trial = |(name, options, overlaps): (&'static str, [&'static str; 2], usize)| {
        Trial::new(format!("model::{name}"), move || run(options, overlaps))
    };
    let judge = Trial::new("model::the_judge_lets_a_look_meet_a_removal_and_no_more", judges);
    ways.into_iter().map(trial).chain([judge]).collect()
}

/// One mount, and the process that calls: should a call hang, the others find out.
struct Hand {
    mount: Mount,
    worker: Apart,
}

#[derive(Serialize, Deserialize)]
enum Call {
    Begin(PathBuf),
    Do(Op),
    Look,
}

/// The process that calls.
pub(crate) fn work_apart() -> ExitCode {
    let mut real = Real::new("/nowhere".into());
    apart::serve(|call| {
        let answer = match call {
            Call::Begin(place) => {
                real = Real::new(place);
                Told::Done
            }
            Call::Do(op) => real.apply(&op),
            Call::Look => real.tree(),
        };
        apart::say(&answer)
    })
}

impl Hand {
    fn new(mount: Mount) -> Result<Self> {
        Ok(Self { mount, worker: Apart::start("model")? })
    }

    fn told(&self, what: impl Fn() -> String) -> Result<Told> {
        self.worker.hear(PATIENCE)?.with_context(|| format!("{} hangs", what()))
    }

    fn begin(&self, name: &str) -> Result<()> {
        self.worker.tell(&Call::Begin(self.mount.path().join(name)))?;
        self.told(|| "closing what was open".into()).map(drop)
    }

    fn tree(&self) -> Result<BTreeMap<String, String>> {
        self.worker.tell(&Call::Look)?;
        match self.told(|| "looking at everything".into())? {
            Told::Tree(tree) => Ok(tree),
            other => bail!("looking at everything: {other:?}"),
        }
    }

    fn start(&self, op: &Op) -> Result<()> {
        self.worker.tell(&Call::Do(op.clone()))
    }

    fn end(&self, op: &Op) -> Result<Told> {
        self.told(|| {
            let stats = self.mount.stats().map_or_else(|e| e.to_string(), |stats| stats.to_string());
            format!("{op:?} ({stats})")
        })
    }
}

/// A run: the mounts, the model, and what was done in this directory.
struct Run {
    hands: [Hand; 2],
    chance: Chance,
    memory: Memory,
    past: Vec<String>,
    /// Mounts that give a file a hidden name when it is removed while they have it open.
    hiding: [bool; 2],
    operations: usize,
}

fn run(options: [&str; 2], overlaps: usize) -> Result<()> {
    let seed = Chance::seed();
    println!("     HOLDFAST_SEED={seed}");
    let served = Served::new()?;
    let [one, two] = options.map(|options| served.mount(options));
    let mut run = Run {
        hands: [Hand::new(one?)?, Hand::new(two?)?],
        chance: Chance::new(seed),
        memory: Memory::new(),
        past: Vec::new(),
        hiding: options.map(|options| options.contains("cache=")),
        operations: 0,
    };
    let until = Instant::now() + Duration::from_secs(Scale::from_env().pick(30, 900));
    let mut episode = 0;
    while Instant::now() < until {
        episode += 1;
        run.episode(&served, &format!("episode-{episode}"), overlaps).map_err(|error| {
            let (first, second) = (run.hands[0].mount.log(), run.hands[1].mount.log());
            let (server, calls) = (served.server.log(), run.past.join("\n"));
            let kept =
                [("0", first), ("1", second), ("server", server), ("calls", calls)].map(|(what, text)| {
                    let path = std::env::temp_dir().join(format!("holdfast-model-{seed}-{what}.log"));
                    std::fs::write(&path, text)
                        .map_or_else(|e| e.to_string(), |()| path.display().to_string())
                });
            let last = run.past[run.past.len().saturating_sub(TOLD)..].join("\n");
            error.context(format!(
                "HOLDFAST_SEED={seed}, episode {episode}; logs: {}\n{last}",
                kept.join(", ")
            ))
        })?;
    }
    println!("     {} operations in {episode} directories", run.operations);
    for hand in run.hands {
        hand.mount.check_alive()?;
        drop(hand.worker);
        hand.mount.unmount(&[])?;
    }
    Ok(())
}

impl Run {
    fn episode(&mut self, served: &Served, name: &str, overlaps: usize) -> Result<()> {
        self.memory = Memory::new();
        self.past.clear();
        let first = self.chance.below(2);
        std::fs::create_dir(self.hands[first].mount.path().join(name))?;
        for hand in &self.hands {
            hand.begin(name)?;
        }
        for number in 0..EPISODE {
            if overlaps > 0 && self.chance.once_in(overlaps) {
                self.both()?;
            } else {
                let mount = self.chance.below(2);
                let op = self.op(mount, false);
                let since = Instant::now();
                let told = self.one(mount, &op)?;
                let model = self.memory.apply(mount, &op);
                self.note(since, &format!("{number} mount {mount}: {op:?} -> {told:?}"));
                ensure!(told.is_as(&model), "{op:?} gave {}, and not {}", brief(&told), brief(&model));
            }
        }
        self.compare(served, name)
    }

    /// A call that is not for nothing: of a descriptor that is open, or none.
    fn op(&mut self, mount: usize, is_small: bool) -> Op {
        loop {
            let op = Op::any(&mut self.chance, is_small);
            if self.hiding[mount] && self.memory.hides(mount, &op) {
                continue;
            }
            let slot = match &op {
                Op::Open { slot, .. } if self.memory.is_open(mount, *slot) => {
                    return Op::Close { slot: *slot };
                }
                Op::Close { slot }
                | Op::Write { slot, .. }
                | Op::Read { slot, .. }
                | Op::Cut { slot, .. }
                | Op::StatOpen { slot }
                | Op::Fsync { slot } => *slot,
                _ => return op,
            };
            if self.memory.is_open(mount, slot) {
                return op;
            }
        }
    }

    fn one(&mut self, mount: usize, op: &Op) -> Result<Told> {
        self.operations += 1;
        self.hands[mount].start(op)?;
        self.hands[mount].end(op)
    }

    /// A call of each mount, at the same time.
    fn both(&mut self) -> Result<()> {
        let (one, two) = loop {
            let pair = (self.op(0, true), self.op(1, true));
            let is_hidden_after = |mount: usize, first: &Op, second: &Op| {
                let mut after = self.memory.clone();
                after.apply(1 - mount, first);
                self.hiding[mount] && after.hides(mount, second)
            };
            let hides = is_hidden_after(1, &pair.0, &pair.1) || is_hidden_after(0, &pair.1, &pair.0);
            if !hides && self.may_meet(&pair.0, &pair.1) {
                break pair;
            }
        };
        self.operations += 2;
        let since = Instant::now();
        self.hands[0].start(&one)?;
        self.hands[1].start(&two)?;
        let told = [self.hands[0].end(&one)?, self.hands[1].end(&two)?];
        let both = format!("mount 0: {one:?} -> {:?}\n         mount 1: {two:?} -> {:?}", told[0], told[1]);
        self.note(since, &format!("at once, {both}"));
        for first in [0, 1] {
            if let Some(memory) = explained(&self.memory, [&one, &two], &told, first) {
                // Both orders may explain it and leave different things: what is there decides.
                return self.decide(memory, (&one, &two), first);
            }
        }
        bail!("no order of {one:?} and {two:?} gives {} and {}", brief(&told[0]), brief(&told[1]))
    }

    /// Whether one order or the other must explain two calls at once. The walk of a path is many steps, and an append of
    /// a mount without capabilities is two.
    fn may_meet(&self, one: &Op, two: &Op) -> bool {
        let below =
            |name: &str, path: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let walks =
            |a: &Op, b: &Op| a.renamed().iter().any(|name| b.paths().iter().any(|path| below(name, path)));
        let (of_one, of_two) = (self.memory.file_of(0, one), self.memory.file_of(1, two));
        let is_hidden = match (of_one, of_two) {
            (Some((a, appends)), Some((b, also))) => {
                a == b && (appends || also || self.memory.is_nameless(a))
            }
            _ => one.is_hidden() || two.is_hidden(),
        };
        !walks(one, two) && !walks(two, one) && !is_hidden
    }

    /// Takes the state that is there when two orders gave the same results.
    fn decide(&mut self, memory: Memory, (one, two): (&Op, &Op), first: usize) -> Result<()> {
        let mut other = self.memory.clone();
        let (a, b) = if first == 0 { ((1, two), (0, one)) } else { ((0, one), (1, two)) };
        other.apply(a.0, a.1);
        other.apply(b.0, b.1);
        self.memory = memory;
        if other.tree() != self.memory.tree() {
            let there = self.hands[0].tree()?;
            if there == other.tree() {
                self.memory = other;
            }
            ensure!(
                there == self.memory.tree(),
                "{one:?} and {two:?} left\n{there:?}\nand not\n{:?}",
                self.memory.tree()
            );
            return Ok(());
        }
        // The names are the same; what was opened may have lost its own, or not.
        for (mount, op) in [(0, one), (1, two)] {
            let Op::Open { slot, .. } = op else { continue };
            let look = Op::StatOpen { slot: *slot };
            let (as_first, as_other) = (self.memory.apply(mount, &look), other.apply(mount, &look));
            if as_first != as_other {
                let there = self.one(mount, &look)?;
                if there.is_as(&as_other) {
                    self.memory = other;
                }
                ensure!(
                    there.is_as(&as_first) || there.is_as(&as_other),
                    "{one:?} and {two:?} opened {there:?}, and neither {as_first:?} nor {as_other:?}"
                );
                return Ok(());
            }
        }
        Ok(())
    }

    /// Both mounts show the model, and so does the server after a sync.
    fn compare(&mut self, served: &Served, name: &str) -> Result<()> {
        let model = self.memory.tree();
        for (number, hand) in self.hands.iter().enumerate() {
            let shown = hand.tree()?;
            ensure!(shown == model, "mount {number} shows\n{shown:?}\nand not\n{model:?}");
        }
        for hand in &self.hands {
            hand.begin("nowhere")?;
            hand.mount.sync()?;
        }
        let there = real::tree(&served.share().join(name))?;
        ensure!(there == model, "on the server is\n{there:?}\nand not\n{model:?}");
        Ok(())
    }

    /// Notes a call, and how long it took where that may be what is wrong.
    fn note(&mut self, since: Instant, line: &str) {
        let (end, took) = (line.char_indices().nth(400).map_or(line.len(), |(at, _)| at), since.elapsed());
        let slow = if took > SLOW { format!("({:.1} s) ", took.as_secs_f64()) } else { String::new() };
        self.past.push(format!("{slow}{}", &line[..end]));
    }
}

/// What is there when two calls at once told this, if it is as if this one had been the first.
fn explained(memory: &Memory, calls: [&Op; 2], told: &[Told; 2], first: usize) -> Option<Memory> {
    let mut after = memory.clone();
    let mut model = [Told::Done, Told::Done];
    for mount in [first, 1 - first] {
        model[mount] = after.apply(mount, calls[mount]);
    }
    // Linux looks the path of a stat up and then at what was found (`vfs_statx`), which may have one name fewer if the other
    // call took this one in between: on a local file system, too.
    let late = match calls[first] {
        Op::Stat { path } => memory.found_here(path, &after),
        _ => None,
    };
    let is_so = |mount: usize| {
        let is_late = mount == first && late.as_ref().is_some_and(|late| told[mount].is_as(late));
        is_late || told[mount].is_as(&model[mount])
    };
    (is_so(0) && is_so(1)).then_some(after)
}

/// The judge lets a look that meets the removal of the last name show what has none, and nothing else.
fn judges() -> Result<()> {
    let at = |path: &str| path.to_owned();
    let (stat, unlink) = (Op::Stat { path: at("a") }, Op::Unlink { path: at("a") });
    let mut memory = Memory::new();
    let how = How {
        reads: true,
        writes: true,
        creates: Some(0o600),
        exclusive: true,
        truncates: false,
        appends: false,
    };
    memory.apply(0, &Op::Open { path: at("a"), slot: 0, how });
    memory.apply(0, &Op::Write { slot: 0, offset: 0, bytes: vec![1; 10] });
    let seen = |links, size| Told::Stat(Seen { kind: 'f', mode: 0o600, links, size, modified: None });
    let is_let = |memory: &Memory, calls: [&Op; 2], told: [Told; 2]| {
        [0, 1].iter().any(|first| explained(memory, calls, &told, *first).is_some())
    };
    let with_unlink = |memory: &Memory, told| is_let(memory, [&stat, &unlink], [told, Told::Done]);
    ensure!(with_unlink(&memory, seen(1, 10)) && with_unlink(&memory, Told::Errno(2)), "plain orders");
    ensure!(with_unlink(&memory, seen(0, 10)), "looked up, removed, looked at");
    ensure!(!with_unlink(&memory, seen(0, 9)), "another size");
    ensure!(!with_unlink(&memory, seen(2, 10)), "another number of names");
    let failed = [seen(0, 10), Told::Errno(13)];
    ensure!(!is_let(&memory, [&stat, &unlink], failed), "what was not removed");
    let elsewhere = Op::Rename { from: at("a"), to: at("b") };
    ensure!(!is_let(&memory, [&stat, &elsewhere], [seen(0, 10), Told::Done]), "a name moved");
    let open = Op::StatOpen { slot: 0 };
    ensure!(!is_let(&memory, [&open, &elsewhere], [seen(0, 10), Told::Done]), "by descriptor");
    memory.apply(0, &Op::Link { from: at("a"), to: at("b") });
    ensure!(!with_unlink(&memory, seen(0, 10)), "there is another name");
    ensure!(with_unlink(&memory, seen(1, 10)), "looked at with that one alone");
    Ok(())
}

fn brief(told: &Told) -> String {
    let text = match told {
        Told::Bytes(bytes) => format!("{} {:?}", real::digest(bytes), &bytes[..bytes.len().min(24)]),
        other => format!("{other:?}"),
    };
    text.chars().take(300).collect()
}
