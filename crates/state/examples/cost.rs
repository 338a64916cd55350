//! What delegations, the tick, and a planned restart cost the engine at 10,000 clients. Run with `--release`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::time::Instant as Wall;

use holdfast_base::{ChangeId, ClientId, FileKey, Instant, SeededEntropy};
use holdfast_state::*;

const CLIENTS: u128 = 10_000;
const FILES_EACH: u128 = 10;
const NOW: Instant = Instant(1000);

fn attrs() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: 0,
        request_bytes_max: 1 << 20,
        reply_bytes_max: 1 << 20,
        reply_kept_bytes_max: 1 << 12,
        ops_max: 16,
        slots_max: 16,
    }
}

fn client(engine: &mut Engine, n: u128) -> ClientId {
    let principal = Principal::new(b"root");
    let name = format!("client {n}");
    let request = ExchangeId {
        owner: name.as_bytes(),
        verifier: Verifier([1; 8]),
        principal: &principal,
        site: [127, 0, 0, 1].into(),
        intent: ExchangeIntent::Establish,
    };
    let exchanged = engine.exchange_id(&request, NOW).unwrap();
    let request = CreateSession {
        client: exchanged.client,
        seqid: exchanged.next_seqid,
        principal: &principal,
        conn: ConnId(n as u64),
        fore: attrs(),
        back: Some(attrs()),
        conn_direction: Direction::Both,
        callback_program: 1,
        is_persistent: false,
    };
    engine.create_session(&request, NOW).unwrap();
    engine.reclaim_complete(exchanged.client).unwrap();
    exchanged.client
}

fn open(engine: &mut Engine, client: ClientId, file: FileKey, id: u64) -> StateId {
    let share = Share { access: Access::READ, deny: Access::NONE };
    let request = OpenRequest { client, owner: b"o", file, share, claim: Claim::New };
    let opened = engine.open(&request, NOW).unwrap();
    if let Backing::Needed(access) = opened.backing {
        engine.attach(&opened.ticket, OpenId(id), access).unwrap();
    }
    engine.open_commit(opened.ticket).unwrap()
}

fn delegate(engine: &mut Engine, client: ClientId, file: FileKey, open: StateId) -> Option<Delegated> {
    let (kind, grounds, delegates_timestamps) = (DelegationKind::Read, Grounds::Open(open), false);
    let seen = Some(Seen { change: ChangeId(1), size: 0 });
    let request =
        DelegationRequest { client, file, kind, grounds, delegates_timestamps, seen, unchanged_ms: u64::MAX };
    match engine.delegation_prepare(&request, NOW).unwrap() {
        Offer::Offered(ticket) => Some(engine.delegation_commit(ticket, NOW).unwrap()),
        Offer::Declined(_) => None,
    }
}

fn each(what: &str, times: u128, run: impl FnOnce()) {
    let began = Wall::now();
    run();
    println!("{what}: {} ns each", began.elapsed().as_nanos() / times);
}

fn main() {
    let config = Config { boot: BootInstance::from_counter(1), lease_ms: 90_000, grace: Grace::Over };
    let mut engine = Engine::new(config, Box::new(SeededEntropy(1)));
    let clients: Vec<_> = (0..CLIENTS).map(|n| client(&mut engine, n)).collect();
    let files = |n: u128| (0..FILES_EACH).map(move |m| FileKey(n * FILES_EACH + m));
    let all = || clients.iter().zip(0..).flat_map(|(client, n)| files(n).map(move |file| (*client, file)));
    let total = CLIENTS * FILES_EACH;
    let mut opens = Vec::new();
    each("open, own file", total, || {
        opens.extend(all().map(|(c, f)| open(&mut engine, c, f, f.0 as u64)));
    });
    each("delegate", total, || {
        let asked = all().zip(&opens);
        asked.for_each(|((c, f), open)| assert!(delegate(&mut engine, c, f, *open).is_some()));
    });
    let shared = FileKey(u128::MAX);
    each("open, one file for all", CLIENTS, || {
        opens = clients.iter().map(|c| open(&mut engine, *c, shared, u64::MAX)).collect();
    });
    each("delegate, one file for all", CLIENTS, || {
        clients.iter().zip(&opens).for_each(|(c, open)| {
            delegate(&mut engine, *c, shared, *open);
        });
    });
    each("contend, nothing in the way", total, || {
        all().for_each(|(c, f)| assert!(!engine.is_contended(f, Deed::WriteData, Some(c))));
    });
    let began = Wall::now();
    engine.contend(shared, Deed::WriteData, None, NOW);
    println!("contend with {} readers: {:?}", engine.census().recalls, began.elapsed());
    println!("{:?}", engine.census());
    drop(engine.take_effects());
    let began = Wall::now();
    engine.tick(NOW.after_ms(1000));
    println!("tick: {:?}", began.elapsed());
    let began = Wall::now();
    let frozen = engine.freeze();
    println!("freeze: {:?}", began.elapsed());
    let text = serde_json::to_vec(&frozen).unwrap();
    println!("written as JSON: {:?}, {} MB", began.elapsed(), text.len() >> 20);
    let began = Wall::now();
    let frozen: Frozen = serde_json::from_slice(&text).unwrap();
    println!("read: {:?}", began.elapsed());
    let thawed = Engine::thaw(frozen, config, Box::new(SeededEntropy(2))).unwrap();
    println!("and thawed: {:?}", began.elapsed());
    assert_eq!(thawed.census(), engine.census());
}
