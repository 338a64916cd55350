//! Calls to clients over real sockets: their port mappers tell where their lock managers listen.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_nlm::{NetPeers, NoAnswer, PeerCall, Peers};
use holdfast_rpc::portmap::{Entry, Portmap, Transport};
use holdfast_rpc::{Call, CallError, DatagramServer, Limits, Outcome, Program, Server, datagram, server};
use holdfast_wire::nlm4::{NLM_PROGRAM, NLM_V4, NlmProc4, NlmRes4, NlmStat4, TestArgs4};
use holdfast_xdr::{Decode, Encode, Writer, from_bytes, to_bytes};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(30);

/// A client's lock manager, which accepts every GRANTED and tells from where it came.
struct ClientsNlm(Mutex<Sender<SocketAddr>>);

impl Program for ClientsNlm {
    fn number(&self) -> u32 {
        NLM_PROGRAM
    }
    fn versions(&self) -> (u32, u32) {
        (1, NLM_V4)
    }
    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        self.0.lock().unwrap().send(call.connection.peer()).unwrap();
        let Ok(TestArgs4 { cookie, .. }) = TestArgs4::decode(&mut call.args) else { return Outcome::Garbage };
        NlmRes4 { cookie, stat: NlmStat4::Granted }.encode(reply);
        Outcome::Reply
    }
}

/// A client at 127.0.0.1 that serves its lock manager over one transport, and a port mapper.
struct Client {
    portmap: SocketAddr,
    heard: Receiver<SocketAddr>,
    _servers: (Vec<Server>, Vec<DatagramServer>),
}

fn limits() -> Limits {
    Limits { pool_threads: 1, ..Limits::default() }
}

fn client(runtime: &Runtime, ip: &str, transport: Transport) -> Option<Client> {
    let any = SocketAddr::new(ip.parse().unwrap(), 0);
    let (sender, heard) = channel();
    let nlm: Arc<dyn Program> = Arc::new(ClientsNlm(Mutex::new(sender)));
    let _inside = runtime.enter();
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    let address = match transport {
        Transport::Tcp => {
            let listener = server::listen(any).ok()?;
            tcp.push(Server::start(vec![listener], vec![nlm], limits()).unwrap());
            tcp[0].addresses()[0]
        }
        Transport::Udp => {
            udp.push(DatagramServer::start(vec![datagram::bind(any).ok()?], &[nlm]).unwrap());
            udp[0].addresses()[0]
        }
    };
    let portmap = Portmap::new(vec![Entry { program: NLM_PROGRAM, version: NLM_V4, transport, address }]);
    tcp.push(Server::start(vec![server::listen(any).ok()?], vec![portmap], limits()).unwrap());
    let portmap = tcp.last().unwrap().addresses()[0];
    Some(Client { portmap, heard, _servers: (tcp, udp) })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn granted(peer: IpAddr, from: IpAddr) -> PeerCall {
    let lock = holdfast_wire::nlm4::NlmLock4 {
        caller_name: b"c",
        fh: b"fh",
        oh: b"o",
        svid: 1,
        offset: holdfast_base::Offset(0),
        length: holdfast_base::Length(0),
    };
    let args = to_bytes(&TestArgs4 { cookie: b"k", exclusive: true, lock });
    PeerCall {
        peer,
        from,
        program: NLM_PROGRAM,
        version: NLM_V4,
        procedure: NlmProc4::Granted.as_u32(),
        args,
    }
}

fn ask(peers: &NetPeers, call: PeerCall) -> Result<Vec<u8>, NoAnswer> {
    let (sender, receiver) = channel();
    peers.call(call, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv_timeout(PATIENCE).expect("an answer, or why there is none")
}

#[test]
fn clients_are_called_over_either_transport_and_family_from_the_address_they_know() {
    for (ip, transport) in
        [("127.0.0.1", Transport::Tcp), ("127.0.0.1", Transport::Udp), ("::1", Transport::Tcp)]
    {
        let runtime = runtime();
        let Some(client) = client(&runtime, ip, transport) else {
            assert_eq!(ip, "::1", "a host may lack IPv6, and nothing else");
            continue;
        };
        let peers = NetPeers::with_portmap_port(runtime.handle().clone(), client.portmap.port());
        let peer: IpAddr = ip.parse().unwrap();
        // Every address of 127.0.0.0/8 is this host's.
        let from: IpAddr = if peer.is_ipv4() { [127, 0, 0, 9].into() } else { peer };
        for _ in 0..2 {
            let answer = ask(&peers, granted(peer, from)).expect("answered");
            assert_eq!(from_bytes::<NlmRes4<'_>>(&answer).unwrap().stat, NlmStat4::Granted);
            let heard = client.heard.recv_timeout(PATIENCE).unwrap();
            assert_eq!(heard.ip(), from, "{ip} {transport:?}");
            let may_reserve = std::net::TcpListener::bind((from, 599)).is_ok();
            assert!(heard.port() < 1024 || transport == Transport::Udp || !may_reserve, "{heard}");
        }
    }
}

#[test]
fn a_client_without_a_port_mapper_or_the_program_is_not_reached() {
    let runtime = runtime();
    let client = client(&runtime, "127.0.0.1", Transport::Tcp).unwrap();
    let loopback: IpAddr = [127, 0, 0, 1].into();
    let peers = NetPeers::with_portmap_port(runtime.handle().clone(), client.portmap.port());
    let other = PeerCall { program: 100_024, version: 1, ..granted(loopback, loopback) };
    assert_eq!(ask(&peers, other), Err(unsent(CallError::Closed)));
    let nowhere = NetPeers::with_portmap_port(runtime.handle().clone(), 1);
    assert_eq!(ask(&nowhere, granted(loopback, loopback)), Err(unsent(CallError::Closed)));
}

fn unsent(why: CallError) -> NoAnswer {
    NoAnswer { why, may_have_run: false }
}

#[test]
fn what_may_have_arrived_is_not_sent_by_another_way_as_well() {
    let runtime = runtime();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let deaf = std::net::TcpListener::bind(any).unwrap();
    let (sender, heard) = channel();
    let nlm: Arc<dyn Program> = Arc::new(ClientsNlm(Mutex::new(sender)));
    let _inside = runtime.enter();
    let udp = DatagramServer::start(vec![datagram::bind(any).unwrap()], &[nlm]).unwrap();
    let entry = |transport, address| Entry { program: NLM_PROGRAM, version: NLM_V4, transport, address };
    let entries =
        vec![entry(Transport::Tcp, deaf.local_addr().unwrap()), entry(Transport::Udp, udp.addresses()[0])];
    let portmap: Arc<dyn Program> = Portmap::new(entries);
    let portmap = Server::start(vec![server::listen(any).unwrap()], vec![portmap], limits()).unwrap();
    let peers = NetPeers::with_portmap_port(runtime.handle().clone(), portmap.addresses()[0].port());
    // It takes the call, and the connection breaks before its answer.
    let taken = std::thread::spawn(move || {
        let (mut stream, _) = deaf.accept().unwrap();
        std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap()
    });
    let loopback: IpAddr = [127, 0, 0, 1].into();
    let answer = ask(&peers, granted(loopback, loopback));
    assert!(matches!(answer, Err(NoAnswer { may_have_run: true, .. })), "{answer:?}");
    assert!(taken.join().unwrap() > 0);
    assert!(heard.try_recv().is_err(), "by UDP too");
}

#[test]
fn results_that_strangers_want_take_no_places_of_our_own_calls() {
    let runtime = runtime();
    // Its port mapper never answers.
    let mute = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let peers = NetPeers::with_portmap_port(runtime.handle().clone(), mute.local_addr().unwrap().port());
    let is_busy = |n: u8, procedure: NlmProc4| {
        let peer: IpAddr = [127, 0, 0, n].into();
        let (sender, receiver) = channel();
        let call = PeerCall { procedure: procedure.as_u32(), ..granted(peer, [127, 0, 0, 1].into()) };
        peers.call(call, Box::new(move |result| drop(sender.send(result))));
        // Said at once, if at all.
        receiver.try_recv().is_ok_and(|answer| answer == Err(unsent(CallError::Busy)))
    };
    let places = (0..100).take_while(|_| !is_busy(1, NlmProc4::TestRes)).count();
    assert_eq!(places, holdfast_base::limits::NLM_RESULTS_PER_SITE_MAX);
    assert!(!is_busy(2, NlmProc4::TestRes), "another site has its own");
    let places = (3..100).map(|n| (0..8).take_while(|_| !is_busy(n, NlmProc4::LockRes)).count());
    assert_eq!(places.sum::<usize>() + 9, holdfast_base::limits::NLM_RESULTS_MAX);
    assert!(!is_busy(1, NlmProc4::Granted));
}
