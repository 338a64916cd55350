//! From configuration to exports: opens each source, and says what is wrong with what cannot be served.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::{ExportId, Timestamp};
use holdfast_export::{Export, LocalUse, Namespace, NamespaceError, Sealer};
use holdfast_manager::{Guarded, Manager};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::{Backend, FsId};

use crate::config::{Config, ExportConfig};
use crate::source::Source;

/// An export with what it was opened from.
pub(crate) struct Opened {
    /// Where it is written, for messages.
    stands: String,
    pub(crate) source: Source,
    pub(crate) export: Arc<Export>,
}

/// What makes write verifiers differ from one start to the next, and stay the same where nothing was lost.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    /// Counts the server's starts.
    pub(crate) epoch: u64,
    /// Of exports that another process handed over.
    pub(crate) verifiers: &'a [(u32, [u8; 8])],
    /// Who guards what is opened; nobody where nothing is going to be served.
    pub(crate) manager: Option<&'a Arc<Manager>>,
}

impl Opened {
    /// Whether another process can go on with what lies there.
    pub(crate) fn outlives_the_process(&self) -> bool {
        self.export.is_moved() || !matches!(self.source, Source::Memory)
    }
}

/// Opens all exports. Each keeps what it must remember in a directory of its own below `state_dir`. An export that
/// is among `present` with the same source and number keeps its backend: it holds what clients have open.
///
/// # Errors
/// A source that cannot be served, by its name.
pub(crate) fn open_all(
    config: &Config,
    state_dir: &Path,
    (present, start): (&[Opened], Start<'_>),
) -> Result<Vec<Opened>> {
    if config.exports.is_empty() {
        bail!("nothing to serve: name a directory, or an [[export]] in the configuration file (--config)");
    }
    let open =
        |export: &ExportConfig| open_one(export, state_dir, (present, start)).with_context(|| stands(export));
    let opened = config.exports.iter().map(open).collect::<Result<_>>()?;
    refuse_overlaps(&config.exports)?;
    Ok(opened)
}

/// A file below two exported directories has a handle in each, and so two identities here: byte-range locks of clients
/// of one meet those of the other as a local process's do, through the kernel, and not at all where `local = "none"`
/// keeps the kernel out of it.
fn refuse_overlaps(exports: &[ExportConfig]) -> Result<()> {
    let served = exports.iter().filter(|export| export.moved_to.is_empty());
    let directories = served.filter_map(|export| match &export.source {
        Source::Directory(dir) => Some((export, dir.canonicalize().ok()?)),
        Source::Memory => None,
    });
    let directories: Vec<_> = directories.collect();
    for (outer, outside) in &directories {
        for (inner, inside) in
            directories.iter().filter(|(_, dir)| dir != outside && dir.starts_with(outside))
        {
            let alone = [outer, inner].into_iter().find(|export| export.local == LocalUse::None);
            let Some(alone) = alone else { continue };
            bail!(
                "{}: local = \"none\" says that nobody but its clients uses it, and {} lies in {}, which is exported \
                 too: write local = \"lazy\" for both, or export one of them",
                stands(alone),
                inside.display(),
                outside.display()
            );
        }
    }
    Ok(())
}

/// Where an export is written, and under which words it is found there.
fn stands(config: &ExportConfig) -> String {
    let source = &config.source;
    match &config.file {
        Some(file) => format!("{}: the [[export]] with source = \"{source}\"", file.display()),
        None => format!("{source} of the command line"),
    }
}

/// What hinders exports from being served together, with where each of them is written.
///
/// # Errors
/// The one given, told so.
pub(crate) fn together<T>(outcome: Result<T, NamespaceError>, opened: &[Opened]) -> Result<T> {
    outcome.map_err(|error| {
        let (one, other) = match &error {
            NamespaceError::SamePath(path) => (path, path),
            NamespaceError::Nested { outer, inner } => (outer, inner),
            NamespaceError::SameId(one, other, _) => (one, other),
        };
        let is_meant = |of: &&Opened| [one, other].contains(&&of.export.path_display());
        let places: Vec<_> = opened.iter().filter(is_meant).map(|of| of.stands.as_str()).collect();
        let places = places.join("; ");
        anyhow::Error::from(error).context(places)
    })
}

fn open_one(
    config: &ExportConfig,
    state_dir: &Path,
    (present, start): (&[Opened], Start<'_>),
) -> Result<Opened> {
    let path = path_of(config)?;
    if !config.moved_to.is_empty() {
        return Ok(moved(config, path));
    }
    let id = config.id.map_or_else(|| Namespace::derived_id(&path), |id| ExportId(id.get()));
    let is_kept = |o: &&Opened| o.export.id == id && o.source == config.source && !o.export.is_moved();
    let kept = present.iter().find(is_kept);
    let backend = match kept {
        // What is promised about others' changes was decided when the directory was opened.
        Some(kept) if kept.export.options.local != config.local => {
            bail!(
                "export {}: `local` changed, which only a restart can put into force",
                kept.export.path_display()
            )
        }
        Some(kept) => Arc::clone(&kept.export.backend),
        None => backend_of(config, id, (state_dir, start))?,
    };
    let export = Arc::new(Export { id, path, backend, options: config.options() });
    Ok(Opened { stands: stands(config), source: config.source.clone(), export })
}

/// An export that is served elsewhere: its source is not opened, so that it may be elsewhere as well.
fn moved(config: &ExportConfig, path: Vec<Vec<u8>>) -> Opened {
    let id = config.id.map_or_else(|| Namespace::derived_id(&path), |id| ExportId(id.get()));
    // A root, and nothing in it (RFC 8881 section 11.2): no protocol gets any further.
    let backend: Arc<dyn Backend> = Arc::new(MemBackend::new(&MemOptions::system()));
    let export = Arc::new(Export { id, path, backend, options: config.options() });
    Opened { stands: stands(config), source: config.source.clone(), export }
}

fn backend_of(
    config: &ExportConfig,
    id: ExportId,
    (state_dir, start): (&Path, Start<'_>),
) -> Result<Arc<dyn Backend>> {
    let backend: Arc<dyn Backend> = match &config.source {
        Source::Directory(dir) => {
            let mut options = LocalOptions::new(state_dir.join("exports").join(id.to_string()));
            // Nothing on these threads touches files of the server's own between calls.
            options.keep_credentials = true;
            // The time of day alone may come again after a step of the clock, the epoch alone after a loss of the
            // state directory.
            options.verifier_seed ^= start.epoch.rotate_right(16);
            if let Some((_, verifier)) = start.verifiers.iter().find(|(of, _)| *of == u32::from(id.0)) {
                options.verifier_seed = u64::from_le_bytes(*verifier);
            }
            options.is_sole_writer = config.local == LocalUse::None;
            options.local = match config.local {
                LocalUse::None => holdfast_backend_local::LocalUse::None,
                LocalUse::Lazy => holdfast_backend_local::LocalUse::Lazy,
                LocalUse::Strict => holdfast_backend_local::LocalUse::Strict,
            };
            Arc::new(LocalBackend::open(dir, options)?)
        }
        Source::Memory => {
            let mut options = MemOptions::system();
            options.fsid = FsId { major: options.fsid.major, minor: u64::from(id.0) };
            // What is in memory belongs to whoever mounts it: there is no owner on disk to respect.
            options.root_mode = 0o1777;
            Arc::new(MemBackend::new(&options))
        }
    };
    Ok(match start.manager {
        Some(manager) => Guarded::new(backend, manager),
        None => backend,
    })
}

/// The path an export has when none is given: the source's last component.
fn path_of(config: &ExportConfig) -> Result<Vec<Vec<u8>>> {
    if let Some(path) = &config.path {
        return Ok(path.clone());
    }
    match &config.source {
        Source::Memory => Ok(vec![b"mem".to_vec()]),
        Source::Directory(dir) => {
            let whole = match dir.canonicalize() {
                Ok(whole) => whole,
                // Its name alone is needed.
                Err(_) if !config.moved_to.is_empty() => dir.clone(),
                Err(error) => return Err(error).with_context(|| cannot_serve(dir)),
            };
            let name = whole.file_name().with_context(|| {
                format!("{} has no name to be exported under: write {}:/PATH", dir.display(), dir.display())
            })?;
            Ok(vec![std::os::unix::ffi::OsStrExt::as_bytes(name).to_vec()])
        }
    }
}

/// A colon without a slash behind it is part of a name, which is seldom what is meant.
fn cannot_serve(dir: &Path) -> String {
    let shown = dir.display().to_string();
    let hint = match shown.rsplit_once(':') {
        Some((source, path)) if !path.contains('/') => {
            format!(" (an export path begins with /: write {source}:/{path})")
        }
        _ => String::new(),
    };
    format!("cannot serve {shown}{hint}")
}

/// Tries a configuration without serving it, and tells in a line each what would be served.
///
/// # Errors
/// What would keep it from being served.
pub fn check(config: &Config) -> Result<Vec<String>> {
    // New, of a name nobody could foresee, and gone at the end: checking is done as root, and leaves nothing behind.
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let opened = open_all(config, scratch.path(), (&[], Start { epoch: 0, verifiers: &[], manager: None }))?;
    let exports = opened.iter().map(|of| Arc::clone(&of.export)).collect();
    together(Namespace::new(Sealer::new([0; 16]), exports, Timestamp::default()), &opened)?;
    Ok(opened.iter().map(|of| describe(&of.export)).collect())
}

/// One line on an export, for people.
pub(crate) fn describe(export: &Export) -> String {
    let options = &export.options;
    let clients: Vec<_> = options.clients.iter().map(ToString::to_string).collect();
    let clients = if clients.is_empty() { "nobody".to_owned() } else { clients.join(", ") };
    if export.is_moved() {
        let to: Vec<_> = options.moved_to.iter().map(ToString::to_string).collect();
        return format!("export {} (id {}): moved to {}", export.path_display(), export.id, to.join(", "));
    }
    let access = if options.is_read_only { "read-only" } else { "read-write" };
    let durability = if options.is_sync { "sync" } else { "async" };
    format!("export {} (id {}): {access}, {durability}, for {clients}", export.path_display(), export.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_directory_keeps_to_itself_is_not_exported_a_second_time() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let export = |source: &Path, path: &str, local: &str| {
            let source = source.display();
            format!("[[export]]\nsource = \"{source}\"\npath = \"{path}\"\nlocal = \"{local}\"\n")
        };
        let checked = |outer: &str, within: &str| {
            let text = export(dir.path(), "/a", outer) + &export(&inner, "/b", within);
            check(&toml::from_str(&text).unwrap()).map(|lines| lines.len())
        };
        assert_eq!(checked("lazy", "strict").unwrap(), 2);
        for (outer, within) in [("none", "lazy"), ("lazy", "none")] {
            let error = checked(outer, within).unwrap_err().to_string();
            assert!(error.contains("local = \"none\"") && error.contains("inner"), "{error}");
        }
        let twice = export(&inner, "/a", "none") + &export(&inner, "/b", "none");
        assert_eq!(check(&toml::from_str(&twice).unwrap()).unwrap().len(), 2, "one identity in both");
    }
}
