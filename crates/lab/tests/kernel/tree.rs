//! A source tree, single files, large directories and two mounts at once, over every version and kernel.

use crate::fixture::{Served, guest, kernels, run_in, scripts, serve, serve_on};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial, missing};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The image is sparse; a soak run's holds several kernel trees.
const SHARE_BYTES: u64 = 2 << 30;
const SHARE_BYTES_SOAK: u64 = 24 << 30;

/// More than any guest's time.
const LIMIT: Duration = Duration::from_secs(360);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for at_hand in kernels() {
        trials.extend(at_hand.long_trials("tree", &NfsVersion::ALL, source_tree));
        trials.extend(at_hand.long_trials("files", &NfsVersion::ALL, files));
        trials.push(at_hand.trial("features::v4.2", v42_features));
        trials.push(at_hand.trial("ipv6::v4.2", over_ipv6));
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

/// A real one in a soak run, of every version on one of the kernels: all eight would take hours.
fn source_tree(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let is_of_the_oldest = matches!(version, NfsVersion::V40 | NfsVersion::V41);
    let is_whole = Scale::from_env() == Scale::Soak && (*kernel == Kernel::Debian61) == is_of_the_oldest;
    let (share_bytes, memory) = if is_whole { (SHARE_BYTES_SOAK, "3G") } else { (SHARE_BYTES, "1G") };
    let mut served = serve(share_bytes, &[])?;
    let (tarball, manifest) = if is_whole { real_source_tree()? } else { Default::default() };
    let (tarball, manifest) = (tarball.to_string_lossy(), manifest.to_string_lossy());
    let scale = if is_whole { Scale::Soak } else { Scale::Test };
    let env = [
        ("VERSION", version.as_str()),
        ("SCALE", scale.name()),
        ("TREE_TARBALL", &*tarball),
        ("TREE_MANIFEST", &*manifest),
    ];
    let script = "lab_mount $VERSION /mnt; python3 $SCRIPTS/run_checks.py check_tree -- /mnt; umount /mnt";
    run_in(guest(kernel, memory, Duration::from_secs(300)), &mut served, script, &env).map(drop)
}

fn files(kernel: &Kernel, version: NfsVersion) -> Result<()> {
    let mut served = serve(Scale::from_env().pick(SHARE_BYTES, SHARE_BYTES_SOAK), &[])?;
    let script = "lab_mount $VERSION /mnt/one nosharecache; lab_mount $VERSION /mnt/two nosharecache\n\
                  status=0\n\
                  for group in check_files check_directories check_two_mounts check_locks; do\n\
                  python3 $SCRIPTS/run_checks.py $group -- /mnt/one /mnt/two || status=1\n\
                  done\n\
                  umount /mnt/one /mnt/two\n\
                  exit $status";
    let env = [("VERSION", version.as_str())];
    run_in(guest(kernel, "1G", Duration::from_secs(300)), &mut served, script, &env).map(drop)
}

/// Over XFS, which has reflinks, holes and allocation.
fn v42_features(kernel: &Kernel) -> Result<()> {
    let mut served = serve_on(FsType::Xfs, SHARE_BYTES, &[])?;
    let script = "lab_mount $VERSION /mnt; python3 $SCRIPTS/run_checks.py check_v42 -- /mnt; umount /mnt";
    let guest = guest(kernel, "1G", Duration::from_secs(120));
    run_in(guest, &mut served, script, &[("VERSION", "4.2")]).map(drop)
}

/// A server that listens on both families is reached by the other one too.
fn over_ipv6(kernel: &Kernel) -> Result<()> {
    let filesystem = LoopFs::new(FsType::Ext4, 256 << 20)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let server = ServerUnderTest::builder(&share).listen_on("[::]").start()?;
    let mut served = Served { server, filesystem };
    let script = "mount -t nfs -o vers=4.2,proto=tcp6,port=$PORT [$SERVER6]:$EXPORT /mnt\n\
                  echo over six >/mnt/file; umount /mnt";
    run_in(guest(kernel, "512M", Duration::from_secs(60)), &mut served, script, &[])?;
    let written = std::fs::read_to_string(served.server.directory().join("file"))?;
    ensure!(written == "over six\n", "{written:?}");
    Ok(())
}

/// What a small x86 kernel is built without: drivers' code, other machines' code and device trees, tests; most of the tree's
/// bytes. 28,000 files in 4,500 directories are left.
const LEFT_OUT: &str = "--wildcards --exclude='*/drivers/*.[ch]' --exclude='*/sound/*.[ch]' --exclude='*/boot/dts/*' \
     --exclude='*/devicetree/bindings/*' --exclude='*/tools/testing/*' --exclude='*/arch/[amp]*/*.[chS]'";

/// Debian's kernel source as a plain tar file (a guest unpacks xz slowly), and the manifest of the same tree
/// unpacked on the host, both made once. A guest cannot walk the host's copy: each file of the host that it has
/// seen costs a descriptor of its kernel's process.
fn real_source_tree() -> Result<(PathBuf, PathBuf)> {
    const PACKED: &str = "/usr/src/linux-source-6.1.tar.xz";
    let packed = Path::new(PACKED);
    missing::file(packed, "apt-get install linux-source-6.1")?;
    let cache = holdfast_lab::kernel::target_dir().join("soak/linux-source-part");
    let (tarball, unpacked, manifest) =
        (cache.join("tree.tar"), cache.join("unpacked"), cache.join("manifest"));
    std::fs::create_dir_all(&unpacked)?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    if !manifest.exists() {
        let unpack = format!("xz -dc \"$1\" | tar -xpf - -C \"$2\" {LEFT_OUT}");
        sh(&unpack, &[packed, &unpacked])?;
        sh("tar -cf \"$1\" -C \"$2\" $(ls \"$2\")", &[&tarball, &unpacked])?;
        let partial = cache.join("manifest.partial");
        sh("python3 \"$1\" \"$2\" \"$3\"", &[&scripts().join("manifest.py"), &unpacked, &partial])?;
        std::fs::rename(&partial, &manifest)?;
    }
    Ok((tarball, manifest))
}

fn sh(script: &str, arguments: &[&Path]) -> Result<()> {
    let status =
        Command::new("sh").args(["-ec", script, "sh"]).args(arguments).status().context(script.to_owned())?;
    ensure!(status.success(), "{script} ended with {status}");
    Ok(())
}
