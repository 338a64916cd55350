//! Calls by UDP.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use holdfast_rpc::client::call_datagram;
use holdfast_rpc::{Auth, CallError, DatagramServer, OutgoingCall, Program, datagram};

use crate::client::{PATIENCE, call, results, words};
use crate::program::{BIG, BIG_ON_POOL, ECHO, Everything, NULL, PANIC, PARK, PROGRAM, RESUME};

fn serve(ip: &str) -> Option<(DatagramServer, SocketAddr)> {
    let program: Arc<dyn Program> = Arc::new(Everything::default());
    let socket = datagram::bind(SocketAddr::new(ip.parse().unwrap(), 0)).ok()?;
    let server = DatagramServer::start(vec![socket], &[program]).unwrap();
    let address = server.addresses()[0];
    Some((server, address))
}

struct Client(UdpSocket);

impl Client {
    fn of(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((server.ip(), 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn ask(&self, record: &[u8]) -> Vec<u8> {
        self.0.send(record).unwrap();
        self.receive().unwrap()
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut buf = vec![0; 65_536];
        let n = self.0.recv(&mut buf).ok()?;
        buf.truncate(n);
        Some(buf)
    }

    /// Whether the next call is answered first: what was sent before was not.
    fn was_not_answered(&self, xid: u32) -> bool {
        self.ask(&call(xid, NULL, &[]))[..4] == xid.to_be_bytes()
    }
}

#[test]
fn calls_are_answered_over_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let Some((_server, address)) = serve(ip) else {
            assert_eq!(ip, "::1", "a host may lack IPv6, and nothing else");
            continue;
        };
        let client = Client::of(address);
        assert_eq!(results(&client.ask(&call(7, ECHO, b"abcd"))), b"abcd");
        // The rest of a call that goes on on the pool runs on the same thread.
        assert_eq!(results(&client.ask(&call(8, RESUME, &[]))).len(), 8);
    }
}

#[test]
fn failures_have_the_replies_that_they_have_over_tcp() {
    let (_server, address) = serve("127.0.0.1").unwrap();
    let client = Client::of(address);
    let no_program = words(&[5, 0, 2, PROGRAM + 1, 1, 0, 0, 0, 0, 0], &[]);
    assert_eq!(client.ask(&no_program), words(&[5, 1, 0, 0, 0, 1], &[]));
    let no_version = words(&[6, 0, 2, PROGRAM, 99, 0, 0, 0, 0, 0], &[]);
    assert_eq!(client.ask(&no_version)[20..24], 2u32.to_be_bytes());
    let rpc_version = words(&[7, 0, 3, PROGRAM, 1, 0, 0, 0, 0, 0], &[]);
    assert_eq!(client.ask(&rpc_version), words(&[7, 1, 1, 0, 2, 2], &[]));
}

#[test]
fn what_is_no_call_and_what_is_too_long_is_passed_over() {
    let (_server, address) = serve("127.0.0.1").unwrap();
    let client = Client::of(address);
    client.0.send(b"").unwrap();
    client.0.send(b"abc").unwrap();
    // An answer that nobody waits for: answering answers could go on for ever.
    client.0.send(&words(&[1, 1, 0, 0, 0, 0], &[])).unwrap();
    client.0.send(&call(2, ECHO, &vec![0; 8192])).unwrap();
    assert!(client.was_not_answered(3));
}

#[test]
fn no_reply_is_longer_than_its_bound() {
    let (_server, address) = serve("127.0.0.1").unwrap();
    let client = Client::of(address);
    for (xid, procedure) in [(1, BIG), (2, BIG_ON_POOL)] {
        client.0.send(&call(xid, procedure, &10_000u32.to_be_bytes())).unwrap();
    }
    assert!(client.was_not_answered(3));
}

#[test]
fn a_panic_or_a_parked_call_costs_its_answer_alone() {
    let (_server, address) = serve("127.0.0.1").unwrap();
    let client = Client::of(address);
    client.0.send(&call(1, PANIC, &[])).unwrap();
    client.0.send(&call(2, PARK, &[])).unwrap();
    assert!(client.was_not_answered(3));
}

#[test]
fn an_address_gets_so_many_answers_a_second() {
    let (_server, address) = serve("127.0.0.1").unwrap();
    let client = Client::of(address);
    client.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    for xid in 0..500 {
        client.0.send(&call(xid, NULL, &[])).unwrap();
    }
    let answers = std::iter::from_fn(|| client.receive()).count();
    // The second may turn in between.
    assert!((1..=128).contains(&answers), "{answers}");
}

#[test]
fn a_server_ends_when_it_is_dropped() {
    let (server, address) = serve("127.0.0.1").unwrap();
    drop(server);
    crate::program::eventually("the port is free", || datagram::bind(address).is_ok());
}

#[tokio::test]
async fn a_caller_asks_again_until_it_is_answered() {
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        let mut buf = [0; 256];
        let (n, _) = server.recv_from(&mut buf).await.unwrap();
        let first = buf[..n].to_vec();
        let (n, from) = server.recv_from(&mut buf).await.unwrap();
        assert_eq!(first, buf[..n], "the same call, under the same xid");
        let xid = u32::from_be_bytes(first[..4].try_into().unwrap());
        // An answer to somebody else's call first.
        server.send_to(&words(&[xid ^ 1, 1, 0, 0, 0, 0], b"no"), from).await.unwrap();
        server.send_to(&words(&[xid, 1, 0, 0, 0, 0], b"yes."), from).await.unwrap();
    });
    let call = OutgoingCall { program: 1, version: 1, procedure: 1, auth: &Auth::None, args: b"args" };
    let from: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(call_datagram(Some(from), address, &call, PATIENCE).await, Ok(b"yes.".to_vec()));
    answering.await.unwrap();
    // Nobody listens there any more, which the kernel tells.
    let nobody = call_datagram(None, address, &call, Duration::from_secs(2)).await;
    assert_eq!(nobody, Err(CallError::Closed));
}
