//! How clients of NFSv3 find the server on a host: by port 111, where it answers itself or tells the rpcbind that has it. Each
//! test runs in a network namespace of its own, with nothing in `/run`, and needs the superuser's rights for it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");
/// Set in the process that is in the namespace.
const INSIDE: &str = "HOLDFAST_TEST_INSIDE";
const PATIENCE: Duration = Duration::from_secs(60);
/// Of a call to a server on this host, on a busy machine.
const ANSWER: Duration = Duration::from_secs(10);

const PMAP: u32 = 100_000;
const TCP: u32 = 6;
const UDP: u32 = 17;
const NFS_PORT: u16 = 20_490;
/// What clients of NFSv3 look for: NFS, MOUNT, NLM, NSM.
const TCP_PROGRAMS: [(u32, u32); 4] = [(100_003, 3), (100_005, 3), (100_021, 4), (100_024, 1)];
/// What is heard by datagrams: clients tell of their restarts so.
const UDP_PROGRAMS: [(u32, u32); 1] = [(100_024, 1)];

/// Runs the test of this name again in namespaces of its own, unless that is where it runs. Whether it does.
fn is_inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    assert!(rustix::process::geteuid().is_root(), "missing: the superuser's rights, for a network namespace");
    let prepare = "ip link set lo up && mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", prepare])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "true")
        .status()
        .expect("missing: unshare (apt-get install util-linux)");
    assert!(status.success(), "{name} in its namespace: {status}");
    false
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    process: Running,
    stdout: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("share")).unwrap();
        let mut command = Command::new(HOLDFAST);
        command
            .env("HOLDFAST_NO_SUPERVISE", "true")
            .env_remove("NOTIFY_SOCKET")
            .arg("serve")
            .arg(dir.path().join("share"))
            .args(["--listen", &format!("0.0.0.0:{NFS_PORT}"), "--allow", "all", "--state-dir"])
            .arg(dir.path().join("state"))
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap());
        let mut process = Running(command.spawn().unwrap());
        let stdout = BufReader::new(process.0.stdout.take().unwrap());
        let mut server = Self { process, stdout, dir };
        let mut line = String::new();
        while !line.ends_with(" ready\n") {
            line.clear();
            let count = server.stdout.read_line(&mut line).unwrap();
            assert!(count > 0, "the server did not start\n{}", server.log());
        }
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// As an administrator would.
    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = wait(&mut self.process.0);
        assert!(status.success(), "{status}\n{}", self.log());
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A call of the port mapper's version 2 (RFC 5531 section 9, RFC 1833 section 3), without credentials.
fn call(procedure: u32, arguments: &[u32]) -> Vec<u8> {
    let header = [0x5eed, 0, 2, PMAP, 2, procedure, 0, 0, 0, 0];
    header.iter().chain(arguments).flat_map(|word| word.to_be_bytes()).collect()
}

/// The results of an accepted reply, as words.
fn results(reply: &[u8]) -> Vec<u32> {
    let words: Vec<u32> =
        reply.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    // Transaction, REPLY, MSG_ACCEPTED, a verifier without a body, SUCCESS.
    assert_eq!(words[..6], [0x5eed, 1, 0, 0, 0, 0], "{words:?}");
    words[6..].to_vec()
}

/// The port of a program, asked by a datagram; 0 for one that is not registered.
fn port_by_udp(program: u32, version: u32, protocol: u32) -> u32 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(ANSWER)).unwrap();
    socket.send_to(&call(3, &[program, version, protocol, 0]), (Ipv4Addr::LOCALHOST, 111)).unwrap();
    let mut reply = [0; 512];
    let count = socket.recv(&mut reply).expect("an answer by UDP");
    results(&reply[..count])[0]
}

/// All that is registered, asked by TCP: program, version, protocol and port of each.
fn list_by_tcp() -> Vec<[u32; 4]> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 111)).expect("a port mapper by TCP");
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    let message = call(4, &[]);
    let mark = 0x8000_0000 | u32::try_from(message.len()).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &message].concat()).unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    let words = results(&reply);
    // Each entry follows a word that says that there is one.
    words.chunks_exact(5).map(|entry| [entry[1], entry[2], entry[3], entry[4]]).collect()
}

/// Whoever answers at port 111 tells where the server's programs are, by both transports.
fn assert_found() {
    let listed = list_by_tcp();
    let is_listed = |program, version, protocol, port| listed.contains(&[program, version, protocol, port]);
    for (program, version) in TCP_PROGRAMS {
        let port = u32::from(NFS_PORT);
        assert_eq!(port_by_udp(program, version, TCP), port, "{program} {version}");
        assert!(is_listed(program, version, TCP, port), "{program} {version}: {listed:?}");
    }
    for (program, version) in UDP_PROGRAMS {
        let port = port_by_udp(program, version, UDP);
        assert!(port != 0 && is_listed(program, version, UDP, port), "{program} {version}: {listed:?}");
    }
    for protocol in [TCP, UDP] {
        assert!(is_listed(PMAP, 2, protocol, 111), "{listed:?}");
    }
}

#[test]
fn without_rpcbind_port_111_is_answered_by_tcp_and_udp_until_the_end() {
    if !is_inside("without_rpcbind_port_111_is_answered_by_tcp_and_udp_until_the_end") {
        return;
    }
    let mut server = Server::start();
    assert_found();
    assert_eq!(port_by_udp(100_017, 1, TCP), 0, "a program that is nobody's");
    server.stop();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, 111)).is_err(), "port 111 is still listened on");
    // A second server finds the place empty.
    let mut again = Server::start();
    assert_found();
    again.stop();
}

#[test]
fn an_rpcbind_is_told_and_told_of_the_end() {
    if !is_inside("an_rpcbind_is_told_and_told_of_the_end") {
        return;
    }
    std::fs::create_dir_all("/run/rpcbind").unwrap();
    let rpcbind = Command::new("/usr/sbin/rpcbind").args(["-f", "-w"]).spawn();
    let _rpcbind = Running(rpcbind.expect("missing: rpcbind (apt-get install rpcbind)"));
    let started = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, 111)).is_err() {
        assert!(started.elapsed() < PATIENCE, "rpcbind does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut server = Server::start();
    assert_found();
    server.stop();
    let left: Vec<_> = list_by_tcp().into_iter().filter(|entry| entry[0] != PMAP).collect();
    assert!(left.is_empty(), "rpcbind still knows {left:?}");
}

#[test]
fn who_else_has_port_111_keeps_it_and_the_server_serves_and_says_so() {
    if !is_inside("who_else_has_port_111_keeps_it_and_the_server_serves_and_says_so") {
        return;
    }
    let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 111)).unwrap();
    let mut server = Server::start();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, NFS_PORT)).is_ok(), "NFS is not served");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, 111)).is_err(), "half of port 111 was taken");
    assert!(server.log().contains("port 111 cannot be listened on"), "{}", server.log());
    server.stop();
    drop(taken);
}
