//! Compounds that ask for too much.

use super::attack;
use crate::client::{Client, NFS4, Noise, call, opaque, word, words};

const PUTROOTFH: u32 = 24;
const LOOKUP: u32 = 15;

const RESOURCE: u32 = 10018;
const OP_NOT_IN_SESSION: u32 = 10071;
const TOO_MANY_OPS: u32 = 10070;

fn compound(minor: u32, ops: u32, bytes: &[u8]) -> Vec<u8> {
    let mut args = words(&[0, minor, ops]);
    args.extend(bytes);
    args
}

#[test]
fn ten_thousand_operations_are_refused_at_once() {
    attack(16, |server| {
        let mut client = Client::connect(server.address);
        let ops = words(&[PUTROOTFH]).repeat(10_000);
        for (minor, why) in [(0, RESOURCE), (1, TOO_MANY_OPS), (2, TOO_MANY_OPS)] {
            for claimed in [10_000, u32::MAX] {
                let results = client.ask(NFS4, 1, &compound(minor, claimed, &ops));
                assert_eq!(word(&results, 0), why, "minor version {minor}, {claimed} operations");
            }
        }
    });
}

#[test]
fn the_operations_that_are_allowed_are_run_and_the_reply_is_bounded() {
    attack(16, |server| {
        let mut client = Client::connect(server.address);
        for ops in [1, 100, 128, 129] {
            let results = client.ask(NFS4, 1, &compound(0, ops, &words(&[PUTROOTFH]).repeat(ops as usize)));
            let (status, done) = if ops <= 128 { (0, ops) } else { (RESOURCE, 0) };
            assert_eq!((word(&results, 0), word(&results, 2)), (status, done), "{ops} operations");
        }
        let results = client.ask(NFS4, 1, &compound(1, 1, &words(&[PUTROOTFH])));
        assert_eq!(word(&results, 0), OP_NOT_IN_SESSION);
    });
}

#[test]
fn deep_compounds_of_garbage_are_answered_one_by_one() {
    attack(32, |server| {
        let mut client = Client::connect(server.address);
        let mut noise = Noise(0xfeed_beef_0123_4567);
        for round in 0..2000_u32 {
            let mut ops = words(&[PUTROOTFH]);
            let good = noise.next() % 20;
            for _ in 0..good {
                ops.extend(words(&[PUTROOTFH, 10, 32, 31]));
            }
            ops.extend(words(&[LOOKUP]));
            ops.extend(opaque(&noise.bytes((round % 300) as usize)));
            for _ in 0..40 {
                let number = noise.next() as u32 % 80;
                ops.extend(words(&[number, noise.next() as u32 % 16, noise.next() as u32]));
            }
            let results = client.ask(NFS4, 1, &compound(round % 3, 120, &ops));
            assert_ne!(word(&results, 0), 0, "garbage is no success");
        }
        // A tag or an operation that is cut short is no compound at all.
        client.send(&call(9, NFS4, 1, &words(&[4096])));
        let reply = client.try_receive().unwrap();
        assert_eq!(word(&reply, 5), 4, "GARBAGE_ARGS");
    });
}
