use holdfast_base::Seqid;
use holdfast_export::{ClientRule, Network};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Session, create_session, exchange_id, twice, user};
use crate::create_session::known;
use crate::world::{Making, World};

#[test]
fn a_new_client_is_unconfirmed_and_the_server_says_who_it_is() {
    let world = World::new();
    let mut reply = Peer::new(&world, 1, 1).compound(&[ArgOp::ExchangeId(exchange_id(b"me"))]);
    let known: ExchangeId4Ok<'_> = reply.ok(OpNum4::ExchangeId);
    assert_eq!(known.flags, EXCHGID4_FLAG_USE_NON_PNFS);
    assert_eq!(known.server_owner, ServerOwner4 { minor_id: 3, major_id: b"box" });
    assert_eq!(known.server_scope, b"scope");
    assert_eq!(known.state_protect, StateProtect4R::None);
    assert!(world.records.kept.lock().is_empty(), "nothing depends on the record yet");
}

#[test]
fn a_confirmed_client_asking_again_is_told_so() {
    let world = World::new();
    let mut peer = Session::open(&world, 1, 1).peer;
    let mut reply = peer.compound(&[ArgOp::ExchangeId(exchange_id(b"client of host 1"))]);
    let known: ExchangeId4Ok<'_> = reply.ok(OpNum4::ExchangeId);
    assert_eq!(known.flags, EXCHGID4_FLAG_USE_NON_PNFS | EXCHGID4_FLAG_CONFIRMED_R);
}

#[test]
fn flags_that_only_a_server_sets_are_invalid() {
    let world = World::new();
    for (minor, flags) in [
        (1, EXCHGID4_FLAG_CONFIRMED_R),
        (1, 0x0800_0000),
        (1, EXCHGID4_FLAG_SUPP_FENCE_OPS),
        (2, EXCHGID4_FLAG_CONFIRMED_R),
    ] {
        let args = ExchangeId4Args { flags, ..exchange_id(b"me") };
        let mut reply = Peer::new(&world, 1, minor).compound(&[ArgOp::ExchangeId(args)]);
        reply.fails::<()>(OpNum4::ExchangeId, NfsStat4::Inval);
    }
    let args = ExchangeId4Args { flags: EXCHGID4_FLAG_SUPP_FENCE_OPS, ..exchange_id(b"me") };
    assert_eq!(Peer::new(&world, 1, 2).compound(&[ArgOp::ExchangeId(args)]).status, NfsStat4::Ok);
}

#[test]
fn protection_by_machine_credential_needs_more_than_auth_sys() {
    let world = World::new();
    let none = StateProtectOps4 { must_enforce: Bitmap4::EMPTY, must_allow: Bitmap4::EMPTY };
    let args = ExchangeId4Args { state_protect: StateProtect4A::MachCred(none), ..exchange_id(b"me") };
    let mut reply = Peer::new(&world, 1, 1).compound(&[ArgOp::ExchangeId(args)]);
    reply.fails::<()>(OpNum4::ExchangeId, NfsStat4::Inval);
}

#[test]
fn it_stands_alone_or_behind_sequence() {
    let world = World::new();
    let op = ArgOp::ExchangeId(exchange_id(b"me"));
    let mut reply = Peer::new(&world, 1, 1).compound(&[op.clone(), ArgOp::PutRootFh]);
    reply.fails::<()>(OpNum4::ExchangeId, NfsStat4::NotOnlyOp);
    assert_eq!(Session::open(&world, 2, 1).run(&[op]).status, NfsStat4::Ok);
}

#[test]
fn a_stranger_cannot_take_a_name_whose_owner_holds_state() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let mut ops = crate::client::at(&[]);
    ops.push(ArgOp::Open(crate::client::open_create(b"f", b"o", OPEN4_SHARE_ACCESS_READ)));
    assert_eq!(client.run(&ops).status, NfsStat4::Ok);
    let mut stranger = Peer::new(&world, 2, 1);
    stranger.auth = user(2000);
    let mut reply = stranger.compound(&[ArgOp::ExchangeId(exchange_id(b"client of host 1"))]);
    reply.fails::<()>(OpNum4::ExchangeId, NfsStat4::ClidInUse);
}

#[test]
fn a_host_that_no_export_is_for_becomes_no_client() {
    let mut making = Making::default();
    let network: Network = "192.0.2.0/28".parse().unwrap();
    making.options.clients = vec![ClientRule::Network(network)];
    let world = World::made(making);
    let ask = |host, minor| {
        let exchange = ArgOp::ExchangeId(exchange_id(b"me"));
        let set = SetClientId4Args {
            client: NfsClientId4 { verifier: [1; 8], id: b"me" },
            callback: CbClient4 { cb_program: 1, cb_location: NetAddr4 { netid: b"tcp", addr: b"" } },
            callback_ident: 1,
        };
        let op = if minor == 0 { ArgOp::SetClientId(set) } else { exchange };
        Peer::new(&world, host, minor).compound(&[op]).status
    };
    for minor in 0..3 {
        assert_eq!(ask(1, minor), NfsStat4::Ok);
        assert_eq!(ask(16, minor), NfsStat4::Perm);
        // What is above the exports is there for everybody, as a list of what there is.
        let mut stranger = Peer::new(&world, 16, 0);
        assert_eq!(stranger.compound(&[ArgOp::PutRootFh]).status, NfsStat4::Ok);
    }
    world.check();
}

#[test]
fn a_client_is_destroyed_once_it_has_no_session() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let destroy = ArgOp::DestroyClientId(DestroyClientId4Args { clientid: client.client });
    let mut peer = Peer::new(&world, 1, 1);
    peer.compound(std::slice::from_ref(&destroy))
        .fails::<()>(OpNum4::DestroyClientId, NfsStat4::ClientIdBusy);
    let id = client.id;
    client
        .run(&[ArgOp::DestroySession(DestroySession4Args { sessionid: id })])
        .ok::<()>(OpNum4::DestroySession);
    peer.compound(std::slice::from_ref(&destroy)).ok::<()>(OpNum4::DestroyClientId);
    peer.compound(&[destroy]).fails::<()>(OpNum4::DestroyClientId, NfsStat4::StaleClientId);
    world.check();
}

#[test]
fn a_client_that_was_never_confirmed_is_destroyed_too() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (known, _) = known(&mut peer);
    let destroy = ArgOp::DestroyClientId(DestroyClientId4Args { clientid: known });
    peer.compound(std::slice::from_ref(&destroy)).ok::<()>(OpNum4::DestroyClientId);
    peer.compound(&[destroy]).fails::<()>(OpNum4::DestroyClientId, NfsStat4::StaleClientId);
    let create = ArgOp::CreateSession(create_session(known, Seqid(1)));
    peer.compound(&[create]).fails::<()>(OpNum4::CreateSession, NfsStat4::StaleClientId);
    world.check();
}

/// RFC 8881 section 18.50.3.
#[test]
fn a_client_is_destroyed_alone_or_from_within_the_session_of_another() {
    let world = World::new();
    let (mut client, mut other) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    let destroy = ArgOp::DestroyClientId(DestroyClientId4Args { clientid: client.client });
    for session in [&mut client, &mut other] {
        let mut busy = session.run(std::slice::from_ref(&destroy));
        busy.fails::<()>(OpNum4::DestroyClientId, NfsStat4::ClientIdBusy);
    }
    let sessionid = client.id;
    let end = ArgOp::DestroySession(DestroySession4Args { sessionid });
    other.run(&[end]).ok::<()>(OpNum4::DestroySession);
    let mut beside = other.peer.compound(&[destroy.clone(), ArgOp::PutRootFh]);
    beside.fails::<()>(OpNum4::DestroyClientId, NfsStat4::NotOnlyOp);
    let mut within = other.run(&[destroy, ArgOp::PutRootFh]);
    within.ok::<()>(OpNum4::DestroyClientId);
    within.ok::<()>(OpNum4::PutRootFh);
    world.check();
}

#[test]
fn who_says_twice_what_it_is_sends_no_xdr() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let date = NfsTime4 { seconds: 1, nseconds: 2 };
    let it = NfsImplId4 { domain: b"example.org", name: b"a client", date };
    let args = ExchangeId4Args { client_impl_id: Some(it), ..exchange_id(b"me") };
    let once = peer.args(&[ArgOp::ExchangeId(args)]);
    let two = twice(&once, &it);
    peer.exchange(&two).fails::<()>(OpNum4::ExchangeId, NfsStat4::BadXdr);
    assert_eq!(peer.exchange(&once).status, NfsStat4::Ok);
}

#[test]
fn a_client_whose_record_cannot_be_kept_gets_no_session() {
    let world = World::new();
    *world.records.is_broken.lock() = true;
    let mut peer = Peer::new(&world, 1, 1);
    let (known, _) = known(&mut peer);
    let create = ArgOp::CreateSession(create_session(known, Seqid(1)));
    peer.compound(std::slice::from_ref(&create)).fails::<()>(OpNum4::CreateSession, NfsStat4::Delay);
    *world.records.is_broken.lock() = false;
    peer.compound(&[create]).fails::<()>(OpNum4::CreateSession, NfsStat4::StaleClientId);
    world.check();
}
