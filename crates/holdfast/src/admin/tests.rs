//! What people see, whole, as it is in `golden/`: a change of it is seen in review.

use clap::Parser as _;
use holdfast_admin::report::{
    Client, Count, Counters, ExportStatus, Fill, GraceStatus, GroupCounters, Holding, HoldingKind,
    MemoryStatus, OperationCounters, ProcessStatus, Range, RateStatus, STORED, Status, Totals,
};

use super::{clients, locks, status, top};
use crate::cli::Cli;

const NOON: u64 = 1_800_014_400_000;

fn status_of_a_busy_server() -> Status {
    Status {
        version: "1.2.3".into(),
        pid: 4711,
        started_unix_ms: NOON,
        uptime_ms: 11_520_000,
        state_dir: "/var/lib/holdfast".into(),
        listen: vec!["0.0.0.0:2049".into(), "[::]:2049".into()],
        lease_ms: 60_000,
        grace: GraceStatus {
            is_active: true,
            ends_in_ms: Some(42_000),
            reason: Some("clients have yet to reclaim or to say that they are done".into()),
            awaited: vec!["Linux NFSv4.2 anna".into(), "Linux NFSv4.2 bert".into()],
            awaited_count: 5,
        },
        exports: vec![ExportStatus {
            id: 7,
            path: "/data".into(),
            source: Some("/srv/data".into()),
            rules: "read-write, sync, for 192.0.2.0/24".into(),
        }],
        connections: 3,
        connections_max: 16_384,
        totals: Totals { operations: 1_234_567, errors: 89, received_bytes: 5 << 20, sent_bytes: 7 << 30 },
        rates: vec![
            RateStatus { seconds: 10.0, operations: 1200.25, received_bytes: 2048.0, sent_bytes: 1e6 },
            RateStatus { seconds: 60.0, operations: 7.0, received_bytes: 0.0, sent_bytes: 12.0 },
        ],
        state: vec![Count::new("clients", 3), Count::new("sessions", 0), Count::new("opens", 12_000)],
        events: vec![Count::new("recall calls", 0)],
        fills: vec![
            Fill { name: "stateids".into(), used: 12_000, max: 1 << 20 },
            Fill { name: STORED.into(), used: 9_001, max: 8_192 },
        ],
        memory: Some(MemoryStatus {
            total_bytes: 512 << 20,
            available_bytes: 48 << 20,
            short_below_bytes: 64 << 20,
            is_short: true,
            bound: "control group /sys/fs/cgroup/system.slice/holdfast.service".into(),
            shortages: 2,
        }),
        process: ProcessStatus {
            resident_bytes: 64 << 20,
            resident_peak_bytes: 80 << 20,
            descriptors: 1234,
            descriptors_max: 524_288,
            threads: 25,
            cpu_ms: 61_000,
        },
        ..Status::default()
    }
}

fn some_clients() -> Vec<Client> {
    let client = Client {
        id: "0000000200000001".into(),
        protocol: "NFSv4.1+".into(),
        name: "Linux NFSv4.2 anna".into(),
        addresses: vec!["192.0.2.7".into(), "2001:db8::7".into()],
        is_confirmed: true,
        idle_ms: Some(8_000),
        lease_left_ms: Some(52_000),
        back_channel: "up".into(),
        sessions: 1,
        opens: 1200,
        locks: 3,
        delegations: 5,
        recalled: 2,
        capabilities: 23_456,
        capabilities_recalled: 1,
        ..Client::default()
    };
    let dead = Client {
        id: "0000000200000002".into(),
        name: "bert".into(),
        addresses: Vec::new(),
        is_courteous: true,
        idle_ms: Some(7_500_000),
        lease_left_ms: None,
        back_channel: "down".into(),
        recalled: 0,
        capabilities: 0,
        capabilities_recalled: 0,
        ..client.clone()
    };
    let host = Client {
        id: "nlm:carl@192.0.2.9".into(),
        protocol: "NLM".into(),
        name: "carl".into(),
        addresses: vec!["192.0.2.9".into()],
        is_confirmed: true,
        back_channel: "none".into(),
        locks: 1,
        ..Client::default()
    };
    vec![client, dead, host]
}

fn some_holdings() -> Vec<Holding> {
    let range = |kind: &str, first, last| Range { kind: kind.into(), first, last };
    let lock = Holding {
        id: "a".into(),
        kind: HoldingKind::Lock,
        client: "0000000200000001".into(),
        client_name: "Linux NFSv4.2 anna".into(),
        addresses: vec!["192.0.2.7".into()],
        protocol: "NFSv4.1+".into(),
        is_courteous: false,
        export: Some("/data".into()),
        path: Some("/srv/data/mail.db".into()),
        is_deleted: false,
        file: "0f".into(),
        owner: None,
        since_unix_ms: Some(NOON),
        access: None,
        deny: None,
        ranges: vec![range("write", 0, Some(99)), range("read", 200, None)],
        recalled_unix_ms: None,
        is_revoked: false,
    };
    let open = Holding {
        kind: HoldingKind::Open,
        access: Some("both".into()),
        deny: Some("write".into()),
        ranges: Vec::new(),
        is_deleted: true,
        ..lock.clone()
    };
    let delegation = Holding {
        kind: HoldingKind::Delegation,
        access: Some("read".into()),
        deny: None,
        is_deleted: false,
        is_courteous: true,
        recalled_unix_ms: Some(NOON + 5000),
        ..open.clone()
    };
    let unknown =
        Holding { path: None, since_unix_ms: None, ranges: vec![range("write", 0, None)], ..lock.clone() };
    vec![lock, open, delegation, unknown]
}

fn counters(at_unix_ms: u64, n: u64) -> Counters {
    let group = |name: &str, n: u64, known_as: Vec<String>| GroupCounters {
        name: name.into(),
        known_as,
        read: 10 * n,
        look: 90 * n,
        errors: n,
        sent_bytes: n << 20,
        ..GroupCounters::default()
    };
    let op = |name: &str, count: u64| OperationCounters {
        protocol: "nfs3".into(),
        name: name.into(),
        count,
        p50_ns: 1_900,
        p99_ns: 2_500_000,
        ..OperationCounters::default()
    };
    Counters {
        at_unix_ms,
        operations: vec![op("READ", 10 * n), op("LOOKUP", 5), op("GETATTR", 90 * n)],
        clients: vec![group("192.0.2.8", n, Vec::new()), group("192.0.2.7", 3 * n, vec!["anna".into()])],
        exports: vec![group("/data", 4 * n, Vec::new())],
    }
}

#[test]
fn the_status_is_as_it_was() {
    let text = status::People(status_of_a_busy_server()).to_string();
    assert_eq!(text, include_str!("golden/status.txt"), "\n{text}");
}

#[test]
fn clients_are_as_they_were() {
    let text = clients::People(some_clients()).to_string();
    assert_eq!(text, include_str!("golden/clients.txt"), "\n{text}");
    assert_eq!(clients::People(Vec::new()).to_string(), "no clients\n");
}

#[test]
fn locks_are_as_they_were() {
    let text = locks::People(some_holdings()).to_string();
    assert_eq!(text, include_str!("golden/locks.txt"), "\n{text}");
    assert_eq!(locks::People(Vec::new()).to_string(), "nothing is held\n");
}

#[test]
fn locks_are_told_in_the_order_of_their_paths() {
    let at = |path: Option<&str>, client: &str| Holding {
        path: path.map(Into::into),
        client: client.into(),
        ..some_holdings().remove(0)
    };
    let held = vec![at(None, "1"), at(Some("/b"), "2"), at(Some("/a"), "4"), at(Some("/b"), "1")];
    let sorted = locks::by_path(held);
    let told: Vec<_> = sorted.iter().map(|held| (held.path.as_deref(), &*held.client)).collect();
    assert_eq!(told, [(Some("/a"), "4"), (Some("/b"), "2"), (Some("/b"), "1"), (None, "1")]);
}

#[test]
fn the_busiest_come_first_and_the_idle_not_at_all() {
    let busy = top::Busy::between(&counters(NOON, 1), &counters(NOON + 2000, 5), 10);
    assert_eq!(busy.to_string(), include_str!("golden/top.txt"), "\n{busy}");
    let one = top::Busy::between(&counters(NOON, 1), &counters(NOON + 2000, 5), 1).to_string();
    assert!(one.contains("192.0.2.7 (anna)") && !one.contains("192.0.2.8"), "{one}");
}

#[test]
fn command_lines_are_as_the_documentation_writes_them() {
    for line in [
        "holdfast status --json",
        "holdfast status --prometheus",
        "holdfast top --interval 0.5 --count 3 --rows 5",
        "holdfast clients",
        "holdfast clients 192.0.2.7 --json",
        "holdfast clients revoke 192.0.2.7 --state-dir /tmp/x",
        "holdfast locks --path /srv/a --kind lock,delegation",
        "holdfast locks release --client anna --export /data --kind open",
        "holdfast locks release --id 0001",
        "holdfast reload",
        "holdfast reload --upgrade --json",
        "holdfast log info,holdfast_nfs4=debug",
        "holdfast drop-caches",
        "holdfast grace end --state-dir /tmp/x",
    ] {
        if let Err(error) = Cli::try_parse_from(line.split(' ')) {
            panic!("{line}: {error}");
        }
    }
    for line in [
        "holdfast locks release",
        "holdfast locks release --kind lock",
        "holdfast clients revoke",
        "holdfast top --interval 0",
        "holdfast grace",
        "holdfast status --json --prometheus",
        "holdfast --log debgu status",
    ] {
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    crate::man::run(&crate::cli::ManArgs { dir: dir.path().join("man") }).unwrap();
    let page =
        |name: &str| std::fs::read_to_string(dir.path().join(format!("man/holdfast{name}.1"))).unwrap();
    for name in
        ["-status", "-top", "-clients", "-locks", "-reload", "-log", "-drop-caches", "-clients-revoke"]
    {
        assert!(page(name).contains("state\\-dir"), "{name}");
    }
    assert!(page("-locks-release").contains("export") && page("").contains("holdfast\\-locks"));
}
