//! A mount: a machine, what its kernel has cached, and descriptors of an application.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_cache::*;

/// What the kernel may answer without asking.
#[derive(Debug, Default)]
pub struct Kernel {
    pub entries: BTreeMap<(NodeId, Vec<u8>), Option<NodeId>>,
    pub attrs: BTreeMap<NodeId, Attrs>,
    /// What a node is never changes.
    pub kinds: BTreeMap<NodeId, Kind>,
    /// Where files end. It goes by this until attributes are told again: who reads before the end does not ask for them.
    pub sizes: BTreeMap<NodeId, u64>,
    /// Data of files; all have one page, with zeros behind the end.
    pub pages: BTreeMap<NodeId, Vec<u8>>,
    /// Names of directories, as they were listed.
    pub listings: BTreeMap<NodeId, BTreeSet<Vec<u8>>>,
    /// The directory that is being listed, and whether its listing was to be dropped meanwhile.
    pub listing: Option<(NodeId, bool)>,
    /// The page that is being read, and whether it was to be dropped meanwhile: who drops it waits until it is there.
    pub reading: Option<(NodeId, bool)>,
}

/// Longer than all files of these tests.
pub const PAGE_BYTES: usize = 1024;

impl Kernel {
    pub fn apply(&mut self, invalidation: &Invalidation) {
        match &invalidation.what {
            Forget::Attrs(node) => {
                self.attrs.remove(node);
            }
            Forget::Data(node) | Forget::Pages(node, ..) => {
                self.attrs.remove(node);
                self.pages.remove(node);
                if let Some((reading, is_dropped)) = &mut self.reading {
                    *is_dropped |= reading == node;
                }
            }
            Forget::Entry(dir, name) => {
                self.entries.remove(&(*dir, name.as_bytes().to_vec()));
            }
            Forget::Store(node, whole) => {
                let mut page = whole.data.to_vec();
                let size = self.sizes.entry(*node).or_default();
                *size = (page.len() as u64).max(*size);
                page.resize(PAGE_BYTES, 0);
                self.pages.insert(*node, page);
            }
            Forget::Listing(dir) => {
                self.attrs.remove(dir);
                self.listings.remove(dir);
                if let Some((listed, is_dropped)) = &mut self.listing {
                    *is_dropped |= listed == dir;
                }
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

    pub fn sized(&mut self, node: NodeId, size: u64) {
        self.sizes.insert(node, size);
        if let Some(page) = self.pages.get_mut(&node) {
            page.truncate(usize::try_from(size).unwrap());
            page.resize(PAGE_BYTES, 0);
        }
    }

    /// A page was read: what the server has less than was thought the file has not.
    pub fn read(&mut self, node: NodeId, mut data: Vec<u8>) -> Vec<u8> {
        let short = data.len() as u64;
        if self.sizes.get(&node).is_some_and(|size| *size > short) {
            self.sizes.insert(node, short);
        }
        data.resize(PAGE_BYTES, 0);
        if self.reading.take() == Some((node, false)) {
            self.pages.insert(node, data.clone());
        }
        data
    }

    /// Data was written: into the page, if it is still there.
    pub fn written(&mut self, node: NodeId, at: usize, data: &[u8]) {
        if let Some(page) = self.pages.get_mut(&node) {
            page[at..at + data.len()].copy_from_slice(data);
        }
        if !data.is_empty() {
            let end = (at + data.len()) as u64;
            let size = self.sizes.entry(node).or_default();
            *size = end.max(*size);
        }
        self.attrs.remove(&node);
    }

    pub fn attributes(&mut self, node: NodeId, attributes: &Attributes) {
        self.sized(node, attributes.attrs.size);
        if attributes.valid {
            self.attrs.insert(node, attributes.attrs);
        } else {
            self.attrs.remove(&node);
        }
    }
}

/// What was read ahead of files, in their order.
pub type Told = Vec<Option<bytes::Bytes>>;

/// Files that the server has made for creates to come.
pub type Pooled = Result<Vec<Spare>, Errno>;

#[derive(Debug)]
pub struct Client {
    pub machine: Machine,
    pub kernel: Kernel,
    /// What it is to forget, or may keep, and has not heard of yet.
    pub told: VecDeque<Invalidation>,
    /// The first of that is being done.
    pub is_storing: bool,
    pub fds: BTreeMap<u8, (Fh, NodeId)>,
    /// Those that write to the end.
    pub appending: BTreeSet<u8>,
    /// Files that were made without a name and have none yet.
    pub nameless: BTreeSet<NodeId>,
    /// Those whose data goes past the kernel's pages.
    pub direct: BTreeSet<Fh>,
    /// Nothing covers what the last operation has told.
    pub was_uncovered: bool,
    /// Batches executed, whose results have not come yet.
    pub replies: Vec<(Batch, Vec<MutationResult>)>,
    /// What was read before anybody asked for it, and has not come yet.
    pub reading: Vec<(AheadOut, Option<Told>)>,
    /// Files that were made for its creates, of which it has not heard yet.
    pub pooling: Vec<(PoolOut, Option<Pooled>)>,
    pub asks: u64,
}
