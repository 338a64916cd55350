//! What the cases share: the kernels at hand, and a server over a scratch file system.

use anyhow::Result;
use holdfast_lab::{FsType, Guest, GuestBuilder, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a server logs that is killed under its clients: also what it refuses them afterwards of what they had.
pub(crate) const LEVELS_OF_RESTARTS: (&str, &str) = ("HOLDFAST_LOG", "info,holdfast_nfs4=debug");

/// A kernel, or why it is not at hand.
pub(crate) struct KernelAtHand {
    label: &'static str,
    kernel: Result<Kernel, String>,
}

/// Debian's kernel, which every run needs, and the newest, which a test run may lack.
pub(crate) fn kernels() -> [KernelAtHand; 2] {
    [
        KernelAtHand { label: "debian61", kernel: Ok(Kernel::Debian61) },
        KernelAtHand { label: "newest", kernel: Kernel::newest().map_err(|lack| lack.to_string()) },
    ]
}

impl KernelAtHand {
    /// A case on this kernel; not run, with the reason, where the kernel is not at hand.
    pub(crate) fn trial<F>(&self, name: &str, body: F) -> Trial
    where
        F: Fn(&Kernel) -> Result<()> + Send + Sync + 'static,
    {
        let name = format!("{name}::{}", self.label);
        match self.kernel.clone() {
            Ok(kernel) => Trial::new(name, move || body(&kernel)),
            Err(lack) => Trial::not_run(name, lack),
        }
    }

    /// A long case, for those of `versions` that a run of this scale has time for on this kernel.
    pub(crate) fn long_trials<F>(&self, name: &str, versions: &[NfsVersion], body: F) -> Vec<Trial>
    where
        F: Fn(&Kernel, NfsVersion) -> Result<()> + Send + Sync + 'static,
    {
        let is_oldest = matches!(self.kernel, Ok(Kernel::Debian61));
        self.trials(name, Scale::from_env().versions(is_oldest, versions), body)
    }

    /// A case for each of `versions` on this kernel.
    pub(crate) fn trials<F>(&self, name: &str, versions: &[NfsVersion], body: F) -> Vec<Trial>
    where
        F: Fn(&Kernel, NfsVersion) -> Result<()> + Send + Sync + 'static,
    {
        let body = Arc::new(body);
        let each = |&version: &NfsVersion| {
            let body = Arc::clone(&body);
            self.trial(&format!("{name}::{version}"), move |kernel| body(kernel, version))
        };
        versions.iter().map(each).collect()
    }
}

/// A server over a fresh ext4 of its own. Fields drop in order: the server lets go before the unmounting.
pub(crate) struct Served {
    /// The server.
    pub(crate) server: ServerUnderTest,
    /// What it serves, a folder `share` of this file system.
    pub(crate) filesystem: LoopFs,
}

/// Starts a server over a fresh ext4 of `bytes`, with more arguments of `holdfast serve`.
pub(crate) fn serve(bytes: u64, arguments: &[&str]) -> Result<Served> {
    serve_on(FsType::Ext4, bytes, arguments)
}

/// As [`serve`], over another type of file system.
pub(crate) fn serve_on(fs_type: FsType, bytes: u64, arguments: &[&str]) -> Result<Served> {
    let filesystem = LoopFs::new(fs_type, bytes)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let server = ServerUnderTest::builder(&share).arguments(arguments).start()?;
    Ok(Served { server, filesystem })
}

/// The variables that every guest's script may use: how to reach the server, where the scripts are, and `env`.
fn guest_env(served: &Served, env: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = [
        ("PORT", served.server.port().to_string()),
        ("EXPORT", served.server.export()),
        ("SCRIPTS", scripts().to_string_lossy().into_owned()),
        ("SCALE", Scale::from_env().name().to_owned()),
    ];
    let given = env.iter().map(|&(name, value)| (name, value.to_owned()));
    own.into_iter().chain(given).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Runs `script` in a guest with the server's address and `env`; gives what it printed if it ended well, and
/// errors when the server died meanwhile.
pub(crate) fn run_in(
    guest: GuestBuilder,
    served: &mut Served,
    script: &str,
    env: &[(&str, &str)],
) -> Result<String> {
    let outcome = start_in(guest, served, script, env).and_then(Guest::wait);
    served.server.check_alive()?;
    outcome?.success()
}

/// Starts `script` in a guest with the server's address and `env`, without waiting.
pub(crate) fn start_in(
    guest: GuestBuilder,
    served: &Served,
    script: &str,
    env: &[(&str, &str)],
) -> Result<Guest> {
    let env = guest_env(served, env);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    guest.start(script, &env)
}

/// A guest with this kernel and this much time, tenfold in a soak run.
pub(crate) fn guest(kernel: &Kernel, memory: &str, timeout: Duration) -> GuestBuilder {
    let timeout = Scale::from_env().pick(timeout, timeout * 10);
    Guest::builder().kernel(kernel.clone()).memory(memory).timeout(timeout)
}

/// The folder of the scripts that guests run; they see it at the same path.
pub(crate) fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/scripts")
}
