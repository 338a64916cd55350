//! The file-system exerciser `fsx`, with mappings, over our mount.

use crate::fixture::Served;
use anyhow::Result;
use holdfast_lab::{Scale, Trial, process, suites};

const OPERATIONS: &str = "30000";
const OPERATIONS_SOAK: &str = "300000";
/// A fixed seed: a failure can be run again.
const SEED: &str = "4209";

/// All that the mount offers, mappings among it; the weights are relative.
const CONFIG: &str = "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
                      mapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
                      posix_fallocate = 1\npunch_hole = 2\nsendfile = 3\ncopy_file_range = 2\n";

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [("cached", ""), ("delegated", "cache=delegations"), ("uncached", "cache=none")];
    let trial = |(way, options): (&'static str, &'static str)| {
        Trial::new(format!("mount_fsx::{way}"), move || exercised(options))
    };
    ways.into_iter().map(trial).collect()
}

fn exercised(options: &str) -> Result<()> {
    let program = suites::program("fsx")?;
    let work = tempfile::tempdir()?;
    let config = work.path().join("fsx.toml");
    std::fs::write(&config, CONFIG)?;
    let served = Served::new()?;
    let mount = served.mount(options)?;
    let operations = Scale::from_env().pick(OPERATIONS, OPERATIONS_SOAK);
    let (config, good) = (config.to_string_lossy(), work.path().to_string_lossy());
    let file = mount.path().join("file");
    let file = file.to_string_lossy();
    let arguments = ["-S", SEED, "-N", operations, "-f", &config, "-P", &good, &file];
    let output = process::output(&program.to_string_lossy(), &arguments)?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "fsx: {}\n{}", output.status, process::tail(&said, 40));
    mount.check_alive()?;
    mount.unmount(&[])
}
