//! Two mounts with one server: each operation shows what the model shows at some moment between its beginning and its
//! end, in one order for all.

use crate::world::choice::{config, op_or_nameless};
use crate::world::{Model, Op, Out, World};
use proptest::prelude::*;

/// States that the world may be in, as far as results have told.
struct Candidates(Vec<Model>);

impl Candidates {
    fn keep(&mut self, next: Vec<Model>, what: &str) {
        assert!(!next.is_empty(), "no order explains {what}\nbefore: {}", self.0[0].canonical());
        let mut seen = std::collections::BTreeSet::new();
        self.0 = next.into_iter().filter(|m| seen.insert(m.canonical())).collect();
    }

    fn one(&mut self, c: usize, op: &Op, out: &Out) {
        let mut next = Vec::new();
        let mut told = Vec::new();
        for model in &self.0 {
            let mut model = model.clone();
            let expected = model.apply(c, op);
            if expected == *out {
                next.push(model);
            } else {
                told.push(expected);
            }
        }
        self.keep(next, &format!("{c}: {op:?} gave {out:?}, not {told:?}"));
    }

    fn both(&mut self, a: (usize, &Op, &Out), b: (usize, &Op, &Out)) {
        let mut next = Vec::new();
        for model in &self.0 {
            for order in [[a, b], [b, a]] {
                let mut model = model.clone();
                if order.iter().all(|(c, op, out)| model.apply(*c, op) == **out) {
                    next.push(model);
                }
            }
        }
        self.keep(next, &format!("{a:?} beside {b:?}"));
    }
}

/// Whether the operation leaves directories where they are, so that a path that is being walked stays the same path.
fn leaves_paths(op: &Op) -> bool {
    !matches!(op, Op::Rename { .. } | Op::Rmdir { .. } | Op::Pause { .. } | Op::Sync)
}

/// Whether a read may show some of what was before and some of what was after: where the file ends is one look, what is in it
/// another, on any file system of Linux.
fn is_torn(op: &Op, beside: &Op) -> bool {
    let changes = matches!(
        beside,
        Op::Write { .. }
            | Op::Truncate { .. }
            | Op::Open { truncate: true, .. }
            | Op::Create { truncate: true, .. }
    );
    matches!(op, Op::Read { .. }) && changes
}

/// `generous`: how often wishes for exclusive capabilities are heard, `contested`: how often names are promised instead of
/// their directory; once in so many times.
fn linearizes(
    steps: &[(usize, Op, Option<Op>)],
    seed: u64,
    (loses, restarts): (bool, bool),
    (generous, contested): (u8, u8),
) {
    let mut world = World::new(2, true, seed);
    (world.loses, world.restarts) = (loses, restarts);
    world.have_little_room(seed);
    let mut candidates = Candidates(vec![Model::default()]);
    for (c, op, beside) in steps {
        if restarts && world.dice.roll(10) == 0 {
            world.restart();
        }
        world.server.is_contested = contested > 0 && world.dice.roll(u64::from(contested)) == 0;
        world.server.generous = generous > 0 && world.dice.roll(u64::from(generous)) != 0;
        let other = 1 - *c;
        // A path is walked and its object then looked at: two moments, in Linux as here.
        let looks = |b: &Op| {
            matches!((op, b), (Op::Stat { .. }, Op::Unlink { .. } | Op::Link { .. } | Op::Name { .. }))
        };
        let may = |b: &Op| leaves_paths(b) && leaves_paths(op) && !looks(b);
        world.interject = beside.clone().filter(may).map(|b| (other, b));
        let beside = world.interject.clone();
        let out = world.apply(*c, op);
        let inner = world.interjected.take();
        world.interject = None;
        match (beside, inner) {
            (Some((other, beside)), Some(inner)) if is_torn(op, &beside) => {
                candidates.one(other, &beside, &inner);
            }
            (Some((other, beside)), Some(inner)) => candidates.both((*c, op, &out), (other, &beside, &inner)),
            _ => candidates.one(*c, op, &out),
        }
    }
    world.drain();
    let at_server = world.server.fs.canonical();
    let found = candidates.0.iter().any(|m| m.fs.canonical() == at_server);
    assert!(found, "at the server:\n{at_server}\nmodel:\n{}", candidates.0[0].fs.canonical());
}

fn step(interleaved: bool) -> impl Strategy<Value = (usize, Op, Option<Op>)> {
    let beside = if interleaved { prop::option::of(op_or_nameless()).boxed() } else { Just(None).boxed() };
    (0..2_usize, op_or_nameless(), beside)
}

/// What is done with one file that both have open: all that the kernel keeps of data matters.
fn of_one_file() -> impl Strategy<Value = Op> {
    let at = || any::<u8>();
    prop_oneof![
        6 => (at(), 0..100_u8).prop_map(|(offset, len)| Op::Read { slot: 0, offset, len }),
        4 => (at(), 1..100_u8, at()).prop_map(|(offset, len, byte)| Op::Write { slot: 0, offset, len, byte }),
        2 => at().prop_map(|size| Op::Truncate { path: 0, size }),
        2 => Just(Op::Stat { path: 0 }),
        1 => Just(Op::Fsync { slot: 0 }),
        1 => (0..3000_u16).prop_map(|ms| Op::Pause { ms }),
        1 => any::<bool>().prop_map(|truncate| Op::Open { path: 0, truncate, write: true, slot: 1 }),
        1 => Just(Op::Close { slot: 1 }),
    ]
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn what_one_writes_the_other_reads_though_its_kernel_has_read_it_before(
        steps in prop::collection::vec((0..2_usize, of_one_file(), prop::option::of(of_one_file())), 1..60),
        seed in any::<u64>()
    ) {
        let open = Op::Create { path: 0, exclusive: false, truncate: false, append: false, slot: 0 };
        let both = [(0, open.clone(), None), (1, open, None)];
        linearizes(&[&both[..], &steps].concat(), seed, (false, false), (1, 0));
    }

    #[test]
    fn taking_turns_each_sees_what_the_other_did(
        steps in prop::collection::vec(step(false), 1..80), seed in any::<u64>(), chances in (0..4_u8, 0..4_u8)
    ) {
        linearizes(&steps, seed, (false, false), chances);
    }

    #[test]
    fn operations_beside_each_other_have_an_order(
        steps in prop::collection::vec(step(true), 1..80), seed in any::<u64>(), chances in (0..4_u8, 0..4_u8)
    ) {
        linearizes(&steps, seed, (true, false), chances);
    }

    #[test]
    fn that_order_holds_though_the_server_begins_anew(
        steps in prop::collection::vec(step(true), 1..80), seed in any::<u64>(), chances in (0..4_u8, 0..4_u8)
    ) {
        linearizes(&steps, seed, (true, true), chances);
    }
}
