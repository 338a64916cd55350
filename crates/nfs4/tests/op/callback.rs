//! Clients of 4.0, called back over a connection of the server's own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use holdfast_base::{ClientId, Offset, Seqid};
use holdfast_nfs4::Options;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, Writer};
use parking_lot::Mutex;

use crate::client::{Peer, open_create, open_existing};
use crate::scene::on_peer;
use crate::world::{Making, World};

/// A callback program on a port of this host.
pub(crate) struct Callbacks {
    at: SocketAddr,
    /// CB_COMPOUND's arguments, as they come.
    pub(crate) calls: Receiver<Vec<u8>>,
    /// What the next ones are answered with; SERVERFAULT: not at all.
    status: Arc<Mutex<NfsStat4>>,
}

impl Callbacks {
    pub(crate) fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (sender, calls) = channel();
        let status = Arc::new(Mutex::new(NfsStat4::Ok));
        let answers = Arc::clone(&status);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                serve(stream, &sender, &answers);
            }
        });
        Self { at, calls, status }
    }

    pub(crate) fn universal(&self) -> String {
        universal(self.at)
    }

    /// The next call's only operation, of this ident.
    pub(crate) fn next(&self, check: impl FnOnce(CbArgOp<'_>)) {
        assert!(self.next_within(Duration::from_secs(30), check), "nothing comes");
    }

    /// The same, if it comes by then: whether it does.
    pub(crate) fn next_within(&self, time: Duration, check: impl FnOnce(CbArgOp<'_>)) -> bool {
        let Ok(args) = self.calls.recv_timeout(time) else { return false };
        let mut r = Reader::new(&args);
        let header = CbCompoundArgsHeader::decode(&mut r).unwrap();
        assert_eq!((header.minorversion, header.callback_ident, header.ops), (0, IDENT, 1));
        check(CbArgOp::decode(&mut r).unwrap());
        true
    }
}

const IDENT: u32 = 77;

/// The universal address of a port of this host.
fn universal(at: SocketAddr) -> String {
    let [high, low] = at.port().to_be_bytes();
    format!("127.0.0.1.{high}.{low}")
}

/// Renews until the client is told that it cannot be called.
fn hears_that_it_is_down(peer: &mut Peer, renew: ArgOp<'_>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while peer.compound(std::slice::from_ref(&renew)).status == NfsStat4::Ok && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    peer.compound(&[renew]).fails::<()>(OpNum4::Renew, NfsStat4::CbPathDown);
}

/// Answers the calls of one connection until it ends.
fn serve(mut stream: TcpStream, calls: &Sender<Vec<u8>>, status: &Mutex<NfsStat4>) {
    let mut head = [0; 4];
    while stream.read_exact(&mut head).is_ok() {
        let mut record = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut record).unwrap();
        let mut w = Writer::new();
        w.put(&record[..4]);
        [1, 0, 0, 0, 0].into_iter().for_each(|word| w.u32(word));
        let procedure = u32::from_be_bytes(record[20..24].try_into().unwrap());
        if procedure == CB_COMPOUND {
            let mut r = Reader::new(&record[24..]);
            for _credential_and_verifier in 0..2 {
                r.u32().unwrap();
                r.opaque(400).unwrap();
            }
            let args = r.rest().to_vec();
            let status = status.lock().as_u32();
            w.u32(status);
            w.opaque(b"");
            w.u32(1);
            w.put(&args[16..20]);
            w.u32(status);
            // Whoever looks at the call finds it answered, or about to be.
            calls.send(args).unwrap();
            if status == NfsStat4::ServerFault.as_u32() {
                return;
            }
        }
        let reply = w.into_vec();
        stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(&reply).unwrap();
    }
}

pub(crate) fn anywhere() -> World {
    let choices = Options { calls_anywhere: true, ..Options::default() };
    World::made(Making { choices, ..Making::default() })
}

/// A confirmed client of 4.0 that says where it is to be called.
pub(crate) fn client(world: &World, host: u8, addr: &str) -> (Peer, ClientId) {
    let mut peer = Peer::new(world, host, 0);
    let set = SetClientId4Args {
        client: NfsClientId4 { verifier: [host; 8], id: &[host] },
        callback: CbClient4 {
            cb_program: 0x4000_0000,
            cb_location: NetAddr4 { netid: b"tcp", addr: addr.as_bytes() },
        },
        callback_ident: IDENT,
    };
    let known: SetClientId4Ok = peer.compound(&[ArgOp::SetClientId(set)]).ok(OpNum4::SetClientId);
    let SetClientId4Ok { clientid, setclientid_confirm } = known;
    let confirm = SetClientIdConfirm4Args { clientid, setclientid_confirm };
    peer.compound(&[ArgOp::SetClientIdConfirm(confirm)]).ok::<()>(OpNum4::SetClientIdConfirm);
    (peer, clientid)
}

/// Connections stay with the kernel until they are counted: nobody answers them.
#[test]
fn a_client_that_confirms_without_end_has_one_way_open() {
    let world = anywhere();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = universal(listener.local_addr().unwrap());
    for _ in 0..100 {
        client(&world, 1, &addr);
    }
    let came = std::thread::spawn(move || {
        let last = listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut all = vec![last];
        let quiet = Duration::from_millis(300);
        let mut until = Instant::now() + quiet;
        while Instant::now() < until {
            match listener.accept() {
                Ok(next) => {
                    all.push(next);
                    until = Instant::now() + quiet;
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        all
    });
    let came = came.join().unwrap();
    // One that was given up has ended; of one that is open nothing can be read but the call that it waits about.
    let is_open = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = [0; 4096];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    };
    let open = came.into_iter().map(|(mut stream, _)| is_open(&mut stream)).filter(|open| *open).count();
    assert_eq!(open, 1);
    world.check();
}

fn open<'a>(clientid: ClientId, seqid: u32, access: u32, creates: bool) -> ArgOp<'a> {
    let mut args = if creates { open_create(b"f", b"o", access) } else { open_existing(b"f", b"o", access) };
    (args.seqid, args.owner.clientid) = (Seqid(seqid), clientid);
    ArgOp::Open(args)
}

/// Opens and confirms, closes and opens again, until that brings a write delegation.
pub(crate) fn delegated(peer: &mut Peer, clientid: ClientId) -> (Stateid4, Stateid4) {
    let mut reply = on_peer(peer, &[], &[open(clientid, 1, OPEN4_SHARE_ACCESS_BOTH, true)]);
    let first: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert_eq!(first.delegation, OpenDelegation4::None, "an owner to be confirmed may be made up");
    let confirm = OpenConfirm4Args { open_stateid: first.stateid, seqid: Seqid(2) };
    let mut reply = on_peer(peer, &[b"f"], &[ArgOp::OpenConfirm(confirm)]);
    let mut open_stateid = reply.ok::<OpenConfirm4Ok>(OpNum4::OpenConfirm).open_stateid;
    let deadline = Instant::now() + Duration::from_secs(30);
    for seqid in (3..).step_by(2) {
        let close = Close4Args { seqid: Seqid(seqid), open_stateid };
        on_peer(peer, &[b"f"], &[ArgOp::Close(close)]).ok::<Close4Ok>(OpNum4::Close);
        let mut reply = on_peer(peer, &[], &[open(clientid, seqid + 1, OPEN4_SHARE_ACCESS_BOTH, false)]);
        let again: Open4Ok<'_> = reply.ok(OpNum4::Open);
        if let OpenDelegation4::Write(held) = again.delegation {
            return (again.stateid, held.stateid);
        }
        open_stateid = again.stateid;
        assert!(Instant::now() < deadline, "not probed in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    unreachable!()
}

#[test]
fn a_client_that_answers_is_given_delegations_and_called_under_its_ident() {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    let (mut b, of_b) = client(&world, 2, "192.0.2.2.0.1");
    let (_, held) = delegated(&mut a, of_a);
    let refused = on_peer(&mut b, &[], &[open(of_b, 1, OPEN4_SHARE_ACCESS_READ, false)]);
    assert_eq!(refused.status, NfsStat4::Delay);
    callbacks.next(|op| assert!(matches!(op, CbArgOp::Recall(recall) if recall.stateid == held)));
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: held });
    on_peer(&mut a, &[b"f"], &[back]).ok::<()>(OpNum4::DelegReturn);
    let opened = on_peer(&mut b, &[], &[open(of_b, 2, OPEN4_SHARE_ACCESS_READ, false)]);
    assert_eq!(opened.status, NfsStat4::Ok);
    world.check();
}

/// A new owner's first OPEN, which makes the file, and its confirmation; `between` happens; what its next OPEN brings.
fn second_open(between: impl FnOnce(&mut Peer)) -> OpenDelegation4<'static> {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    // From here on it is known to answer.
    delegated(&mut a, of_a);
    let (mut b, _) = client(&world, 2, "192.0.2.2.0.1");
    let open = |seqid, mut args: Open4Args<'static>| {
        (args.seqid, args.owner.clientid) = (Seqid(seqid), of_a);
        [ArgOp::Open(args)]
    };
    let access = OPEN4_SHARE_ACCESS_READ;
    let mut reply = on_peer(&mut a, &[], &open(1, open_create(b"g", b"new", access)));
    let first: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert_eq!(first.delegation, OpenDelegation4::None, "an owner to be confirmed may be made up");
    let confirm = OpenConfirm4Args { open_stateid: first.stateid, seqid: Seqid(2) };
    on_peer(&mut a, &[b"g"], &[ArgOp::OpenConfirm(confirm)]).ok::<OpenConfirm4Ok>(OpNum4::OpenConfirm);
    between(&mut b);
    let mut reply = on_peer(&mut a, &[], &open(3, open_existing(b"g", b"new", access)));
    let again: Open4Ok<'_> = reply.ok(OpNum4::Open);
    world.check();
    match again.delegation {
        OpenDelegation4::Read(held) => {
            let permissions = NfsAce4 { who: b"", ..held.permissions };
            OpenDelegation4::Read(OpenReadDelegation4 { permissions, ..held })
        }
        _ => OpenDelegation4::None,
    }
}

#[test]
fn a_new_owners_next_open_brings_a_delegation_if_nobody_changed_the_file_meanwhile() {
    let brought = second_open(|_| {});
    assert!(matches!(brought, OpenDelegation4::Read(_)), "{brought:?}");
    let brought = second_open(|other| {
        let write = Write4Args {
            stateid: Stateid4::ANONYMOUS,
            offset: Offset(0),
            stable: StableHow4::Unstable,
            data: b"x",
        };
        on_peer(other, &[b"g"], &[ArgOp::Write(write)]).ok::<Write4Ok>(OpNum4::Write);
    });
    assert_eq!(brought, OpenDelegation4::None, "what the client keeps of the file may be of before");
}

#[test]
fn a_holder_is_not_in_its_own_way() {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    let (stateid, held) = delegated(&mut a, of_a);
    let write = |stateid| {
        let (offset, stable) = (Offset(0), StableHow4::Unstable);
        ArgOp::Write(Write4Args { stateid, offset, stable, data: b"x" })
    };
    let look = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Size, Attr::Change]) });
    for op in [write(stateid), write(held), look] {
        assert_eq!(on_peer(&mut a, &[b"f"], &[op]).status, NfsStat4::Ok);
    }
    assert!(callbacks.calls.try_recv().is_err(), "nobody is called");
    world.check();
}

#[test]
fn a_client_whose_callbacks_fail_hears_of_it_when_it_renews() {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    delegated(&mut a, of_a);
    let renew = ArgOp::Renew(Renew4Args { clientid: of_a });
    a.compound(std::slice::from_ref(&renew)).ok::<()>(OpNum4::Renew);
    *callbacks.status.lock() = NfsStat4::ServerFault;
    let (mut b, of_b) = client(&world, 2, "192.0.2.2.0.1");
    let refused = on_peer(&mut b, &[], &[open(of_b, 1, OPEN4_SHARE_ACCESS_READ, false)]);
    assert_eq!(refused.status, NfsStat4::Delay);
    callbacks.next(|op| assert!(matches!(op, CbArgOp::Recall(_))));
    hears_that_it_is_down(&mut a, renew);
    world.check();
}

/// As after a planned restart, when the ways are tried anew.
#[test]
fn a_way_that_is_being_tried_is_not_said_to_be_down() {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    delegated(&mut a, of_a);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_, again) = client(&world, 1, &universal(silent.local_addr().unwrap()));
    assert_eq!(again, of_a);
    let renew = ArgOp::Renew(Renew4Args { clientid: of_a });
    let (tried, _) = silent.accept().unwrap();
    a.compound(std::slice::from_ref(&renew)).ok::<()>(OpNum4::Renew);
    drop((tried, silent));
    hears_that_it_is_down(&mut a, renew);
    world.check();
}

#[test]
fn a_client_that_says_anew_where_it_is_called_is_called_there() {
    let world = anywhere();
    let (before, callbacks) = (Callbacks::listen(), Callbacks::listen());
    let (mut a, of_a) = client(&world, 1, &before.universal());
    let (_, held) = delegated(&mut a, of_a);
    let (_, again) = client(&world, 1, &callbacks.universal());
    assert_eq!(again, of_a);
    let (mut b, of_b) = client(&world, 2, "192.0.2.2.0.1");
    let refused = on_peer(&mut b, &[], &[open(of_b, 1, OPEN4_SHARE_ACCESS_READ, false)]);
    assert_eq!(refused.status, NfsStat4::Delay);
    callbacks.next(|op| assert!(matches!(op, CbArgOp::Recall(recall) if recall.stateid == held)));
    assert!(before.calls.try_recv().is_err(), "nobody is called where it was before");
    world.check();
}

#[test]
fn nobody_but_the_client_itself_is_called() {
    let world = World::new();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    let mut reply = on_peer(&mut a, &[], &[open(of_a, 1, OPEN4_SHARE_ACCESS_BOTH, true)]);
    let first: Open4Ok<'_> = reply.ok(OpNum4::Open);
    let confirm = OpenConfirm4Args { open_stateid: first.stateid, seqid: Seqid(2) };
    on_peer(&mut a, &[b"f"], &[ArgOp::OpenConfirm(confirm)]).ok::<OpenConfirm4Ok>(OpNum4::OpenConfirm);
    std::thread::sleep(Duration::from_millis(50));
    let mut reply = on_peer(&mut a, &[], &[open(of_a, 3, OPEN4_SHARE_ACCESS_BOTH, false)]);
    assert_eq!(reply.ok::<Open4Ok<'_>>(OpNum4::Open).delegation, OpenDelegation4::None);
    assert!(callbacks.calls.try_recv().is_err());
}

#[test]
fn on_a_connection_of_two_clients_state_ids_tell_whose_a_request_is() {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = client(&world, 1, &callbacks.universal());
    let (_, held) = delegated(&mut a, of_a);
    let (_, other) = client(&world, 2, "192.0.2.2.0.1");
    // The second client speaks over the first one's connection.
    a.compound(&[ArgOp::Renew(Renew4Args { clientid: other })]).ok::<()>(OpNum4::Renew);
    let write = Write4Args { stateid: held, offset: Offset(0), stable: StableHow4::Unstable, data: b"x" };
    assert_eq!(on_peer(&mut a, &[b"f"], &[ArgOp::Write(write)]).status, NfsStat4::Ok);
    assert!(callbacks.calls.try_recv().is_err(), "it is the holder's");
    let look = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Size, Attr::Change]) });
    let looked = on_peer(&mut a, &[b"f"], &[look]);
    assert_eq!(looked.status, NfsStat4::Delay, "this might be the other's");
    callbacks.next(|op| assert!(matches!(op, CbArgOp::GetAttr(_))));
    world.check();
}
