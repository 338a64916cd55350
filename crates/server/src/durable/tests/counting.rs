//! What a client has counted of its CREATE_SESSIONs, through lives of the server.

use holdfast_nfs4::SessionRecords;
use holdfast_state::{ChannelAttrs, CreatedSession, Direction, SessionImage};

use super::*;

const CHANNEL: ChannelAttrs = ChannelAttrs {
    header_pad_bytes: 0,
    request_bytes_max: 1 << 20,
    reply_bytes_max: 1 << 20,
    reply_kept_bytes_max: 4096,
    ops_max: 16,
    slots_max: 4,
};

/// The next life, and what it finds of the client.
fn next(lives: &Lives) -> (Arc<Durable>, Option<ClientImage>) {
    let (durable, former) = lives.next_with_former();
    (durable, former.snapshot.clients.into_iter().next())
}

/// Of client 1.
fn session_id(number: u8) -> SessionId {
    let mut id = [number; 16];
    id[..8].copy_from_slice(&1_u64.to_be_bytes());
    SessionId(id)
}

fn answer(number: u8) -> CreatedSession {
    CreatedSession {
        id: session_id(number),
        seqid: Seqid(number.into()),
        fore: CHANNEL,
        back: Some(CHANNEL),
        conn_direction: Direction::Both,
        is_persistent: true,
        is_again: false,
    }
}

fn session(client: u64, answer: &CreatedSession) -> SessionImage {
    SessionImage {
        id: answer.id,
        client: ClientId(client),
        fore: answer.fore,
        back: answer.back,
        callback_program: 1,
        is_persistent: answer.is_persistent,
        slots: Vec::new(),
    }
}

/// CREATE_SESSION of the client with this id is about to be answered so.
fn made(durable: &Durable, client: u64, answer: &CreatedSession) {
    durable.session_made(&session(client, answer), answer).unwrap();
}

#[test]
fn the_last_answer_is_found_by_the_next_life_whatever_becomes_of_record_and_session() {
    let lives = Lives::new();
    let durable = lives.next();
    let client = client(Dialect::V41, 1);
    durable.persist(&client).unwrap();
    made(&durable, 1, &answer(1));
    made(&durable, 1, &answer(2));
    durable.will_hold(&client).unwrap();
    assert!(durable.note_losses(client.id, true) && durable.note_losses(client.id, false));
    durable.reclaim_done(client.id);
    // The first request, sent once more before it was answered, is done with late.
    made(&durable, 1, &answer(1));
    durable.sessions_gone(&[answer(2).id]);
    drop(durable);
    for grace_ends in [true, false] {
        let (durable, found) = next(&lives);
        let found = found.unwrap();
        assert_eq!((found.create_seqid, found.created), (Seqid(2), Some(answer(2))));
        if grace_ends {
            durable.persist(&found).unwrap();
            durable.tick(Instant(LEASE_MS + 1));
            assert!(durable.is_grace_over(), "and it has a mark now");
        }
    }
}

#[test]
fn of_a_session_that_does_not_persist_the_number_is_kept_where_another_does() {
    let lives = Lives::new();
    let durable = lives.next();
    durable.persist(&client(Dialect::V41, 1)).unwrap();
    let passing =
        CreatedSession { is_persistent: false, back: None, conn_direction: Direction::Fore, ..answer(1) };
    let before = lives.store.get(b"client/1/client").unwrap();
    made(&durable, 1, &passing);
    assert_eq!(lives.store.get(b"client/1/client").unwrap(), before, "it will begin anew");
    made(&durable, 1, &answer(2));
    let passing = CreatedSession { id: session_id(3), seqid: Seqid(3), ..passing };
    made(&durable, 1, &passing);
    drop(durable);
    let found = next(&lives).1.unwrap();
    assert_eq!((found.create_seqid, found.created), (Seqid(3), Some(passing)));
}

#[test]
fn another_id_counts_anew_and_a_record_of_before_these_were_kept_says_nothing() {
    let lives = Lives::new();
    let durable = lives.next();
    durable.persist(&client(Dialect::V41, 1)).unwrap();
    made(&durable, 1, &answer(5));
    // The same client, which the server had lost; no session yet.
    durable.persist(&client(Dialect::V41, 2)).unwrap();
    let record = Records::new(lives.store.clone()).clients().unwrap().remove(0);
    assert_eq!((record.client_id, record.created), (ClientId(2), None));
    // Of one that is gone nothing is kept but the session, which goes with it.
    made(&durable, 1, &answer(6));
    made(&durable, 2, &answer(1));
    let record = Records::new(lives.store.clone()).clients().unwrap().remove(0);
    drop(durable);
    let found = next(&lives).1.unwrap();
    assert_eq!((found.id, found.create_seqid), (ClientId(2), Seqid(1)));
    // As version 1 ended, which had neither the last CREATE_SESSION nor what comes after it.
    let bytes = ClientRecord { created: None, ..record }.to_bytes();
    lives.store.put(b"client/1/client", &[&[1], &bytes[1..bytes.len() - 8]].concat()).unwrap();
    let found = next(&lives).1.unwrap();
    assert_eq!((found.create_seqid, found.created), (Seqid(0), None));
}

#[test]
fn a_session_is_called_under_the_program_it_was_changed_to_unless_it_is_gone() {
    let lives = Lives::new();
    let durable = lives.next();
    durable.persist(&client(Dialect::V41, 1)).unwrap();
    made(&durable, 1, &answer(1));
    made(&durable, 1, &answer(2));
    durable.sessions_gone(&[answer(1).id]);
    for of in [answer(1), answer(2), CreatedSession { is_persistent: false, ..answer(3) }] {
        durable.session_changed(&SessionImage { callback_program: 77, ..session(1, &of) }).unwrap();
    }
    drop(durable);
    let (_durable, former) = lives.next_with_former();
    let found: Vec<_> = former.snapshot.sessions.iter().map(|s| (s.id, s.callback_program)).collect();
    assert_eq!(found, [(answer(2).id, 77)]);
}

#[test]
fn who_was_not_heard_of_in_grace_is_known_after_a_planned_restart_too() {
    let lives = Lives::new();
    let first = lives.next();
    let client = client(Dialect::V41, 1);
    first.persist(&client).unwrap();
    made(&first, 1, &answer(1));
    first.will_hold(&client).unwrap();
    drop(first);
    let cut_off = lives.next();
    cut_off.tick(Instant(LEASE_MS + 1));
    assert!(cut_off.is_grace_over() && cut_off.records.clients().unwrap().is_empty());
    let durable = lives.go_on(cut_off);
    // Its lease runs on, and its session with it.
    assert_eq!(durable.records.sessions().unwrap().len(), 1);
    made(&durable, 1, &answer(2));
    durable.will_hold(&client).unwrap();
    drop(durable);
    let (durable, found) = next(&lives);
    assert_eq!(found.unwrap().created, Some(answer(2)));
    assert_eq!(durable.records.sessions().unwrap().len(), 2);
}
