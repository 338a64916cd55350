//! Names: looking up, listing, making, removing.

use holdfast_cache::{
    Answer, CapSet, Errno, Grant, Handle, Kind, Listed, Making, Name, NewAttrs, Object, RenameMode,
};
use holdfast_client::{Attributes, CreateKind, Cx, Error, Node};
use holdfast_wire::nfs4::NfsStat4;

use super::attributes::{WANTED, attrs_of, brief_of, new_attributes};
use super::{NfsServer, errno, wire};

fn object(node: &Node) -> Result<Object, Error> {
    Ok(Object {
        handle: Handle::new(node.handle.as_bytes()),
        attrs: attrs_of(&node.attributes)?,
        grant: None,
    })
}

impl NfsServer {
    pub(super) fn look_up(&self, dir: &Handle, name: &Name, cx: Cx<'_>) -> Result<Answer, Error> {
        let (held, _) = self.watch(dir, cx);
        let found = match self.client.lookup(cx, &wire(dir), name.as_bytes(), WANTED) {
            Ok(node) => Some(object(&node)?),
            Err(Error::Nfs(NfsStat4::NoEnt)) => None,
            Err(error) => return Err(error),
        };
        Ok(Answer::Looked { found, dir: held, promise: None })
    }

    /// Capabilities are not to be had by NFS alone; the attributes are.
    pub(super) fn look_at(&self, items: &[(Handle, CapSet)], cx: Cx<'_>) -> Result<Answer, Error> {
        let nothing = Grant {
            caps: CapSet::NONE,
            seq: 0,
            plain: false,
            group_of_directory: false,
            listed: false,
            hands_on_none: false,
            changed_since: false,
        };
        let look = |handle: &Handle| -> Result<_, Errno> {
            let attributes = self.client.getattr(cx, &wire(handle), WANTED);
            let attrs =
                attributes.and_then(|attributes| attrs_of(&attributes)).map_err(|error| errno(&error))?;
            Ok((attrs, nothing))
        };
        Ok(Answer::Acquired { items: items.iter().map(|(handle, _)| look(handle)).collect() })
    }

    pub(super) fn list(
        &self,
        dir: &Handle,
        (cookie, verifier): (u64, u64),
        bytes_max: u32,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let want = Attributes::ENTRY;
        let (held, dir_attrs) = if cookie == 0 { self.watch(dir, cx) } else { (None, None) };
        let listing =
            self.client.readdir(cx, &wire(dir), (cookie, verifier.to_be_bytes()), bytes_max, want)?;
        let entries = listing.entries.iter().map(|entry| {
            let attributes = &entry.attributes;
            // An entry whose attributes cannot be told is listed all the same: it is looked up by itself.
            let object = match (&attributes.handle, attrs_of(attributes)) {
                (Some(handle), Ok(attrs)) => {
                    Some(Object { handle: Handle::new(handle.as_bytes()), attrs, grant: None })
                }
                _ => None,
            };
            let brief = object.as_ref().map_or_else(
                || brief_of(attributes),
                |object| (Some(object.attrs.kind), object.attrs.fileid),
            );
            Listed { name: Name::new(&entry.name), cookie: entry.cookie, object, brief }
        });
        Ok(Answer::Listed {
            entries: entries.collect(),
            eof: listing.eof,
            verifier: u64::from_be_bytes(listing.verifier),
            dir: held,
            dir_attrs,
        })
    }

    pub(super) fn read_link(&self, link: &Handle, cx: Cx<'_>) -> Result<Answer, Error> {
        Ok(Answer::Text { text: self.client.readlink(cx, &wire(link))? })
    }

    pub(super) fn make(
        &self,
        (dir, name): (&Handle, &Name),
        making: &Making,
        attrs: &NewAttrs,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let kind = match making {
            Making::Dir => CreateKind::Directory,
            Making::Symlink(text) => CreateKind::Symlink(text),
            Making::Node(Kind::Fifo, _) => CreateKind::Fifo,
            Making::Node(Kind::Socket, _) => CreateKind::Socket,
            Making::Node(Kind::Block, device) => CreateKind::Block(device.major, device.minor),
            Making::Node(Kind::Char, device) => CreateKind::Character(device.major, device.minor),
            Making::Node(Kind::File, _) => return self.make_file((dir, name), attrs, cx),
            Making::Node(..) => return Err(Error::Nfs(NfsStat4::Inval)),
        };
        let created =
            self.client.create(cx, (&wire(dir), name.as_bytes()), kind, &new_attributes(attrs), WANTED)?;
        let Some(attributes) = created.attributes else { return Ok(Answer::Done) };
        let attrs = attrs_of(&attributes)?;
        let object = Object { handle: Handle::new(created.handle.as_bytes()), attrs, grant: None };
        Ok(Answer::Created { object, open: None, made: true, dir: None, dir_attrs: None })
    }

    /// A regular file by `mknod(2)`: NFSv4 makes files by opening them alone.
    fn make_file(&self, at: (&Handle, &Name), attrs: &NewAttrs, cx: Cx<'_>) -> Result<Answer, Error> {
        let access = holdfast_cache::Access { read: false, write: true };
        match self.create(at, attrs, access, true, cx)? {
            Answer::Created { object, open, made, dir, dir_attrs } => {
                if let Some(open) = open {
                    self.close(open, cx)?;
                }
                Ok(Answer::Created { object, open: None, made, dir, dir_attrs })
            }
            other => Ok(other),
        }
    }

    pub(super) fn link(
        &self,
        file: &Handle,
        (dir, name): (&Handle, &Name),
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let (_, attributes) = self.client.link(cx, &wire(file), (&wire(dir), name.as_bytes()), WANTED)?;
        let Some(attributes) = attributes else { return Ok(Answer::Done) };
        let object = Object { handle: file.clone(), attrs: attrs_of(&attributes)?, grant: None };
        Ok(Answer::Created { object, open: None, made: true, dir: None, dir_attrs: None })
    }

    pub(super) fn remove(&self, (dir, name): (&Handle, &Name), cx: Cx<'_>) -> Result<Answer, Error> {
        self.client.remove(cx, &wire(dir), name.as_bytes())?;
        Ok(Answer::Gone { dir: None, dir_attrs: None })
    }

    pub(super) fn rename(
        &self,
        (from_dir, from): (&Handle, &Name),
        (to_dir, to): (&Handle, &Name),
        mode: RenameMode,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        // NFS has no words for the other modes; a look before the rename would not be one step with it.
        if mode != RenameMode::Replace {
            return Err(Error::Nfs(NfsStat4::Inval));
        }
        self.client.rename(cx, (&wire(from_dir), from.as_bytes()), (&wire(to_dir), to.as_bytes()))?;
        Ok(Answer::Gone { dir: None, dir_attrs: None })
    }
}
