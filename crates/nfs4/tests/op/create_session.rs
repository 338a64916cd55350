use holdfast_base::{ClientId, Seqid};
use holdfast_state::{CreatedSession, Direction};
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{AuthSys, Groups};

use crate::client::{BACK, FORE, Peer, Session, create_session, exchange_id, twice};
use crate::world::World;

/// Says who it is; its id, and the number of its first session.
pub(crate) fn known(peer: &mut Peer) -> (ClientId, Seqid) {
    let mut reply = peer.compound(&[ArgOp::ExchangeId(exchange_id(b"me"))]);
    let known: ExchangeId4Ok<'_> = reply.ok(OpNum4::ExchangeId);
    (known.clientid, known.sequenceid)
}

fn create(peer: &mut Peer, args: CreateSession4Args<'_>) -> crate::client::Reply {
    peer.compound(&[ArgOp::CreateSession(args)])
}

#[test]
fn a_session_agrees_to_no_more_than_was_asked_and_the_record_is_safe_first() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let made: CreateSession4Ok = create(&mut peer, args).ok(OpNum4::CreateSession);
    assert_eq!(made.sequence, seqid);
    assert_eq!(made.flags, CREATE_SESSION4_FLAG_CONN_BACK_CHAN);
    assert_eq!(made.fore_chan_attrs, FORE);
    assert!(made.back_chan_attrs.maxrequestsize <= BACK.maxrequestsize);
    assert_eq!(*world.records.kept.lock(), [b"me".to_vec()]);
}

#[test]
fn a_retry_gets_the_same_session_and_a_number_out_of_order_none() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let first = create(&mut peer, create_session(client, seqid));
    assert_eq!(first, create(&mut peer, create_session(client, seqid)));
    for wrong in [seqid.next().next(), Seqid(seqid.0.wrapping_sub(1))] {
        create(&mut peer, create_session(client, wrong))
            .fails::<()>(OpNum4::CreateSession, NfsStat4::SeqMisordered);
    }
    create(&mut peer, create_session(ClientId(77), seqid))
        .fails::<()>(OpNum4::CreateSession, NfsStat4::StaleClientId);
}

#[test]
fn channels_through_which_nothing_fits_and_flags_unknown_are_refused() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = 8;
    create(&mut peer, args).fails::<()>(OpNum4::CreateSession, NfsStat4::Inval);
    let mut args = create_session(client, seqid);
    args.fore_chan_attrs.maxresponsesize = 20;
    create(&mut peer, args).fails::<()>(OpNum4::CreateSession, NfsStat4::TooSmall);
}

/// RFC 8881 section 18.36.3.
#[test]
fn it_stands_alone_or_behind_sequence() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let op = |seqid| ArgOp::CreateSession(create_session(client, seqid));
    let mut beside = peer.compound(&[op(seqid), ArgOp::PutRootFh]);
    beside.fails::<()>(OpNum4::CreateSession, NfsStat4::NotOnlyOp);
    // Nothing was done: the number is good still. In another client's session it is as good as alone.
    let mut other = Session::open(&world, 2, 1);
    let made: CreateSession4Ok = other.run(&[op(seqid), ArgOp::PutRootFh]).ok(OpNum4::CreateSession);
    let mut own = Session { peer, client, id: made.sessionid, seqid: Seqid(0), cachethis: true };
    let seqid = seqid.next();
    let first = own.run(&[op(seqid)]);
    let second: CreateSession4Ok = first.clone().ok(OpNum4::CreateSession);
    assert_ne!(second.sessionid, made.sessionid);
    // Sent again in its slot, in the next place of that, in another's session, and alone.
    assert_eq!(own.again(&[op(seqid)]), first);
    for mut again in [own.run(&[op(seqid)]), other.run(&[op(seqid)]), own.peer.compound(&[op(seqid)])] {
        assert_eq!(again.ok::<CreateSession4Ok>(OpNum4::CreateSession), second);
    }
    assert_eq!(world.nfs.inspect(holdfast_state::Engine::census).sessions, 3);
    world.check();
}

#[test]
fn callback_credentials_of_every_kind_are_read_and_one_that_can_be_made_is_needed_to_call_back() {
    let none = CallbackSecParms4::None;
    let gids = Groups::new(&[5, 6]);
    let sys = CallbackSecParms4::Sys(AuthSys { stamp: 1, machine_name: b"box", uid: 0, gid: 0, gids });
    let gss = CallbackSecParms4::Gss(GssCbHandles4 {
        service: RpcGssSvc::Integrity,
        handle_from_server: b"ours",
        handle_from_client: b"theirs",
    });
    for (offered, can_call) in [
        (vec![none], true),
        (vec![sys], true),
        (vec![none, sys], true),
        (vec![gss, gss, sys], true),
        (vec![gss], false),
        (vec![], false),
    ] {
        let world = World::new();
        let mut peer = Peer::new(&world, 1, 1);
        let (client, seqid) = known(&mut peer);
        let args = CreateSession4Args { sec_parms: offered, ..create_session(client, seqid) };
        let back = CreateSession4Args { flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN, ..args.clone() };
        let mut made = create(&mut peer, back);
        if can_call {
            made.ok::<CreateSession4Ok>(OpNum4::CreateSession);
            continue;
        }
        made.fails::<()>(OpNum4::CreateSession, NfsStat4::EncrAlgUnsupp);
        create(&mut peer, args).ok::<CreateSession4Ok>(OpNum4::CreateSession);
    }
}

#[test]
fn arrays_of_none_or_one_are_read_and_of_two_are_no_xdr() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, mut seqid) = known(&mut peer);
    let depth = ChannelAttrs4 { rdma_ird: Some(0x1234_5678), ..FORE };
    let fore = |args| CreateSession4Args { fore_chan_attrs: depth, ..args };
    let back = |args| CreateSession4Args { back_chan_attrs: depth, ..args };
    for changed in [fore(create_session(client, seqid)), back(create_session(client, seqid))] {
        let args = CreateSession4Args { sequence: seqid, ..changed };
        let two = twice(&peer.args(&[ArgOp::CreateSession(args.clone())]), &0x1234_5678_u32);
        peer.exchange(&two).fails::<()>(OpNum4::CreateSession, NfsStat4::BadXdr);
        let made: CreateSession4Ok = create(&mut peer, args).ok(OpNum4::CreateSession);
        assert_eq!((made.fore_chan_attrs.rdma_ird, made.back_chan_attrs.rdma_ird), (None, None));
        seqid = seqid.next();
    }
    world.check();
}

#[test]
fn persistence_is_promised_when_the_session_is_stored() {
    let world = World::new();
    let persistent = |mut args: CreateSession4Args<'static>| {
        args.flags = CREATE_SESSION4_FLAG_PERSIST;
        args
    };
    let mut client = Session::with(&world, 1, 1, persistent);
    assert_eq!(*world.sessions.made.lock(), [client.id]);
    let id = client.id;
    client.run(&[ArgOp::DestroySession(DestroySession4Args { sessionid: id })]);
    assert!(world.sessions.made.lock().is_empty());
}

#[test]
fn a_retry_is_answered_the_same_though_the_session_is_gone() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    for (flags, seqid) in [(CREATE_SESSION4_FLAG_PERSIST, seqid), (0, seqid.next())] {
        let mut args = create_session(client, seqid);
        args.flags = flags;
        let first = create(&mut peer, args.clone());
        let made: CreateSession4Ok = first.clone().ok(OpNum4::CreateSession);
        let destroy = ArgOp::DestroySession(DestroySession4Args { sessionid: made.sessionid });
        peer.compound(&[destroy]).ok::<()>(OpNum4::DestroySession);
        assert_eq!(create(&mut peer, args), first);
        assert!(world.sessions.made.lock().is_empty(), "nothing is stored of it anew");
        world.check();
    }
}

#[test]
fn a_session_that_could_not_be_stored_is_not_what_a_retry_is_told_of() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = CREATE_SESSION4_FLAG_PERSIST;
    *world.sessions.is_broken.lock() = true;
    for _ in 0..2 {
        create(&mut peer, args.clone()).fails::<()>(OpNum4::CreateSession, NfsStat4::Delay);
    }
    *world.sessions.is_broken.lock() = false;
    let made: CreateSession4Ok = create(&mut peer, args).ok(OpNum4::CreateSession);
    assert_eq!(*world.sessions.made.lock(), [made.sessionid]);
    let destroy = ArgOp::DestroySession(DestroySession4Args { sessionid: made.sessionid });
    peer.compound(&[destroy]).ok::<()>(OpNum4::DestroySession);
    world.check();
}

#[test]
fn of_a_session_that_was_taken_back_while_a_retry_had_it_stored_nothing_is_kept() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    // As whom it repeats does, whose own storing failed.
    let manager = std::sync::Arc::clone(&world.manager);
    let withdraw = move |id| {
        let taken_back = manager.step(|engine, _| {
            let image = engine.sessions().image(id).unwrap();
            engine.withdraw_session(&CreatedSession {
                id,
                seqid,
                fore: image.fore,
                back: image.back,
                conn_direction: Direction::Both,
                is_persistent: true,
                is_again: false,
            })
        });
        taken_back.unwrap().unwrap();
    };
    *world.sessions.once_stored.lock() = Some(Box::new(withdraw));
    create(&mut peer, args.clone()).fails::<()>(OpNum4::CreateSession, NfsStat4::Delay);
    world.check();
    // It was stored before it was taken back here; the other way round the record goes all the same.
    assert!(world.sessions.made.lock().is_empty());
    let made: CreateSession4Ok = create(&mut peer, args).ok(OpNum4::CreateSession);
    assert_eq!(*world.sessions.made.lock(), [made.sessionid]);
    world.check();
}

#[test]
fn a_session_destroyed_from_within_ends_its_compound() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let destroy = ArgOp::DestroySession(DestroySession4Args { sessionid: client.id });
    client.run(&[destroy.clone(), ArgOp::PutRootFh]).fails::<()>(OpNum4::DestroySession, NfsStat4::NotOnlyOp);
    client.run(std::slice::from_ref(&destroy)).ok::<()>(OpNum4::DestroySession);
    client.peer.compound(&[destroy]).fails::<()>(OpNum4::DestroySession, NfsStat4::BadSession);
    world.check();
}

#[test]
fn reclaim_is_complete_once() {
    let world = World::new();
    let mut client = Session::bare(&world, 1, 1);
    let complete = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
    client.run(std::slice::from_ref(&complete)).ok::<()>(OpNum4::ReclaimComplete);
    client.run(&[complete]).fails::<()>(OpNum4::ReclaimComplete, NfsStat4::CompleteAlready);
}

#[test]
fn a_connection_is_bound_to_what_the_session_has() {
    let world = World::new();
    let client = Session::open(&world, 1, 1);
    let mut other = Peer::new(&world, 1, 1);
    let bind = BindConnToSession4Args {
        sessionid: client.id,
        dir: ChannelDirFromClient4::ForeOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let bound: BindConnToSession4Ok =
        other.compound(&[ArgOp::BindConnToSession(bind)]).ok(OpNum4::BindConnToSession);
    assert_eq!(bound.dir, ChannelDirFromServer4::Both);
    let nowhere = BindConnToSession4Args { sessionid: holdfast_base::SessionId([0; 16]), ..bind };
    other
        .compound(&[ArgOp::BindConnToSession(nowhere)])
        .fails::<()>(OpNum4::BindConnToSession, NfsStat4::BadSession);
}

#[test]
fn an_idle_client_loses_its_session_with_its_lease() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    world.pass(crate::world::LEASE_MS / 2);
    assert_eq!(client.run(&[ArgOp::PutRootFh]).status, NfsStat4::Ok);
    world.pass(crate::world::LEASE_MS + 1);
    client.seqid = client.seqid.next();
    let sequence = ArgOp::Sequence(client.sequence());
    client.peer.compound(&[sequence]).fails::<()>(OpNum4::Sequence, NfsStat4::BadSession);
    world.check();
}

fn flags(peer: &mut Peer, sessionid: holdfast_base::SessionId) -> u32 {
    let sequence = Sequence4Args {
        sessionid,
        sequenceid: Seqid(1),
        slotid: holdfast_base::SlotId(0),
        highest_slotid: holdfast_base::SlotId(0),
        cachethis: false,
    };
    peer.compound(&[ArgOp::Sequence(sequence)]).ok::<Sequence4Ok>(OpNum4::Sequence).status_flags
}

#[test]
fn a_retry_binds_the_connection_that_it_came_on() {
    let world = World::new();
    let (mut first, mut second) = (Peer::new(&world, 1, 1), Peer::new(&world, 1, 1));
    let (client, seqid) = known(&mut first);
    let mut args = create_session(client, seqid);
    args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let made = create(&mut first, args.clone());
    let again: CreateSession4Ok = create(&mut second, args).ok(OpNum4::CreateSession);
    assert_eq!(made.status, NfsStat4::Ok);
    first.wire.close();
    assert_eq!(flags(&mut second, again.sessionid), 0, "callbacks have a way");
}

#[test]
fn a_session_whose_connection_is_lost_while_it_is_made_does_not_count_on_it() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let bytes = peer.args(&[ArgOp::CreateSession(args.clone())]);
    peer.post_and_lose(&bytes);
    let mut other = Peer::new(&world, 1, 1);
    args.flags = 0;
    let sessionid = {
        // The queue is served before the retry, which finds the session made.
        let bytes = other.args(&[ArgOp::CreateSession(args)]);
        other.exchange(&bytes).ok::<CreateSession4Ok>(OpNum4::CreateSession).sessionid
    };
    let bound =
        world.nfs.inspect(|engine| engine.sessions().get(sessionid).unwrap().back_connections().count());
    assert_eq!(bound, 1, "that of the retry alone");
}

#[test]
fn who_wants_no_callbacks_need_not_say_how_and_is_not_told_that_they_fail() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.back_chan_attrs = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 0,
        maxresponsesize: 0,
        maxresponsesize_cached: 0,
        maxoperations: 0,
        maxrequests: 0,
        rdma_ird: None,
    };
    let made: CreateSession4Ok = create(&mut peer, args).ok(OpNum4::CreateSession);
    assert_eq!(flags(&mut peer, made.sessionid), 0);
}

#[test]
fn limits_of_a_back_channel_are_judged_also_where_none_is_wanted_yet() {
    let world = World::new();
    let mut peer = Peer::new(&world, 1, 1);
    let (client, seqid) = known(&mut peer);
    let mut args = create_session(client, seqid);
    args.flags = 0;
    args.back_chan_attrs.maxrequestsize = 10;
    assert_eq!(create(&mut peer, args).status, NfsStat4::TooSmall);
}
