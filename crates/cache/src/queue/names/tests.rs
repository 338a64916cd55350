use std::time::{Duration, Instant as Clock};

use holdfast_base::Instant;
use holdfast_base::limits::CAPS_OPS_KEPT_MAX;

use crate::ask::{Generation, RenameMode};
use crate::attrs::Changes;
use crate::ids::{Caller, Name, NodeId};
use crate::mutation::Until;
use crate::queue::{Kept, Op, Queued, Stage, Stream};

fn name(number: u64) -> Name {
    Name::new(format!("a file of some kind, number {number}").as_bytes())
}

fn rename(serial: u64) -> Op {
    let (from, to) = ((NodeId::ROOT, name(serial)), (NodeId::ROOT, name(serial + 1)));
    Op::Rename { from, to, node: NodeId(2), mode: RenameMode::Replace, after: None, over: None }
}

fn unlink(serial: u64) -> Op {
    Op::Unlink { dir: NodeId::ROOT, name: name(serial), node: NodeId(serial + 10) }
}

/// So many mutations in batches of so many, all executed, and on no disk.
fn unstable(count: u64, of: u64, op: impl Fn(u64) -> Op) -> Stream {
    let mut stream = Stream::default();
    let caller = Caller::new(0, 0);
    for first in (1..=count).step_by(usize::try_from(of).unwrap()) {
        let serials = first..=count.min(first + of - 1);
        let queued = |serial| Queued { serial, at: Instant(0), caller: caller.clone(), op: op(serial) };
        let ops: Vec<_> = serials.map(queued).collect();
        stream.last_txn += 1;
        let parts = ops.len();
        let (txn, stage, sent_at, asked) = (stream.last_txn, Stage::Executed, Instant(0), Generation(0));
        stream.keep(Kept {
            txn,
            caller: caller.clone(),
            ops,
            parts,
            stage,
            until: Until::Executed,
            sent_at,
            asked,
            is_resent: false,
            is_unheard: false,
            is_repeated: false,
            is_loss_told: false,
            names_since: None,
            was: Default::default(),
            born: Vec::new(),
            before: Vec::new(),
            names: Default::default(),
            left: Vec::new(),
        });
    }
    stream.set_last_serial(count);
    stream
}

#[test]
fn the_last_change_of_a_name_is_found_as_long_as_it_is_on_no_disk() {
    for of in [1, 7, 125] {
        let mut stream = unstable(1000, of, rename);
        let change = |stream: &Stream, number, through| {
            stream.last_change_of(&[(NodeId::ROOT, name(number).as_bytes())], through)
        };
        // Each was given by the one before, and taken by its own.
        assert_eq!(change(&stream, 500, u64::MAX), 500);
        assert_eq!(change(&stream, 500, 499), 499, "it was given by then");
        assert_eq!(change(&stream, 500, 498), 0);
        assert_eq!(change(&stream, 1, u64::MAX), 1);
        assert_eq!(change(&stream, 1001, u64::MAX), 1000);
        assert_eq!(change(&stream, 1002, u64::MAX), 0, "nothing was done to it");
        let other = [(NodeId(7), name(500)), (NodeId(2), name(500))];
        let other = other.each_ref().map(|(dir, name)| (*dir, name.as_bytes()));
        assert_eq!(stream.last_change_of(&other, u64::MAX), 0, "in another directory");
        let two = [name(3), name(900)];
        let two = two.each_ref().map(|name| (NodeId::ROOT, name.as_bytes()));
        assert_eq!(stream.last_change_of(&two, u64::MAX), 900);
        let half = stream.last_txn / 2;
        stream.settle(half);
        let there = half * of;
        assert_eq!(change(&stream, there, u64::MAX), 0, "it is on the disk");
        assert_eq!(change(&stream, there + 2, u64::MAX), there + 2);
        stream.settle(u64::MAX);
        assert_eq!(change(&stream, 1001, u64::MAX), 0);
    }
}

fn setting(serial: u64) -> Op {
    Op::SetAttr {
        node: NodeId(serial % 8000 + 2),
        changes: Changes { mode: Some(0o600), ..Changes::default() },
    }
}

#[test]
fn the_last_setting_of_attributes_is_found_as_long_as_it_is_on_no_disk_and_by_its_node_alone() {
    let count = 16_000;
    let mut stream = unstable(count, 125, setting);
    assert_eq!(stream.last_setting_of(NodeId(10), u64::MAX), 8008, "it was set twice");
    assert_eq!(stream.last_setting_of(NodeId(10), 8007), 8);
    assert_eq!(stream.last_setting_of(NodeId(10), 7), 0);
    assert_eq!(stream.last_setting_of(NodeId(1), u64::MAX), 0, "nothing was set of it");
    assert_eq!(stream.last_change_of(&[(NodeId(10), name(1).as_bytes())], u64::MAX), 0, "no name of it");
    let looks = || {
        let begun = Clock::now();
        let found = (0..1000).filter(|n| stream.last_setting_of(NodeId(n * 8 + 2), u64::MAX) > 0).count();
        (begun.elapsed() / 1000, found)
    };
    let (each, found) = (0..3).map(|_| looks()).min().unwrap();
    println!("{found} of {count} found, each in {each:?}");
    assert_eq!(found, 1000);
    assert!(each < MOMENT, "{each:?}");
    stream.settle(u64::MAX);
    assert_eq!(stream.last_setting_of(NodeId(10), u64::MAX), 0);
}

/// For a slow machine under other load, and still far from what it takes to look at each.
const MOMENT: Duration = Duration::from_micros(50);

/// Asked with each name that the server is to change by itself, under the machine's lock.
#[test]
fn a_name_is_not_looked_for_in_all_that_is_on_no_disk() {
    let count = CAPS_OPS_KEPT_MAX as u64;
    for (what, op) in [("renames", rename as fn(u64) -> Op), ("removals", unlink)] {
        for of in [32, 125, 256] {
            let begun = Clock::now();
            let stream = unstable(count, of, op);
            let kept = begun.elapsed();
            let looked: Vec<_> =
                (0..1000).map(|number| name(number * 8 + 1)).chain([name(u64::MAX)]).collect();
            let looks = || {
                let begun = Clock::now();
                let is_found =
                    |name: &&Name| stream.last_change_of(&[(NodeId::ROOT, name.as_bytes())], u64::MAX) > 0;
                let found = looked.iter().filter(is_found).count();
                (begun.elapsed() / 1001, found)
            };
            // Who is kept from working meanwhile is so once.
            let (each, found) = (0..3).map(|_| looks()).min().unwrap();
            println!("{count} {what} in batches of {of}, kept in {kept:?}: {found} found, each in {each:?}");
            assert_eq!(found, 1000, "all but the last were changed");
            assert!(each < MOMENT, "{what} in batches of {of}: {each:?}");
        }
    }
}
