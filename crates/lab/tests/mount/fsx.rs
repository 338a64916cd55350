//! The file-system exerciser `fsx`, with mappings, over our mount; and the same sort of work over two mounts by turns,
//! which `fsx` has no words for.

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result};
use holdfast_lab::{Scale, Trial, process, suites};

const OPERATIONS: &str = "30000";
const OPERATIONS_SOAK: &str = "300000";
const OPERATIONS_FEWER: &str = "5000";
/// A fixed seed: a failure can be run again.
const SEED: &str = "4209";

/// All that the mount offers, mappings among it; the weights are relative.
const CONFIG: &str = "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
                      mapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
                      posix_fallocate = 1\npunch_hole = 2\nsendfile = 3\ncopy_file_range = 2\n";

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [
        ("cached", ""),
        ("network", "nolocal"),
        ("delegated", "cache=delegations"),
        ("uncached", "cache=none"),
    ];
    let trial = |(way, options): (&'static str, &'static str)| {
        Trial::new(format!("mount_fsx::{way}"), move || exercised(options))
    };
    let by_turns = |(way, options): (&'static str, &'static str)| {
        Trial::new(format!("mount_fsx::two_mounts_by_turns_{way}"), move || by_turns(options))
    };
    ways.into_iter().map(trial).chain(ways.into_iter().map(by_turns)).collect()
}

fn by_turns(options: &str) -> Result<()> {
    let served = Served::new()?;
    let (one, other) = (served.mount(options)?, served.mount(options)?);
    // Where little is cached most of them are a round trip or more.
    let operations = match (options, Scale::from_env()) {
        ("cache=none" | "cache=delegations", Scale::Test) => OPERATIONS_FEWER,
        (_, scale) => scale.pick(OPERATIONS, OPERATIONS_SOAK),
    };
    let (first, second) = (one.path().join("file"), other.path().join("file"));
    let arguments = [&*first.to_string_lossy(), &*second.to_string_lossy(), operations, SEED];
    let script = format!("python3 - \"$@\" <<'E'\n{}\nE\n", include_str!("by_turns.py"));
    let said = run_in(&served.share(), &script, &arguments)
        .with_context(|| format!("{}\n{}", one.log(), other.log()))?;
    println!("{options}: {}", said.trim());
    one.check_alive()?;
    other.check_alive()?;
    one.unmount(&[])?;
    other.unmount(&[])
}

fn exercised(options: &str) -> Result<()> {
    let program = suites::program("fsx")?;
    let work = tempfile::tempdir()?;
    let config = work.path().join("fsx.toml");
    std::fs::write(&config, CONFIG)?;
    let served = Served::new()?;
    let mount = served.mount(options)?;
    let operations = match (options, Scale::from_env()) {
        // All of them took 200 s and more on a busy machine, where a case has 240.
        ("nolocal", Scale::Test) => OPERATIONS_FEWER,
        (_, scale) => scale.pick(OPERATIONS, OPERATIONS_SOAK),
    };
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
