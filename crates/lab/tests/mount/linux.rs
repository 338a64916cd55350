//! Linux beside our mount: its server, of which the mount holds delegations of files and directories, and its client, with
//! which the mount shares a server.

use crate::delegated::{MANY, recalled_between};
use crate::everyday::{DATA, GIT, MAKE, NAMES, SQLITE};
use crate::fixture::{Served, run_in};
use crate::two::{BYTES, SEEN};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::{Guest, Kernel, Mount, Trial};
use std::time::Duration;

/// A case with a kernel.
type Case = fn(&Kernel) -> Result<()>;

/// The cases: all of the newest kernel, whose server delegates directories, too.
pub(crate) fn trials() -> Vec<Trial> {
    let cases: [(&str, Case); 5] = [
        ("linux::its_server_is_read_again_without_asking", read_again),
        ("linux::everyday_work_on_its_server", everyday),
        ("linux::two_mounts_of_its_server_see_one_truth", one_truth),
        ("linux::its_server_recalls_and_gets_what_waited", recalled),
        ("linux::its_client_and_a_mount_with_delegations_see_one_truth", its_client),
    ];
    let kernel = Kernel::newest().map_err(|lack| lack.to_string());
    let trial = |(name, case): (&'static str, Case)| match kernel.clone() {
        Ok(kernel) => Trial::new(name, move || case(&kernel)),
        Err(lack) => Trial::not_run(name, lack),
    };
    cases.into_iter().map(trial).collect()
}

const PATIENCE: Duration = Duration::from_secs(180);

/// The kernel's server over an ext4 of its own. What `exportfs` and `mountd` would answer is told it beforehand: who may,
/// what (without squashing, as NFSv4's root, from any port), and which handle that is.
const SERVE: &str = "
truncate -s 200M /tmp/image; mkfs.ext4 -q /tmp/image; mkdir /tmp/srv; mount -o loop /tmp/image /tmp/srv
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4leasetime; echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo \"nfsd $SERVER 2147483647 host\" >/proc/net/rpc/auth.unix.ip/channel
echo \"nfsd ::ffff:$SERVER 2147483647 host\" >/proc/net/rpc/auth.unix.ip/channel 2>/dev/null || true
echo 'host /tmp/srv 2147483647 9234 65534 65534 0' >/proc/net/rpc/nfsd.export/channel
echo 'host 1 \\x00000000 2147483647 /tmp/srv' >/proc/net/rpc/nfsd.fh/channel
echo '-2 -3 +4 +4.1 +4.2' >/proc/fs/nfsd/versions
echo 'tcp 2049' >/proc/fs/nfsd/portlist
echo 4 >/proc/fs/nfsd/threads
echo Y >/proc/fs/nfsd/v4_end_grace || true
chmod 777 /tmp/srv; mkdir /tmp/srv/d; cd /tmp/srv/d
";

/// Linux's server, with this done in a directory `d` of it.
fn served(kernel: &Kernel, prepared: &str) -> Result<Guest> {
    let script =
        format!("{SERVE}\n{prepared}\ncd /; echo serving; lab_wait done; echo 0 >/proc/fs/nfsd/threads");
    let guest =
        Guest::builder().kernel(kernel.clone()).memory("512M").timeout(PATIENCE).start(&script, &[])?;
    guest.wait_for("serving\n", PATIENCE)?;
    Ok(guest)
}

/// Linux's server, which begins anew when it is told to restart: without what it knew of its clients, and with a
/// grace as long as its lease.
pub(crate) fn served_again(kernel: &Kernel) -> Result<Guest> {
    // What it was told it forgets with its last thread.
    let told: Vec<_> = SERVE.lines().filter(|line| line.contains("/channel")).collect();
    let script = format!(
        "{SERVE}\ncd /; echo serving; lab_wait restart; echo 0 >/proc/fs/nfsd/threads
{}\necho 'tcp 2049' >/proc/fs/nfsd/portlist; echo 4 >/proc/fs/nfsd/threads; echo serving again
lab_wait done; echo 0 >/proc/fs/nfsd/threads",
        told.join("\n")
    );
    let guest =
        Guest::builder().kernel(kernel.clone()).memory("512M").timeout(PATIENCE).start(&script, &[])?;
    guest.wait_for("serving\n", PATIENCE)?;
    Ok(guest)
}

fn mount_of(guest: &Guest) -> Result<Mount> {
    Mount::of(&format!("{}:/", guest.address()), "")
}

fn ended(guest: Guest, mounts: Vec<Mount>) -> Result<()> {
    for mount in mounts {
        mount.check_alive()?;
        mount.unmount(&[])?;
    }
    guest.signal("done")?;
    guest.wait()?.success().map(drop)
}

fn read_again(kernel: &Kernel) -> Result<()> {
    let guest = served(kernel, &MANY.replace("1000", "300"))?;
    let mount = mount_of(&guest)?;
    let read = "cat d/f* | md5sum; stat -c %Y d/f* | md5sum; if [ -e d/absent ]; then exit 1; fi";
    let first = run_in(&mount.path(), read, &[])?;
    run_in(&mount.path(), read, &[])?;
    let before = mount.round_trips()?;
    ensure!(run_in(&mount.path(), read, &[])? == first, "other content");
    let took = mount.round_trips()? - before;
    println!("300 files again: {took} round trips; {}", mount.stats()?["held"]);
    ensure!(took == 0, "{took} round trips the third time: {}", mount.stats()?);
    ended(guest, vec![mount])
}

fn everyday(kernel: &Kernel) -> Result<()> {
    let guest = served(kernel, "true")?;
    let mount = mount_of(&guest)?;
    for (name, script) in [("names", NAMES), ("git", GIT), ("make", MAKE), ("sqlite", SQLITE), ("data", DATA)]
    {
        let directory = mount.path().join(name);
        std::fs::create_dir(&directory)?;
        run_in(&directory, script, &[]).with_context(|| name)?;
    }
    ended(guest, vec![mount])
}

fn one_truth(kernel: &Kernel) -> Result<()> {
    let guest = served(kernel, "cd ..; rmdir d lost+found")?;
    let (one, other) = (mount_of(&guest)?, mount_of(&guest)?);
    for script in [SEEN, BYTES] {
        let (first, second) = (one.path(), other.path());
        let (first, second) = (first.to_string_lossy(), second.to_string_lossy());
        let script = script.replace("range(100)", "range(20)");
        run_in(&std::env::temp_dir(), &format!("python3 - \"$@\" <<'E'\n{script}\nE\n"), &[&first, &second])?;
    }
    ended(guest, vec![one, other])
}

fn recalled(kernel: &Kernel) -> Result<()> {
    let guest = served(kernel, "true")?;
    let (one, other) = (mount_of(&guest)?, mount_of(&guest)?);
    recalled_between(&one, &other, None)?;
    ended(guest, vec![one, other])
}

/// What the mount keeps back and what it has cached, against what Linux's client does.
fn its_client(kernel: &Kernel) -> Result<()> {
    let mut served = Served::new()?;
    std::fs::write(served.share().join("read"), "before")?;
    let mount = served.mount("cache=delegations")?;
    let script = "
lab_mount 4.2 /mnt
lab_wait act; [ \"$(stat -c %s /mnt/written)\" = 13 ]; [ \"$(cat /mnt/written)\" = 'by the mount!' ]
echo 'by Linux' >/mnt/read; echo 'by Linux too' >/mnt/written; mv /mnt/read /mnt/moved
echo acted; lab_wait again; [ \"$(cat /mnt/moved)\" = 'by the mount again' ]; [ ! -e /mnt/written ]
umount /mnt
";
    let env = [("PORT", served.server.port().to_string()), ("EXPORT", served.server.export())];
    let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let guest =
        Guest::builder().kernel(kernel.clone()).memory("512M").timeout(PATIENCE).start(script, &env)?;
    let path = mount.path();
    (0..3).try_for_each(|_| std::fs::read(path.join("read")).map(drop))?;
    let mut held = std::fs::File::create(path.join("written"))?;
    std::io::Write::write_all(&mut held, b"by the mount!")?;
    guest.signal("act")?;
    guest.wait_for("acted\n", PATIENCE)?;
    ensure!(!path.join("read").exists(), "the old name is still there");
    ensure!(std::fs::read(path.join("moved"))? == b"by Linux\n", "what was cached is still shown");
    ensure!(
        std::fs::read(path.join("written"))? == b"by Linux too\n",
        "what was written here is still shown"
    );
    drop(held);
    std::fs::write(path.join("moved"), "by the mount again")?;
    std::fs::remove_file(path.join("written"))?;
    guest.signal("again")?;
    guest.wait()?.success()?;
    served.server.check_alive()?;
    mount.check_alive()
}
