//! What a loss of power takes of a file system: what was under way and had not been answered.

use std::collections::BTreeSet;
use std::rc::Rc;

use holdfast_cache::NodeId;

use super::{ANEW, BASE, Deed, Ino, Object, Tree};

/// What an operation has made of objects that were there: how each was before it, and after.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(in crate::oracle::mounts) struct Changes(Vec<(Ino, [Rc<Object>; 2])>);

impl Changes {
    /// What was changed.
    pub(in crate::oracle::mounts) fn objects(&self) -> impl Iterator<Item = Ino> {
        self.0.iter().map(|(ino, _)| *ino)
    }
}

impl Tree {
    /// Forgets what has no name, but for what a mount knows, or what may have its name back.
    pub(in crate::oracle::mounts) fn forgets_gone(&mut self, may_come_back: &BTreeSet<Ino>) {
        let nodes = &self.nodes;
        let is_known = |ino: &Ino| may_come_back.contains(ino) || nodes.values().any(|known| known == ino);
        self.objects.retain(|ino, object| !object.is_gone() || is_known(ino));
    }

    /// What has become of objects that were there `before`.
    pub(in crate::oracle::mounts) fn changes_since(&self, before: &Self) -> Changes {
        let change = |(ino, was): (&Ino, &Rc<Object>)| {
            let is = self.objects.get(ino)?;
            (was != is).then(|| (*ino, [Rc::clone(was), Rc::clone(is)]))
        };
        Changes(before.objects.iter().filter_map(change).collect())
    }

    /// Changes are lost, if nothing else has changed the same objects since, nor had them put on the disk: what comes later there
    /// is not durable before what came first. Whether they are.
    pub(in crate::oracle::mounts) fn loses_changes(&mut self, Changes(changes): &Changes) -> bool {
        let is_as_then = changes.iter().all(|(ino, [_, after])| self.objects.get(ino) == Some(after));
        if is_as_then {
            self.objects.extend(changes.iter().map(|(ino, [before, _])| (*ino, Rc::clone(before))));
        }
        is_as_then
    }

    /// What an operation has made is lost, and what is in it, or the name that it gave. Whether there is any.
    pub(in crate::oracle::mounts) fn loses(&mut self, (id, host): (Ino, usize), deed: &Deed) -> bool {
        if let Deed::Link { node, dir, name } = deed {
            return self.loses_name(host, *node, (*dir, name));
        }
        let lost: Vec<_> = self.made_by(id).collect();
        lost.iter().for_each(|ino| self.lose(*ino));
        !lost.is_empty()
    }

    /// Whether others have moved away what an operation has made: it is there, and not under the name that it was made under.
    pub(in crate::oracle::mounts) fn has_moved(&self, (id, host): (Ino, usize), deed: &Deed) -> bool {
        let (Deed::Create { dir, name, .. } | Deed::Mkdir { dir, name }) = deed else { return false };
        let named = self.of(host, *dir).and_then(|dir| self.object(dir).entries.get(name));
        self.made_by(id).any(|ino| named != Some(&ino))
    }

    /// What an operation has made and is there, once or anew.
    fn made_by(&self, id: Ino) -> impl Iterator<Item = Ino> {
        let made = move |(ino, object): &(&Ino, &Rc<Object>)| {
            **ino != BASE && **ino % ANEW == id && !object.is_gone()
        };
        self.objects.iter().filter(made).map(|(ino, _)| *ino)
    }

    fn loses_name(&mut self, host: usize, node: NodeId, (dir, name): (NodeId, &str)) -> bool {
        let (Some(ino), Some(dir)) = (self.of(host, node), self.of(host, dir)) else { return false };
        let is_there = self.object(dir).entries.get(name) == Some(&ino);
        if is_there {
            self.unname(host, dir, name);
        }
        is_there
    }

    fn lose(&mut self, ino: Ino) {
        let dirs: Vec<_> = self.objects.iter().filter(|(_, of)| of.is_dir).map(|(dir, _)| *dir).collect();
        dirs.into_iter().for_each(|dir| self.entries(dir).retain(|_, of| *of != ino));
        let lost = Rc::make_mut(self.objects.entry(ino).or_default());
        lost.nlink = 0;
        let within = std::mem::take(&mut lost.entries);
        within.into_values().for_each(|ino| self.lose(ino));
    }
}
