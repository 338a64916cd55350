//! Opens that the server knows of, by the numbers under which the machine knows them; reclaimed when it was started anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use holdfast_cache::{Access, Answer, Errno, Handle, NewAttrs, Object, OpenToken};
use holdfast_wire::nfs4::*;

use super::Mount;
use super::nfs::{attributes, errno_of};
use crate::wire::{Ops, Reply};

/// How often a name may be gone when it is to be opened and there when it is to be made.
const TURNS_MAX: usize = 16;

/// One open.
pub(super) struct ServerOpen {
    handle: Handle,
    owner: Vec<u8>,
    access: u32,
    pub(super) stateid: Cell<Stateid4>,
    is_closing: Cell<bool>,
}

#[derive(Default)]
pub(super) struct Opens {
    by_token: RefCell<BTreeMap<u64, Rc<ServerOpen>>>,
    last: Cell<u64>,
}

impl Opens {
    pub(super) fn get(&self, token: Option<OpenToken>) -> Option<Rc<ServerOpen>> {
        self.by_token.borrow().get(&token?.0).cloned()
    }

    fn next_owner(&self) -> (u64, Vec<u8>) {
        self.last.set(self.last.get() + 1);
        (self.last.get(), format!("open {}", self.last.get()).into_bytes())
    }
}

fn share(access: Access) -> u32 {
    match access {
        Access { read: true, write: true } => OPEN4_SHARE_ACCESS_BOTH,
        Access { write: true, .. } => OPEN4_SHARE_ACCESS_WRITE,
        Access { .. } => OPEN4_SHARE_ACCESS_READ,
    }
}

/// Which file is opened.
enum Target<'a> {
    File(&'a Handle),
    Name(&'a Handle, &'a [u8]),
    New(&'a Handle, &'a [u8], &'a NewAttrs),
}

impl Target<'_> {
    fn put(&self) -> PutFh4Args<'_> {
        match self {
            Self::File(handle) | Self::Name(handle, _) | Self::New(handle, ..) => {
                PutFh4Args { object: handle.as_bytes() }
            }
        }
    }
}

impl Mount {
    /// OPEN; the number of the open, and the file's handle.
    async fn open_at(&self, target: Target<'_>, access: Access) -> Result<(OpenToken, Handle), Errno> {
        let (number, owner) = self.opens.next_owner();
        let (mask, values) = match &target {
            Target::New(.., attrs) => attributes(Some(attrs.mode), None, (attrs.atime, attrs.mtime)),
            _ => (Bitmap4::EMPTY, Vec::new()),
        };
        let acted = self.acted(|| {
            let openhow = match &target {
                Target::New(..) => OpenFlag4::Create(CreateHow4::Guarded(Fattr4 { mask, values: &values })),
                _ => OpenFlag4::NoCreate,
            };
            let claim = match &target {
                Target::File(_) => OpenClaim4::Fh,
                Target::Name(_, name) | Target::New(_, name, _) => OpenClaim4::Null(name),
            };
            let open = Open4Args {
                seqid: holdfast_base::Seqid(0),
                share_access: share(access) | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
                share_deny: 0,
                owner: StateOwner4 { clientid: self.client.client_id.get()?, owner: &owner },
                openhow,
                claim,
            };
            Some(Ops::new(&[ArgOp::PutFh(target.put()), ArgOp::Open(open), ArgOp::GetFh]))
        });
        let mut reply = acted.await?;
        let status = reply.status;
        let opened = opened_in(&mut reply).ok_or_else(|| errno_of(status))?;
        let (stateid, handle) = opened;
        let open = ServerOpen {
            handle: handle.clone(),
            owner,
            access: share(access),
            stateid: Cell::new(stateid),
            is_closing: Cell::new(false),
        };
        self.opens.by_token.borrow_mut().insert(number, Rc::new(open));
        Ok((OpenToken(number), handle))
    }

    pub(super) async fn open_file(
        self: &Rc<Self>,
        object: &Handle,
        access: Access,
        is_emptied: bool,
    ) -> Result<Answer, Errno> {
        let (token, _) = self.open_at(Target::File(object), access).await?;
        if is_emptied {
            self.empty(object, token).await?;
        }
        let (attrs, grant) = self.look_after(object).await?;
        Ok(Answer::Opened { open: Some(token), attrs, grant: Some(grant) })
    }

    /// A file made and opened; whether it was made here only a guarded create tells.
    pub(super) async fn create_file(
        self: &Rc<Self>,
        (dir, name): (&Handle, &[u8]),
        (attrs, access): (&NewAttrs, Access),
        is_exclusive: bool,
    ) -> Result<Answer, Errno> {
        for _ in 0..TURNS_MAX {
            let (made, opened) = match self.open_at(Target::New(dir, name, attrs), access).await {
                Err(Errno::EEXIST) if !is_exclusive => {
                    (false, self.open_at(Target::Name(dir, name), access).await)
                }
                opened => (true, opened),
            };
            let (token, handle) = match opened {
                Err(Errno::ENOENT) if !made => continue,
                opened => opened?,
            };
            let (attrs, grant) = self.look_after(&handle).await?;
            let object = Object { handle, attrs, grant: Some(grant) };
            return Ok(Answer::Created { object, open: Some(token), made, dir: None, dir_attrs: None });
        }
        Err(Errno::ENOENT)
    }

    pub(super) async fn close_file(&self, token: OpenToken) -> Result<Answer, Errno> {
        let Some(open) = self.opens.get(Some(token)) else { return Ok(Answer::Done) };
        open.is_closing.set(true);
        let make = || {
            let close = Close4Args { seqid: holdfast_base::Seqid(0), open_stateid: open.stateid.get() };
            let put = ArgOp::PutFh(PutFh4Args { object: open.handle.as_bytes() });
            // After a recovery it is no more: it was not reclaimed.
            self.opens.get(Some(token)).map(|_| Ops::new(&[put, ArgOp::Close(close)]))
        };
        // Whatever comes of it, nobody uses that open any more.
        let _ = self.client.act(make).await;
        self.opens.by_token.borrow_mut().remove(&token.0);
        Ok(Answer::Done)
    }

    /// Has back what the server's former life knew of. `None` where recovery must begin again.
    pub(crate) async fn reclaim_opens(self: Rc<Self>) -> Option<()> {
        let all: Vec<_> =
            self.opens.by_token.borrow().iter().map(|(n, open)| (*n, Rc::clone(open))).collect();
        for (number, open) in all {
            if open.is_closing.get() {
                self.opens.by_token.borrow_mut().remove(&number);
                continue;
            }
            let make = || {
                let args = Open4Args {
                    seqid: holdfast_base::Seqid(0),
                    share_access: open.access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
                    share_deny: 0,
                    owner: StateOwner4 { clientid: self.client.client_id.get()?, owner: &open.owner },
                    openhow: OpenFlag4::NoCreate,
                    claim: OpenClaim4::Previous(OpenDelegationType4::None),
                };
                let put = ArgOp::PutFh(PutFh4Args { object: open.handle.as_bytes() });
                Some(Ops::new(&[put, ArgOp::Open(args), ArgOp::GetFh]))
            };
            let (mut reply, _) = self.client.step(make, (&[], Vec::new)).await?;
            let status = reply.status;
            match opened_in(&mut reply) {
                Some((stateid, _)) => open.stateid.set(stateid),
                None => {
                    self.tell(|| format!("the reclaim of an open is answered {status:?}"));
                    self.opens.by_token.borrow_mut().remove(&number);
                    let (now, since) = (self.world.now(), self.promised_at.get().unwrap_or(0));
                    self.world.oracles.mounts(|mounts| mounts.lost((now, since), self.host, true));
                }
            }
        }
        Some(())
    }
}

fn opened_in(reply: &mut Reply) -> Option<(Stateid4, Handle)> {
    reply.skip(&[OpNum4::PutFh])?;
    let stateid = reply.next::<Open4Ok<'_>>(OpNum4::Open)?.stateid;
    let handle = Handle::new(reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh)?.object);
    Some((stateid, handle))
}
