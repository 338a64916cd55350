//! All exports as one tree, replaceable as a whole while calls go on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::{ExportId, Timestamp};
use holdfast_vfs::{Attrs, FsError, FsResult, Handle};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::export::Export;
use crate::handle::{Place, Sealer, WireHandle};
use crate::pseudo::{PseudoDir, PseudoNode, number_of};

/// What a handle from outside turned out to name.
#[derive(Clone, Debug)]
pub enum Object {
    /// A directory above the exports.
    Pseudo(u64),
    /// An object of an export.
    Export(Arc<Export>, Handle),
}

impl Object {
    /// Whether both name the same object of the same export.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pseudo(a), Self::Pseudo(b)) => a == b,
            (Self::Export(e, a), Self::Export(f, b)) => e.id == f.id && a == b,
            _ => false,
        }
    }
}

/// Why a set of exports cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// Two exports have the same path.
    #[error("two exports are named {0}: give one of them another path")]
    SamePath(String),
    /// One export lies below another.
    #[error(
        "export {inner} lies below export {outer}: clients could not tell which of the two they are in; \
             move one of them"
    )]
    Nested {
        /// The upper one.
        outer: String,
        /// The lower one.
        inner: String,
    },
    /// Two exports have the same number.
    #[error("exports {0} and {1} have the same id {2}: set another `id` for one of them")]
    SameId(String, String, ExportId),
}

struct Tree {
    exports: FxHashMap<ExportId, Arc<Export>>,
    dirs: FxHashMap<u64, PseudoDir>,
    since: Timestamp,
}

/// The exports and the directories above them.
pub struct Namespace {
    sealer: Sealer,
    tree: RwLock<Arc<Tree>>,
}

impl Namespace {
    /// A namespace of these exports; `now` becomes the pseudo directories' time.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub fn new(sealer: Sealer, exports: Vec<Arc<Export>>, now: Timestamp) -> Result<Self, NamespaceError> {
        Ok(Self { sealer, tree: RwLock::new(Arc::new(Tree::build(exports, now)?)) })
    }

    /// Replaces all exports at once. Handles into exports that are gone become stale.
    ///
    /// # Errors
    /// [`NamespaceError`]; nothing changes then.
    pub fn replace(&self, exports: Vec<Arc<Export>>, now: Timestamp) -> Result<(), NamespaceError> {
        let tree = Arc::new(Tree::build(exports, now)?);
        *self.tree.write() = tree;
        Ok(())
    }

    /// The id an export of this path gets when none is configured: a hash, so that it does not depend on the
    /// order of exports. Never 0.
    #[must_use]
    pub fn derived_id(path: &[Vec<u8>]) -> ExportId {
        ExportId(((number_of(path) >> 8) as u16).max(1))
    }

    /// The root of the tree: a pseudo directory, or the only export when it is mounted there.
    ///
    /// # Errors
    /// [`FsError::Stale`] when that export's directory vanished.
    pub fn root(&self) -> FsResult<Object> {
        let tree = self.tree();
        match tree.exports.values().find(|e| e.path.is_empty()) {
            Some(export) => Ok(Object::Export(export.clone(), export.backend.root()?)),
            None => Ok(Object::Pseudo(number_of(&[]))),
        }
    }

    /// What a handle from outside names.
    ///
    /// # Errors
    /// [`FsError::BadHandle`] for what this server never made, [`FsError::Stale`] for an export that is gone.
    pub fn open(&self, wire: &[u8]) -> FsResult<Object> {
        let place = self.sealer.open(wire).map_err(|_| FsError::BadHandle)?;
        let tree = self.tree.read();
        match place {
            Place::Pseudo(n) if tree.dirs.contains_key(&n) => Ok(Object::Pseudo(n)),
            Place::Pseudo(_) => Err(FsError::Stale),
            Place::Object(id, handle) => match tree.exports.get(&id) {
                Some(export) => Ok(Object::Export(export.clone(), handle)),
                None => Err(FsError::Stale),
            },
        }
    }

    /// The handle to send for an object.
    #[must_use]
    pub fn seal(&self, object: &Object) -> WireHandle {
        match object {
            Object::Pseudo(n) => self.sealer.seal(&Place::Pseudo(*n)),
            Object::Export(export, handle) => self.seal_in(export, handle),
        }
    }

    /// The handle to send for an object of an export.
    #[must_use]
    pub fn seal_in(&self, export: &Export, handle: &Handle) -> WireHandle {
        self.sealer.seal(&Place::Object(export.id, *handle))
    }

    /// A name in a pseudo directory, as far as the peer may know of it: exports that do not admit it are not
    /// there.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Stale`].
    pub fn lookup(&self, dir: u64, name: &[u8], peer: IpAddr) -> FsResult<Object> {
        let tree = self.tree();
        let dir = tree.dirs.get(&dir).ok_or(FsError::Stale)?;
        match dir.entries.get(name) {
            Some(node) if tree.is_visible(node, peer) => object_of(node),
            _ => Err(FsError::NotFound),
        }
    }

    /// The pseudo directory above a pseudo directory; [`FsError::NotFound`] above the root.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Stale`].
    pub fn parent(&self, dir: u64) -> FsResult<Object> {
        let tree = self.tree();
        let dir = tree.dirs.get(&dir).ok_or(FsError::Stale)?;
        if dir.parent == dir.number { Err(FsError::NotFound) } else { Ok(Object::Pseudo(dir.parent)) }
    }

    /// The pseudo directory that an export's root lies in; [`FsError::NotFound`] when it is the root itself.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn parent_of_export(&self, export: &Export) -> FsResult<Object> {
        match export.path.split_last() {
            Some((_, above)) => Ok(Object::Pseudo(number_of(above))),
            None => Err(FsError::NotFound),
        }
    }

    /// Attributes of a pseudo directory.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn attrs(&self, dir: u64) -> FsResult<Attrs> {
        let tree = self.tree();
        let dir = tree.dirs.get(&dir).ok_or(FsError::Stale)?;
        Ok(dir.attrs(tree.since))
    }

    /// The entries of a pseudo directory that the peer may see, in the order of their names. The position of an
    /// entry in the listing is its cookie less 3.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    pub fn entries(&self, dir: u64, peer: IpAddr) -> FsResult<Vec<(Vec<u8>, Object)>> {
        let tree = self.tree();
        let dir = tree.dirs.get(&dir).ok_or(FsError::Stale)?;
        let visible = dir.entries.iter().filter(|(_, node)| tree.is_visible(node, peer));
        // An export whose directory vanished is left out rather than spoiling the whole listing.
        Ok(visible.filter_map(|(name, node)| Some((name.clone(), object_of(node).ok()?))).collect())
    }

    /// The number that an export's root directory has in the pseudo directory it lies in: its
    /// `mounted_on_fileid`.
    #[must_use]
    pub fn mounted_on(export: &Export) -> u64 {
        number_of(&export.path)
    }

    /// Follows a path as MOUNT gives it, through pseudo directories to an export, and tells what remains below
    /// the export.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn resolve(&self, path: &[u8], peer: IpAddr) -> FsResult<(Object, Vec<Vec<u8>>)> {
        let mut parts = path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".");
        let mut at = self.root()?;
        while let Object::Pseudo(dir) = at {
            let Some(name) = parts.next() else { break };
            at = self.lookup(dir, name, peer)?;
        }
        Ok((at, parts.map(<[u8]>::to_vec).collect()))
    }

    /// All exports, by path.
    #[must_use]
    pub fn exports(&self) -> Vec<Arc<Export>> {
        let mut all: Vec<_> = self.tree().exports.values().cloned().collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Whether there is an export for a host at this address.
    #[must_use]
    pub fn serves(&self, peer: IpAddr) -> bool {
        self.tree().exports.values().any(|export| export.admits(peer, 0))
    }

    fn tree(&self) -> Arc<Tree> {
        self.tree.read().clone()
    }
}

fn object_of(node: &PseudoNode) -> FsResult<Object> {
    match node {
        PseudoNode::Directory(n) => Ok(Object::Pseudo(*n)),
        PseudoNode::Export(export) => Ok(Object::Export(export.clone(), export.backend.root()?)),
    }
}

impl Tree {
    fn build(exports: Vec<Arc<Export>>, since: Timestamp) -> Result<Self, NamespaceError> {
        let root = PseudoDir { number: number_of(&[]), parent: number_of(&[]), entries: BTreeMap::new() };
        let mut tree = Self { exports: FxHashMap::default(), dirs: FxHashMap::default(), since };
        tree.dirs.insert(root.number, root);
        check_paths(&exports)?;
        for export in exports {
            tree.hang(&export);
            if let Some(other) = tree.exports.insert(export.id, export.clone()) {
                return Err(NamespaceError::SameId(other.path_display(), export.path_display(), export.id));
            }
        }
        Ok(tree)
    }

    fn hang(&mut self, export: &Arc<Export>) {
        let Some((last, above)) = export.path.split_last() else { return };
        for depth in 0..above.len() {
            let (parent, number) = (number_of(&above[..depth]), number_of(&above[..=depth]));
            self.enter(parent, &above[depth], PseudoNode::Directory(number));
            let fresh = || PseudoDir { number, parent, entries: BTreeMap::new() };
            self.dirs.entry(number).or_insert_with(fresh);
        }
        self.enter(number_of(above), last, PseudoNode::Export(export.clone()));
    }

    fn enter(&mut self, dir: u64, name: &[u8], node: PseudoNode) {
        if let Some(dir) = self.dirs.get_mut(&dir) {
            dir.entries.insert(name.to_vec(), node);
        }
    }

    fn is_visible(&self, node: &PseudoNode, peer: IpAddr) -> bool {
        match node {
            // The port is judged at the first use of the export; here a name is at stake, not access.
            PseudoNode::Export(export) => export.admits(peer, 0),
            PseudoNode::Directory(n) => {
                self.dirs.get(n).is_some_and(|d| d.entries.values().any(|below| self.is_visible(below, peer)))
            }
        }
    }
}

fn check_paths(exports: &[Arc<Export>]) -> Result<(), NamespaceError> {
    let mut sorted: Vec<_> = exports.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    for pair in sorted.windows(2) {
        let [outer, inner] = pair else { continue };
        if outer.path == inner.path {
            return Err(NamespaceError::SamePath(outer.path_display()));
        }
        if inner.path.starts_with(&outer.path) {
            let (outer, inner) = (outer.path_display(), inner.path_display());
            return Err(NamespaceError::Nested { outer, inner });
        }
    }
    Ok(())
}
