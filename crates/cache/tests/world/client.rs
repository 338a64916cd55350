//! A mount: a machine, what its kernel has cached, and descriptors of an application.

use std::collections::BTreeMap;

use holdfast_cache::*;

/// What the kernel may answer without asking.
#[derive(Debug, Default)]
pub struct Kernel {
    pub entries: BTreeMap<(NodeId, Vec<u8>), Option<NodeId>>,
    pub attrs: BTreeMap<NodeId, Attrs>,
    /// What a node is never changes.
    pub kinds: BTreeMap<NodeId, Kind>,
}

impl Kernel {
    pub fn apply(&mut self, invalidation: &Invalidation) {
        match &invalidation.what {
            Forget::Attrs(node) | Forget::Data(node) => {
                self.attrs.remove(node);
            }
            Forget::Entry(dir, name) => {
                self.entries.remove(&(*dir, name.as_bytes().to_vec()));
            }
        }
    }

    pub fn entry(&mut self, dir: NodeId, name: &[u8], entry: &Entry) {
        self.kinds.insert(entry.node, entry.attrs.kind);
        let key = (dir, name.to_vec());
        if entry.entry_valid {
            self.entries.insert(key, Some(entry.node));
        } else {
            self.entries.remove(&key);
        }
        self.attributes(entry.node, &Attributes { attrs: entry.attrs, valid: entry.attr_valid });
    }

    pub fn attributes(&mut self, node: NodeId, attributes: &Attributes) {
        if attributes.valid {
            self.attrs.insert(node, attributes.attrs);
        } else {
            self.attrs.remove(&node);
        }
    }
}

#[derive(Debug)]
pub struct Client {
    pub machine: Machine,
    pub kernel: Kernel,
    pub fds: BTreeMap<u8, (Fh, NodeId)>,
    /// Batches executed, whose results have not come yet.
    pub replies: Vec<(u64, Vec<MutationResult>)>,
    pub asks: u64,
}
