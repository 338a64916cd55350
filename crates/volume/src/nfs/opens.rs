//! Opens that the server knows of, and the numbers under which the machine knows them.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_cache::{Access, Answer, Changes, Handle, Name, NewAttrs, Object, OpenToken};
use holdfast_client::{
    Create, CreateMode, Cx, Error, OpenArgs, OpenFile, OpenTarget, Opened, WantDelegation,
};
use holdfast_wire::nfs4::{
    NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::attributes::{WANTED, attrs_of, new_attributes, set_attributes};
use super::{NfsServer, wire};

/// Opens by number.
#[derive(Debug, Default)]
pub(super) struct Opens {
    by_token: Mutex<FxHashMap<OpenToken, OpenFile>>,
    last: AtomicU64,
}

impl Opens {
    fn add(&self, file: OpenFile) -> OpenToken {
        let token = OpenToken(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.by_token.lock().insert(token, file);
        token
    }

    pub(super) fn get(&self, token: Option<OpenToken>) -> Option<OpenFile> {
        self.by_token.lock().get(&token?).cloned()
    }
}

/// How often a name may be gone when it is to be opened and there when it is to be made, before somebody is playing.
const TURNS_MAX: usize = 16;

fn share(access: Access) -> u32 {
    match access {
        Access { read: true, write: true } => OPEN4_SHARE_ACCESS_BOTH,
        Access { write: true, .. } => OPEN4_SHARE_ACCESS_WRITE,
        // Opened for neither (O_PATH never gets here; access mode 3 does): what is asked least of the server.
        Access { .. } => OPEN4_SHARE_ACCESS_READ,
    }
}

impl NfsServer {
    pub(super) fn open(
        &self,
        object: &Handle,
        access: Access,
        truncate: bool,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let handle = wire(object);
        // The return of what is recalled may wait for this very open.
        if !truncate && let Some(file) = self.client.open_recalled(cx, &handle, share(access))? {
            let attributes = self.client.getattr(cx, &handle, WANTED)?;
            let open = Some(self.opens.add(file));
            return Ok(Answer::Opened { open, attrs: attrs_of(&attributes)?, grant: None });
        }
        let wanted = self.wanted(Some(object), access);
        let held = self.held(object);
        let opened = self.open_target((OpenTarget::File(&handle), wanted), access, None, cx)?;
        let grant = if opened.delegation.is_some() { self.given(object) } else { held };
        let attrs = self.emptied(&opened, truncate, cx)?;
        Ok(Answer::Opened { open: Some(self.opens.add(opened.file)), attrs, grant })
    }

    fn open_target(
        &self,
        (target, delegation): (OpenTarget<'_>, WantDelegation),
        access: Access,
        create: Option<Create<'_>>,
        cx: Cx<'_>,
    ) -> Result<Opened, Error> {
        let args = OpenArgs { target, access: share(access), deny: 0, create, delegation, want: WANTED };
        let opened = self.client.open(cx, &args)?;
        self.note_unlinked(opened.preserves_unlinked);
        Ok(opened)
    }

    /// Names of what is open need no hiding where the server says so with opens (RFC 8881 section 18.16.3).
    fn note_unlinked(&self, does: bool) {
        if self.preserves_unlinked.swap(does, Ordering::Relaxed) != does
            && let Some(holder) = self.holder.get().and_then(Weak::upgrade)
        {
            holder.preserves_unlinked(does);
        }
    }

    /// The attributes after an open, the file emptied where that was asked for.
    fn emptied(&self, opened: &Opened, truncate: bool, cx: Cx<'_>) -> Result<holdfast_cache::Attrs, Error> {
        let attrs = attrs_of(&opened.attributes)?;
        if !truncate {
            return Ok(attrs);
        }
        // POSIX: O_TRUNC marks the times even where the file was empty; a size that stays marks none in SETATTR.
        let is_empty = attrs.size == 0;
        let mtime = is_empty.then_some(holdfast_cache::SetTime::Now);
        let changes = Changes { size: Some(0), mtime, ..Changes::default() };
        let is_writer = opened.file.access() & OPEN4_SHARE_ACCESS_WRITE != 0;
        let with = is_writer.then_some(&opened.file);
        let now = self.client.setattr(cx, opened.file.handle(), with, &set_attributes(&changes), WANTED)?;
        attrs_of(&now)
    }

    pub(super) fn close(&self, token: OpenToken, cx: Cx<'_>) -> Result<Answer, Error> {
        let file = self.opens.by_token.lock().remove(&token);
        // What is under way with it would be refused: whoever lets go last has it closed, in the background.
        if let Some(file) = file.filter(|file| !file.is_shared()) {
            self.client.close(cx, &file)?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn create(
        &self,
        (dir, name): (&Handle, &Name),
        attrs: &NewAttrs,
        access: Access,
        is_exclusive: bool,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let dir = wire(dir);
        let (target, set) = (OpenTarget::Name(&dir, name.as_bytes()), new_attributes(attrs));
        let target = (target, self.wanted(None, access));
        for _ in 0..TURNS_MAX {
            // Whether it was made here has to be known, and only a guarded create tells.
            let create = Create { mode: CreateMode::Guarded, set: &set };
            match self.open_target(target, access, Some(create), cx) {
                Ok(opened) => return self.created(opened, true),
                Err(Error::Nfs(NfsStat4::Exist)) if !is_exclusive => {}
                Err(error) => return Err(error),
            }
            match self.open_target(target, access, None, cx) {
                Ok(opened) => return self.created(opened, false),
                Err(Error::Nfs(NfsStat4::NoEnt)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Nfs(NfsStat4::NoEnt))
    }

    fn created(&self, opened: Opened, made: bool) -> Result<Answer, Error> {
        let handle = Handle::new(opened.file.handle().as_bytes());
        let grant = opened.delegation.as_ref().and_then(|_| self.given(&handle));
        let attrs = attrs_of(&opened.attributes)?;
        let object = Object { handle, attrs, grant };
        let open = Some(self.opens.add(opened.file));
        Ok(Answer::Created { object, open, made, dir: None, dir_attrs: None })
    }
}
