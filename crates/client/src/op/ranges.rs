//! Ranges of files: room, holes, copies and clones. Minor version 2.

use std::time::Duration;

use holdfast_base::{Length, Offset};
use holdfast_wire::nfs4::{
    Allocate4Args, ArgOp, Clone4Args, Copy4Args, Copy4Ok, DataContent4, Deallocate4Args, OffloadCancel4Args,
    OffloadInfo4, OffloadStatus4Args, OffloadStatus4Ok, OpNum4, Seek4Args, Seek4Ok, StableHow4, Stateid4,
    WriteResponse4,
};

use super::{Io, Seek};
use crate::client::Inner;
use crate::run::Manner;
use crate::{Client, Copied, Cx, Error, Result, Sought};

/// How long CB_OFFLOAD is waited for before the server is asked.
const OFFLOAD_PATIENCE: Duration = Duration::from_secs(5);

impl Client {
    /// Has the server reserve room.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server does not have it.
    pub fn allocate(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, length: u64) -> Result<()> {
        let inner = self.inner();
        inner.run(
            cx,
            &Manner::once(2),
            |compound| {
                let stateid = inner.stateid(compound, io, true)?;
                let args = Allocate4Args { stateid, offset: Offset(offset), length: Length(length) };
                compound.put(io.file).op(&ArgOp::Allocate(args));
                Ok(())
            },
            |answer| answer.put().and_then(|()| answer.ok(OpNum4::Allocate)),
        )
    }

    /// Makes a hole.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server does not have it.
    pub fn deallocate(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, length: u64) -> Result<()> {
        let inner = self.inner();
        inner.run(
            cx,
            &Manner::once(2),
            |compound| {
                let stateid = inner.stateid(compound, io, true)?;
                let args = Deallocate4Args { stateid, offset: Offset(offset), length: Length(length) };
                compound.put(io.file).op(&ArgOp::Deallocate(args));
                Ok(())
            },
            |answer| answer.put().and_then(|()| answer.ok(OpNum4::Deallocate)),
        )
    }

    /// Has the server make all of this zeros with room reserved for it, growing the file where it ends before: reserved, freed, and
    /// reserved again, so that where there is no room nothing is freed first.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server does not have it. Once it was freed, another may have taken the room: then it
    /// is zeros all the same.
    pub fn zero(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, length: u64) -> Result<()> {
        let inner = self.inner();
        let (offset, length) = (Offset(offset), Length(length));
        inner.run(
            cx,
            &Manner::once(4),
            |compound| {
                let stateid = inner.stateid(compound, io, true)?;
                let reserve = ArgOp::Allocate(Allocate4Args { stateid, offset, length });
                let free = ArgOp::Deallocate(Deallocate4Args { stateid, offset, length });
                compound.put(io.file).op(&reserve).op(&free).op(&reserve);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::Allocate)?;
                answer.ok(OpNum4::Deallocate)?;
                answer.ok(OpNum4::Allocate)
            },
        )
    }

    /// The next data, or the next hole, from an offset on.
    ///
    /// # Errors
    /// Those of every operation; NXIO beyond the end of the file.
    pub fn seek(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, what: Seek) -> Result<Sought> {
        let inner = self.inner();
        let what = match what {
            Seek::Data => DataContent4::Data as u32,
            Seek::Hole => DataContent4::Hole as u32,
        };
        inner.run(
            cx,
            &Manner::IDLE,
            |compound| {
                let stateid = inner.stateid(compound, io, false)?;
                compound.put(io.file).op(&ArgOp::Seek(Seek4Args { stateid, offset: Offset(offset), what }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let ok: Seek4Ok = answer.next(OpNum4::Seek)?;
                Ok(Sought { eof: ok.eof, offset: ok.offset.0 })
            },
        )
    }

    /// Has one range of a file share the blocks of another.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server or its file system cannot, INVAL for odd ranges.
    pub fn clone_range(
        &self,
        cx: Cx<'_>,
        (from, from_offset): (Io<'_>, u64),
        (to, to_offset): (Io<'_>, u64),
        count: u64,
    ) -> Result<()> {
        let inner = self.inner();
        inner.run(
            cx,
            &Manner::once(4),
            |compound| {
                let src_stateid = inner.stateid(compound, from, false)?;
                let dst_stateid = inner.stateid(compound, to, true)?;
                compound.put(from.file).op(&ArgOp::SaveFh).put(to.file);
                compound.op(&ArgOp::Clone(Clone4Args {
                    src_stateid,
                    dst_stateid,
                    src_offset: Offset(from_offset),
                    dst_offset: Offset(to_offset),
                    count: Length(count),
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::SaveFh)?;
                answer.put()?;
                answer.ok(OpNum4::Clone)
            },
        )
    }

    /// Has the server copy a range (`count` 0: to the end); waits until it is done, also where the server goes on with
    /// it after its answer. Given up, the copy is ended where it stands.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server does not have it.
    pub fn copy(
        &self,
        cx: Cx<'_>,
        (from, from_offset): (Io<'_>, u64),
        (to, to_offset): (Io<'_>, u64),
        count: u64,
    ) -> Result<Copied> {
        let inner = self.inner();
        let response = inner.run(
            cx,
            &Manner::once(4),
            |compound| {
                let src_stateid = inner.stateid(compound, from, false)?;
                let dst_stateid = inner.stateid(compound, to, true)?;
                compound.put(from.file).op(&ArgOp::SaveFh).put(to.file);
                compound.op(&ArgOp::Copy(Copy4Args {
                    src_stateid,
                    dst_stateid,
                    src_offset: Offset(from_offset),
                    dst_offset: Offset(to_offset),
                    count: Length(count),
                    consecutive: true,
                    synchronous: false,
                    source_servers: Vec::new(),
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::SaveFh)?;
                answer.put()?;
                Ok(answer.next::<Copy4Ok>(OpNum4::Copy)?.response)
            },
        )?;
        let response = match response.callback_id {
            None => response,
            Some(stateid) => inner.await_copy(cx, to, stateid, response)?,
        };
        let (committed, verifier) = (response.committed, response.writeverf);
        Ok(Copied { count: response.count.0, committed, verifier })
    }
}

impl Inner {
    fn await_copy(
        &self,
        cx: Cx<'_>,
        to: Io<'_>,
        stateid: Stateid4,
        begun: WriteResponse4,
    ) -> Result<WriteResponse4> {
        loop {
            match self.offloads.wait(stateid, cx.cancel, OFFLOAD_PATIENCE) {
                Ok(Some(OffloadInfo4::Done(response))) => return Ok(response),
                Ok(Some(OffloadInfo4::Failed(status, _))) => {
                    let status = holdfast_wire::nfs4::NfsStat4::from_u32(status);
                    return Err(status.map_or(Error::Protocol("an unknown status"), Error::Nfs));
                }
                Ok(None) => {
                    // The callback may have been lost with a connection.
                    let state = self.copy_state(cx, to, stateid)?;
                    match state.complete {
                        None => {}
                        Some(holdfast_wire::nfs4::NfsStat4::Ok) => {
                            let committed = StableHow4::Unstable;
                            return Ok(WriteResponse4 { count: state.count, committed, ..begun });
                        }
                        Some(status) => return Err(Error::Nfs(status)),
                    }
                }
                Err(stopped) => {
                    self.cancel_copy(cx, to, stateid);
                    return Err(stopped.into());
                }
            }
        }
    }

    fn copy_state(&self, cx: Cx<'_>, to: Io<'_>, stateid: Stateid4) -> Result<OffloadStatus4Ok> {
        self.run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(to.file).op(&ArgOp::OffloadStatus(OffloadStatus4Args { stateid }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.next(OpNum4::OffloadStatus)
            },
        )
    }

    fn cancel_copy(&self, cx: Cx<'_>, to: Io<'_>, stateid: Stateid4) {
        let (file, cred) = (to.file.clone(), cx.cred.clone());
        self.chores.add(Box::new(move |inner| {
            let cx = Cx { cred: &cred, cancel: &inner.quit };
            let build = |compound: &mut crate::compound::Compound| {
                compound.put(&file).op(&ArgOp::OffloadCancel(OffloadCancel4Args { stateid }));
                Ok(())
            };
            // It may have ended by itself.
            let _ = inner.run(cx, &Manner::once(2), build, |_| Ok(()));
        }));
    }
}
