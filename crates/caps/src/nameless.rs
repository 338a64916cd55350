//! NAMELESS: files without a name, kept for a moment, until who asked for them has them open.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::limits::{CAPS_NAMELESS_MAX, CAPS_NAMELESS_MS, CAPS_NAMELESS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, Instant};
use holdfast_vfs::FileObject;
use holdfast_wire::caps::{CapsStat, Handle, NamelessArgs, NamelessOk, Res};
use holdfast_xdr::{Encode, Writer};
use parking_lot::Mutex;

use crate::site::Actor;
use crate::{Caps, attrs, status};

/// One that is kept.
struct Kept {
    since: Instant,
    client: ClientId,
    /// What it lives by.
    _file: Arc<dyn FileObject>,
}

/// Those kept, the oldest first.
#[derive(Default)]
pub(crate) struct Nameless(Mutex<VecDeque<Kept>>);

impl Nameless {
    fn has_room(&self, client: ClientId) -> bool {
        let kept = self.0.lock();
        let its = kept.iter().filter(|one| one.client == client).count();
        kept.len() < CAPS_NAMELESS_MAX && its < CAPS_NAMELESS_PER_CLIENT_MAX
    }

    fn keep(&self, client: ClientId, since: Instant, file: Arc<dyn FileObject>) {
        self.0.lock().push_back(Kept { since, client, _file: file });
    }

    /// Lets go of those that were kept for long enough.
    pub(crate) fn tidy(&self, now: Instant) {
        let mut over = Vec::new();
        let mut kept = self.0.lock();
        while kept.front().is_some_and(|one| now.ms_since(one.since) >= CAPS_NAMELESS_MS) {
            over.extend(kept.pop_front());
        }
        // A close may free a large file: nobody else is to wait for that.
        drop(kept);
        drop(over);
    }
}

impl Caps {
    pub(crate) fn make_nameless(
        &self,
        actor: &Actor,
        args: &NamelessArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        let dir = self.site(actor, args.dir.0)?;
        if dir.export.options.is_read_only {
            return Err(CapsStat::Rofs);
        }
        if !self.nameless.has_room(actor.client) {
            return Err(CapsStat::Delay);
        }
        let caller = self.caller(actor, &dir.export)?;
        let set = attrs::set_attrs(&args.set);
        let made = dir.export.backend.make_nameless(&actor.cx(&caller), &dir.handle, &set);
        let (node, file) = made.map_err(status::of_fs)?;
        self.nameless.keep(actor.client, self.parts.manager.clock().now(), file);
        let handle = self.seal(&dir.beside(node.handle));
        let attrs = attrs::attrs(&node.attrs);
        Res::Ok(NamelessOk { handle: Handle(handle.as_bytes()), attrs }).encode(reply);
        Ok(())
    }
}
