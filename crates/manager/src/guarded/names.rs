//! Changes of names, and what they do to the objects behind the names.

use holdfast_base::FileKey;
use holdfast_state::Deed;
use holdfast_vfs::{
    AttrMask, CreateHow, CreateMode, Created, Cx, FsError, FsResult, Handle, Name, NewFile, Node, OpenMode,
    RemoveKind, Removed, RenameFlags, SetAttrs, is_gone, stands_for,
};

use super::{ADDS, Deeds, Guarded, REMOVES, deed_of_open};
use crate::entries::kinds_of_rename;
use crate::names::Passage;

impl Guarded {
    /// Makes a change of names in these directories. `deeds` says what it does; where it is to look for it (told by its
    /// argument), the names stay as they are until the change is made.
    pub(super) fn change_names<R>(
        &self,
        cx: &Cx<'_>,
        dirs: [FileKey; 2],
        deeds: impl Fn(bool) -> FsResult<Deeds>,
        mut change: impl FnMut() -> FsResult<R>,
    ) -> FsResult<R> {
        self.manager.without_conflict((cx.client, cx.wait), || {
            let passage = self.manager.names.enter(dirs, cx.wait)?;
            let deeds = deeds(matches!(passage, Passage::Careful(_)))?;
            // Others are to come in between, if they can.
            #[cfg(test)]
            std::thread::sleep(std::time::Duration::from_micros(20));
            let _entered = self.enter(&deeds, cx)?;
            Ok(change()?)
        })
    }

    /// The same of one name. What the change does is known but for the name, which may be promised by itself.
    pub(super) fn change_name<R>(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        deeds: &[(FileKey, Deed)],
        change: impl FnMut() -> FsResult<R>,
    ) -> FsResult<R> {
        let deeds = Deeds::of(deeds);
        let all = |is_careful| Ok(if is_careful { deeds.naming(self.changed(dir, name)) } else { deeds });
        self.change_names(cx, [dir.key(); 2], all, change)
    }

    pub(super) fn create_guarded(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        how: &CreateHow<'_>,
    ) -> FsResult<Created> {
        let key = dir.key();
        let deeds = |is_careful| self.deeds_of_create(cx, key, (dir, name, how, is_careful));
        let mut created = self.change_names(cx, [key; 2], deeds, || {
            self.tell_created(cx, (dir, name), self.inner.create(cx, dir, name, how))
        })?;
        if !created.is_new {
            let Node { handle, attrs } = created.node;
            created.node.attrs = self.as_held(cx, &handle, (attrs, how.want))?;
        }
        Ok(created)
    }

    pub(super) fn make_file_guarded(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        (set, open): (&SetAttrs, Option<OpenMode>),
    ) -> FsResult<NewFile> {
        self.change_name(cx, (dir, name), &[(dir.key(), ADDS)], || {
            if !self.manager.tells_entries() {
                return self.inner.make_file(cx, dir, name, (set, open));
            }
            // Who is told of the entry is told how its directory looks, too.
            let how = CreateHow { mode: CreateMode::Guarded, set, open, want: AttrMask::NONE };
            let created = self.tell_created(cx, (dir, name), self.inner.create(cx, dir, name, &how))?;
            Ok(NewFile { handle: created.node.handle, file: created.file })
        })
    }

    pub(super) fn remove_seen_guarded(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        // What lies behind the name is told by the caller, and looked at once, where it is removed.
        let deeds = [(dir.key(), REMOVES), (victim.key(), Deed::ChangeName)];
        self.change_name(cx, (dir, name), &deeds, || {
            if !self.manager.tells_entries() {
                return self.inner.remove_seen(cx, dir, name, kind, victim);
            }
            if !stands_for(self.inner.as_ref(), cx, (dir, name), victim)? {
                return Ok(None);
            }
            let removed = self.inner.remove(cx, dir, name, kind)?;
            self.tell_removed(cx, (dir, name), &removed);
            Ok(Some(Removed { is_gone: is_gone(self.inner.as_ref(), cx, victim) }))
        })
    }

    fn deeds_of_create(
        &self,
        cx: &Cx<'_>,
        dir_key: FileKey,
        (dir, name, how, is_careful): (&Handle, Name<'_>, &CreateHow<'_>, bool),
    ) -> FsResult<Deeds> {
        let may_make = how.mode != CreateMode::MustExist;
        // A file that must be new is never one that was promised; one that the same request made before is opened, and
        // for opens the state engine decides once more.
        let may_be_there = match how.mode {
            CreateMode::Unchecked | CreateMode::MustExist => true,
            CreateMode::Guarded => false,
            // Where nothing may be made, what the same request made before is known again all the same.
            CreateMode::Exclusive(_) => self.manager.awaits_capabilities(),
        };
        let there = if is_careful && may_be_there { self.find(cx, (dir, name))? } else { None };
        let Some(there) = there.map(|there| there.key()) else {
            return Ok(match (may_make, is_careful) {
                (true, true) => Deeds::of(&[(dir_key, ADDS)]).naming(self.changed(dir, name)),
                (true, false) => Deeds::of(&[(dir_key, ADDS)]),
                (false, _) => Deeds::of(&[(dir_key, Deed::LookEntries)]),
            });
        };
        let is_cut = how.mode == CreateMode::Unchecked && how.set.size == Some(0);
        let mut deeds = Deeds::of(&[(dir_key, Deed::LookEntries)]);
        deeds.0[1] = is_cut.then_some((there, Deed::Truncate));
        deeds.0[2] = how.open.map(|mode| (there, deed_of_open(mode)));
        Ok(deeds)
    }

    pub(super) fn deeds_of_rename(
        &self,
        cx: &Cx<'_>,
        dirs: [FileKey; 2],
        (from, to): ((&Handle, Name<'_>), (&Handle, Name<'_>)),
        (flags, is_careful): (RenameFlags, bool),
    ) -> FsResult<Deeds> {
        let [leaves, comes] = kinds_of_rename(dirs, flags).map(Deed::ChangeEntries);
        let mut deeds = Deeds::of(&[(dirs[0], leaves), (dirs[1], comes)]);
        if is_careful {
            let name = |object: Option<Handle>| object.map(|object| (object.key(), Deed::ChangeName));
            deeds.0[2] = name(self.find(cx, from)?);
            deeds.0[3] = name(self.find(cx, to)?);
            deeds = deeds.naming(self.changed(from.0, from.1)).naming(self.changed(to.0, to.1));
        }
        Ok(deeds)
    }

    pub(super) fn deeds_of_remove(
        &self,
        cx: &Cx<'_>,
        dir_key: FileKey,
        (dir, name, is_careful): (&Handle, Name<'_>, bool),
    ) -> FsResult<Deeds> {
        let mut deeds = Deeds::of(&[(dir_key, REMOVES)]);
        if is_careful {
            deeds.0[1] = self.find(cx, (dir, name))?.map(|victim| (victim.key(), Deed::ChangeName));
            deeds = deeds.naming(self.changed(dir, name));
        }
        Ok(deeds)
    }

    /// A name that is changed, as it may be promised by itself.
    pub(super) fn changed(&self, dir: &Handle, name: Name<'_>) -> FileKey {
        self.manager.name_key(dir, name).name
    }

    /// What lies behind a name. Who may not look it up may not change it either, and hears so from the change itself.
    fn find(&self, cx: &Cx<'_>, (dir, name): (&Handle, Name<'_>)) -> FsResult<Option<Handle>> {
        match self.inner.lookup(cx, dir, name, AttrMask::NONE) {
            Ok(node) => Ok(Some(node.handle)),
            Err(error @ (FsError::WouldBlock | FsError::Delay | FsError::Io)) => Err(error),
            // Nothing is there, or nothing that the change could reach.
            Err(_) => Ok(None),
        }
    }
}
