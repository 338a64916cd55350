//! Clients in user space that nobody here wrote: libnfs (a C library) over 3 and 4.0, the Python package `nfs-rs`
//! over 3 and 4.1.

use crate::fixture::{scripts, serve};
use anyhow::{Result, ensure};
use holdfast_lab::{NfsVersion, ServerUnderTest, Trial, missing, process, suites};
use std::path::{Path, PathBuf};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("libnfs::v3", || libnfs(NfsVersion::V3)),
        Trial::new("libnfs::v4.0", || libnfs(NfsVersion::V40)),
        Trial::new("libnfs_tools::v3", || libnfs_tools(NfsVersion::V3)),
        Trial::new("nfs_rs::v3", || nfs_rs(NfsVersion::V3)),
        Trial::new("nfs_rs::v4.1", || nfs_rs(NfsVersion::V41)),
    ]
}

/// libnfs's URL; it takes the version's major number only, and means 4.0 by 4.
fn libnfs_url(server: &ServerUnderTest, version: NfsVersion, path: &str) -> String {
    let (port, export) = (server.port(), server.export());
    let major = if version == NfsVersion::V3 { 3 } else { 4 };
    format!("nfs://127.0.0.1{export}{path}?version={major}&nfsport={port}&mountport={port}")
}

fn libnfs(version: NfsVersion) -> Result<()> {
    let mut served = serve(256 << 20, &[])?;
    let work = tempfile::tempdir()?;
    let program = build_libnfs_client(work.path())?;
    let url = libnfs_url(&served.server, version, "/");
    let said = process::capture(&program.to_string_lossy(), &[&url]);
    served.server.check_alive()?;
    ensure!(said?.contains("all is well"));
    // What the client left, seen from behind the server.
    let left = std::fs::read(served.server.directory().join("kept"))?;
    ensure!(left.len() == 2_000 * 3 && left.iter().all(|&byte| byte == b'k'), "{} bytes left", left.len());
    Ok(())
}

fn build_libnfs_client(folder: &Path) -> Result<PathBuf> {
    missing::program("gcc", "gcc libc6-dev")?;
    missing::file(Path::new("/usr/include/nfsc/libnfs.h"), "apt-get install libnfs-dev")?;
    let (source, program) = (scripts().join("libnfs_client.c"), folder.join("libnfs_client"));
    let arguments = [
        "-O1".as_ref(),
        "-Wall".as_ref(),
        "-o".as_ref(),
        program.as_os_str(),
        source.as_os_str(),
        "-lnfs".as_ref(),
    ];
    process::capture("gcc", &arguments)?;
    Ok(program)
}

/// The packaged programs, as a person would use them: copy in, list, show.
fn libnfs_tools(version: NfsVersion) -> Result<()> {
    for name in ["nfs-cp", "nfs-ls", "nfs-cat"] {
        missing::program(name, "libnfs-utils")?;
    }
    let mut served = serve(256 << 20, &[])?;
    let work = tempfile::tempdir()?;
    let local = work.path().join("local");
    let content: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
    std::fs::write(&local, &content)?;
    let url = libnfs_url(&served.server, version, "/copied");
    process::capture("nfs-cp", &[&*local.to_string_lossy(), &url])?;
    ensure!(process::capture("nfs-cat", &[&url])? == content, "nfs-cat shows something else");
    let listing = process::capture("nfs-ls", &[libnfs_url(&served.server, version, "/")])?;
    ensure!(listing.contains("copied") && listing.contains(&content.len().to_string()), "{listing}");
    served.server.check_alive()
}

fn nfs_rs(version: NfsVersion) -> Result<()> {
    let python = suites::python()?;
    let mut served = serve(256 << 20, &[])?;
    let script = scripts().join("nfs_rs_client.py").to_string_lossy().into_owned();
    let (port, export) = (served.server.port().to_string(), served.server.export());
    let said = process::capture(&python.to_string_lossy(), &[&script, &port, &export, version.as_str()]);
    served.server.check_alive()?;
    ensure!(said?.contains("all is well"));
    Ok(())
}
