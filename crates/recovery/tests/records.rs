//! Record formats, byte by byte, and their way through a store that fails.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;

use holdfast_base::{ClientId, Seqid, SessionId, Timestamp};
use holdfast_recovery::intent::{NodeKind, Place, name_hash};
use holdfast_recovery::{
    ChannelRecord, ClientName, ClientRecord, CreatedRecord, Intent, LostRecord, RecordChange, Records,
    RecoveryError, SessionRecord, Step,
};
use holdfast_store::suite::{Fault, Faulty};
use holdfast_store::{MemoryStore, Store};
use holdfast_xdr::Writer;
use proptest::prelude::*;

fn client(owner: &[u8]) -> ClientRecord {
    ClientRecord {
        name: ClientName { is_sessions: true, owner: owner.to_vec() },
        verifier: [7; 8],
        principal: b"sys:0".to_vec(),
        client_id: ClientId(0x0102_0304_0506_0708),
        holds_state: true,
        holds_caps: false,
        lost_state: false,
        missed_grace: true,
        created: None,
    }
}

fn session() -> SessionRecord {
    let fore = ChannelRecord {
        request_bytes_max: 1,
        reply_bytes_max: 2,
        cached_bytes_max: 3,
        operations_max: 4,
        slots: 5,
    };
    SessionRecord {
        id: SessionId([9; 16]),
        client_id: ClientId(1),
        fore,
        back: ChannelRecord { slots: 1, ..fore },
        callback_program: 0x4000_0000,
        flags: 3,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

/// A client's record in any version, after the byte that says which.
const CLIENT: &str = "00000001 00000003 61626300 0707070707070707 00000005 7379733a 30000000
                      0102030405060708 00000001 00000000 00000001";

#[test]
fn a_client_record_has_the_bytes_of_version_3() {
    let session = session();
    let created = CreatedRecord {
        seqid: Seqid(6),
        session: session.id,
        fore: session.fore,
        back: session.back,
        flags: 3,
    };
    let answer = "00000006 09090909090909090909090909090909
                  00000001 00000002 00000003 00000004 00000005
                  00000001 00000002 00000003 00000004 00000001 00000003";
    for (created, bytes) in [(None, "00000000"), (Some(created), &format!("00000001 {answer}"))] {
        for (holds_caps, last) in [(false, "00000000"), (true, "00000001")] {
            let golden = unhex(&format!("03 {CLIENT} {bytes} {last}"));
            let client = ClientRecord { created, holds_caps, ..client(b"abc") };
            assert_eq!(client.to_bytes(), golden);
            assert_eq!(ClientRecord::from_bytes(&golden), Ok(client));
            for cut in 0..golden.len() {
                assert!(ClientRecord::from_bytes(&golden[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
}

#[test]
fn in_records_of_before_whoever_may_hold_capabilities_is_taken_to() {
    let of = |is_sessions: u8, holds_state: u8| {
        let text = format!(
            "0000000{is_sessions} 00000003 61626300 0707070707070707 00000005 7379733a 30000000
             0102030405060708 0000000{holds_state} 00000000 00000001"
        );
        for (version, created) in [("01", ""), ("02", "00000000")] {
            let golden = unhex(&format!("{version} {text} {created}"));
            let record = ClientRecord::from_bytes(&golden).unwrap();
            let expected = (is_sessions, holds_state) == (1, 1);
            assert_eq!(record.holds_caps, expected, "{version}: {is_sessions} {holds_state}");
            for cut in 0..golden.len() {
                assert!(ClientRecord::from_bytes(&golden[..cut]).is_err(), "cut at {cut}");
            }
        }
    };
    for (is_sessions, holds_state) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        of(is_sessions, holds_state);
    }
}

#[test]
fn a_client_record_of_version_1_does_not_know_the_last_create_session() {
    let golden = unhex(&format!("01 {CLIENT}"));
    let client = ClientRecord { holds_caps: true, ..client(b"abc") };
    assert_eq!(ClientRecord::from_bytes(&golden), Ok(client));
    for cut in 0..golden.len() {
        assert!(ClientRecord::from_bytes(&golden[..cut]).is_err(), "cut at {cut}");
    }
    assert!(ClientRecord::from_bytes(&[&golden[..], &[0; 4]].concat()).is_err(), "and has no more bytes");
    assert!(ClientRecord::from_bytes(&[&[4], &golden[1..]].concat()).is_err(), "a later version is refused");
}

#[test]
fn a_session_record_has_the_bytes_of_version_1() {
    let golden = unhex(
        "01 09090909090909090909090909090909 0000000000000001
         00000001 00000002 00000003 00000004 00000005
         00000001 00000002 00000003 00000004 00000001 40000000 00000003",
    );
    assert_eq!(session().to_bytes(), golden);
    assert_eq!(SessionRecord::from_bytes(&golden), Ok(session()));
}

fn written(intent: &Intent<'_>) -> Vec<u8> {
    let mut w = Writer::new();
    intent.write(&mut w);
    w.into_vec()
}

#[test]
fn intents_have_the_bytes_of_version_1() {
    let at = Place { dir: b"dd", name: b"n" };
    let time = Timestamp { seconds: -1, nanos: 5 };
    let place = "00000002 64640000 00000001 6e000000";
    let stamp = "ffffffffffffffff 00000005";
    for (intent, golden) in [
        (
            Intent::Make { at, kind: NodeKind::Symlink(b"to"), before: None, started_at: time },
            format!("01 00000000 {place} 00000002 00000002 746f0000 00000000 {stamp}"),
        ),
        (
            Intent::Make { at, kind: NodeKind::Char(1, 2), before: Some(b"h"), started_at: time },
            format!("01 00000000 {place} 00000005 00000001 00000002 00000001 00000001 68000000 {stamp}"),
        ),
        (Intent::Remove { at, victim: b"v" }, format!("01 00000001 {place} 00000001 76000000")),
        (
            Intent::Rename { from: at, to: at, source: b"s", target: Some(b"t"), is_exchange: true },
            format!("01 00000002 {place} {place} 00000001 73000000 00000001 00000001 74000000 00000001"),
        ),
        (
            Intent::Link { object: b"o", at, before: None },
            format!("01 00000003 00000001 6f000000 {place} 00000000"),
        ),
        (
            Intent::SetAttr { object: b"o", ctime_before: time },
            format!("01 00000004 00000001 6f000000 {stamp}"),
        ),
        (
            Intent::MakeXattr { object: b"o", name: b"n", existed: false, value_hash: [1; 16] },
            format!("01 00000005 00000001 6f000000 00000001 6e000000 00000000 {}", "01".repeat(16)),
        ),
        (
            Intent::RemoveXattr { object: b"o", name: b"n", existed: true },
            "01 00000006 00000001 6f000000 00000001 6e000000 00000001".to_owned(),
        ),
        (Intent::Repeatable, "01 00000007".to_owned()),
        (Intent::Removals { dir: b"dir", names: b"" }, "01 00000008 00000003 64697200".to_owned()),
        (
            Intent::Removals { dir: b"dir", names: &name_hash(b"name") },
            "01 00000009 00000003 64697200 00000008 c4bcadba8e631b86".to_owned(),
        ),
    ] {
        let golden = unhex(&golden);
        assert_eq!(written(&intent), golden, "{intent:?}");
        assert_eq!(Intent::read(&golden), Ok(intent));
        assert!(Intent::read(&golden[..golden.len() - 1]).is_err());
        assert!(Intent::read(&[&[2], &golden[1..]].concat()).is_err(), "a later version is refused");
    }
}

#[test]
fn a_step_has_the_bytes_of_version_1() {
    let step = Step { seqid: 1, call_hash: 2, operation: 3, results: b"res", intent: Intent::Repeatable };
    let mut w = Writer::new();
    step.write(&mut w);
    let golden = unhex("01 00000001 0000000000000002 00000003 00000003 72657300 00000007");
    assert_eq!(w.as_slice(), golden);
    assert_eq!(Step::read(&golden), Ok(step));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0..3_u8) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut().filter(|_| version > 0) { *first = version; }
        let _ = (ClientRecord::from_bytes(&bytes), SessionRecord::from_bytes(&bytes), Step::read(&bytes));
        if let Ok(intent) = Intent::read(&bytes) {
            // Padding is not looked at, so only what it means comes back the same.
            let again = written(&intent);
            prop_assert_eq!(Intent::read(&again), Ok(intent));
        }
    }
}

#[test]
fn a_client_and_its_session_are_stored_as_one_and_found_again() {
    let store = Arc::new(MemoryStore::new());
    let records = Records::new(store);
    let changes = [RecordChange::Client(client(b"a")), RecordChange::Session(session())];
    records.store(&changes).unwrap();
    // A newer incarnation takes the place of the older; another minor version is another client.
    let newer = ClientRecord { verifier: [8; 8], ..client(b"a") };
    let old_protocol =
        ClientRecord { name: ClientName { is_sessions: false, owner: b"a".to_vec() }, ..client(b"a") };
    records
        .store(&[RecordChange::Client(newer.clone()), RecordChange::Client(old_protocol.clone())])
        .unwrap();
    assert_eq!(records.clients(), Ok(vec![old_protocol, newer.clone()]));
    assert_eq!(records.sessions(), Ok(vec![session()]));
    records
        .store(&[RecordChange::ForgetClient(newer.name), RecordChange::ForgetSession(session().id)])
        .unwrap();
    assert_eq!(records.clients().unwrap().len(), 1);
    assert_eq!(records.sessions(), Ok(Vec::new()));
}

#[test]
fn which_incarnations_were_lost_stays_on_record_when_the_client_goes() {
    let records = Records::new(Arc::new(MemoryStore::new()));
    let it = client(b"a");
    let lost = LostRecord { name: it.name.clone(), number: 7, verifiers: vec![[9; 8], it.verifier] };
    records.store(&[RecordChange::Client(it.clone())]).unwrap();
    let lose = RecordChange::LoseClient(it.name.clone(), it.verifier);
    records.store(&[lose, RecordChange::Lost(lost.clone())]).unwrap();
    assert_eq!((records.clients(), records.lost()), (Ok(Vec::new()), Ok(vec![lost.clone()])));
    records.store(&[RecordChange::Client(it.clone()), RecordChange::ForgetClient(it.name.clone())]).unwrap();
    assert_eq!(records.lost(), Ok(vec![lost]));
    records.store(&[RecordChange::ForgetLost(it.name)]).unwrap();
    assert_eq!(records.lost(), Ok(Vec::new()));
}

#[test]
fn a_lost_client_has_the_bytes_of_version_1() {
    let lost = LostRecord { name: client(b"ab").name, number: 3, verifiers: vec![[1; 8], [2; 8]] };
    let golden = unhex("01 00000002 61620000 0000000000000003 00000010 0101010101010101 0202020202020202");
    assert_eq!(lost.to_bytes(), golden);
    assert_eq!(LostRecord::from_bytes(&golden), Ok(lost));
    assert!(LostRecord::from_bytes(&golden[..golden.len() - 1]).is_err());
}

#[test]
fn more_changes_than_a_batch_holds_are_stored_all_the_same() {
    let records = Records::new(Arc::new(MemoryStore::new()));
    let many: Vec<_> = (0..3000u32).map(|n| RecordChange::Client(client(&n.to_be_bytes()))).collect();
    records.store(&many).unwrap();
    assert_eq!(records.clients().unwrap().len(), 3000);
}

#[test]
fn an_unreadable_record_is_an_error_that_names_it() {
    let store = Arc::new(MemoryStore::new());
    store.put(b"client/1/x", &[1, 2]).unwrap();
    let e = Records::new(store).clients().unwrap_err();
    assert!(matches!(&e, RecoveryError::Record { key, .. } if key == "client/1/x"), "{e}");
}

#[test]
fn a_store_that_failed_after_the_effect_takes_the_same_changes_again() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let records = Records::new(store.clone());
    store.fail_nth(1, Fault::ApplyThenFail);
    let change = [RecordChange::Client(client(b"a"))];
    assert!(records.store(&change).is_err());
    records.store(&change).unwrap();
    assert_eq!(records.clients().unwrap(), [client(b"a")]);
}
