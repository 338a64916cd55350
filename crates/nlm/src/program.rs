//! The NLM program: from calls to what is asked of the lock manager, and back. Every procedure comes in two forms,
//! answered by its reply, or (`_MSG`) by a call of ours to the caller's lock manager (`_RES`).

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::{ByteRange, Length, Offset};
use holdfast_export::{Credential, Object};
use holdfast_rpc::reply_cache::{Begin, Key};
use holdfast_rpc::{Auth, Call, Lane, Mode, Outcome, Program};
use holdfast_state::{Access, Share};
use holdfast_vfs::{AttrMask, Caller, Cx, FileKind, FsError, FsResult, OpenMode, Wait};
use holdfast_wire::nlm4::{
    CancelArgs4, Holder4, LockArgs4, NLM_PROGRAM, NLM_V4, NlmLock4, NlmProc4, NlmRes4, NlmStat4, Notify4,
    ShareArgs4, ShareRes4, TestArgs4, TestReply4, TestRes4, UnlockArgs4,
};
use holdfast_xdr::{Decode, Reader, Writer, from_bytes, to_bytes};

use crate::lockd::Lockd;
use crate::locks::{Asked, How, InWay};
use crate::names::{HostName, OwnerName, kind_of, length_of, range_of, status_of};
use crate::outside::Site;
use crate::peers::PeerCall;

/// NLM version 4. Versions 1 and 3, whose offsets have 32 bits, are answered with what is served.
#[derive(Clone, Debug)]
pub struct Nlm4(pub Arc<Lockd>);

/// A result, and whether a duplicate of the call is to get it again.
struct Done {
    results: Vec<u8>,
    is_final: bool,
}

impl Done {
    fn of(cookie: &[u8], stat: NlmStat4) -> Self {
        Self { results: to_bytes(&NlmRes4 { cookie, stat }), is_final: is_final(stat) }
    }
}

/// Whether asking again would be answered alike. What the client is to ask for again must be looked at anew.
const fn is_final(stat: NlmStat4) -> bool {
    !matches!(stat, NlmStat4::DeniedGracePeriod | NlmStat4::DeniedNoLocks | NlmStat4::Failed)
}

/// Arguments that do not decode.
struct Garbage;

impl From<holdfast_xdr::Error> for Garbage {
    fn from(_: holdfast_xdr::Error) -> Self {
        Self
    }
}

/// The procedure that a call stands for, and by which its result goes out when that is not the reply.
const fn form(procedure: NlmProc4) -> (NlmProc4, Option<NlmProc4>) {
    match procedure {
        NlmProc4::TestMsg => (NlmProc4::Test, Some(NlmProc4::TestRes)),
        NlmProc4::LockMsg => (NlmProc4::Lock, Some(NlmProc4::LockRes)),
        NlmProc4::CancelMsg => (NlmProc4::Cancel, Some(NlmProc4::CancelRes)),
        NlmProc4::UnlockMsg => (NlmProc4::Unlock, Some(NlmProc4::UnlockRes)),
        NlmProc4::GrantedMsg => (NlmProc4::Granted, Some(NlmProc4::GrantedRes)),
        other => (other, None),
    }
}

/// The handle that a call is about.
fn handle_in(procedure: NlmProc4, mut args: Reader<'_>) -> Option<&[u8]> {
    let args = &mut args;
    Some(match procedure {
        NlmProc4::Lock | NlmProc4::NmLock => LockArgs4::decode(args).ok()?.lock.fh,
        NlmProc4::Unlock => UnlockArgs4::decode(args).ok()?.lock.fh,
        NlmProc4::Cancel => CancelArgs4::decode(args).ok()?.lock.fh,
        NlmProc4::Test => TestArgs4::decode(args).ok()?.lock.fh,
        NlmProc4::Share | NlmProc4::Unshare => ShareArgs4::decode(args).ok()?.share.fh,
        _ => return None,
    })
}

impl Program for Nlm4 {
    fn number(&self) -> u32 {
        NLM_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (NLM_V4, NLM_V4)
    }

    fn serves(&self, peer: IpAddr) -> Option<bool> {
        Some(self.0.parts.namespace.serves(peer))
    }

    fn lane(&self, procedure: u32, args: Reader<'_>) -> Option<Lane> {
        let fh = handle_in(form(NlmProc4::from_u32(procedure)?).0, args)?;
        match self.0.parts.namespace.open(fh) {
            Ok(Object::Export(export, _)) => Some(Lane(u64::from(export.id.0))),
            _ => None,
        }
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Some(procedure) = NlmProc4::from_u32(call.procedure) else { return Outcome::NoProcedure };
        let (asked, by_call) = form(procedure);
        match procedure {
            NlmProc4::Null => return Outcome::Reply,
            // Answers to calls that we do not make: our GRANTED is answered by its reply, or by GRANTED_RES.
            NlmProc4::TestRes | NlmProc4::LockRes | NlmProc4::CancelRes | NlmProc4::UnlockRes => {
                return Outcome::Reply;
            }
            NlmProc4::GrantedRes => return self.granted_res(call),
            // Its result is a call of ours: whoever has no business here shall not have us call anybody.
            _ if by_call.is_some() && self.serves(call.connection.peer().ip()) != Some(true) => {
                return Outcome::Reply;
            }
            // Files are opened, records stored.
            _ if call.mode == Mode::Inline => return Outcome::Offload,
            _ => {}
        }
        if call.auth.sys().is_none() && **call.auth != Auth::None {
            return Outcome::WeakAuth;
        }
        let token =
            match (asked != NlmProc4::Test).then(|| self.0.parts.replies.begin(Key::of(NLM_PROGRAM, call))) {
                None => None,
                Some(Begin::New(token)) => Some(token),
                Some(Begin::Running(duplicate)) => return duplicate.outcome(),
                Some(Begin::Replay(results)) => return self.send(call, by_call, &results, reply),
            };
        let Ok(done) = self.run(asked, call) else { return Outcome::Garbage };
        match token {
            Some(token) if done.is_final => token.finish(&done.results),
            Some(token) => token.decline(&done.results),
            None => {}
        }
        self.send(call, by_call, &done.results, reply)
    }
}

impl Nlm4 {
    /// Sends a result: as the reply, or as a call of its own.
    fn send(
        &self,
        call: &Call<'_>,
        by_call: Option<NlmProc4>,
        results: &[u8],
        reply: &mut Writer,
    ) -> Outcome {
        let Some(procedure) = by_call else {
            reply.put(results);
            return Outcome::Reply;
        };
        let back = PeerCall {
            peer: call.connection.peer().ip(),
            from: call.connection.local().ip(),
            program: NLM_PROGRAM,
            version: NLM_V4,
            procedure: procedure.as_u32(),
            args: results.to_vec(),
        };
        // It is not answered; lost, the client asks again.
        self.0.parts.peers.call(back, Box::new(|_| ()));
        Outcome::Reply
    }

    fn run(&self, procedure: NlmProc4, call: &mut Call<'_>) -> Result<Done, Garbage> {
        let mut args = call.args.clone();
        match procedure {
            NlmProc4::Test => self.test(call, &mut args),
            NlmProc4::Lock => self.lock(call, &mut args, true),
            NlmProc4::NmLock => self.lock(call, &mut args, false),
            NlmProc4::Cancel => {
                let CancelArgs4 { cookie, exclusive, lock, .. } = CancelArgs4::decode(&mut args)?;
                let asked = self.asked(call, &lock, exclusive);
                Ok(Done::of(cookie, asked.map_or_else(|stat| stat, |asked| self.0.cancel(&asked))))
            }
            NlmProc4::Unlock => {
                let UnlockArgs4 { cookie, lock } = UnlockArgs4::decode(&mut args)?;
                let asked = self.asked(call, &lock, false);
                Ok(Done::of(cookie, asked.map_or_else(|stat| stat, |asked| self.0.unlock(&asked))))
            }
            NlmProc4::Share => self.share(call, &mut args, true),
            NlmProc4::Unshare => self.share(call, &mut args, false),
            NlmProc4::FreeAll => {
                let Notify4 { name, .. } = Notify4::decode(&mut args)?;
                self.0.host_restarted(call.connection.peer().ip(), name, None);
                Ok(Done { results: Vec::new(), is_final: true })
            }
            // We ask nobody for locks, so none that we would wait for can be granted.
            _ => Ok(Done::of(TestArgs4::decode(&mut args)?.cookie, NlmStat4::Denied)),
        }
    }

    fn lock(&self, call: &Call<'_>, args: &mut Reader<'_>, is_monitored: bool) -> Result<Done, Garbage> {
        let LockArgs4 { cookie, block, exclusive, lock, reclaim, state } = LockArgs4::decode(args)?;
        let stat = self.asked(call, &lock, exclusive).and_then(|asked| {
            self.may_lock(call, &asked.site, exclusive)?;
            Ok(self.0.lock(&asked, How { block, reclaim, is_monitored, state }))
        });
        Ok(Done::of(cookie, stat.unwrap_or_else(|stat| stat)))
    }

    fn test(&self, call: &Call<'_>, args: &mut Reader<'_>) -> Result<Done, Garbage> {
        let TestArgs4 { cookie, exclusive, lock } = TestArgs4::decode(args)?;
        let tested = self.asked(call, &lock, exclusive).and_then(|asked| {
            self.may_lock(call, &asked.site, exclusive)?;
            self.0.test(&asked)
        });
        let results = match &tested {
            Ok(None) => to_bytes(&TestRes4 { cookie, reply: TestReply4::Other(NlmStat4::Granted.as_u32()) }),
            Ok(Some(in_way)) => to_bytes(&TestRes4 { cookie, reply: TestReply4::Denied(holder(in_way)) }),
            // Without a holder there is no telling that it is denied.
            Err(NlmStat4::Denied) => {
                to_bytes(&TestRes4 { cookie, reply: TestReply4::Other(NlmStat4::Failed.as_u32()) })
            }
            Err(stat) => to_bytes(&TestRes4 { cookie, reply: TestReply4::Other(stat.as_u32()) }),
        };
        Ok(Done { results, is_final: true })
    }

    fn share(&self, call: &Call<'_>, args: &mut Reader<'_>, is_share: bool) -> Result<Done, Garbage> {
        let ShareArgs4 { cookie, share: asked, reclaim } = ShareArgs4::decode(args)?;
        let bits = Access::from_bits(asked.access).zip(Access::from_bits(asked.mode));
        let stat = match bits {
            None => NlmStat4::Failed,
            Some((access, deny)) => {
                let host = self.host(call, asked.caller_name);
                let owner = OwnerName { oh: asked.oh.to_vec(), svid: None };
                let whole = (Offset(0), Length(0), ByteRange::ALL);
                let stat = self.at(call, asked.fh, (host, owner), whole, false).and_then(|named| {
                    if !is_share {
                        return Ok(self.0.unshare(&named));
                    }
                    self.may_lock(call, &named.site, access.contains(Access::WRITE))?;
                    let how = How { block: false, reclaim, is_monitored: true, state: 0 };
                    Ok(self.0.share(&named, Share { access, deny }, how))
                });
                stat.unwrap_or_else(|stat| stat)
            }
        };
        let results = to_bytes(&ShareRes4 { cookie, stat, sequence: 0 });
        Ok(Done { results, is_final: is_final(stat) })
    }

    /// A client answers GRANTED by a call of its own.
    fn granted_res(&self, call: &mut Call<'_>) -> Outcome {
        let Ok(NlmRes4 { cookie, stat }) = from_bytes(call.args.rest()) else { return Outcome::Garbage };
        if let Ok(number) = cookie.try_into().map(u64::from_be_bytes)
            && self.0.is_waiting(number, call.connection.peer().ip())
        {
            self.0.due().push_sent(number, Ok(stat));
        }
        Outcome::Reply
    }

    fn host(&self, call: &Call<'_>, caller: &[u8]) -> HostName {
        HostName { ip: call.connection.peer().ip(), caller: caller.to_vec() }
    }

    fn asked(&self, call: &Call<'_>, lock: &NlmLock4<'_>, exclusive: bool) -> Result<Asked, NlmStat4> {
        let range = range_of(lock.offset, lock.length).ok_or(NlmStat4::Fbig)?;
        let owner = OwnerName { oh: lock.oh.to_vec(), svid: Some(lock.svid) };
        let named = (self.host(call, lock.caller_name), owner);
        self.at(call, lock.fh, named, (lock.offset, lock.length, range), exclusive)
    }

    /// Finds the file, which the caller must be admitted to.
    fn at(
        &self,
        call: &Call<'_>,
        fh: &[u8],
        (host, owner): (HostName, OwnerName),
        (offset, length, range): (Offset, Length, ByteRange),
        exclusive: bool,
    ) -> Result<Asked, NlmStat4> {
        let peer = call.connection.peer();
        let Object::Export(export, handle) = self.0.parts.namespace.open(fh).map_err(status_of)? else {
            return Err(NlmStat4::Failed);
        };
        if !export.admits(peer.ip(), peer.port()) {
            return Err(NlmStat4::Failed);
        }
        if export.is_moved() {
            return Err(NlmStat4::StaleFh);
        }
        let (file, local) = (handle.key(), call.connection.local().ip());
        let (site, fh, kind) = (Site { export, handle }, fh.to_vec(), kind_of(exclusive));
        Ok(Asked { site, file, host, owner, range, kind, local, fh, offset, length })
    }

    /// Whether the caller may have locks on the file: who may read or write it, or owns it.
    fn may_lock(&self, call: &Call<'_>, site: &Site, exclusive: bool) -> Result<(), NlmStat4> {
        if exclusive && site.export.options.is_read_only {
            return Err(NlmStat4::Rofs);
        }
        let credential = match call.auth.sys() {
            Some(sys) => Credential::Sys { uid: sys.uid, gid: sys.gid, groups: &sys.groups },
            None => Credential::Anonymous,
        };
        let caller = site.export.caller(&credential, &*self.0.parts.groups).map_err(status_of)?;
        match may_open(site, &caller) {
            Ok(()) => Ok(()),
            // Not "denied", which would be a lock in the way, to be waited for.
            Err(error) => Err(status_of(error)),
        }
    }
}

fn may_open(site: &Site, caller: &Caller) -> FsResult<()> {
    let backend = &site.export.backend;
    let cx = Cx::new(caller, Wait::Yes);
    let kind = backend.getattr(&cx, &site.handle, AttrMask::STAT)?.kind;
    if kind != FileKind::Regular {
        return Err(FsError::WrongKind);
    }
    let open = |read| {
        backend.open(&cx, &site.handle, OpenMode { read, write: !read, nfs_exceptions: true }).map(drop)
    };
    match open(true) {
        Err(FsError::Access | FsError::Perm) => open(false),
        other => other,
    }
}

fn holder(in_way: &InWay) -> Holder4<'_> {
    let InWay { exclusive, svid, oh, range } = in_way;
    let (offset, length) = (Offset(range.first()), length_of(*range));
    Holder4 { exclusive: *exclusive, svid: *svid, oh, offset, length }
}
