//! A process that writes as fast as it can is killed at a random moment; the parent finds what it had recorded.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_base::{Entropy, SystemEntropy};
use holdfast_journal::{Certainty, Config, Journal, Keep};

const CONFIG: Config = Config { bytes: 2 << 20, entries_max: 4096 };
const PATH_VARIABLE: &str = "HOLDFAST_TEST_JOURNAL";
const THREADS: u8 = 3;
const SLOTS: u64 = 50;

fn key(thread: u8, n: u64) -> [u8; 2] {
    [thread, (n % SLOTS) as u8]
}

fn text(what: u8, thread: u8, n: u64) -> Vec<u8> {
    let len = 8 + (n * 37 % 900) as usize;
    n.to_be_bytes().into_iter().chain([what, thread]).cycle().take(len).collect()
}

/// The child: not a test of its own; without the variable it does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else { return };
    let (journal, _) = Journal::open(path.as_ref(), &CONFIG).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let journal = &journal;
            threads.spawn(move || {
                for n in 0u64.. {
                    let id = journal.begin(&key(thread, n), Keep::Latest, &text(0, thread, n)).unwrap();
                    journal.finish(id, &text(1, thread, n)).unwrap();
                    let mut told = [thread; 9];
                    told[1..].copy_from_slice(&n.to_be_bytes());
                    std::io::stderr().write_all(&told).unwrap();
                }
            });
        }
    });
}

#[test]
fn what_was_recorded_outlives_sigkill() {
    let mut random = SystemEntropy::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for round in 0..12 {
        let path = dir.path().join(format!("journal-{round}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(PATH_VARIABLE, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        // However long it takes to begin.
        let mut first = [0; 9];
        stderr.read_exact(&mut first).unwrap();
        let told = std::thread::spawn(move || {
            let mut bytes = first.to_vec();
            stderr.read_to_end(&mut bytes).map(|_| bytes)
        });
        std::thread::sleep(Duration::from_millis(random.u64() % 200));
        child.kill().unwrap();
        child.wait().unwrap();
        check(&path, &told.join().unwrap().unwrap());
    }
}

fn check(path: &std::path::Path, told: &[u8]) {
    let mut last: HashMap<[u8; 2], u64> = HashMap::new();
    for message in told.chunks_exact(9) {
        let n = u64::from_be_bytes(message[1..].try_into().unwrap());
        last.insert(key(message[0], n), n);
    }
    let (_, found) = Journal::open(path, &CONFIG).unwrap();
    let mut pending = 0;
    for entry in &found {
        let n = u64::from_be_bytes(entry.intent[..8].try_into().unwrap());
        let thread = entry.key[0];
        assert_eq!(entry.key, key(thread, n));
        assert_eq!(entry.intent, text(0, thread, n), "an intent is whole");
        assert_eq!(entry.certainty, Certainty::ProcessDied);
        let known = last.remove(&key(thread, n));
        assert!(known.is_none_or(|known| known <= n), "the newest of a key is found");
        match &entry.reply {
            Some(reply) => assert_eq!(*reply, text(1, thread, n), "a reply is whole and its intent's own"),
            None => pending += 1,
        }
        assert!(entry.reply.is_some() || known != Some(n), "a reply that was told is there");
    }
    assert!(last.is_empty(), "every key is found");
    assert!(pending <= usize::from(THREADS), "only what was under way lacks its reply");
}
