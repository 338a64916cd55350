//! Data: reading, writing, and what else is done with a file's bytes and attributes.

use bytes::Bytes;
use holdfast_cache::{AllocateMode, Answer, Attrs, Changes, Handle, OpenToken, Room, SeekKind, WriteOut};
use holdfast_client::{Client, Cx, Error, Io, OpenFile, Seek, Whose};
use holdfast_wire::nfs4::{NfsStat4, StableHow4};

use super::attributes::{WANTED, attrs_of, set_attributes};
use super::placement::{DataServer, Placement, Put};
use super::{NfsServer, wire};
use crate::server::WriteDone;

/// A file, an open of it, and where in it.
type Place<'a> = (&'a Handle, Option<OpenToken>, u64);

/// Asks as long as READ gives less than was asked for and no end of the file.
fn read_all(
    length: u32,
    mut read: impl FnMut(u64, u32) -> Result<(Bytes, bool), Error>,
) -> Result<(Bytes, bool), Error> {
    let (first, eof) = read(0, length)?;
    if eof || first.len() >= length as usize {
        return Ok((first, eof));
    }
    let mut all = first.to_vec();
    loop {
        let left = length - u32::try_from(all.len()).unwrap_or(length);
        let (more, eof) = read(all.len() as u64, left)?;
        all.extend_from_slice(&more);
        if eof || more.is_empty() || all.len() >= length as usize {
            return Ok((all.into(), eof));
        }
    }
}

/// Where data or a hole is in a file that is data throughout: a hole is at its end. NXIO behind that (lseek(2)).
const fn sought_in_data(size: u64, offset: u64, kind: SeekKind) -> Result<u64, Error> {
    match kind {
        _ if offset >= size => Err(Error::Nfs(NfsStat4::Nxio)),
        SeekKind::Data => Ok(offset),
        SeekKind::Hole => Ok(size),
    }
}

/// How often a server may lose its memory in the middle of one write.
const VERIFIERS_MAX: u32 = 16;

/// The kernel mostly does not say on whose behalf it reads and writes: it may be the owner of any lock.
fn io<'a>(file: &'a holdfast_client::Handle, open: Option<&'a OpenFile>) -> Io<'a> {
    Io { file, open, owner: Whose::Unknown }
}

/// What is to be on disk is its data; the times go there by themselves, or with a batch.
const fn how_stable(to_disk: bool) -> StableHow4 {
    if to_disk { StableHow4::DataSync } else { StableHow4::Unstable }
}

/// The server itself as the one that holds a file's data.
struct Own<'a> {
    client: &'a Client,
    cx: Cx<'a>,
    io: Io<'a>,
    /// It is not to keep in memory what is read or written.
    past_memory: bool,
}

impl DataServer for Own<'_> {
    fn read(&self, offset: u64, length: u32) -> Result<(Bytes, bool), Error> {
        let length = length.min(self.client.limits().max_read);
        let read = if self.past_memory {
            self.client.read_from_disk(self.cx, self.io, offset, length)?
        } else {
            self.client.read(self.cx, self.io, offset, length)?
        };
        Ok((read.data, read.eof))
    }

    fn write(&self, offset: u64, data: Bytes, how: StableHow4) -> Result<Put, Error> {
        let written = if self.past_memory {
            self.client.write_to_disk(self.cx, self.io, offset, data)?
        } else {
            self.client.write(self.cx, self.io, offset, data, how)?
        };
        Ok(Put {
            count: written.count,
            is_stable: written.committed != StableHow4::Unstable,
            verifier: u64::from_be_bytes(written.verifier),
            attrs: attrs_of(&written.attributes).ok(),
        })
    }

    fn commit(&self) -> Result<u64, Error> {
        self.client.commit(self.cx, self.io.file, 0, 0).map(u64::from_be_bytes)
    }
}

impl NfsServer {
    pub(super) fn get_attributes(&self, object: &Handle, cx: Cx<'_>) -> Result<Answer, Error> {
        let grant = self.held(object);
        let attributes = self.client.getattr(cx, &wire(object), WANTED)?;
        Ok(Answer::Attrs { attrs: attrs_of(&attributes)?, grant })
    }

    pub(super) fn set_attributes(
        &self,
        object: &Handle,
        open: Option<OpenToken>,
        changes: &Changes,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let open = self.opens.get(open);
        let set = set_attributes(changes);
        let attributes = self.client.setattr(cx, &wire(object), open.as_ref(), &set, WANTED)?;
        Ok(Answer::Attrs { attrs: attrs_of(&attributes)?, grant: None })
    }

    /// Who holds the file's data. A layout will name others.
    fn copies<'a>(&'a self, io: Io<'a>, cx: Cx<'a>) -> [Own<'a>; 1] {
        [Own { client: &self.client, cx, io, past_memory: false }]
    }

    pub(super) fn read(
        &self,
        object: &Handle,
        open: Option<OpenToken>,
        (offset, length, from_disk): (u64, u32, bool),
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let (file, open) = (wire(object), self.opens.get(open));
        let copies =
            self.copies(io(&file, open.as_ref()), cx).map(|own| Own { past_memory: from_disk, ..own });
        let placement = Placement::new(&copies, 0);
        let (data, eof) = read_all(length, |done, left| placement.read(offset + done, left))?;
        Ok(Answer::Read { data, eof })
    }

    pub(super) fn write_now(
        &self,
        place: Place<'_>,
        data: &Bytes,
        stable: bool,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let (done, attrs) = self.write_all(place, data, (how_stable(stable), stable, Whose::Unknown), cx)?;
        Ok(Answer::Written { count: done.count, stable: done.stable, verifier: done.verifier, attrs })
    }

    /// A look at where the file ends and a WRITE there. NFS has nothing better: another client may write in between.
    pub(super) fn append(
        &self,
        (object, open): (&Handle, Option<OpenToken>),
        data: &Bytes,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let offset = attrs_of(&self.client.getattr(cx, &wire(object), WANTED)?)?.size;
        let (done, attrs) =
            self.write_all((object, open, offset), data, (StableHow4::Unstable, false, Whose::Unknown), cx)?;
        let WriteDone { count, stable, verifier } = done;
        Ok(Answer::Appended { offset, count, stable, verifier, attrs })
    }

    pub(super) fn write_out(&self, write: &WriteOut, cx: Cx<'_>) -> Result<WriteDone, Error> {
        let place = (&write.object, write.open, write.offset);
        let owner = if write.is_bound { Whose::Unknown } else { Whose::Nobodys };
        let how = how_stable(write.to_disk);
        self.write_all(place, &write.data, (how, write.past_memory, owner), cx).map(|(done, _)| done)
    }

    /// Writes until all is written. A server that has lost its memory meanwhile, as its verifier says, is given all of
    /// it again; one that does so without end is not believed.
    fn write_all(
        &self,
        (object, open, offset): Place<'_>,
        data: &Bytes,
        (how, past_memory, owner): (StableHow4, bool, Whose<'_>),
        cx: Cx<'_>,
    ) -> Result<(WriteDone, Option<Attrs>), Error> {
        let (file, open) = (wire(object), self.opens.get(open));
        let copies = self.copies(Io { owner, ..io(&file, open.as_ref()) }, cx);
        let copies = copies.map(|own| Own { past_memory, ..own });
        let placement = Placement::new(&copies, 0);
        let most = self.client.limits().max_write.max(1) as usize;
        let mut whole = WriteDone { count: 0, stable: true, verifier: 0 };
        let (mut done, mut restarts) = (0, 0);
        loop {
            let piece = data.slice(done..data.len().min(done + most));
            let put = placement.write(offset + done as u64, &piece, how)?;
            let verifier = put.verifier;
            if done > 0 && verifier != whole.verifier {
                restarts += 1;
                if restarts > VERIFIERS_MAX {
                    return Err(Error::Protocol("another write verifier each time"));
                }
                (done, whole) = (0, WriteDone { count: 0, stable: true, verifier });
                continue;
            }
            whole.verifier = verifier;
            whole.stable &= put.is_stable;
            done += put.count as usize;
            whole.count = u32::try_from(done).unwrap_or(u32::MAX);
            if done >= data.len() {
                return Ok((whole, put.attrs));
            }
            if put.count == 0 {
                return Err(Error::Protocol("a WRITE that wrote nothing"));
            }
        }
    }

    pub(super) fn commit_out(&self, object: &Handle, cx: Cx<'_>) -> Result<u64, Error> {
        let file = wire(object);
        let copies = self.copies(io(&file, None), cx);
        Placement::new(&copies, 0).commit()
    }

    pub(super) fn allocate(
        &self,
        object: &Handle,
        open: Option<OpenToken>,
        mode: AllocateMode,
        (offset, length): (u64, u64),
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let (file, open) = (wire(object), self.opens.get(open));
        let place = io(&file, open.as_ref());
        match mode {
            AllocateMode::Extend => self.client.allocate(cx, place, offset, length)?,
            AllocateMode::PunchHole => self.client.deallocate(cx, place, offset, length)?,
            AllocateMode::ZeroRange => self.client.zero(cx, place, offset, length)?,
            // ALLOCATE grows the file (RFC 7862 section 15.1.3).
            AllocateMode::KeepSize | AllocateMode::ZeroRangeKeepSize => {
                return Err(Error::Nfs(NfsStat4::NotSupp));
            }
        }
        Ok(Answer::Done)
    }

    pub(super) fn seek(
        &self,
        object: &Handle,
        open: Option<OpenToken>,
        offset: u64,
        kind: SeekKind,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let what = match kind {
            SeekKind::Data => Seek::Data,
            SeekKind::Hole => Seek::Hole,
        };
        let (file, open) = (wire(object), self.opens.get(open));
        let sought = match self.client.seek(cx, io(&file, open.as_ref()), offset, what) {
            // A server of NFSv4.1, or one whose file system cannot say: any file may be said to be data throughout.
            Err(Error::Nfs(NfsStat4::NotSupp | NfsStat4::OpIllegal | NfsStat4::UnionNotSupp)) => {
                let size = attrs_of(&self.client.getattr(cx, &file, WANTED)?)?.size;
                return sought_in_data(size, offset, kind).map(|offset| Answer::Sought { offset });
            }
            sought => sought?,
        };
        // RFC 7862 section 15.11.3: no data before the end; of holes there is always one there.
        if sought.eof && kind == SeekKind::Data {
            return Err(Error::Nfs(NfsStat4::Nxio));
        }
        Ok(Answer::Sought { offset: sought.offset })
    }

    pub(super) fn copy(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        length: u64,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let (from_file, from_open) = (wire(from.0), self.opens.get(from.1));
        let (to_file, to_open) = (wire(to.0), self.opens.get(to.1));
        let (source, target) = (io(&from_file, from_open.as_ref()), io(&to_file, to_open.as_ref()));
        let copied = self.client.copy(cx, (source, from.2), (target, to.2), length)?;
        if copied.committed == StableHow4::Unstable {
            // Nobody keeps what was copied, so it cannot be written again: it is made stable here.
            self.client.commit(cx, &to_file, to.2, 0)?;
        }
        Ok(Answer::Copied { count: copied.count })
    }

    pub(super) fn room(&self, object: &Handle, cx: Cx<'_>) -> Result<Answer, Error> {
        let told = self.client.statfs(cx, &wire(object))?;
        let room = Room {
            bytes_total: told.total,
            bytes_free: told.free,
            bytes_available: told.available,
            files_total: told.files,
            files_free: told.files_free,
            name_bytes_max: told.name_max,
        };
        Ok(Answer::Room { room })
    }
}
