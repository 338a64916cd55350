//! Files that can be changed under another handle. Our own deeds break no pledge, because whoever judges deeds has seen
//! them: under the handle that they were done to. Where the same file has another handle too, nobody would notice, so
//! nothing is promised there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Shared;

/// Exported directories of this process.
static ROOTS: Mutex<Vec<(PathBuf, Weak<Shared>)>> = Mutex::new(Vec::new());

/// Notes an exported directory for as long as it is served. Gives those that it overlaps, where nothing that was
/// promised before holds any more.
pub(super) fn enter(root: PathBuf, of: Weak<Shared>) -> Vec<Arc<Shared>> {
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    roots.retain(|(_, shared)| shared.strong_count() > 0);
    let overlapped = roots.iter().filter(|(other, _)| overlap(other, &root));
    let overlapped = overlapped.filter_map(|(_, shared)| shared.upgrade()).collect();
    roots.push((root, of));
    overlapped
}

fn overlap(one: &Path, other: &Path) -> bool {
    // Nearly always there is one, and its bytes tell sooner than its parts.
    let is_same = one.as_os_str() == other.as_os_str() || one == other;
    !is_same && (one.starts_with(other) || other.starts_with(one))
}

/// Whether an exported directory lies in another one, or another one in it. The same directory exported twice has the
/// same handles.
pub(super) fn has_another(root: &Path) -> bool {
    let roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    roots.iter().any(|(other, shared)| shared.strong_count() > 0 && overlap(other, root))
}
