//! What counting costs an operation: `cargo run --release -p holdfast-admin --example cost`.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_admin::stats::{Class, Event, Operation, Stats};
use holdfast_base::ExportId;

const ROUNDS: u32 = 5_000_000;

fn nanos_each(threads: u32, clients: u32, run: fn(&Stats, u32, u32)) -> f64 {
    let op = Operation { protocol: "x", name: "X", class: Class::Look };
    let stats = Stats::new(vec![op; 100]);
    let workers: Vec<_> = (0..threads)
        .map(|n| {
            let stats = Arc::clone(&stats);
            thread::spawn(move || {
                run(&stats, n, clients);
                let began = Instant::now();
                for i in 0..ROUNDS {
                    run(black_box(&stats), i, clients);
                }
                began.elapsed()
            })
        })
        .collect();
    let took: Duration = workers.into_iter().filter_map(|worker| worker.join().ok()).sum();
    took.as_nanos() as f64 / f64::from(ROUNDS) / f64::from(threads)
}

fn event(i: u32, clients: u32, took: Option<(Instant, u32)>) -> Event {
    Event {
        op: i as usize % 100,
        is_error: false,
        peer: Ipv4Addr::from(0x0a00_0000 + i % clients).into(),
        export: Some(ExportId(1)),
        received: 100,
        sent: 200,
        took: took.map(|(at, _)| at.elapsed()),
        weight: took.map_or(0, |(_, weight)| weight),
    }
}

fn inline(stats: &Stats, i: u32, clients: u32) {
    let began = stats.begin(false);
    stats.record(&event(i, clients, began));
}

fn pooled(stats: &Stats, i: u32, clients: u32) {
    let began = stats.begin(true);
    stats.record(&event(i, clients, began));
}

fn main() {
    for (name, run) in
        [("where it cannot wait", inline as fn(&Stats, u32, u32)), ("where it may wait", pooled)]
    {
        for (threads, clients) in [(1, 1), (1, 50), (2, 50), (1, 1000)] {
            let nanos = nanos_each(threads, clients, run);
            println!("{name}: {threads} thread(s), {clients} client(s): {nanos:.1} ns an operation");
        }
    }
    let stats = Stats::new(vec![Operation { protocol: "x", name: "X", class: Class::Look }; 100]);
    for client in 0..1000 {
        inline(&stats, client, 1000);
    }
    let began = Instant::now();
    for _ in 0..1000 {
        black_box(stats.read());
    }
    println!("reading, one thread's counters: {:.1} us", began.elapsed().as_nanos() as f64 / 1e6);
}
