//! READ, WRITE, COMMIT, READ_PLUS.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::Offset;
use holdfast_base::limits::AHEAD_REFUSALS_MAX;
use holdfast_wire::nfs4::{
    ArgOp, Commit4Args, Commit4Ok, OpNum4, Read4Args, Read4Ok, ReadPlus4Args, ReadPlus4Ok, ReadPlusContent,
    StableHow4, Stateid4, Verifier4, Write4Ok,
};

use crate::client::Inner;
use crate::compound::Compound;
use crate::run::Manner;
use crate::{Attributes, Client, Cx, Handle, OpenFile, ReadData, Result, Segment, Written};

/// On what I/O is done, and on whose behalf.
#[derive(Clone, Copy, Debug)]
pub struct Io<'a> {
    /// The file.
    pub file: &'a Handle,
    /// Through this open; without one through a delegation, or as anybody.
    pub open: Option<&'a OpenFile>,
    /// On whose behalf.
    pub owner: Whose<'a>,
}

/// On whose behalf I/O is done, as far as locks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Nobody's who has locked anything.
    Nobodys,
    /// An owner's of locks: where they were lost, it answers [`crate::Error::Lost`].
    Of(&'a [u8]),
    /// Perhaps an owner's: where anybody's locks on the file were lost, it answers [`crate::Error::Lost`].
    Unknown,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Data.
    Data,
    /// A hole.
    Hole,
}

impl<'a> Io<'a> {
    /// Through an open.
    #[must_use]
    pub fn open(open: &'a OpenFile) -> Self {
        Self { file: open.handle(), open: Some(open), owner: Whose::Nobodys }
    }

    /// Without one.
    #[must_use]
    pub const fn anonymous(file: &'a Handle) -> Self {
        Self { file, open: None, owner: Whose::Nobodys }
    }
}

impl Inner {
    /// The stateid for I/O, noted in the compound.
    pub(super) fn stateid(&self, compound: &mut Compound, io: Io<'_>, writes: bool) -> Result<Stateid4> {
        let open = io.open.map(|open| open.open().as_ref());
        let stateid = self.files.stateid_for_io(io.file, open, io.owner, writes)?;
        if !stateid.is_special() {
            compound.uses(io.file, stateid);
        }
        Ok(stateid)
    }
}

impl Client {
    /// Reads at most `count` bytes, and at most [`crate::IoLimits::max_read`].
    ///
    /// # Errors
    /// Those of every operation; [`crate::Error::Lost`].
    pub fn read(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, count: u32) -> Result<ReadData> {
        let inner = self.inner();
        let count = count.min(inner.limits().max_read);
        inner.run(
            cx,
            &Manner::IDLE,
            |compound| {
                let stateid = inner.stateid(compound, io, false)?;
                compound.put(io.file);
                compound.op(&ArgOp::Read(Read4Args { stateid, offset: Offset(offset), count }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let reply = answer.record();
                let ok: Read4Ok<'_> = answer.next(OpNum4::Read)?;
                Ok(ReadData { data: reply.keep(ok.data), eof: ok.eof })
            },
        )
    }

    /// Reads files from their beginnings, each as many bytes as are said, with one call: as many as fit into it. A COMPOUND ends with
    /// the first operation that fails (RFC 8881 section 16.2.3), and is answered as a whole: what stands behind a file that cannot be
    /// read at once takes another call, of which there are few, and none after this time. Gives what was read, in their order.
    ///
    /// # Errors
    /// Those of every operation but of one file: of that nothing is given.
    pub fn read_some(
        &self,
        cx: Cx<'_>,
        files: &[(Handle, u32)],
        within: Duration,
    ) -> Result<Vec<Option<Bytes>>> {
        let inner = self.inner();
        let (mut room, most) = (inner.limits().max_read, inner.ops_max().saturating_sub(1) / 2);
        let fits = |(_, count): &&(Handle, u32)| {
            // A head, a status and padding beside each.
            let left = room.checked_sub(count.saturating_add(32));
            room = left.unwrap_or(room);
            left.is_some()
        };
        let files = &files[..files.iter().take(most as usize).take_while(fits).count()];
        let (mut all, mut refusals) = (Vec::with_capacity(files.len()), 0);
        let until = Instant::now() + within;
        while all.len() < files.len() {
            let rest = &files[all.len()..];
            let read = match self.read_first(cx, rest) {
                // The first one's alone: with it the call ended.
                Err(crate::Error::Nfs(_)) => Vec::new(),
                // What is there already is worth having.
                Err(_) if !all.is_empty() => break,
                read => read?,
            };
            let is_whole = read.len() == rest.len();
            all.extend(read.into_iter().map(Some));
            if is_whole {
                break;
            }
            all.push(None);
            refusals += 1;
            if refusals >= AHEAD_REFUSALS_MAX || Instant::now() >= until {
                break;
            }
        }
        Ok(all)
    }

    /// Those up to the first that cannot be read at once.
    fn read_first(&self, cx: Cx<'_>, files: &[(Handle, u32)]) -> Result<Vec<Bytes>> {
        let inner = self.inner();
        inner.run(
            cx,
            &Manner::SOME,
            |compound| {
                for (file, count) in files {
                    let stateid = inner.stateid(compound, Io::anonymous(file), false)?;
                    compound.put(file);
                    compound.op(&ArgOp::Read(Read4Args { stateid, offset: Offset(0), count: *count }));
                }
                Ok(())
            },
            |answer| {
                let mut all = Vec::with_capacity(files.len());
                for _ in files {
                    let reply = answer.record();
                    match answer.put().and_then(|()| answer.next::<Read4Ok<'_>>(OpNum4::Read)) {
                        Ok(ok) => all.push(reply.keep(ok.data)),
                        Err(crate::Error::Nfs(_)) => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(all)
            },
        )
    }

    /// Reads without the bytes of holes. Minor version 2.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server does not have it.
    pub fn read_plus(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, count: u32) -> Result<(Vec<Segment>, bool)> {
        let inner = self.inner();
        let count = count.min(inner.limits().max_read);
        inner.run(
            cx,
            &Manner::IDLE,
            |compound| {
                let stateid = inner.stateid(compound, io, false)?;
                compound.put(io.file);
                compound.op(&ArgOp::ReadPlus(ReadPlus4Args { stateid, offset: Offset(offset), count }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let reply = answer.record();
                let ok: ReadPlus4Ok<'_> = answer.next(OpNum4::ReadPlus)?;
                let segment = |content: &ReadPlusContent<'_>| match content {
                    ReadPlusContent::Data(data) => Segment::Data(data.offset.0, reply.keep(data.data)),
                    ReadPlusContent::Hole(hole) => Segment::Hole(hole.offset.0, hole.length.0),
                };
                Ok((ok.contents.iter().map(segment).collect(), ok.eof))
            },
        )
    }

    /// Writes, at most [`crate::IoLimits::max_write`] bytes of what is given, which are not copied.
    ///
    /// # Errors
    /// Those of every operation; [`crate::Error::Lost`]. Given up half-way, the bytes may still arrive, also after what
    /// is written later.
    pub fn write(
        &self,
        cx: Cx<'_>,
        io: Io<'_>,
        offset: u64,
        data: Bytes,
        stable: StableHow4,
    ) -> Result<Written> {
        self.write_so(cx, io, (offset, data), (stable, false))
    }

    /// The same; afterwards memory is not to be spent on it, if that is wanted.
    pub(super) fn write_so(
        &self,
        cx: Cx<'_>,
        io: Io<'_>,
        (offset, mut data): (u64, Bytes),
        (stable, is_to_leave): (StableHow4, bool),
    ) -> Result<Written> {
        let inner = self.inner();
        data.truncate(inner.limits().max_write as usize);
        let is_advised = Cell::new(false);
        inner.run(
            cx,
            &Manner::once(2),
            |compound| {
                let stateid = inner.stateid(compound, io, true)?;
                compound.put(io.file);
                compound.write(stateid, offset, stable, data.clone());
                let stretch = (stateid, offset, data.len() as u64);
                is_advised.set(is_to_leave && inner.advise(compound, stretch));
                compound.attributes(Attributes::WRITTEN);
                Ok(())
            },
            |answer| {
                answer.put()?;
                let ok: Write4Ok = answer.next(OpNum4::Write)?;
                inner.hear_of_advice(answer, is_advised.get());
                // They are a courtesy: without them the mask is empty.
                let attributes = answer.attributes().unwrap_or_default();
                let (count, committed, verifier) = (ok.count, ok.committed, ok.writeverf);
                Ok(Written { count, committed, verifier, attributes })
            },
        )
    }

    /// Makes what was written stable, in a range (`count` 0: to the end). A verifier that differs from a write's says
    /// that the write has to be sent again.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn commit(&self, cx: Cx<'_>, file: &Handle, offset: u64, count: u32) -> Result<Verifier4> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::Commit(Commit4Args { offset: Offset(offset), count }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<Commit4Ok>(OpNum4::Commit)?.writeverf)
            },
        )
    }
}
