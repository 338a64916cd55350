//! A link against a peer that is a plain socket.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::auth::Auth;

const TARGET: Target = Target { program: 7, version: 1, procedure: 3 };

#[derive(Default)]
struct Heard {
    calls: Mutex<Vec<PeerCall>>,
    broke: Mutex<u32>,
}

impl Peer for Heard {
    fn called(&self, call: PeerCall) {
        self.calls.lock().push(call);
    }

    fn broke(&self, _: &Link) {
        *self.broke.lock() += 1;
    }
}

fn pair() -> (Link, TcpStream, Arc<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let heard = Arc::new(Heard::default());
    let address = listener.local_addr().unwrap();
    let link = Link::connect(address, &LinkOptions::default(), Arc::clone(&heard) as _).unwrap();
    let peer = listener.accept().unwrap().0;
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (link, peer, heard)
}

fn receive(peer: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    peer.read_exact(&mut header).unwrap();
    let mut record = vec![0; (u32::from_be_bytes(header) & 0x7fff_ffff) as usize];
    peer.read_exact(&mut record).unwrap();
    record
}

fn xid(record: &[u8]) -> u32 {
    u32::from_be_bytes(record[..4].try_into().unwrap())
}

fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    message::begin_reply(&mut w, xid);
    w.put(results);
    message::seal(&mut w, 0);
    w.into_vec()
}

fn auth() -> EncodedAuth {
    EncodedAuth::new(&Auth::None)
}

fn start(link: &Link, args: &[Bytes]) -> Pending {
    link.start(TARGET, &auth(), args, (&Cancel::new(), None)).unwrap()
}

#[test]
fn answers_in_any_order_find_those_who_wait() {
    let (link, mut peer, _) = pair();
    let (one, two) =
        (start(&link, &[Bytes::from_static(b"1111")]), start(&link, &[Bytes::from_static(b"2222")]));
    let calls = [receive(&mut peer), receive(&mut peer)];
    assert_eq!(&calls[1][calls[1].len() - 4..], b"2222");
    peer.write_all(&reply(xid(&calls[1]), b"two.")).unwrap();
    peer.write_all(&reply(xid(&calls[0]), b"one.")).unwrap();
    let cancel = Cancel::new();
    assert_eq!(one.wait(&cancel, None).unwrap().unwrap().results(), b"one.");
    assert_eq!(two.wait(&cancel, None).unwrap().unwrap().results(), b"two.");
}

#[test]
fn a_record_in_small_pieces_and_fragments_comes_whole() {
    let (link, mut peer, _) = pair();
    let pending = start(&link, &[]);
    let results: Vec<u8> = (0..200_000u32).flat_map(u32::to_be_bytes).collect();
    let whole = reply(xid(&receive(&mut peer)), &results);
    let sender = std::thread::spawn(move || {
        let (first, second) = whole[4..].split_at(70_001);
        for (part, last) in [(first, 0), (second, 1u32 << 31)] {
            peer.write_all(&(part.len() as u32 | last).to_be_bytes()).unwrap();
            for piece in part.chunks(33_333) {
                peer.write_all(piece).unwrap();
            }
        }
        peer
    });
    let answer = pending.wait(&Cancel::new(), None).unwrap().unwrap();
    assert!(answer.results() == results);
    let kept = answer.keep(&answer.results()[8..16]);
    assert_eq!(kept, results[8..16]);
    drop(sender.join().unwrap());
}

#[test]
fn who_gives_up_is_woken_at_once_and_hears_the_late_answer() {
    let (link, mut peer, _) = pair();
    let cancel = Cancel::new();
    let giver = cancel.clone();
    let began = Instant::now();
    let waiter = std::thread::spawn(move || {
        let pending = link.start(TARGET, &auth(), &[], (&cancel, None)).unwrap();
        let stopped = pending.wait(&cancel, None).unwrap_err();
        (stopped, began.elapsed(), pending, link)
    });
    let call = receive(&mut peer);
    std::thread::sleep(Duration::from_millis(20));
    giver.cancel();
    let (stopped, after, pending, link) = waiter.join().unwrap();
    assert_eq!(stopped, Stopped::Cancelled);
    assert!(after < Duration::from_secs(5));
    let (tell, told) = std::sync::mpsc::channel();
    pending.abandon(move |outcome| tell.send(outcome.unwrap().results().to_vec()).unwrap());
    peer.write_all(&reply(xid(&call), b"late")).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), b"late");
    let next = start(&link, &[]);
    let call = receive(&mut peer);
    peer.write_all(&reply(xid(&call), b"next")).unwrap();
    assert_eq!(next.wait(&Cancel::new(), None).unwrap().unwrap().results(), b"next");
}

#[test]
fn a_broken_connection_is_told_to_all() {
    let (link, mut peer, heard) = pair();
    let pending = start(&link, &[]);
    receive(&mut peer);
    drop(peer);
    assert_eq!(pending.wait(&Cancel::new(), None).unwrap().unwrap_err(), CallError::Closed);
    assert!(link.is_broken());
    let refused = link.start(TARGET, &auth(), &[], (&Cancel::new(), None)).unwrap_err();
    assert_eq!(refused, CallError::Closed);
    let until = Instant::now() + Duration::from_secs(20);
    while *heard.broke.lock() == 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_that_does_not_read_blocks_nobody_for_ever() {
    let (link, mut peer, _) = pair();
    let payload = Bytes::from(vec![5; 1 << 20]);
    // More than the connection holds: the first ones are queued, and then who comes has to wait.
    let (cancel, soon) = (Cancel::new(), || Some(Instant::now() + Duration::from_millis(50)));
    let mut pendings = Vec::new();
    let refused = loop {
        match link.start(TARGET, &auth(), &[Bytes::new(), payload.clone()], (&cancel, soon())) {
            Ok(pending) => pendings.push(pending),
            Err(e) => break e,
        }
        assert!(pendings.len() < 200);
    };
    assert_eq!(refused, CallError::TimedOut);
    for pending in pendings {
        let call = receive(&mut peer);
        assert!(call[call.len() - payload.len()..] == payload[..]);
        peer.write_all(&reply(xid(&call), b"good")).unwrap();
        assert_eq!(pending.wait(&cancel, None).unwrap().unwrap().results(), b"good");
    }
    assert!(link.start(TARGET, &auth(), &[], (&cancel, None)).is_ok());
}

#[test]
fn calls_of_the_peer_are_handed_over_and_answered() {
    let (link, mut peer, heard) = pair();
    let mut w = Writer::new();
    let call = crate::OutgoingCall { program: 9, version: 2, procedure: 4, auth: &Auth::None, args: b"args" };
    message::write_call(&mut w, 77, &call);
    peer.write_all(w.as_slice()).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let call = loop {
        if let Some(call) = heard.calls.lock().pop() {
            break call;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((call.target.program, call.target.procedure, &call.args[..]), (9, 4, &b"args"[..]));
    call.answer(b"done");
    let answer = receive(&mut peer);
    assert_eq!((xid(&answer), &answer[24..]), (77, &b"done"[..]));
    drop(link);
    assert_eq!(peer.read(&mut [0; 4]).unwrap(), 0, "a link that nobody holds is closed");
}

#[test]
fn a_reserved_port_is_taken_where_it_can_be_had() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = LinkOptions { reserved_port: true, ..LinkOptions::default() };
    let heard = Arc::new(Heard::default());
    let _link = Link::connect(listener.local_addr().unwrap(), &options, heard).unwrap();
    let port = listener.accept().unwrap().1.port();
    assert_eq!(port < 1024, rustix::process::geteuid().is_root(), "port {port}");
}
