//! What clients have to hear of exports that a reload has changed: of those that it has moved to other servers, where what is held of
//! them here ends, and of those where callers act as others now.

use std::sync::Arc;

use holdfast_base::{ExportId, FileKey};
use holdfast_export::{Export, ExportOptions, Object};

use super::Programs;

/// The exports that were served here before, and are not any more.
pub(super) fn leaving(before: &[Arc<Export>], now: &[Arc<Export>]) -> Vec<Arc<Export>> {
    let moved = |of: &&Arc<Export>| now.iter().any(|fresh| fresh.id == of.id && fresh.is_moved());
    before.iter().filter(|of| !of.is_moved()).filter(moved).cloned().collect()
}

/// Whether callers act as others than before in an export that stays.
pub(super) fn acts_otherwise(before: &[Arc<Export>], now: &[Arc<Export>]) -> bool {
    let rights = |of: &ExportOptions| {
        let anonymous = (of.anonymous_uid, of.anonymous_gid);
        (of.squash, anonymous, of.looks_up_groups, of.is_read_only)
    };
    let is_another = |of: &&Arc<Export>| {
        let of_it = now.iter().find(|fresh| fresh.id == of.id);
        of_it.is_some_and(|fresh| rights(&fresh.options) != rights(&of.options))
    };
    before.iter().any(|of| is_another(&of))
}

/// Lets go of what is held there. Their sources are closed once the calls under way have ended.
pub(super) fn leave(programs: &Programs, leaving: &[Arc<Export>]) {
    let files = files_of(programs, leaving);
    for export in leaving {
        let held = files.iter().filter(|(_, of)| *of == export.id).count();
        tracing::info!(export = export.path_display(), held, "moved to another server");
    }
    let exports: Vec<_> = leaving.iter().map(|of| of.id).collect();
    programs.lockd().leave(&exports);
    programs.mounts_leave();
    programs.nfs4().moved_away(&files);
}

fn files_of(programs: &Programs, leaving: &[Arc<Export>]) -> Vec<(FileKey, ExportId)> {
    let roots: Vec<_> = leaving.iter().filter_map(|of| Some((of.backend.root().ok()?, of.id))).collect();
    let held = programs.nfs4().held_files();
    let mut files = Vec::new();
    for file in &held.open {
        let Some(handed) = file.hand_over() else { continue };
        let of = roots.iter().find(|(root, _)| *root == handed.root);
        files.extend(of.map(|(_, export)| (handed.handle.key(), *export)));
    }
    for (file, fh) in held.named.into_iter().chain(programs.held_by_mounts()) {
        if let Ok(Object::Export(export, _)) = programs.namespace().open(fh.as_bytes())
            && leaving.iter().any(|of| of.id == export.id)
        {
            files.push((file, export.id));
        }
    }
    // Of whom nothing else is held here, too, may go by a name for ever.
    let names = programs.names_of_mounts();
    files.extend(names.into_iter().filter(|(_, export)| leaving.iter().any(|of| of.id == *export)));
    files.sort_unstable();
    files.dedup();
    files
}
