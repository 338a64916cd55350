//! The file-system exerciser `fsx`, with mappings, over 4.2.

use crate::fixture::{guest, kernels, run_in, serve_on};
use anyhow::Result;
use holdfast_lab::{FsType, Kernel, Scale, Trial, suites};
use std::time::Duration;

const OPERATIONS: &str = "20000";
const OPERATIONS_SOAK: &str = "300000";
/// The oldest guest makes some hundred operations a second: all of them would take longer than the rest of the soak.
const OPERATIONS_SOAK_OLDEST: &str = "100000";
/// A fixed seed: a failure can be run again.
const SEED: &str = "4209";

/// All that a 4.2 mount offers, mappings among it; the weights are relative.
const CONFIG: &str = "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
                      mapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
                      posix_fallocate = 1\npunch_hole = 2\nsendfile = 3\ncopy_file_range = 2\n";

const PATIENCE: Duration = Duration::from_secs(900);
const LIMIT: Duration = Duration::from_secs(960);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    kernels().iter().map(|at_hand| at_hand.trial("fsx::v4.2", exercised).limit(LIMIT)).collect()
}

fn exercised(kernel: &Kernel) -> Result<()> {
    let program = suites::program("fsx")?;
    let work = tempfile::tempdir()?;
    let config = work.path().join("fsx.toml");
    std::fs::write(&config, CONFIG)?;
    let mut served = serve_on(FsType::Xfs, 1 << 30, &[])?;
    let script =
        "lab_mount 4.2 /mnt; $PROGRAM -S $SEED -N $OPERATIONS -f $CONFIG -P $OUT /mnt/file; umount /mnt";
    let (program, config) = (program.to_string_lossy(), config.to_string_lossy());
    let in_soak = if *kernel == Kernel::Debian61 { OPERATIONS_SOAK_OLDEST } else { OPERATIONS_SOAK };
    let operations = Scale::from_env().pick(OPERATIONS, in_soak);
    let env = [("PROGRAM", &*program), ("CONFIG", &*config), ("OPERATIONS", operations), ("SEED", SEED)];
    // The oldest guest takes a minute where nobody else is busy.
    run_in(guest(kernel, "512M", PATIENCE), &mut served, script, &env).map(drop)
}
