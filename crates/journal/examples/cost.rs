//! What the journal costs: nanoseconds per begin and finish (of the clock, and of CPU), by size and by number of threads, and the time of a
//! force and of opening a full journal. `cargo run --release -p holdfast-journal --example cost [DIRECTORY]`.

use std::time::{Duration, Instant};

use holdfast_journal::{Config, Journal, Keep};

const ROUNDS: u64 = 400_000;

fn main() {
    let place = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    println!("journal in {}", place.display());
    for (intent, reply) in [(64, 128), (160, 320), (400, 2000)] {
        for threads in [1, 2, 8] {
            measure(&place, intent, reply, threads, None);
        }
        measure(&place, intent, reply, 1, Some(Duration::from_millis(1)));
    }
    for keys in [100, 10_000] {
        open(&place, keys);
    }
}

/// How long it takes to open a journal that was written all around: the first time, and when it has been rewritten.
fn open(place: &std::path::Path, keys: usize) {
    let path = place.join(format!("holdfast-journal-cost-{}", std::process::id()));
    let opened = || Journal::open(&path, &Config::default());
    let Ok((journal, _)) = opened() else {
        println!("cannot open {}", path.display());
        return;
    };
    for n in 0..200_000 {
        let key = format!("the key of a slot {:08}", n % keys);
        let id = journal.begin(key.as_bytes(), Keep::Latest, &[1; 120]);
        let is_written = id.is_ok_and(|id| journal.finish(id, &[2; 180]).is_ok());
        if !is_written || (n % 1000 == 0 && journal.force().is_err()) {
            println!("cannot write");
            return;
        }
    }
    drop(journal);
    for what in ["full", "rewritten", "rewritten"] {
        let (start, cpu) = (Instant::now(), cpu_ms());
        let Ok((journal, found)) = opened() else { return };
        let (ms, cpu) = (start.elapsed().as_secs_f64() * 1e3, cpu_ms() - cpu);
        println!("opened ({what}), {} entries: {ms:.1} ms, {cpu:.0} ms of CPU", found.len());
        drop(journal);
    }
    let _ = std::fs::remove_file(&path);
}

fn measure(
    place: &std::path::Path,
    intent: usize,
    reply: usize,
    threads: u64,
    force_every: Option<Duration>,
) {
    let path = place.join(format!("holdfast-journal-cost-{}", std::process::id()));
    let Ok((journal, _)) = Journal::open(&path, &Config::default()) else {
        println!("cannot open {}", path.display());
        return;
    };
    let (start, cpu) = (Instant::now(), cpu_ms());
    let mut forces = 0u32;
    std::thread::scope(|scope| {
        let journal = &journal;
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let (intent, reply) = (vec![1; intent], vec![2; reply]);
                    for n in 0..ROUNDS / threads {
                        let mut key = [0; 21];
                        key[..8].copy_from_slice(&((thread << 32) | (n % 64)).to_be_bytes());
                        if let Ok(id) = journal.begin(&key, Keep::Latest, &intent) {
                            let _ = journal.finish(id, &reply);
                        }
                    }
                })
            })
            .collect();
        while let Some(pause) = force_every
            && !writers.iter().all(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(pause);
            let _ = journal.force();
            forces += 1;
        }
    });
    let ns = start.elapsed().as_nanos() / u128::from(ROUNDS);
    let cpu_ns = (cpu_ms() - cpu) * 1_000_000 / ROUNDS;
    let waits = journal.usage().waits;
    println!(
        "intent {intent:4} reply {reply:4} threads {threads}: {ns:5} ns, CPU {cpu_ns:5} ns, {forces} forces, {waits} waits"
    );
    let _ = std::fs::remove_file(path);
}

/// CPU time of this process so far, in milliseconds, by ticks of 10; 0 when the kernel does not say.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() * 10
}
