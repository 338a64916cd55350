//! WRITE (RFC 8881 section 18.32), COMMIT (18.3) and SETATTR (18.30): changing what is in a file and known of it.

use std::time::SystemTime;

use holdfast_base::Timestamp;
use holdfast_state::{Access, DelegationKind, StateId};
use holdfast_vfs::{AttrMask, SetAttrs, Stability, Touched, WriteAt};
use holdfast_wire::nfs4::{
    Commit4Args, NfsStat4, OpNum4, SetAttr4Args, SetAttr4Res, StableHow4, Write4Args, Write4Ok,
};

use super::{Encoded, Op};
use crate::attr::KIND;
use crate::attr::decode::{self, DelegatedTimes, Occasion};
use crate::cx::{At, Cx};
use crate::delegation::times::believed;
use crate::desc::{BITMAP_BYTES, Flags, OpDesc};
use crate::error::OpResult;
use crate::io::{self, IoFile};

impl Op for Write4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Write, Flags::NEEDS_FH.with(Flags::MODIFIES).with(Flags::WRITES)).reply(16);
    type Ok = Write4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Write4Ok> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let at = at.by_stateid(cx, stateid);
        let file = io::file_to_write(cx, &at, stateid, self.data.len() as u64)?;
        let stability = match self.stable {
            StableHow4::Unstable => Stability::Unstable,
            StableHow4::DataSync => Stability::DataSync,
            StableHow4::FileSync => Stability::FileSync,
        };
        let to = WriteAt { offset: self.offset.0, stability, want_change: false };
        // Before the write: data lost in between must not go with a verifier that a later COMMIT repeats.
        let writeverf = at.backend().write_verifier();
        let written = cx.mutate(&at).write(file.of(&at.handle), to, self.data)?;
        let committed = match stability {
            Stability::Unstable => StableHow4::Unstable,
            Stability::DataSync | Stability::FileSync => {
                cx.commit_before_reply(&at, Touched { handle: at.handle, data: true });
                StableHow4::FileSync
            }
        };
        let count = u32::try_from(written.bytes).map_err(|_| NfsStat4::ServerFault)?;
        Ok(Write4Ok { count, committed, writeverf })
    }
}

impl Op for Commit4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Commit, Flags::NEEDS_FH).reply(8);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let at = cx.at(NfsStat4::IsDir)?;
        io::must_be_regular(at.backend().getattr(&at.cx(), &at.handle, KIND)?.kind)?;
        io::flushes(cx, &at)?;
        // The whole file, whatever the range: forcing a part of it costs the same.
        cx.commit_before_reply(&at, Touched { handle: at.handle, data: true });
        cx.leave_verifier(&at);
        Ok(Encoded)
    }
}

impl Op for SetAttr4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::SetAttr, Flags::MUTATION.with(Flags::BITMAP_ON_ERROR)).reply(BITMAP_BYTES);
    type Ok = SetAttr4Res;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<SetAttr4Res> {
        let at = cx.at(NfsStat4::Rofs)?;
        let limits = at.backend().limits(&at.handle)?;
        let ids = cx.config().ids.as_ref();
        let mut wanted = decode::wanted(&self.obj_attributes, cx.minor(), &limits, ids, Occasion::Setattr)?;
        // RFC 8881 section 18.30.3: the state id counts for a size alone; and RFC 9754 section 5: for delegated times.
        // In 4.0 it tells besides who does it.
        let tells_times = wanted.delegated != DelegatedTimes::default();
        let counts = wanted.set.size.is_some() || tells_times || !cx.minor().has_sessions();
        let stateid = if counts { cx.stateid(self.stateid)? } else { StateId::ANONYMOUS };
        let at = at.by_stateid(cx, stateid);
        let file = if wanted.set.size.is_some() {
            io::file(cx, &at, stateid, Access::WRITE)?
        } else {
            IoFile::STATELESS
        };
        if tells_times {
            check_holder(cx, &at, stateid, wanted.delegated)?;
            let attrs = at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT)?;
            let uid = at.cx().caller.uid;
            let may_set = uid == 0 || uid == attrs.uid;
            let times = believed(wanted.delegated, (attrs.atime, attrs.mtime), now(), may_set);
            wanted.set.mtime = wanted.set.mtime.or(times.mtime);
            wanted.set.atime = wanted.set.atime.or(times.atime);
        }
        if wanted.set != SetAttrs::default() {
            cx.mutate(&at).setattr(file.of(&at.handle), &wanted.set, None)?;
            cx.touched(&at, at.handle);
        }
        Ok(SetAttr4Res { attrsset: wanted.mask })
    }
}

/// That a state id is of a delegation that hands over the file's times: all of them with a write delegation, the
/// access time with a read delegation (RFC 9754 section 5).
fn check_holder(cx: &Cx<'_>, at: &At, stateid: StateId, told: DelegatedTimes) -> OpResult<()> {
    let client = cx.client()?;
    let file = at.handle.key();
    let held = cx.service().delegations.of((client, file)).filter(|held| held.has_times);
    let held = held.filter(|held| held.stateid.other == stateid.other).ok_or(NfsStat4::BadStateid)?;
    if told.modify.is_some() && held.kind != DelegationKind::Write {
        return Err(NfsStat4::BadStateid.into());
    }
    // Whether it is still good, and not one of before.
    let caller = cx.state_caller()?;
    cx.state(|engine, now| Ok(engine.check_stateid(caller, stateid, file, Access::READ, now)?))?;
    Ok(())
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
