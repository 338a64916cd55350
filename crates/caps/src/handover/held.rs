//! What is held, put into force again. What guards it against local processes does not come along: it is made anew, and
//! where that fails, or a local process changed the object meanwhile, it is recalled.

use std::sync::mpsc;
use std::time::Duration;

use holdfast_base::{ClientId, FileKey, Timestamp};
use holdfast_export::{Object, WireHandle};
use holdfast_manager::CapsOn;
use holdfast_state::Engine;
use holdfast_vfs::{AttrMask, Attrs, Caller, Cx, FileKind, Wait};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::Caps;

/// One object that one client holds something of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HeldImage {
    client: u64,
    file: (u64, u64),
    handle: Vec<u8>,
    /// What it looked like; none when a further change might look the same.
    seen: Option<Look>,
    /// The file's modification time when it came to be held exclusively.
    #[serde(default)]
    written_since: Option<(i64, u32)>,
}

/// What any change of an object by a local process changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Look {
    ctime: (i64, u32),
    size: u64,
}

/// Two changes within this time may have one ctime, where the file system's clock ticks slowly.
const TICK_MS: i128 = 20;

impl Look {
    const fn of(attrs: &Attrs) -> Self {
        Self { ctime: (attrs.ctime.seconds, attrs.ctime.nanos), size: attrs.size }
    }

    /// Whether a change from now on will show.
    fn is_settled(&self, now: Timestamp) -> bool {
        let ms = |at: Timestamp| i128::from(at.seconds) * 1000 + i128::from(at.nanos / 1_000_000);
        ms(now) - ms(Timestamp { seconds: self.ctime.0, nanos: self.ctime.1 }) > TICK_MS
    }
}

impl HeldImage {
    fn file(&self) -> FileKey {
        FileKey(u128::from(self.file.0) << 64 | u128::from(self.file.1))
    }
}

impl Caps {
    /// `None` when a file system does not answer in time: the thread that waits for it holds nothing, but a process with
    /// such a thread cannot become another program.
    pub(super) fn freeze_held(&self, patience: Duration) -> Option<Vec<HeldImage>> {
        let held = self.parts.manager.look(Engine::caps_held);
        let image = |(client, file, _): (ClientId, FileKey, _)| {
            // What was given back this moment does not come along.
            let handle = self.members.handle(client, file)?;
            let written_since = self.members.written_since(client, file).map(|at| (at.seconds, at.nanos));
            let file = ((file.0 >> 64) as u64, file.0 as u64);
            let handle = handle.as_bytes().to_vec();
            Some(HeldImage { client: client.0, file, handle, seen: None, written_since })
        };
        let mut all: Vec<_> = held.into_iter().filter_map(image).collect();
        if all.is_empty() {
            return Some(all);
        }
        let (told, looked) = mpsc::channel();
        let this = self.this.upgrade()?;
        let look = move || {
            for held in &mut all {
                let look = this.look_at_held(held).map(|(_, look)| look);
                held.seen = look.filter(|look| look.is_settled((this.parts.wall)()));
            }
            // Nobody hears it who has given up.
            let _ = told.send(all);
        };
        std::thread::Builder::new().name("look".into()).spawn(look).ok()?;
        looked.recv_timeout(patience).ok()
    }

    /// The object as its holder sees it, so that nobody is asked about it.
    fn look_at_held(&self, held: &HeldImage) -> Option<(FileKind, Look)> {
        let Ok(Object::Export(export, handle)) = self.parts.namespace.open(&held.handle) else { return None };
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes).by(Some(ClientId(held.client)));
        let attrs = export.backend.getattr(&cx, &handle, AttrMask::STAT).ok()?;
        Some((attrs.kind, Look::of(&attrs)))
    }

    /// In force against clients from now on.
    pub(super) fn thaw_held(&self, all: &[HeldImage]) {
        for held in all {
            let client = ClientId(held.client);
            if let Some(handle) = WireHandle::new(&held.handle) {
                self.members.knows(client, held.file(), handle);
            }
            if let Some((seconds, nanos)) = held.written_since {
                self.members.writes_since(client, held.file(), Timestamp { seconds, nanos });
            }
            self.parts.manager.adopt_caps(client, held.file());
        }
        // What did not come along cannot be recalled: its holder is told that it has lost all.
        let come: FxHashSet<_> = all.iter().map(|held| (held.client, held.file())).collect();
        let held = self.parts.manager.look(Engine::caps_held);
        for (client, _, _) in held.iter().filter(|(client, file, _)| !come.contains(&(client.0, *file))) {
            let _ = self.parts.manager.step(|engine, now| engine.caps_revoke(*client, now));
        }
    }

    pub(super) fn guard(&self, all: Vec<HeldImage>) {
        for held in all {
            if !self.is_guarded(&held) {
                self.parts.manager.recall(held.file());
            }
        }
    }

    fn is_guarded(&self, held: &HeldImage) -> bool {
        let Some((kind, _)) = self.look_at_held(held) else { return false };
        let Ok(Object::Export(export, handle)) = self.parts.namespace.open(&held.handle) else {
            return false;
        };
        let on = CapsOn { backend: &export.backend, handle: &handle, kind, file: None };
        // The look comes after: what changes once the guard is there is told.
        self.parts.manager.guard_adopted_caps(ClientId(held.client), held.file(), &on)
            && held.seen.is_some()
            && self.look_at_held(held).map(|(_, look)| look) == held.seen
    }
}
