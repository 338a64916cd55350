//! A mount with capabilities beside the kernel's own client of NFS, on one export: each sees what the other one did, is kept
//! out by its locks, and gives up what it was promised when the other one comes.

use crate::sides::Side;
use anyhow::{Result, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, Mount, NfsVersion, Scale, ServerUnderTest, Trial, Turn};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);
/// Of a case; those of NFSv3 have to wait for another one's turn at the port mapper.
const LIMIT: Duration = Duration::from_secs(480);
/// The kernel's client looks for names that others changed when its attributes of the directory are a second old
/// (`actimeo=1`), and asks again for a lock's range that is just being given back; on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// A recall, on a busy machine: less than a lease, after which the server would take what it promised.
const RECALLED: Duration = Duration::from_secs(9);
const LEASE_SECONDS: u32 = 30;

const ROUNDS: usize = 5;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let kernels =
        [("debian61", Ok(Kernel::Debian61)), ("newest", Kernel::newest().map_err(|lack| lack.to_string()))];
    let mut trials = Vec::new();
    for (label, kernel) in kernels {
        let mut add = |name: &str, version: NfsVersion, case: fn(&Neighbours) -> Result<()>| {
            let name = format!("neighbours::{name}::{version}::{label}");
            trials.push(match kernel.clone().map(Arc::new) {
                Ok(kernel) => Trial::new(name, move || Neighbours::meet(&kernel, version, case)).limit(LIMIT),
                Err(lack) => Trial::not_run(name, lack),
            });
        };
        for &version in Scale::from_env().versions(label == "debian61", &NfsVersion::ALL) {
            add("each_sees_what_the_other_did", version, one_truth);
            add("a_lock_of_the_one_keeps_the_other_out", version, locks);
            add("what_the_mount_keeps_to_itself_is_shown_to_who_looks", version, mount_recalled);
        }
        for version in [NfsVersion::V40, NfsVersion::V41, NfsVersion::V42] {
            add("the_mounts_write_recalls_a_delegation", version, delegation_recalled);
        }
    }
    trials
}

/// Both, on one export.
struct Neighbours {
    linux: Side,
    ours: Side,
    share: PathBuf,
}

/// What the guest does before it is asked: a mount at `/mnt/at`. With NFSv3 locks go by NLM.
const BEGIN: &str = "if [ $VERSION = 3 ]; then\n\
    > /etc/resolv.conf; hostname neighbour; mkdir -p /run/sendsigs.omit.d; rpcbind -w; rpc.statd --no-notify\n\
    fi\n\
    lab_mount $VERSION /mnt/at actimeo=1,lock\n\
    python3 $AGENT $OUT /mnt/at; umount /mnt/at";

impl Neighbours {
    fn meet(kernel: &Kernel, version: NfsVersion, case: fn(&Self) -> Result<()>) -> Result<()> {
        let _turn = if version == NfsVersion::V3 { Some(Turn::at("portmap")?) } else { None };
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let builder = ServerUnderTest::builder(&share).lease_seconds(LEASE_SECONDS);
        let builder = if version == NfsVersion::V3 { builder.with_portmap() } else { builder };
        let mut server = builder.start()?;
        let env = [
            ("PORT", server.port().to_string()),
            ("EXPORT", server.export()),
            ("VERSION", version.as_str().to_owned()),
            ("AGENT", Side::program().to_string_lossy().into_owned()),
        ];
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let guest = Guest::builder().kernel(kernel.clone()).memory("512M").timeout(PATIENCE);
        // As from another host: nothing is read and written without the server.
        let mount = Mount::new(server.port(), &server.export(), "nolocal")?;
        let linux = Side::of_guest(guest.start(BEGIN, &env)?);
        let met = Self { linux, ours: Side::here(&mount.path())?, share };
        // It has booted, and mounted.
        met.linux.shows(&["list", "."], "")?;
        case(&met).map_err(|error| error.context(format!("{}\n{}", mount.log(), server.log())))?;
        met.linux.end()?;
        met.ours.end()?;
        server.check_alive()?;
        mount.check_alive()
    }

    /// Who acts, and who looks: both ways.
    fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.linux, &self.ours), (&self.ours, &self.linux)]
    }
}

fn one_truth(both: &Neighbours) -> Result<()> {
    for round in 0..ROUNDS {
        for (number, (one, other)) in both.both_ways().into_iter().enumerate() {
            let (name, new) = (format!("f{round}-{number}"), format!("g{round}-{number}"));
            one.put(&name, "first")?;
            other.shows(&["read", &name], "first")?;
            other.ask(&["append", &name, " second"])?;
            one.shows(&["read", &name], "first second")?;
            one.ask(&["keep", &name, "third"])?;
            one.ask(&["settle", &name])?;
            other.shows(&["read", &name], "third")?;
            other.shows(&["size", &name], "5")?;
            one.ask(&["close", &name])?;
            one.ask(&["rename", &name, &new])?;
            other.shows_soon(&["read", &name], "ENOENT", SOON)?;
            other.shows_soon(&["list", "."], &new, SOON)?;
            other.shows(&["read", &new], "third")?;
            one.ask(&["remove", &new])?;
            other.shows_soon(&["read", &new], "ENOENT", SOON)?;
            other.shows_soon(&["list", "."], "", SOON)?;
        }
    }
    Ok(())
}

fn locks(both: &Neighbours) -> Result<()> {
    both.linux.put("f", "content")?;
    for (one, other) in both.both_ways() {
        let whole = |kind: &'static str| ["lock", "f", kind, "0", "0"];
        one.shows(&whole("write"), "granted")?;
        other.shows(&whole("write"), "refused")?;
        other.shows(&whole("read"), "refused")?;
        one.ask(&["unlock", "f"])?;
        other.shows_soon(&whole("write"), "granted", SOON)?;
        one.shows(&whole("read"), "refused")?;
        other.ask(&["unlock", "f"])?;
        one.shows_soon(&["lock", "f", "write", "0", "10"], "granted", SOON)?;
        other.shows(&["lock", "f", "write", "10", "10"], "granted")?;
        other.shows(&["lock", "f", "read", "5", "5"], "refused")?;
        one.shows(&["lock", "f", "read", "19", "1"], "refused")?;
        [one, other].into_iter().try_for_each(|side| side.ask(&["unlock", "f"]).map(drop))?;
        one.shows_soon(&whole("read"), "granted", SOON)?;
        other.shows(&whole("read"), "granted")?;
        other.shows(&whole("write"), "refused")?;
        [one, other].into_iter().try_for_each(|side| side.ask(&["unlock", "f"]).map(drop))?;
        one.shows_soon(&["flock", "f"], "granted", SOON)?;
        other.shows(&["flock", "f"], "refused")?;
        one.ask(&["unlock", "f"])?;
        other.shows_soon(&["flock", "f"], "granted", SOON)?;
        other.ask(&["unlock", "f"])?;
    }
    Ok(())
}

/// The mount's capability of a file's data, and of a directory's names, is recalled by the other one's look.
fn mount_recalled(both: &Neighbours) -> Result<()> {
    let (text, mut took) = ("x".repeat(3_000), Vec::new());
    for round in 0..ROUNDS {
        let (file, folder) = (format!("f{round}"), format!("d{round}"));
        both.ours.ask(&["keep", &file, &text])?;
        let asked = Instant::now();
        both.linux.shows(&["size", &file], "3000")?;
        let sized = asked.elapsed();
        both.linux.shows(&["read", &file], &text)?;
        took.push((sized, asked.elapsed()));
        ensure!(asked.elapsed() < RECALLED, "to be sent it took (the size, all of it) {took:.1?}");
        both.linux.ask(&["append", &file, "y"])?;
        both.ours.shows(&["read", &file], &format!("{text}y"))?;
        both.ours.ask(&["close", &file])?;
        both.ours.ask(&["make", &folder])?;
        both.ours.put(&format!("{folder}/a"), "a")?;
        both.ours.ask(&["rename", &format!("{folder}/a"), &format!("{folder}/b")])?;
        let asked = Instant::now();
        both.linux.shows(&["list", &folder], "b")?;
        ensure!(asked.elapsed() < RECALLED, "it took {:?} to be listed", asked.elapsed());
    }
    println!("     shown after (the size, all of it) {took:.1?}");
    Ok(())
}

/// The kernel's client reads without asking, as long as nobody writes; and what it closed, sent or not, is read.
fn delegation_recalled(both: &Neighbours) -> Result<()> {
    const OPENS: [&str; 3] = ["sent", "OPEN", "OPEN_NOATTR"];
    std::fs::write(both.share.join("read"), "before")?;
    (0..3).try_for_each(|_| both.linux.shows(&["read", "read"], "before"))?;
    let opened = both.linux.ask(&OPENS)?;
    both.linux.shows(&["read", "read"], "before")?;
    ensure!(both.linux.ask(&OPENS)? == opened, "it opened on the server what it should have been delegated");
    both.ours.shows(&["read", "read"], "before")?;
    let asked = Instant::now();
    both.ours.put("read", "by the mount")?;
    let wrote = asked.elapsed();
    ensure!(wrote < RECALLED, "the mount's write took {wrote:?}");
    both.linux.shows(&["read", "read"], "by the mount")?;
    ensure!(both.linux.ask(&["sent", "DELEGRETURN"])? != "0", "no delegation was given back");
    both.linux.ask(&["keep", "written", "by Linux"])?;
    both.linux.ask(&["close", "written"])?;
    let asked = Instant::now();
    both.ours.shows(&["read", "written"], "by Linux")?;
    both.ours.put("written", "by the mount")?;
    ensure!(asked.elapsed() < RECALLED, "it took {:?} to read and write", asked.elapsed());
    both.linux.shows(&["read", "written"], "by the mount")?;
    println!("     the write that recalled took {wrote:.1?}");
    Ok(())
}
