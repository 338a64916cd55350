//! New programs that cannot take over: nothing happens to clients.

use holdfast_wire::nfs4::NfsStat4;
use rustix::process::Signal;

use crate::nfs4::Nfs4;
use crate::server::Server;

#[test]
fn a_program_that_cannot_take_over_leaves_the_old_one_serving() {
    let programs = [
        ("#!/bin/sh\necho cannot find it >&2\nexit 1\n", "cannot find it"),
        ("#!/bin/sh\necho holdfast understands handovers 7 to 9\n", "understands handovers 7 to 9"),
        ("#!/no/such/interpreter\n", "cannot be started"),
    ];
    let server = Server::start();
    let mut client = Nfs4::new(server.address, "stays", 1);
    let open = client.open("file");
    for (program, complaint) in programs {
        server.install(program);
        server.signal(Signal::USR2);
        server.says(complaint);
        assert!(client.write("file", open, b"still").is_ok(), "{complaint}");
    }
    assert_eq!(client.close("file", open), NfsStat4::Ok);
}

#[test]
fn a_program_that_fails_after_its_answer_leaves_the_old_one_serving() {
    let server = Server::start();
    let mut client = Nfs4::new(server.address, "stays", 1);
    let open = client.open("file");
    let lock = client.lock("file", open).unwrap();
    // It answers, and is gone when it is to be started.
    server.install("#!/bin/sh\necho holdfast understands handovers 1 to 1\nrm -f \"$0\"\n");
    server.signal(Signal::USR2);
    server.says("serves on");
    assert!(server.ignores_broken_pipes(), "the next client that goes away would end it");
    assert!(client.write("file", lock, b"still").is_ok());
    assert!(!crate::prober::is_free(&server.file("file")));
    assert_eq!(client.unlock("file", lock), NfsStat4::Ok);
    assert_eq!(client.close("file", open), NfsStat4::Ok);
}

#[test]
fn a_server_that_is_told_to_end_while_it_hands_over_ends() {
    let server = Server::start();
    let slow = "#!/bin/sh\n[ \"$HOLDFAST_HANDOVER\" = asked ] || exit 9\nsleep 1\n\
                echo holdfast understands handovers 1 to 1\n";
    server.install(slow);
    server.signal(Signal::USR2);
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.signal(Signal::TERM);
    // By itself: the new program would have failed.
    server.ended();
}

#[test]
fn without_descriptors_for_all_connections_none_is_handed_over() {
    let server = Server::start();
    let mut clients: Vec<_> = (0..60).map(|n| Nfs4::new(server.address, &format!("client {n}"), 1)).collect();
    let opens: Vec<_> = clients.iter_mut().map(|client| client.open("file")).collect();
    server.leave_descriptors(30);
    server.signal(Signal::USR2);
    server.says("no descriptors to be had");
    for (client, open) in clients.iter_mut().zip(opens) {
        assert_eq!(client.close("file", open), NfsStat4::Ok);
    }
}
