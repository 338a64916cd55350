//! Mounts that work without the server: where their journal lies, and how they begin when the server is not there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use holdfast_base::limits::{OFFLINE_BYTES_DEFAULT, OFFLINE_PART_OF_FREE};
use holdfast_base::{Entropy as _, SystemEntropy};
use holdfast_client::{Client, Options};
use holdfast_volume::cache::{Caller, Handle, Object, Settings};
use holdfast_volume::{Cancel, CapsServer, Kept, NfsServer, Volume, VolumeOptions};

use crate::connecting::{Connected, FLUSHERS, Heard, Told, root_of, settings};
use crate::options::{MountOptions, Patience};
use crate::source::Source;

/// How long an operation waits for a server that does not answer, where `soft` says nothing else.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the server is waited for at first, when there is something to begin without it.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a source's name that are kept in its journal's.
const NAME_BYTES_MAX: usize = 180;

/// The journal of a source, where none was named.
fn default_file(source: &Source) -> Result<PathBuf> {
    let name: String = source.to_string().chars().map(|c| if c == '/' { '-' } else { c }).collect();
    let start = name.len().saturating_sub(NAME_BYTES_MAX);
    let start = (start..name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(name.len());
    Ok(state_dir()?.join(format!("{}.journal", &name[start..])))
}

fn state_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/holdfast/mounts".into());
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    Ok(state
        .context("offline: neither XDG_STATE_HOME nor HOME is set: say offline=FILE")?
        .join("holdfast/mounts"))
}

/// How much of files' contents is kept where nobody says: a fixed room, but on a small or full disk no more than a part of
/// what is free, for others live there. What is kept already counts as free, so that it is as much in the next life.
fn default_bytes(kept: &Kept, file: &Path) -> u64 {
    let Some(Ok(room)) = file.parent().map(rustix::fs::statvfs) else { return 0 };
    bounded(room.f_bavail.saturating_mul(room.f_frsize).saturating_add(kept.contents_bytes()))
}

const fn bounded(free: u64) -> u64 {
    let part = free / OFFLINE_PART_OF_FREE;
    if part < OFFLINE_BYTES_DEFAULT { part } else { OFFLINE_BYTES_DEFAULT }
}

/// Connects; or begins with what was kept, when nobody answers.
///
/// # Errors
/// Why it can do neither.
pub(crate) fn connect(
    source: &Source,
    options: &MountOptions,
    mut wanted: Options,
    file: Option<&Path>,
) -> Result<Connected> {
    let file = file.map_or_else(|| default_file(source), |file| Ok(file.to_owned()))?;
    let mut chance = [0; 16];
    SystemEntropy::new()?.fill(&mut chance);
    let kept = Kept::open(&file, &source.to_string(), chance)?;
    let bytes = options.offline_mib.map_or_else(|| default_bytes(&kept, &file), |mib| u64::from(mib) << 20);
    let kept = kept.with_contents(bytes);
    wanted.soft = true;
    if options.patience == Patience::Hard {
        wanted.patience = PATIENCE;
    }
    let told = Arc::<Told>::default();
    let patience = if kept.has_past() { FIRST_PATIENCE } else { wanted.patience };
    let client = Client::begin(wanted, Arc::new(Heard::without_delegations(Arc::clone(&told))))?;
    let server = Arc::new(NfsServer::new(client));
    let begun = Beginning { source, options, kept, told: &told };
    match server.client().ready(patience, &Cancel::new()) {
        Ok(()) => begun.with(server),
        Err(error) if begun.kept.has_past() => {
            tracing::warn!(%error, "the server does not answer: beginning with what was kept");
            begun.without(server)
        }
        Err(error) => Err(error).with_context(|| {
            format!("no session with {}, and nothing was kept in {} yet", source.server, file.display())
        }),
    }
}

/// What a mount begins with.
struct Beginning<'a> {
    source: &'a Source,
    options: &'a MountOptions,
    kept: Kept,
    told: &'a Told,
}

impl Beginning<'_> {
    /// The server answers.
    fn with(self, server: Arc<NfsServer>) -> Result<Connected> {
        let cancel = Cancel::new();
        let own = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let root = root_of(&server, self.source, &own, &cancel)?;
        let caps = CapsServer::greet(&server, &root.handle, self.kept.incarnation, &cancel);
        let Some(caps) = caps.with_context(|| self.source.to_string())? else {
            bail!(
                "{}: offline: the server promises nothing of it; mount an export of a Holdfast server, or without this option",
                self.source
            )
        };
        let settings = settings(self.options, &server, Some(&caps));
        let connected = self.start(server, caps, Some(&root), settings)?;
        if let Some(caps) = &connected.caps {
            // With what was kept the server is to be compared first.
            caps.introduce(&cancel)?;
        }
        Ok(connected)
    }

    /// It does not.
    fn without(self, server: Arc<NfsServer>) -> Result<Connected> {
        let root = self.kept.root().context("what was kept has no root")?;
        let caps = CapsServer::unmet(&server, &root, self.kept.incarnation);
        let waiting = Arc::clone(&server);
        let connected = self.start(server, caps, None, Settings::full())?;
        std::thread::Builder::new().name("first-meeting".into()).spawn(move || meet(&waiting, &root))?;
        Ok(connected)
    }

    fn start(
        self,
        server: Arc<NfsServer>,
        caps: CapsServer,
        root: Option<&Object>,
        settings: Settings,
    ) -> Result<Connected> {
        let caps = Arc::new(caps);
        caps.use_same_host(self.options.same_host.clone());
        let source = self.source.to_string();
        let serving = Arc::clone(&caps) as _;
        // Who waits goes on when the server counts as away.
        let options = VolumeOptions { settings, flushers: FLUSHERS, patience: None };
        let volume = Volume::start_kept(root, self.kept, &source, serving, &options)?;
        // Nothing has come before this that it would have to be told.
        self.told.of_absence(&volume);
        self.told.of_losses(&volume);
        caps.serve(&volume)?;
        Ok(Connected { volume, server, caps: Some(caps), root_name: source })
    }
}

/// Learns what the server can do, once it is there.
fn meet(server: &NfsServer, root: &Handle) {
    let (cancel, cred) = (Cancel::new(), holdfast_client::Cred::own());
    loop {
        let met = server.client().ready(Duration::from_secs(3600), &cancel);
        let met = met.and_then(|()| {
            let root = holdfast_client::Handle::new(root.as_bytes());
            server.client().adopt_root(holdfast_client::Cx::new(&cred, &cancel), &root)
        });
        match met {
            Ok(()) | Err(holdfast_client::Error::Closed) => return,
            Err(error) => {
                tracing::debug!(%error, "not met yet");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_kept_within_a_fixed_room_and_a_part_of_what_is_free() {
        assert_eq!(bounded(1 << 40), OFFLINE_BYTES_DEFAULT);
        assert_eq!(bounded(800 << 20), 200 << 20);
        assert_eq!(bounded(0), 0);
    }

    #[test]
    fn each_source_has_a_journal_of_its_own_by_name() {
        let file = |source: &str| default_file(&source.parse().unwrap()).unwrap();
        assert_eq!(file("host:/data").file_name(), Some("host:-data.journal".as_ref()));
        assert_ne!(file("host:/data"), file("other:/data"));
        let long = format!("host:/{}", "x/".repeat(400));
        assert!(file(&long).file_name().unwrap().len() < 200);
    }
}
