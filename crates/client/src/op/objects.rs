//! Objects by handle: attributes, access, the mount's root.

use bytes::Bytes;
use holdfast_rpc::link::Cancel;
use holdfast_wire::nfs4::{
    Access4Args, Access4Ok, ArgOp, Attr, Bitmap4, Fattr4, Lookup4Args, NfsStat4,
    OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, OpNum4,
    OpenArguments4, ReadLink4Ok, SetAttr4Args, SetAttr4Res, Stateid4,
};
use holdfast_xdr::{Decode, Reader};
use std::time::Duration;

use crate::client::{Facts, Inner};
use crate::moved::Missing;
use crate::run::Manner;
use crate::{Attributes, Client, Cx, Error, FsStat, Handle, Node, OpenFile, Result, SetAttributes, Whose};

/// Servers that send on to others one after the other, before it counts as a circle.
const REFERRALS_MAX: usize = 8;

impl Client {
    /// The object at a path of names below the server's root, from one file system into the next as the server has
    /// them.
    ///
    /// # Errors
    /// Those of every operation; NOENT when a name is missing.
    pub fn root(&self, cx: Cx<'_>, path: &[u8]) -> Result<Node> {
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
        for _ in 0..REFERRALS_MAX {
            let moves = self.moves();
            match self.at(cx, &names) {
                Err(Error::Nfs(NfsStat4::Moved)) => {}
                found => return found,
            }
            if !self.inner().follow(cx, Missing::At(names.clone()), moves)? {
                break;
            }
            // The path there (RFC 8881 section 11.9).
            if let Some(went) = self.inner().went.lock().clone()
                && let Some(below) = names.strip_prefix(went.here.as_slice())
            {
                names = [&went.there, below].concat();
            }
        }
        Err(Error::Nfs(NfsStat4::Moved))
    }

    fn at(&self, cx: Cx<'_>, names: &[Vec<u8>]) -> Result<Node> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.op(&ArgOp::PutRootFh);
                for name in names {
                    compound.op(&ArgOp::Lookup(Lookup4Args { objname: name }));
                }
                compound.node(Attributes::STAT_BIRTH);
                Ok(())
            },
            |answer| {
                answer.ok(OpNum4::PutRootFh)?;
                names.iter().try_for_each(|_| answer.ok(OpNum4::Lookup))?;
                answer.node()
            },
        )
    }

    /// Attributes of an object.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn getattr(&self, cx: Cx<'_>, file: &Handle, want: Bitmap4) -> Result<Attributes> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).attributes(want);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.attributes()
            },
        )
    }

    /// Space and files of an object's file system.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn statfs(&self, cx: Cx<'_>, file: &Handle) -> Result<FsStat> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).attributes(FsStat::WANT);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.attributes_as(FsStat::decode)
            },
        )
    }

    /// Sets attributes, and brings those asked for as they are then. A size is set through the open given, or as
    /// anybody.
    ///
    /// # Errors
    /// Those of every operation; some may have been set all the same.
    pub fn setattr(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        with: Option<&OpenFile>,
        set: &SetAttributes,
        want: Bitmap4,
    ) -> Result<Attributes> {
        let inner = self.inner();
        let (mask, values) = set.encode(inner.facts.read().supported);
        let (attributes, ()) = inner.run(
            cx,
            &Manner::once(2),
            |compound| {
                let open = with.map(|file| file.open().as_ref());
                let stateid = match set.size {
                    Some(_) => inner.files.stateid_for_io(file, open, Whose::Unknown, true)?,
                    None => Stateid4::ANONYMOUS,
                };
                if stateid != Stateid4::ANONYMOUS {
                    compound.uses(file, stateid);
                }
                let obj_attributes = Fattr4 { mask, values: &values };
                compound.put(file).op(&ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes }));
                compound.attributes(want);
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.next::<SetAttr4Res>(OpNum4::SetAttr)?;
                Ok((answer.attributes().ok(), ()))
            },
        )?;
        attributes.map_or_else(|| self.getattr(cx, file, want), Ok)
    }

    /// Which of these rights (`ACCESS4_*`) the caller has.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn access(&self, cx: Cx<'_>, file: &Handle, rights: u32) -> Result<u32> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::Access(Access4Args { access: rights }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<Access4Ok>(OpNum4::Access)?.access)
            },
        )
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// Those of every operation; INVAL when it is none.
    pub fn readlink(&self, cx: Cx<'_>, file: &Handle) -> Result<Bytes> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::ReadLink);
                Ok(())
            },
            |answer| {
                answer.put()?;
                let link = answer.next::<ReadLink4Ok<'_>>(OpNum4::ReadLink)?;
                Ok(Bytes::copy_from_slice(link.link))
            },
        )
    }

    /// Which attributes the server has for an object.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn supported(&self, cx: Cx<'_>, file: &Handle) -> Result<Bitmap4> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).attributes(Attr::SupportedAttrs.into());
                Ok(())
            },
            |answer| {
                answer.put()?;
                answer.attributes_as(|fattr| Ok(Bitmap4::decode(&mut Reader::new(fattr.values))?))
            },
        )
    }

    /// Learns the limits of the file system at the mount's root: they may differ from those of the server's own root.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn adopt_root(&self, cx: Cx<'_>, root: &Handle) -> Result<()> {
        let facts = self.inner().facts_of(cx, Some(root))?;
        self.inner().note_facts(facts);
        *self.inner().root.lock() = Some(root.clone());
        self.inner().todo.change(|work| {
            (work.must_ask_for_others, work.is_awake) = (true, true);
        });
        Ok(())
    }
}

impl Inner {
    /// Learns what the server says of itself at its root.
    pub(crate) fn learn_facts(&self, cancel: &Cancel) -> Result<()> {
        let facts = self.facts_of(Cx { cred: &self.options.machine, cancel }, None)?;
        self.note_facts(facts);
        Ok(())
    }

    fn note_facts(&self, facts: Facts) {
        *self.facts.write() = facts;
        // The lease may be shorter than what was thought.
        self.todo.wake();
    }

    fn facts_of(&self, cx: Cx<'_>, root: Option<&Handle>) -> Result<Facts> {
        const WANT: Bitmap4 = Bitmap4::of(&[
            Attr::SupportedAttrs,
            Attr::LeaseTime,
            Attr::MaxRead,
            Attr::MaxWrite,
            Attr::SuppAttrExclCreat,
            Attr::OpenArguments,
        ]);
        self.run(
            cx,
            &Manner::IDLE,
            |compound| {
                match root {
                    Some(root) => compound.put(root),
                    None => compound.op(&ArgOp::PutRootFh),
                };
                compound.attributes(WANT);
                Ok(())
            },
            |answer| {
                answer.ok(if root.is_some() { OpNum4::PutFh } else { OpNum4::PutRootFh })?;
                answer.attributes_as(read_facts)
            },
        )
    }
}

fn read_facts(fattr: &Fattr4<'_>) -> Result<Facts> {
    let (mut facts, mut r) = (Facts::default(), Reader::new(fattr.values));
    let io = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).max(4096);
    for number in fattr.mask.iter() {
        match Attr::try_from(number)? {
            Attr::SupportedAttrs => facts.supported = Bitmap4::decode(&mut r)?,
            Attr::LeaseTime => facts.lease = Duration::from_secs(u64::from(r.u32()?.max(1))),
            Attr::MaxRead => facts.max_read = io(r.u64()?),
            Attr::MaxWrite => facts.max_write = io(r.u64()?),
            Attr::SuppAttrExclCreat => facts.exclusive = Bitmap4::decode(&mut r)?,
            Attr::OpenArguments => {
                let wants = OpenArguments4::decode(&mut r)?.share_access_want;
                facts.has_delegated_times = wants.contains(OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS);
                facts.has_open_xor = wants.contains(OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION);
            }
            _ => return Err(Error::Protocol("an attribute that was not asked for")),
        }
    }
    Ok(facts)
}
