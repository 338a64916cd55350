//! Directories of many entries: listing them, and making one more.

use anyhow::{Context, Result, ensure};
use holdfast_base::Cookie;
use holdfast_wire::nfs3::{Fh3, Proc3, ReadDirPlus3Args, ReadDirPlus3Ok, Verifier3};
use holdfast_xdr::{Decode, Reader};
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

use super::figures::Sample;
use super::stand::{NAMES, Stand, Watched};
use super::{Curve, decades};
use crate::client::call::Caller;
use crate::client::target::{self, Handle, Target};
use crate::plan::{Op, Shape};
use crate::volume::Volume;

/// Bytes of one listing reply, as Linux asks for them.
const LISTING_BYTES: u32 = 64 << 10;
/// What a server has not listed since it began.
const FIRST: &str = "first listing";
/// Entries of the smallest directory.
const LEAST: u64 = 1000;

/// Makes the directories that are listed.
pub(super) fn prepare(volume: &Volume, most: u64) -> Result<()> {
    decades(LEAST, most)
        .into_iter()
        .try_for_each(|entries| fill(&volume.export().join(name(entries)), entries))
}

fn name(entries: u64) -> String {
    format!("entries-{entries}")
}

impl Stand<'_> {
    pub(super) fn directory(&self, most: u64) -> Result<Vec<Sample>> {
        let taken = self.list_and_create(most);
        // The next server finds the directories as this one did, however it went.
        for entries in decades(LEAST, most) {
            empty_of_created(&self.volume.export().join(name(entries)))?;
        }
        taken
    }

    fn list_and_create(&self, most: u64) -> Result<Vec<Sample>> {
        let server = self.start("directory")?;
        let mut samples = Vec::new();
        let target = Target::find(server.ports, 0)?;
        for entries in decades(LEAST, most) {
            let dir = target::find(server.ports, &[&name(entries)])?;
            for op in [FIRST, "listing again"] {
                let (memory, watched) = (server.memory_bytes()?, Watched::begin(&server)?);
                let (listed, elapsed) = list(server.ports.nfs, &dir)?;
                ensure!(listed == entries + 2, "{listed} entries were listed of {entries}");
                let taken = watched.end((listed, elapsed))?;
                let more = (server.memory_bytes()? - memory) as f64 / listed as f64;
                // The second listing is of what the first has left there.
                let memory_bytes = (op == FIRST).then_some(more);
                let sample = self.sample((Curve::Directory, op), entries, taken);
                samples.push(Sample { memory_bytes, ..sample });
            }
            let target = Target { changing: dir, ..target.clone() };
            let shape = Shape { connections: 4, depth: 8 };
            let taken = self.measure(&server, &target, (Op::Create, shape))?;
            samples.push(self.sample((Curve::Directory, "create"), entries, taken));
        }
        Ok(samples)
    }
}

/// Removes what CREATE left there.
fn empty_of_created(dir: &Path) -> Result<()> {
    for number in 0..NAMES {
        let path = dir.join(format!("c{number}"));
        if path.exists() {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// A new directory of so many empty files.
///
/// Errors when they cannot be made.
pub(crate) fn fill(dir: &Path, entries: u64) -> Result<()> {
    fs::create_dir(dir).with_context(|| dir.display().to_string())?;
    for number in 0..entries {
        File::create(dir.join(format!("entry-{number:07}")))?;
    }
    Ok(())
}

/// Lists a directory once, from its beginning to its end: entries, and how long it took.
///
/// Errors when a call fails.
pub(crate) fn list(server: SocketAddrV4, dir: &Handle) -> Result<(u64, Duration)> {
    let mut caller = Caller::connect(server)?;
    let (mut cookie, mut cookieverf): (Cookie, Verifier3) = (Cookie(0), [0; 8]);
    let (started, mut entries) = (Instant::now(), 0);
    loop {
        let (dircount, maxcount) = (LISTING_BYTES, LISTING_BYTES);
        let arguments = ReadDirPlus3Args { dir: Fh3(dir), cookie, cookieverf, dircount, maxcount };
        let results = caller.call(target::nfs3(Proc3::ReadDirPlus), &arguments)?;
        let mut r = Reader::new(&results);
        let status = r.u32()?;
        ensure!(status == 0, "READDIRPLUS answers with status {status}");
        let listing = ReadDirPlus3Ok::decode(&mut r)?;
        entries += listing.entries.len() as u64;
        if listing.eof {
            return Ok((entries, started.elapsed()));
        }
        cookie = listing.entries.last().context("a listing without end and entries")?.entry.cookie;
        cookieverf = listing.header.cookieverf;
    }
}
