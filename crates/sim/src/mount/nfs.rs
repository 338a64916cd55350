//! Questions of the machine that go by NFSv4.1: each a compound or two.

use std::rc::Rc;

use bytes::Bytes;
use holdfast_base::{Offset, Timestamp};
use holdfast_cache::{
    AheadOut, Answer, Attrs, CapSet, Changes, Errno, Grant, Handle, Kind, Making, Name, Object, OpenToken,
    Question, RenameMode, SetTime, WriteOut, Written,
};
use holdfast_volume::convert;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Encode, Writer};

use super::Mount;
use crate::wire::{Ops, Reply};

pub(super) fn errno_of(status: NfsStat4) -> Errno {
    convert::errno_of(status.as_u32())
}

const fn wire_time(time: SetTime) -> SetTime4 {
    match time {
        SetTime::Now => SetTime4::ToServerTime,
        SetTime::At(at) => SetTime4::ToClientTime(NfsTime4 { seconds: at.seconds, nseconds: at.nanos }),
    }
}

/// Attributes to be set, as they travel.
pub(super) fn attributes(
    mode: Option<u32>,
    size: Option<u64>,
    (atime, mtime): (Option<Timestamp>, Option<Timestamp>),
) -> (Bitmap4, Vec<u8>) {
    set_attributes(&Changes {
        mode,
        size,
        atime: atime.map(SetTime::At),
        mtime: mtime.map(SetTime::At),
        ..Changes::default()
    })
}

fn set_attributes(changes: &Changes) -> (Bitmap4, Vec<u8>) {
    let (mut mask, mut w) = (Bitmap4::EMPTY, Writer::new());
    if let Some(size) = changes.size {
        mask = mask.with_attr(Attr::Size);
        w.u64(size);
    }
    if let Some(mode) = changes.mode {
        mask = mask.with_attr(Attr::Mode);
        w.u32(mode);
    }
    if let Some(time) = changes.atime {
        mask = mask.with_attr(Attr::TimeAccessSet);
        wire_time(time).encode(&mut w);
    }
    if let Some(time) = changes.mtime {
        mask = mask.with_attr(Attr::TimeModifySet);
        wire_time(time).encode(&mut w);
    }
    (mask, w.into_vec())
}

fn put(handle: &Handle) -> ArgOp<'_> {
    ArgOp::PutFh(PutFh4Args { object: handle.as_bytes() })
}

impl Mount {
    /// The same, whatever it is answered.
    pub(super) async fn acted(&self, make: impl Fn() -> Option<Ops>) -> Result<Reply, Errno> {
        let acted = self.client.act(make).await.ok_or(Errno::EIO)?;
        self.doubts.set(self.doubts.get() + u64::from(acted.is_excused));
        Ok(acted.reply)
    }

    /// Attributes after something was done: where they cannot be had it was done all the same.
    pub(super) async fn look_after(self: &Rc<Self>, object: &Handle) -> Result<(Attrs, Grant), Errno> {
        let looked = self.acquire_one(object, CapSet::NONE).await;
        self.doubts.set(self.doubts.get() + u64::from(looked.is_err()));
        looked
    }

    /// One compound, until there is an answer that means something.
    async fn compound(&self, make: impl Fn() -> Option<Ops>) -> Result<Reply, Errno> {
        let reply = self.acted(make).await?;
        if reply.status == NfsStat4::Ok { Ok(reply) } else { Err(errno_of(reply.status)) }
    }

    pub(super) async fn find_root(&self) -> Result<Handle, Errno> {
        let lookup = ArgOp::Lookup(Lookup4Args { objname: b"export" });
        let make = || Some(Ops::new(&[ArgOp::PutRootFh, lookup.clone(), ArgOp::GetFh]));
        let mut reply = self.compound(make).await?;
        reply.skip(&[OpNum4::PutRootFh, OpNum4::Lookup]).ok_or(Errno::EIO)?;
        let root = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).ok_or(Errno::EIO)?;
        Ok(Handle::new(root.object))
    }

    fn stateid(&self, open: Option<OpenToken>) -> Stateid4 {
        self.opens.get(open).map_or(Stateid4::ANONYMOUS, |open| open.stateid.get())
    }

    pub(super) async fn ask_by_nfs(self: &Rc<Self>, question: &Question) -> Result<Answer, Errno> {
        match question {
            Question::Read { object, open, offset, length, .. } => {
                let (data, eof) = self.read((object, *open), *offset, *length).await?;
                Ok(Answer::Read { data, eof })
            }
            Question::Open { object, access, truncate, .. } => {
                self.open_file(object, *access, *truncate).await
            }
            Question::Close { open } => self.close_file(*open).await,
            Question::Create { dir, name, attrs, access, exclusive, .. } => {
                self.create_file((dir, name.as_bytes()), (attrs, *access), *exclusive).await
            }
            Question::Make { dir, name, making, attrs, .. } => {
                let set = attributes(Some(attrs.mode), None, (attrs.atime, attrs.mtime));
                self.make((dir, name), making, set).await
            }
            Question::Link { object, dir, name, .. } => self.link(object, (dir, name)).await,
            Question::Remove { dir, name, .. } => {
                let remove = ArgOp::Remove(Remove4Args { target: name.as_bytes() });
                self.compound(|| Some(Ops::new(&[put(dir), remove.clone()]))).await?;
                Ok(Answer::Gone { dir: None, dir_attrs: None })
            }
            Question::Rename { from_dir, from, to_dir, to, mode: RenameMode::Replace, .. } => {
                self.rename((from_dir, from), (to_dir, to)).await
            }
            Question::SetAttr { object, open, changes, .. } => {
                self.set_attr(object, *open, changes).await?;
                let (attrs, grant) = self.look_after(object).await?;
                Ok(Answer::Attrs { attrs, grant: Some(grant) })
            }
            Question::Write { object, open, offset, data, stable } => {
                let how = if *stable { StableHow4::FileSync } else { StableHow4::Unstable };
                let Written { count, stable, verifier } =
                    self.write((object, *open), (*offset, data), how).await?;
                Ok(Answer::Written { count, stable, verifier, attrs: None })
            }
            Question::Commit { object, .. } => {
                self.commit(object).await.map(|verifier| Answer::Committed { verifier })
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    async fn read(
        &self,
        (object, open): (&Handle, Option<OpenToken>),
        offset: u64,
        length: u32,
    ) -> Result<(Bytes, bool), Errno> {
        let mut all = Vec::new();
        loop {
            let (at, left) = (offset + all.len() as u64, length - all.len() as u32);
            let make = || {
                let read = Read4Args { stateid: self.stateid(open), offset: Offset(at), count: left };
                Some(Ops::new(&[put(object), ArgOp::Read(read)]))
            };
            let mut reply = self.compound(make).await?;
            reply.skip(&[OpNum4::PutFh]).ok_or(Errno::EIO)?;
            let ok = reply.next::<Read4Ok<'_>>(OpNum4::Read).ok_or(Errno::EIO)?;
            all.extend_from_slice(ok.data);
            if ok.eof || ok.data.is_empty() || all.len() >= length as usize {
                return Ok((all.into(), ok.eof));
            }
        }
    }

    async fn make(
        self: &Rc<Self>,
        (dir, name): (&Handle, &Name),
        making: &Making,
        (mask, values): (Bitmap4, Vec<u8>),
    ) -> Result<Answer, Errno> {
        let make = || {
            let objtype = match making {
                Making::Dir => CreateType4::Dir,
                Making::Symlink(text) => CreateType4::Lnk(text),
                Making::Node(Kind::Fifo, _) => CreateType4::Fifo,
                Making::Node(..) => return None,
            };
            let createattrs = Fattr4 { mask, values: &values };
            let create = Create4Args { objtype, objname: name.as_bytes(), createattrs };
            Some(Ops::new(&[put(dir), ArgOp::Create(create), ArgOp::GetFh]))
        };
        let mut reply = self.compound(make).await?;
        reply.skip(&[OpNum4::PutFh]).ok_or(Errno::EIO)?;
        reply.next::<Create4Ok>(OpNum4::Create).ok_or(Errno::EIO)?;
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).map(|ok| Handle::new(ok.object));
        self.created(handle.ok_or(Errno::EIO)?).await
    }

    /// What was made; or that it was, and somebody else has removed it since.
    async fn created(self: &Rc<Self>, handle: Handle) -> Result<Answer, Errno> {
        match self.acquire_one(&handle, CapSet::NONE).await {
            Ok((attrs, grant)) => {
                let object = Object { handle, attrs, grant: Some(grant) };
                Ok(Answer::Created { object, open: None, made: true, dir: None, dir_attrs: None })
            }
            Err(Errno::ESTALE) => Ok(Answer::Done),
            Err(errno) => Err(errno),
        }
    }

    async fn link(self: &Rc<Self>, object: &Handle, (dir, name): (&Handle, &Name)) -> Result<Answer, Errno> {
        let link = ArgOp::Link(Link4Args { newname: name.as_bytes() });
        let make = || Some(Ops::new(&[put(object), ArgOp::SaveFh, put(dir), link.clone()]));
        self.compound(make).await?;
        self.created(object.clone()).await
    }

    async fn rename(&self, from: (&Handle, &Name), to: (&Handle, &Name)) -> Result<Answer, Errno> {
        let rename = Rename4Args { oldname: from.1.as_bytes(), newname: to.1.as_bytes() };
        let rename = ArgOp::Rename(rename);
        let make = || Some(Ops::new(&[put(from.0), ArgOp::SaveFh, put(to.0), rename.clone()]));
        self.compound(make).await?;
        Ok(Answer::Gone { dir: None, dir_attrs: None })
    }

    async fn set_attr(
        &self,
        object: &Handle,
        open: Option<OpenToken>,
        changes: &Changes,
    ) -> Result<(), Errno> {
        let (mask, values) = set_attributes(changes);
        let make = || {
            let obj_attributes = Fattr4 { mask, values: &values };
            let set = SetAttr4Args { stateid: self.stateid(open), obj_attributes };
            Some(Ops::new(&[put(object), ArgOp::SetAttr(set)]))
        };
        self.compound(make).await.map(drop)
    }

    /// POSIX: O_TRUNC marks the times even where the file was empty.
    pub(super) async fn empty(&self, object: &Handle, open: OpenToken) -> Result<(), Errno> {
        let changes = Changes { size: Some(0), mtime: Some(SetTime::Now), ..Changes::default() };
        self.set_attr(object, Some(open), &changes).await
    }

    async fn write(
        &self,
        (object, open): (&Handle, Option<OpenToken>),
        (offset, data): (u64, &Bytes),
        stable: StableHow4,
    ) -> Result<Written, Errno> {
        let make = || {
            let write = Write4Args { stateid: self.stateid(open), offset: Offset(offset), stable, data };
            Some(Ops::new(&[put(object), ArgOp::Write(write)]))
        };
        let mut reply = self.compound(make).await?;
        reply.skip(&[OpNum4::PutFh]).ok_or(Errno::EIO)?;
        let ok = reply.next::<Write4Ok>(OpNum4::Write).ok_or(Errno::EIO)?;
        let is_stable = ok.committed != StableHow4::Unstable;
        Ok(Written { count: ok.count, stable: is_stable, verifier: u64::from_be_bytes(ok.writeverf) })
    }

    pub(super) async fn write_out(&self, out: &WriteOut) -> Result<Written, Errno> {
        let how = if out.to_disk { StableHow4::DataSync } else { StableHow4::Unstable };
        self.write((&out.object, out.open), (out.offset, &out.data), how).await
    }

    pub(super) async fn commit(&self, object: &Handle) -> Result<u64, Errno> {
        let commit = ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 });
        let mut reply = self.compound(|| Some(Ops::new(&[put(object), commit.clone()]))).await?;
        reply.skip(&[OpNum4::PutFh]).ok_or(Errno::EIO)?;
        let ok = reply.next::<Commit4Ok>(OpNum4::Commit).ok_or(Errno::EIO)?;
        Ok(u64::from_be_bytes(ok.writeverf))
    }

    /// Small files are read before anybody asks for them; now and then in vain.
    pub(super) async fn read_ahead(self: Rc<Self>, out: AheadOut) {
        let mut told = Some(Vec::new());
        for (object, length) in &out.files {
            let read = self.read((object, None), 0, *length).await.ok().map(|(data, _)| data);
            told.iter_mut().for_each(|told| told.push(read.clone()));
        }
        let told = told.filter(|_| !self.rng.borrow_mut().percent(15));
        self.touched(|machine, now| machine.ahead_done(&out, told, now));
    }
}
