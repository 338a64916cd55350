//! The table of nodes, which notes what may have been changed since the journal was last brought up to date.

use std::ops::Deref;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ids::NodeId;
use crate::node::Node;

/// All nodes. It is read as the map it is; whoever wants to change something goes through the methods here.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    map: FxHashMap<NodeId, Box<Node>>,
    /// Those that may differ from what the journal has; only where there is one.
    marked: Option<FxHashSet<NodeId>>,
}

impl Deref for Nodes {
    type Target = FxHashMap<NodeId, Box<Node>>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl Nodes {
    fn mark(&mut self, id: NodeId) {
        if let Some(marked) = &mut self.marked {
            marked.insert(id);
        }
    }

    pub(crate) fn get_mut(&mut self, id: &NodeId) -> Option<&mut Box<Node>> {
        self.mark(*id);
        self.map.get_mut(id)
    }

    pub(crate) fn insert(&mut self, id: NodeId, node: Box<Node>) {
        self.mark(id);
        self.map.insert(id, node);
    }

    pub(crate) fn remove(&mut self, id: &NodeId) -> Option<Box<Node>> {
        self.mark(*id);
        self.map.remove(id)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Box<Node>> {
        if let Some(marked) = &mut self.marked {
            marked.extend(self.map.keys());
        }
        self.map.values_mut()
    }

    /// From now on changes are noted; all that is there counts as changed.
    pub(super) fn follow(&mut self) {
        self.marked = Some(self.map.keys().copied().collect());
    }

    /// Nothing is noted any more.
    pub(super) fn unfollow(&mut self) {
        self.marked = None;
    }

    /// Those noted, each once.
    pub(super) fn take_marked(&mut self) -> Vec<NodeId> {
        self.marked.as_mut().map(|m| m.drain().collect()).unwrap_or_default()
    }

    /// Works on a node without noting it.
    pub(crate) fn quietly(&mut self, id: NodeId) -> Option<&mut Node> {
        self.map.get_mut(&id).map(|n| &mut **n)
    }
}

impl<'a> IntoIterator for &'a Nodes {
    type Item = (&'a NodeId, &'a Box<Node>);
    type IntoIter = std::collections::hash_map::Iter<'a, NodeId, Box<Node>>;

    fn into_iter(self) -> Self::IntoIter {
        self.map.iter()
    }
}
