//! Names in directories.

use holdfast_base::Cookie;
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, ChangeInfo4, Create4Args, Create4Ok, CreateType4, Entry4, Fattr4, Link4Args, Link4Ok,
    Lookup4Args, NfsStat4, OpNum4, ReadDir4Args, ReadDir4Ok, Remove4Args, Remove4Ok, Rename4Args, Rename4Ok,
    SpecData4, Verifier4,
};

use crate::run::Manner;
use crate::{Attributes, Client, CreateKind, Cx, Entry, Error, Handle, Listing, Node, Result, SetAttributes};

/// How often a name is looked up of which the object is gone each time: so quickly nobody replaces it, and a server is in
/// disorder.
const LOOKS_MAX: u32 = 32;

/// What CREATE made.
#[derive(Clone, Debug)]
pub struct Created {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, those asked for that it has. `None` when somebody has removed it since.
    pub attributes: Option<Attributes>,
    /// The directory before and after.
    pub dir: ChangeInfo4,
}

impl Client {
    /// The object of a name in a directory.
    ///
    /// # Errors
    /// Those of every operation; NOENT when there is none. STALE is of the directory: an object that has gone between
    /// LOOKUP and GETATTR, which may have had to wait for others, is looked for again.
    pub fn lookup(&self, cx: Cx<'_>, dir: &Handle, name: &[u8], want: Bitmap4) -> Result<Node> {
        for _ in 0..LOOKS_MAX {
            let found = self.inner().run(
                cx,
                &Manner::IDLE,
                |compound| {
                    compound.put(dir).op(&ArgOp::Lookup(Lookup4Args { objname: name })).node(want);
                    Ok(())
                },
                |answer| {
                    answer.put()?;
                    answer.ok(OpNum4::Lookup)?;
                    unless_gone(answer.node())
                },
            )?;
            if let Some(node) = found {
                return Ok(node);
            }
        }
        Err(Error::Nfs(NfsStat4::Stale))
    }

    /// The directory above.
    ///
    /// # Errors
    /// Those of every operation; NOENT at the server's root.
    pub fn lookup_parent(&self, cx: Cx<'_>, dir: &Handle, want: Bitmap4) -> Result<Node> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(dir).op(&ArgOp::Lookupp).node(want);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::Lookupp)?;
                answer.node()
            },
        )
    }

    /// Entries of a directory from a cookie on (0: from the beginning), in a reply of at most `max_bytes`. `.` and `..`
    /// are not among them.
    ///
    /// # Errors
    /// Those of every operation; BAD_COOKIE and NOT_SAME when the directory has to be read from its beginning again,
    /// TOOSMALL when not even one entry fits.
    pub fn readdir(
        &self,
        cx: Cx<'_>,
        dir: &Handle,
        (cookie, verifier): (u64, Verifier4),
        max_bytes: u32,
        want: Bitmap4,
    ) -> Result<Listing> {
        let max_bytes = max_bytes.min(self.limits().max_response.saturating_sub(512));
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(dir).op(&ArgOp::ReadDir(ReadDir4Args {
                    cookie: Cookie(cookie),
                    cookieverf: verifier,
                    dircount: max_bytes / 2,
                    maxcount: max_bytes,
                    attr_request: want,
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let reply = answer.record();
                let ok: ReadDir4Ok<'_> = answer.next(OpNum4::ReadDir)?;
                let entry = |entry: &Entry4<'_>| {
                    let attributes = Attributes::decode(&entry.attrs)?;
                    Ok(Entry { cookie: entry.cookie.0, name: reply.keep(entry.name), attributes })
                };
                let entries = ok.entries.iter().map(entry).collect::<Result<_>>()?;
                Ok(Listing { verifier: ok.cookieverf, entries, eof: ok.eof })
            },
        )
    }

    /// Makes anything but a file.
    ///
    /// # Errors
    /// Those of every operation; EXIST when the name is taken.
    pub fn create(
        &self,
        cx: Cx<'_>,
        (dir, name): (&Handle, &[u8]),
        what: CreateKind<'_>,
        set: &SetAttributes,
        want: Bitmap4,
    ) -> Result<Created> {
        let (mask, values) = set.encode(self.inner().facts.read().supported);
        let device = |major, minor| SpecData4 { major, minor };
        let objtype = match what {
            CreateKind::Directory => CreateType4::Dir,
            CreateKind::Symlink(text) => CreateType4::Lnk(text),
            CreateKind::Fifo => CreateType4::Fifo,
            CreateKind::Socket => CreateType4::Sock,
            CreateKind::Block(major, minor) => CreateType4::Blk(device(major, minor)),
            CreateKind::Character(major, minor) => CreateType4::Chr(device(major, minor)),
        };
        let (dir_info, handle, attributes) = self.inner().run(
            cx,
            &Manner::once(2),
            |compound| {
                let createattrs = Fattr4 { mask, values: &values };
                compound.put(dir).op(&ArgOp::Create(Create4Args { objtype, objname: name, createattrs }));
                compound.node(want);
                Ok(())
            },
            |answer| {
                answer.put()?;
                let ok: Create4Ok = answer.next(OpNum4::Create)?;
                let handle = answer.handle().ok();
                Ok((ok.cinfo, handle, answer.attributes().ok()))
            },
        )?;
        // It was made, whatever the look at it came to.
        let (handle, attributes) = match (handle, attributes) {
            (Some(handle), Some(attributes)) => (handle, Some(attributes)),
            (Some(handle), None) => {
                let attributes = unless_gone(self.getattr(cx, &handle, want))?;
                (handle, attributes)
            }
            (None, _) => {
                let node = self.lookup(cx, dir, name, want)?;
                (node.handle, Some(node.attributes))
            }
        };
        Ok(Created { handle, attributes, dir: dir_info })
    }

    /// Takes a name away: a file's, or an empty directory's.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn remove(&self, cx: Cx<'_>, dir: &Handle, name: &[u8]) -> Result<ChangeInfo4> {
        self.inner().run(
            cx,
            &Manner::once(2),
            |compound| {
                compound.put(dir).op(&ArgOp::Remove(Remove4Args { target: name }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<Remove4Ok>(OpNum4::Remove)?.cinfo)
            },
        )
    }

    /// Renames, over what the new name was; both directories before and after.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn rename(
        &self,
        cx: Cx<'_>,
        (from_dir, from): (&Handle, &[u8]),
        (to_dir, to): (&Handle, &[u8]),
    ) -> Result<(ChangeInfo4, ChangeInfo4)> {
        self.inner().run(
            cx,
            &Manner::once(4),
            |compound| {
                compound.put(from_dir).op(&ArgOp::SaveFh).put(to_dir);
                compound.op(&ArgOp::Rename(Rename4Args { oldname: from, newname: to }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::SaveFh)?;
                answer.put()?;
                let ok: Rename4Ok = answer.next(OpNum4::Rename)?;
                Ok((ok.source_cinfo, ok.target_cinfo))
            },
        )
    }

    /// Gives an object one more name; the directory before and after, and the object's attributes then, `None` when it has
    /// been removed since with all its names.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn link(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        (dir, name): (&Handle, &[u8]),
        want: Bitmap4,
    ) -> Result<(ChangeInfo4, Option<Attributes>)> {
        let (info, attributes) = self.inner().run(
            cx,
            &Manner::once(4),
            |compound| {
                compound.put(file).op(&ArgOp::SaveFh).put(dir);
                compound.op(&ArgOp::Link(Link4Args { newname: name }));
                compound.op(&ArgOp::RestoreFh).attributes(want);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.ok(OpNum4::SaveFh)?;
                answer.put()?;
                let ok: Link4Ok = answer.next(OpNum4::Link)?;
                let attributes = answer.ok(OpNum4::RestoreFh).and_then(|()| answer.attributes());
                Ok::<_, Error>((ok.cinfo, attributes.ok()))
            },
        )?;
        let attributes = match attributes {
            Some(attributes) => Some(attributes),
            None => unless_gone(self.getattr(cx, file, want))?,
        };
        Ok((info, attributes))
    }
}

/// Nothing of an object that is no more.
fn unless_gone<T>(seen: Result<T>) -> Result<Option<T>> {
    match seen {
        Err(Error::Nfs(NfsStat4::Stale)) => Ok(None),
        seen => seen.map(Some),
    }
}
