//! What a loss of power takes of a file system: what was under way and had not been answered.

use std::rc::Rc;

use holdfast_cache::NodeId;

use super::{ANEW, BASE, Deed, Ino, Tree};

impl Tree {
    /// What an operation has made is lost, and what is in it, or the name that it gave. Whether there is any.
    pub(in crate::oracle::mounts) fn loses(&mut self, (id, host): (Ino, usize), deed: &Deed) -> bool {
        if let Deed::Link { node, dir, name } = deed {
            return self.loses_name(host, *node, (*dir, name));
        }
        let made = |ino: &Ino| *ino != BASE && *ino % ANEW == id && !self.object(*ino).is_gone();
        let lost: Vec<_> = self.objects.keys().copied().filter(made).collect();
        lost.iter().for_each(|ino| self.lose(*ino));
        !lost.is_empty()
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
