use std::net::Ipv4Addr;
use std::thread;

use super::*;

const OPS: [Operation; 2] = [
    Operation { protocol: "nfs3", name: "READ", class: Class::Read },
    Operation { protocol: "nfs3", name: "WRITE", class: Class::Write },
];

fn event(op: usize, client: u32, export: u16) -> Event {
    Event {
        op,
        is_error: false,
        peer: Ipv4Addr::from(client).into(),
        export: Some(ExportId(export)),
        received: 10,
        sent: 100,
        took: Some(Duration::from_micros(3)),
        weight: 1,
    }
}

#[test]
fn what_many_threads_count_is_neither_lost_nor_counted_twice() {
    let stats = Stats::new(OPS.to_vec());
    let threads: Vec<_> = (0..8u32)
        .map(|n| {
            let stats = Arc::clone(&stats);
            thread::spawn(move || {
                for i in 0..1000 {
                    stats.record(&Event { is_error: i % 10 == 0, ..event(0, n % 2, 1) });
                    stats.record(&event(1, n, 2));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let read = stats.read();
    let (_, reads) = &read.operations[0];
    assert_eq!((reads.count, reads.errors, reads.nanos), (8000, 800, 8000 * 3000));
    assert_eq!(reads.buckets.iter().sum::<u64>(), 8000);
    let clients: Vec<_> = read.clients.iter().map(|(_, sums)| sums.classes).collect();
    assert_eq!(clients[0], [4000, 1000, 0, 0, 0]);
    assert_eq!(clients[7], [0, 1000, 0, 0, 0]);
    assert_eq!(read.other_clients, GroupSums::default());
    let totals = Totals { operations: 16_000, errors: 800, received: 160_000, sent: 1_600_000 };
    assert_eq!(read.totals(), totals);
    // Threads that ended left their counters to others.
    let shards = stats.shards.lock();
    assert_eq!(shards.idle.len(), shards.all.len());
}

#[test]
fn more_clients_than_there_is_room_for_are_counted_together() {
    let stats = Stats::new(OPS.to_vec());
    let clients = STATS_CLIENTS_MAX as u32 + 500;
    for client in 0..clients {
        stats.record(&event(0, client, 1));
    }
    let read = stats.read();
    assert_eq!(read.clients.len(), STATS_CLIENTS_MAX - 1);
    let counted = read.clients.iter().map(|(_, sums)| sums.operations()).sum::<u64>();
    assert_eq!(counted + read.other_clients.operations(), u64::from(clients));
}

#[test]
fn one_in_so_many_is_timed_of_those_that_cannot_wait_and_each_of_those_that_may() {
    let stats = Stats::new(OPS.to_vec());
    let timed = (0..SAMPLE_EVERY * 10).filter_map(|_| stats.begin(false)).count();
    assert_eq!(timed, 10);
    assert!((0..10).all(|_| stats.begin(true).is_some()));
}

#[test]
fn two_servers_in_one_process_do_not_count_for_each_other() {
    let (a, b) = (Stats::new(OPS.to_vec()), Stats::new(OPS.to_vec()));
    for _ in 0..100 {
        a.record(&event(0, 1, 1));
        b.record(&event(1, 1, 1));
    }
    assert_eq!(a.read().operations.map_counts(), [100, 0]);
    assert_eq!(b.read().operations.map_counts(), [0, 100]);
    assert_eq!(a.shards.lock().all.len(), 1, "one thread, one set of counters");
}

trait Counts {
    fn map_counts(&self) -> Vec<u64>;
}

impl Counts for Vec<(Operation, OpSums)> {
    fn map_counts(&self) -> Vec<u64> {
        self.iter().map(|(_, sums)| sums.count).collect()
    }
}
