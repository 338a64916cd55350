//! Which kernel a guest boots: Debian's packaged one, or a newer one that was built or found.

use crate::missing::{self, Missing};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version that [`Kernel::newest`] stands for.
pub const NEWEST: &str = "7.3";
const DEBIAN: &str = "/usr/bin/linux.uml";
const DEBIAN_MODULES: &str = "/usr/lib/uml/modules";

/// A User Mode Linux kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    /// Debian's package `user-mode-linux` (6.1 in Debian 12): what installed clients are like.
    Debian61,
    /// A kernel with all it needs built in and `seccomp=on`, such as `scripts/build-kernel` makes.
    At(PathBuf),
}

impl Kernel {
    /// The newest kernel, where one is at hand: `HOLDFAST_KERNEL_NEW`, the cache `target/kernels/`, or a packed
    /// one in a folder `shared/kernel-client` beside the checkout, which is unpacked into the cache.
    ///
    /// Errors with [`Missing`] when there is none.
    pub fn newest() -> Result<Self, Missing> {
        let remedy = format!("make kernel builds Linux {NEWEST}; or set HOLDFAST_KERNEL_NEW");
        if let Some(given) = std::env::var_os("HOLDFAST_KERNEL_NEW") {
            let path = PathBuf::from(given);
            return missing::file(&path, "HOLDFAST_KERNEL_NEW names it").map(|()| Self::At(path));
        }
        let cached = cache_dir().join(format!("linux-{NEWEST}"));
        if cached.is_file() {
            return Ok(Self::At(cached));
        }
        let packed = checkout().join(format!("../shared/kernel-client/linux-{NEWEST}.xz"));
        if packed.is_file() && unpack(&packed, &cached).is_ok() {
            return Ok(Self::At(cached));
        }
        Err(Missing::new(format!("a Linux {NEWEST} guest kernel"), remedy))
    }

    /// A short name for test names and messages.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Debian61 => "debian61",
            Self::At(_) => "newest",
        }
    }

    /// The kernel's binary.
    pub(crate) fn binary(&self) -> Result<PathBuf, Missing> {
        let path = match self {
            Self::Debian61 => PathBuf::from(DEBIAN),
            Self::At(path) => path.clone(),
        };
        missing::file(&path, "apt-get install user-mode-linux").map(|()| path)
    }

    /// Its module directory; none where everything is built in.
    pub(crate) fn modules(&self) -> Result<Option<PathBuf>> {
        if matches!(self, Self::At(_)) {
            return Ok(None);
        }
        let newest = std::fs::read_dir(DEBIAN_MODULES)
            .with_context(|| format!("reading {DEBIAN_MODULES}"))?
            .flatten()
            .max_by_key(|entry| entry.metadata().and_then(|meta| meta.modified()).ok());
        Ok(Some(newest.with_context(|| format!("no modules in {DEBIAN_MODULES}"))?.path()))
    }

    /// Kernel parameters that this kernel wants. Seccomp mode starts processes twice as fast; Debian's has none.
    pub(crate) fn parameters(&self) -> &'static str {
        match self {
            Self::Debian61 => "",
            Self::At(_) => "seccomp=on",
        }
    }

    /// Whether it needs the shim that pads the register state (see `assets/xstate-shim.c`).
    pub(crate) fn wants_xstate_shim(&self) -> bool {
        matches!(self, Self::Debian61)
    }
}

/// The folder of the checkout this crate was built from.
pub fn checkout() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// The build folder: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout().join("target"), PathBuf::from)
}

fn cache_dir() -> PathBuf {
    target_dir().join("kernels")
}

/// Unpacks under another name first, so that two runs at once never boot half a kernel.
fn unpack(packed: &Path, cached: &Path) -> Result<()> {
    std::fs::create_dir_all(cache_dir())?;
    let partial = tempfile::NamedTempFile::new_in(cache_dir())?;
    let status = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .stdin(File::open(packed)?)
        .stdout(Stdio::from(partial.reopen()?))
        .status()
        .context("starting xz")?;
    anyhow::ensure!(status.success(), "xz could not unpack {}", packed.display());
    std::fs::set_permissions(partial.path(), PermissionsExt::from_mode(0o755))?;
    partial.persist(cached)?;
    Ok(())
}
