use std::io::{Read as _, Write as _};
use std::net::TcpStream as Stream;

use holdfast_xdr::Writer;
use parking_lot::Mutex;

use super::*;
use crate::service::{Call, Outcome, Program};
use crate::{Limits, PendingReply};

/// Procedure 1 answers its arguments; 2 waits until the server holds still; 3 answers a great many bytes; 4 answers how
/// many connections were adopted.
#[derive(Default)]
struct Various {
    parked: Mutex<Vec<PendingReply>>,
    adopted: Mutex<Vec<u64>>,
    closed: Mutex<Vec<u64>>,
    self_ref: std::sync::OnceLock<std::sync::Weak<Self>>,
}

const MANY: usize = 3 << 20;

impl Various {
    fn new() -> Arc<Self> {
        let this = Arc::new(Self::default());
        this.self_ref.set(Arc::downgrade(&this)).unwrap();
        this
    }
}

impl Program for Various {
    fn number(&self) -> u32 {
        7
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            1 => reply.put(call.args.rest()),
            2 => {
                let this = self.self_ref.get().unwrap().upgrade().unwrap();
                return Outcome::Park(Box::new(move |pending| this.parked.lock().push(pending)));
            }
            4 => reply.u32(self.adopted.lock().len() as u32),
            _ => reply.put(&[9; MANY]),
        }
        Outcome::Reply
    }
    fn quiesce(&self) {
        for mut pending in std::mem::take(&mut *self.parked.lock()) {
            pending.writer().u32(10_008);
            pending.send();
        }
    }
    fn connection_adopted(&self, connection: &Arc<Connection>) {
        // Time enough for others to run.
        std::thread::sleep(Duration::from_millis(10));
        self.adopted.lock().push(connection.id());
    }
    fn connection_closed(&self, connection: &Arc<Connection>) {
        self.closed.lock().push(connection.id());
    }
}

fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let words = [xid, 0, 2, 7, 1, procedure, 0, 0, 0, 0];
    let mut record: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    record.extend(args);
    let mut out = (1 << 31 | record.len() as u32).to_be_bytes().to_vec();
    out.extend(record);
    out
}

/// The xid and the results of the next reply.
fn answer(stream: &mut Stream) -> (u32, Vec<u8>) {
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    let mut record = vec![0; (u32::from_be_bytes(header) & !(1 << 31)) as usize];
    stream.read_exact(&mut record).unwrap();
    (u32::from_be_bytes(record[..4].try_into().unwrap()), record[24..].to_vec())
}

fn connect(server: &Server) -> Stream {
    let stream = Stream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn started(program: &Arc<Various>) -> Server {
    let listener = crate::server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    Server::start(vec![listener], vec![program.clone()], Limits::default()).unwrap()
}

/// What a new process does with what the old one hands over. The old server stays as it is, as it would until its
/// process is replaced.
fn adopted(handed: Handed, program: &Arc<Various>) -> Server {
    let listeners = handed.listeners.into_iter().map(std::net::TcpListener::from).collect();
    Server::go_on(listeners, vec![program.clone()], Limits::default(), handed.connections).unwrap()
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_on_in_the_middle_of_a_record_and_keeps_its_number() {
    let (old, new) = (Various::new(), Various::new());
    let server = started(&old);
    let mut client = connect(&server);
    let request = call(1, 1, b"some arguments..");
    client.write_all(&request[..21]).unwrap();
    settle().await;
    let ids: Vec<_> = server.connections().iter().map(|c| c.id()).collect();
    server.hold(Duration::from_secs(5)).await.unwrap();
    let handed = server.hand_over().unwrap();
    // Sent while nobody serves: it waits in the socket.
    client.write_all(&request[21..]).unwrap();
    client.write_all(&call(2, 1, b"next")).unwrap();
    let waiting = connect(&server);
    let successor = adopted(handed, &new);
    assert_eq!(answer(&mut client), (1, b"some arguments..".to_vec()));
    assert_eq!(answer(&mut client), (2, b"next".to_vec()));
    assert_eq!(*new.adopted.lock(), ids);
    let mut waiting = waiting;
    waiting.write_all(&call(3, 1, b"late")).unwrap();
    assert_eq!(answer(&mut waiting), (3, b"late".to_vec()));
    assert!(successor.connections().iter().all(|c| c.id() >= ids[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_call_is_run_before_the_programs_know_all_connections() {
    let (old, new) = (Various::new(), Various::new());
    let server = started(&old);
    let mut clients: Vec<_> = (0..8).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.write_all(&call(1, 1, b"")).unwrap();
        answer(client);
    }
    server.hold(Duration::from_secs(5)).await.unwrap();
    let handed = server.hand_over().unwrap();
    for client in &mut clients {
        client.write_all(&call(2, 4, b"")).unwrap();
    }
    let _successor = adopted(handed, &new);
    for client in &mut clients {
        assert_eq!(answer(client), (2, 8_u32.to_be_bytes().to_vec()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_are_told_of_a_connection_that_cannot_be_gone_on_with() {
    let (old, new) = (Various::new(), Various::new());
    let server = started(&old);
    let mut clients = [connect(&server), connect(&server)];
    for client in &mut clients {
        client.write_all(&call(1, 1, b"")).unwrap();
        answer(client);
    }
    server.hold(Duration::from_secs(5)).await.unwrap();
    let mut handed = server.hand_over().unwrap();
    // Of a file nobody is told when there is something to read.
    handed.connections[0].socket = tempfile::tempfile().unwrap().into();
    let (lost, kept) = (handed.connections[0].id, handed.connections[1].id);
    let _successor = adopted(handed, &new);
    assert_eq!((&*new.adopted.lock(), &*new.closed.lock()), (&vec![kept], &vec![lost]));
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_a_slow_client_has_not_taken_go_along() {
    let (old, new) = (Various::new(), Various::new());
    let server = started(&old);
    let mut client = connect(&server);
    for xid in 0..8 {
        client.write_all(&call(xid, 3, b"")).unwrap();
    }
    settle().await;
    server.hold(Duration::from_secs(5)).await.unwrap();
    let handed = server.hand_over().unwrap();
    assert!(handed.connections[0].unsent.len() > MANY / 2, "the socket does not hold so much");
    let _successor = adopted(handed, &new);
    for xid in 0..8 {
        let (of, bytes) = answer(&mut client);
        assert!(of == xid && bytes.len() == MANY && bytes.iter().all(|b| *b == 9));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_peer_is_answered_before_the_handover() {
    let program = Various::new();
    let server = started(&program);
    let mut client = connect(&server);
    client.write_all(&call(5, 2, b"")).unwrap();
    settle().await;
    server.hold(Duration::from_secs(5)).await.unwrap();
    assert_eq!(answer(&mut client), (5, 10_008u32.to_be_bytes().to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_held_goes_on_as_if_nothing_had_happened() {
    let program = Various::new();
    let server = started(&program);
    let mut client = connect(&server);
    settle().await;
    for round in 0..20 {
        let request = call(round, 1, b"0123456789abcdef");
        client.write_all(&request[..round as usize]).unwrap();
        server.hold(Duration::from_secs(5)).await.unwrap();
        let handed = server.hand_over().unwrap();
        client.write_all(&request[round as usize..]).unwrap();
        assert_eq!(handed.connections.len(), 1);
        drop(handed);
        server.release();
        assert_eq!(answer(&mut client), (round, b"0123456789abcdef".to_vec()));
    }
    let mut other = connect(&server);
    other.write_all(&call(1, 1, b"new.")).unwrap();
    assert_eq!(answer(&mut other), (1, b"new.".to_vec()));
}

#[test]
fn a_record_in_any_state_of_assembly_is_begun_anew_elsewhere() {
    use crate::record::Assembler;
    let mut stream = Vec::new();
    for (last, part) in [(false, &b"one"[..]), (false, b"two!"), (true, b"three"), (true, b"again")] {
        let header = part.len() as u32 | if last { 1 << 31 } else { 0 };
        stream.extend(header.to_be_bytes());
        stream.extend(part);
    }
    let records = |assembler: &mut Assembler, mut input: &[u8]| {
        let mut all = Vec::new();
        while let Some(record) = assembler.next(&mut input).unwrap() {
            all.push(record.record().bytes().to_vec());
        }
        all
    };
    for cut in 0..=stream.len() {
        let mut first = Assembler::new();
        let mut all = records(&mut first, &stream[..cut]);
        let mut second = Assembler::new();
        all.extend(records(&mut second, &first.begun()));
        all.extend(records(&mut second, &stream[cut..]));
        assert_eq!(all, [&b"onetwo!three"[..], b"again"], "cut at {cut}");
    }
}
