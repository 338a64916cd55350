//! Clients are granted delegations, strangers and local processes come in between, holders give back late: nothing
//! changes under a promise that stands, and nothing is left of one that has ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::{ClientId, Entropy, SeededEntropy};
use holdfast_manager::{Granted, PledgeOn};
use holdfast_state::{Caller, DelegationKind, DelegationRequest, Grounds, Seen};
use holdfast_vfs::{AttrMask, Backend, File, Handle, LocalDeed, SetAttrs, SetTime};

use crate::world::World;

const FILES: usize = 2_000;

/// So much is to be granted and changed, however slow the machine; or so much longer it goes on.
const ENOUGH: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(60);

struct Game {
    world: World,
    files: Vec<Handle>,
    is_over: AtomicBool,
    granted: AtomicU64,
    declined: AtomicU64,
    changed: AtomicU64,
}

impl Game {
    fn is_too_little(&self) -> bool {
        [&self.granted, &self.changed].iter().any(|count| count.load(Ordering::Relaxed) <= ENOUGH)
    }

    fn pick(&self, entropy: &mut SeededEntropy) -> &Handle {
        // Some files are in demand, most are not.
        let among = if entropy.u64() & 1 == 0 { 20 } else { FILES as u64 };
        &self.files[(entropy.u64() >> 8) as usize % among as usize]
    }

    fn attrs(&self, file: &Handle) -> (u64, u64) {
        let attrs =
            self.world.fs.getattr(&self.world.cx(None), file, AttrMask::STAT | AttrMask::CHANGE).unwrap();
        (attrs.change.0, attrs.size)
    }

    /// A client asks for a delegation, and finds the file as it was until it is asked to give back.
    fn hold(&self, client: ClientId, entropy: &mut SeededEntropy) {
        let (w, file) = (&self.world, self.pick(entropy));
        let kind = if entropy.u64() & 1 == 0 { DelegationKind::Read } else { DelegationKind::Write };
        let before = self.attrs(file);
        let request = DelegationRequest {
            client,
            file: file.key(),
            kind,
            grounds: Grounds::Want,
            delegates_timestamps: false,
            seen: Some(Seen { change: holdfast_base::ChangeId(before.0), size: before.1 }),
            unchanged_ms: u64::MAX,
        };
        let on = PledgeOn { backend: &*w.guarded, handle: file, open: None, change: None };
        let Granted::Delegated(delegated) = w.manager.delegate(&request, &on).unwrap() else {
            self.declined.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.granted.fetch_add(1, Ordering::Relaxed);
        let first = self.attrs(file);
        std::thread::yield_now();
        let last = self.attrs(file);
        let still = w.manager.look(|engine| engine.delegation_of(delegated.token));
        // Whoever gives back on recall is another thread.
        if still.is_some_and(|(.., stateid)| stateid == delegated.stateid) {
            assert_eq!(first, last, "changed under {kind:?}");
        }
        if entropy.u64() & 1 == 0 {
            let (file, stateid) = (file.key(), delegated.stateid);
            let _ = w
                .manager
                .step(|engine, now| engine.delegation_return(Caller::V41(client), stateid, file, now));
        }
    }

    /// Holders give back what they are asked for.
    fn give_back(&self) {
        let w = &self.world;
        for (client, file, stateid) in w.recalled() {
            let returned = w
                .manager
                .step(|engine, now| engine.delegation_return(Caller::V41(client), stateid, file, now));
            // It may have been given back before the recall came.
            let _ = returned.unwrap();
        }
    }

    /// A stranger, or a local process.
    fn change(&self, entropy: &mut SeededEntropy) {
        let (w, file) = (&self.world, self.pick(entropy));
        if entropy.u64() & 7 == 0 {
            w.fs.deed_outside(file, LocalDeed::OpenToWrite);
            return;
        }
        let set = SetAttrs { mtime: Some(SetTime::Now), ..SetAttrs::default() };
        if w.guarded.setattr(&w.cx(None), File::Stateless(file), &set, None).is_ok() {
            self.changed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn nothing_changes_under_a_promise_and_nothing_is_left_of_it() {
    let world = World::new(0);
    let files = (0..FILES).map(|n| world.another(&format!("file-{n}"))).collect();
    let clients = ["a", "b", "c"].map(|name| world.client(name));
    let zero = || AtomicU64::new(0);
    let (granted, declined, changed) = (zero(), zero(), zero());
    let game = Game { world, files, is_over: AtomicBool::new(false), granted, declined, changed };
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for (n, client) in clients.into_iter().enumerate() {
            let game = &game;
            scope.spawn(move || {
                let mut entropy = SeededEntropy(n as u64);
                while Instant::now() < until || (game.is_too_little() && Instant::now() < until + PATIENCE) {
                    game.hold(client, &mut entropy);
                }
                game.is_over.store(true, Ordering::SeqCst);
            });
        }
        for n in 10..12 {
            let game = &game;
            scope.spawn(move || {
                let mut entropy = SeededEntropy(n);
                while !game.is_over.load(Ordering::SeqCst) {
                    game.change(&mut entropy);
                    game.give_back();
                }
            });
        }
    });
    let Game { world: w, files, granted, declined, changed, .. } = game;
    let (granted, declined, changed) = (granted.into_inner(), declined.into_inner(), changed.into_inner());
    assert!(
        granted > ENOUGH && changed > ENOUGH,
        "{granted} granted, {declined} declined, {changed} changed"
    );
    w.manager.look(holdfast_state::invariant::check).unwrap();
    let held = clients.map(|client| w.manager.look(|engine| engine.report_holdings(client).len()));
    assert_eq!(
        w.manager.promises().len(),
        held.iter().sum::<usize>(),
        "in force is what the engine has granted"
    );
    for client in clients {
        w.manager.step(|engine, now| engine.revoke_client(client, now)).unwrap();
    }
    assert!(w.manager.promises().is_empty());
    assert!(files.iter().all(|file| w.fs.pledges_held(file).is_empty()));
}
