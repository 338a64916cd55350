//! A server that is started again by its parent when it is killed.

use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::nfs4::Nfs4;
use crate::server::Server;

fn is_there(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

#[test]
fn a_server_that_is_killed_serves_again_and_nobody_is_refused_meanwhile() {
    let mut server = Server::supervised();
    let mut before = Nfs4::new(server.address, "before", 1);
    before.open("file");
    let first = server.behind();
    kill_process(first, Signal::KILL).unwrap();
    let mut connected = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until && connected.len() < 50 {
        connected.push(TcpStream::connect(server.address).expect("who connects waits"));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(server.is_ready(), server.address, "the same port");
    assert_ne!(server.behind(), first);
    let _after = Nfs4::new(server.address, "after", 1);
}

#[test]
fn what_the_parent_is_told_the_server_is_told_and_its_status_is_the_parents() {
    let mut server = Server::supervised();
    let behind = server.behind();
    server.signal(Signal::USR2);
    assert_eq!(server.is_ready(), server.address);
    assert_eq!(server.behind(), behind, "another program in the same process");
    kill_process(behind, Signal::KILL).unwrap();
    assert_eq!(server.is_ready(), server.address, "of which the parent has the sockets too");
    let again = server.behind();
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    assert!(!is_there(again));
}

#[test]
fn the_server_ends_with_its_parent() {
    let mut server = Server::supervised();
    let behind = server.behind();
    server.signal(Signal::KILL);
    assert_eq!(server.status().signal(), Some(9));
    let until = Instant::now() + Duration::from_secs(30);
    while is_there(behind) {
        assert!(Instant::now() < until, "it serves on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn one_that_dies_again_and_again_is_given_up() {
    let mut server = Server::supervised();
    for death in 1..=5 {
        kill_process(server.behind(), Signal::KILL).unwrap();
        if death < 5 {
            assert_eq!(server.is_ready(), server.address);
        }
    }
    assert!(!server.status().success());
    assert!(server.log().contains("5 times within a minute"), "{}", server.log());
}
