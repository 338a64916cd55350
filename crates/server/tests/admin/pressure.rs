//! A server that is told of little memory; and what it keeps open with enough of it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_admin::report::{MemoryStatus, Status};
use holdfast_admin::request::Request;
use holdfast_base::limits::{CAPS_OBJECTS_MAX, DELEGATIONS_MAX, SESSIONS_SLOTS_MAX, STATEIDS_MAX};
use holdfast_wire::nfs4::CbOpNum4;
use tempfile::TempDir;

use crate::ask;
use crate::client::{Client, NFS3, opaque};
use crate::nfs4::Nfs4;
use crate::server::{Server, root, spawn};

const MIB: u64 = 1 << 20;
const FILES: usize = 20;

/// Has the server's host be one with so many MiB of memory.
fn tell(world: &Path, total: u64, available: u64) {
    let proc = world.join("host/proc");
    fs::create_dir_all(&proc).unwrap();
    let text = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total << 10, available << 10);
    // Whole at any moment.
    fs::write(proc.join("new"), text).unwrap();
    fs::rename(proc.join("new"), proc.join("meminfo")).unwrap();
}

fn start(total: u64, available: u64) -> Server {
    let world: TempDir = Server::start().killed();
    tell(world.path(), total, available);
    Server::start_in(world, spawn)
}

fn status(server: &Server) -> Status {
    ask(server).ask(Request::Status).unwrap()
}

fn memory(status: &Status) -> &MemoryStatus {
    status.memory.as_ref().expect("the host tells")
}

fn bound(status: &Status, name: &str) -> u64 {
    status.fills.iter().find(|fill| fill.name == name).unwrap().max
}

fn count(status: &Status, event: &str) -> u64 {
    status.events.iter().find(|count| count.name == event).unwrap().count
}

/// What the server keeps open of an export only to be faster.
fn cached(status: &Status) -> u64 {
    status.fills.iter().find(|fill| fill.name == "cached, /export").unwrap().used
}

fn until(server: &Server, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = status(server);
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{what}: {status:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn budgets_are_those_for_the_memory_there_is_from_the_start() {
    let server = start(1024, 900);
    let status = status(&server);
    assert_eq!((memory(&status).total_bytes, memory(&status).is_short), (1024 * MIB, false));
    assert_eq!(memory(&status).bound, "the machine");
    let whole = |bound: usize| bound as u64 / 8;
    assert_eq!(
        ["delegations", "slots", "stateids", "capabilities"].map(|name| bound(&status, name)),
        [DELEGATIONS_MAX, SESSIONS_SLOTS_MAX, STATEIDS_MAX, CAPS_OBJECTS_MAX].map(whole)
    );
}

#[test]
fn when_memory_runs_short_clients_are_asked_for_promises_and_caches_shrink() {
    let server = start(8192, 8000);
    let mut looker = Client::connect(server.address);
    let root = root(&mut looker);
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let names: Vec<String> = (0..FILES).map(|n| format!("file-{n}")).collect();
    for name in &names {
        let (open, delegation) = holder.open_delegated(name).unwrap();
        assert!(delegation.is_some(), "granted while there is memory");
        holder.close(name, open);
    }
    let others: Vec<String> = (0..FILES).map(|n| format!("other-{n}")).collect();
    for name in &others {
        fs::write(server.file(name), "").unwrap();
        looker.ask(NFS3, 3, &[opaque(&root), opaque(name.as_bytes())].concat());
    }
    let before = status(&server);
    assert!(cached(&before) >= FILES as u64, "{before:?}");
    assert_eq!(count(&before, "clients asked to give back what they need least"), 0);

    tell(&server.path(""), 8192, 0);
    assert_eq!(holder.next_call(), CbOpNum4::RecallAny as u32);
    // The call is counted when it has been handed over for sending, so it may be answered before it is counted.
    let short = until(&server, "caches shrink and the call is counted", |status| {
        cached(status) < cached(&before)
            && count(status, "clients asked to give back what they need least") >= 1
    });
    assert!(memory(&short).is_short && memory(&short).shortages == 1, "{short:?}");
    assert_eq!(bound(&short, "delegations"), 0, "no more are granted");
    // The holder has left a call unanswered, and gets none for that alone.
    let mut newcomer = Nfs4::new(server.address, "newcomer", 1);
    let (_, delegation) = newcomer.open_delegated("one-more").unwrap();
    assert_eq!(delegation, None, "an open is never refused, a promise is");

    tell(&server.path(""), 8192, 8000);
    let easy = until(&server, "it is over", |status| !memory(status).is_short);
    assert_eq!(bound(&easy, "delegations"), bound(&before, "delegations"));
    let (_, delegation) = newcomer.open_delegated("yet-another").unwrap();
    assert!(delegation.is_some());
}

#[test]
fn what_a_local_process_removes_does_not_stay_open_for_long() {
    let server = Server::start();
    let mut looker = Client::connect(server.address);
    let root = root(&mut looker);
    let before = cached(&status(&server));
    for n in 0..FILES {
        let name = format!("f{n}");
        fs::write(server.file(&name), "").unwrap();
        looker.ask(NFS3, 3, &[opaque(&root), opaque(name.as_bytes())].concat());
    }
    assert!(cached(&status(&server)) >= before + FILES as u64);
    for n in 0..FILES {
        fs::remove_file(server.file(&format!("f{n}"))).unwrap();
    }
    until(&server, "descriptors are closed", |status| cached(status) <= before);
}
