//! The service manager's store of descriptors, with a service manager that does only this.

use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_admin::AdminClient;
use holdfast_admin::report::{STORED, Status};
use holdfast_admin::request::Request;
use holdfast_wire::nfs4::NfsStat4;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use crate::nfs4::Nfs4;
use crate::prober::{Prober, is_free};
use crate::server::{Server, spawn};

/// What is kept all the time.
const LISTENER: &str = "holdfast-listener";

/// Descriptors are passed from here on.
const FIRST: usize = 3;

/// How often the service manager restarts the server, and how often at most, until one stall is as short as is promised on a
/// machine of its own: this one is shared with other tests, not all the time.
const ROUNDS: usize = 3;
const ROUNDS_MAX: usize = 12;
const STILL_MS_PROMISED: u64 = 500;
/// What half of the stalls are below, likewise.
const STILL_MS_MEDIAN_MAX: u64 = 2_000;

fn is_short(stills: &[u64]) -> bool {
    let mut sorted = stills.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2);
    sorted.first().is_some_and(|ms| *ms < STILL_MS_PROMISED)
        && median.is_some_and(|ms| *ms < STILL_MS_MEDIAN_MAX)
}

/// A service manager.
struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
    store: Vec<(String, OwnedFd)>,
    /// How many descriptors it keeps.
    places: usize,
}

impl Manager {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("holdfast-manager-{}-{n}", std::process::id()));
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, path, store: Vec::new(), places: 4096 }
    }

    /// A server in a world of its own, started by it.
    fn first_server(&mut self) -> Server {
        let world = tempfile::tempdir().unwrap();
        fs::create_dir(world.path().join("files")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), world.path().join("program")).unwrap();
        Server::start_in(world, |command| self.spawn(command))
    }

    /// Takes in what was said.
    fn listen(&mut self) {
        loop {
            let mut text = [0; 512];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut text)];
            let Ok(got) = recvmsg(&self.socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) else {
                return;
            };
            let fds: Vec<OwnedFd> = control
                .drain()
                .filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None })
                .flatten()
                .collect();
            let text = String::from_utf8_lossy(&text[..got.bytes]).into_owned();
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("").to_owned();
            if text.contains("FDSTOREREMOVE=1") {
                self.store.retain(|(of, _)| *of != name);
            } else if text.contains("FDSTORE=1") {
                // One of a kind, as of what is stored twice only one is kept.
                if name == LISTENER {
                    self.store.retain(|(of, _)| *of != name);
                }
                self.store.extend(fds.into_iter().map(|fd| (name.clone(), fd)));
            }
        }
    }

    /// Starts the program with what is in the store.
    fn spawn(&self, command: &mut Command) -> Child {
        command.env("NOTIFY_SOCKET", &self.path).env("FDSTORE", self.places.to_string());
        if self.store.is_empty() {
            return spawn(command);
        }
        // The shell puts them where they belong; out of the way first.
        let high = |(_, fd): &(String, OwnedFd)| {
            let high = rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 200).unwrap();
            fcntl_setfd(&high, FdFlags::empty()).unwrap();
            high
        };
        let passed: Vec<_> = self.store.iter().map(high).collect();
        let moves: String = passed
            .iter()
            .enumerate()
            .map(|(n, fd)| format!("exec {}<&{} {}<&-; ", n + FIRST, fd.as_raw_fd(), fd.as_raw_fd()))
            .collect();
        let names: Vec<_> = self.store.iter().map(|(name, _)| name.as_str()).collect();
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{moves}export LISTEN_PID=$$; exec \"$0\" \"$@\"")]);
        shell.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        shell.env("LISTEN_FDS", passed.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let log = std::path::Path::new(command.get_program()).with_file_name("log");
        let log = fs::File::options().append(true).open(log).unwrap();
        shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(log);
        shell.spawn().unwrap()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn a_restart_by_the_service_manager_goes_on_with_what_it_kept() {
    let mut manager = Manager::new();
    let mut server = manager.first_server();
    let mut client = Nfs4::new(server.address, "restarted", 1);
    let open = client.open("file");
    let lock = client.lock("file", open).unwrap();
    let prober = Prober::of(&server.file("file"));
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && is_short(&server.stills()) {
            break;
        }
        let address = server.address;
        server.signal(Signal::TERM);
        let world = server.ended();
        manager.listen();
        assert!(manager.store.len() > 3, "listener, connection, open file and image are kept");
        server = Server::start_in(world, |command| manager.spawn(command));
        assert_eq!(server.address, address);
        manager.listen();
        assert!(
            manager.store.iter().all(|(name, _)| name == LISTENER),
            "what was taken is not kept any more"
        );
        assert!(client.write("file", lock, b"still").is_ok(), "round {round}: {}", server.log());
    }
    let (tried, had) = prober.end();
    assert_eq!(had, 0, "in {tried} tries a local process got the lock");
    let stills = server.stills();
    println!("restart by the service manager: stalls of {stills:?} ms");
    assert!(stills.len() >= ROUNDS, "each restart went on with what was kept: {stills:?}");
    assert!(is_short(&stills), "{stills:?}");
    assert_eq!(client.unlock("file", lock), NfsStat4::Ok);
    assert_eq!(client.close("file", open), NfsStat4::Ok);
}

#[test]
fn what_was_kept_without_an_image_is_closed_and_clients_come_as_after_a_crash() {
    let mut manager = Manager::new();
    let server = manager.first_server();
    let mut client = crate::client::Client::connect(server.address);
    let mut holder = Nfs4::new(server.address, "restarted", 1);
    let open = holder.open("file");
    holder.lock("file", open).unwrap();
    crate::server::root(&mut client);
    server.signal(Signal::TERM);
    let world = server.ended();
    manager.listen();
    manager.store.retain(|(name, _)| name != "holdfast-image");
    let server = Server::start_in(world, |command| manager.spawn(command));
    manager.listen();
    assert!(client.is_closed());
    assert!(is_free(&server.file("file")), "nobody holds it until it is reclaimed");
    server.says("given up");
    std::thread::sleep(Duration::from_millis(10));
}

#[test]
fn state_that_is_damaged_is_not_gone_on_with_and_nothing_of_what_came_with_it_is_kept() {
    let mut manager = Manager::new();
    let server = manager.first_server();
    let mut client = crate::client::Client::connect(server.address);
    let mut holder = Nfs4::new(server.address, "restarted", 1);
    let open = holder.open("file");
    holder.lock("file", open).unwrap();
    crate::server::root(&mut client);
    server.signal(Signal::TERM);
    let world = server.ended();
    manager.listen();
    let is_engine = |fd: &OwnedFd| {
        let name = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        name.to_string_lossy().contains("memfd:holdfast-engine")
    };
    let (_, engine) = manager.store.iter().find(|(_, fd)| is_engine(fd)).unwrap();
    let engine = fs::File::from(engine.try_clone().unwrap());
    let whole = engine.metadata().unwrap().len();
    assert!(whole > 200, "{whole} bytes");
    engine.set_len(whole / 2).unwrap();
    let server = Server::start_in(world, |command| manager.spawn(command));
    manager.listen();
    assert!(client.is_closed());
    assert!(is_free(&server.file("file")), "nobody holds it until it is reclaimed");
    server.says("given up");
    let mut status = AdminClient::connect(&server.path("state")).unwrap();
    let status: Status = status.ask(Request::Status).unwrap();
    assert!(status.grace.ends_in_ms.is_some(), "who is on record may reclaim: {status:?}");
}

#[test]
fn with_more_descriptors_than_are_kept_the_way_out_is_told_before_and_clients_reclaim() {
    // The listening socket, a connection, an open file, the image and the engine's part of it; not the file of the lock as well.
    let mut manager = Manager::new();
    manager.places = 5;
    let server = manager.first_server();
    let to_store = || {
        let mut admin = AdminClient::connect(&server.path("state")).unwrap();
        let status: Status = admin.ask(Request::Status).unwrap();
        let fill = status.fills.into_iter().find(|fill| fill.name == STORED).unwrap();
        (fill.used, fill.max)
    };
    assert_eq!(to_store(), (3, 5), "the listening socket, the image and the engine's part of it");
    let mut holder = Nfs4::new(server.address, "restarted", 1);
    let open = holder.open("file");
    assert_eq!(to_store(), (5, 5));
    holder.lock("file", open).unwrap();
    assert_eq!(to_store(), (6, 5));
    server.signal(Signal::TERM);
    let world = server.ended();
    let log = fs::read_to_string(world.path().join("log")).unwrap();
    assert!(log.contains("clients will have to reclaim: 6 descriptors"), "{log}");
    assert!(log.contains("`holdfast reload --upgrade` instead"), "{log}");
    manager.listen();
    assert!(manager.store.iter().all(|(name, _)| name == LISTENER), "nothing of it is kept");
}

#[test]
fn who_connects_while_a_killed_server_is_away_waits_instead_of_being_refused() {
    let mut manager = Manager::new();
    let server = manager.first_server();
    let address = server.address;
    manager.listen();
    let world = server.killed();
    let mut client = crate::client::Client::connect(address);
    let server = Server::start_in(world, |command| manager.spawn(command));
    assert_eq!(server.address, address);
    crate::server::root(&mut client);
}
