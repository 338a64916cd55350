//! CephFS as `ceph-fuse` mounts it, over a cluster of one monitor, one OSD without replicas, and one MDS, as Debian packages them.
//! Its monitor tells clients where the others are, which so are not to be reached by a relay: the cluster lives in a network
//! namespace of its own, at the far end of a link.

use super::rivals::{Quiet, Scratch, Server};
use anyhow::{Context, Result, ensure};
use holdfast_lab::process::{capture, tail};
use holdfast_lab::{Link, Namespace, Way, missing};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What of it has to be installed, and the packages that bring it.
const PROGRAMS: [(&str, &str); 5] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph-mds", "ceph-mds"),
    ("ceph", "ceph-common"),
    ("ceph-fuse", "ceph-fuse"),
];

/// Who is known to whom, and what each may: what the monitor's documentation has them given.
const USERS: [(&str, &[(&str, &str)]); 4] = [
    ("mon.", &[("mon", "allow *")]),
    ("client.admin", &[("mon", "allow *"), ("osd", "allow *"), ("mds", "allow *")]),
    (OSD, &[("mon", "allow profile osd"), ("osd", "allow *")]),
    (MDS, &[("mon", "allow profile mds"), ("osd", "allow *"), ("mds", "allow *")]),
];

const MON: &str = "mon.a";
const OSD: &str = "osd.0";
const MDS: &str = "mds.a";

/// The OSD's file, sparse, on the file system that all contenders have: of 8 GiB, some of which are the monitor's and its own.
const OSD_BYTES: u64 = 6 << 30;

/// How long a daemon may take until it serves.
const START_PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// A mount and its cluster.
pub(super) struct Ceph {
    _client: Server,
    cluster: Cluster,
    _link: Link,
}

impl Ceph {
    /// Starts the cluster with its data below `share`, and mounts its file system over `way`.
    ///
    /// Errors when a program is missing or fails, and where there are no TUN devices.
    pub(super) fn mount(share: &Path, way: Way) -> Result<Self> {
        for (program, package) in PROGRAMS {
            missing::program(program, package)?;
        }
        let far = Namespace::new()?;
        let link = Link::to(&far, way)?;
        let cluster = Cluster::start(share, far)?;
        let mut client = Command::new("ceph-fuse");
        client.args(["-f", "-n", "client.admin", "-c"]).arg(cluster.scratch.file("ceph.conf"));
        let client = Server::start(client.arg(cluster.scratch.mount_point()).quiet())?;
        cluster.scratch.wait_until_mounted()?;
        Ok(Self { _client: client, cluster, _link: link })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.cluster.scratch.mount_point()
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        // While there is a client that answers.
        self.cluster.scratch.unmount();
    }
}

/// Ended before its files are removed.
struct Cluster {
    daemons: Vec<(&'static str, Server)>,
    scratch: Scratch,
    far: Namespace,
}

impl Cluster {
    fn start(share: &Path, far: Namespace) -> Result<Self> {
        let mut cluster = Self { daemons: Vec::new(), scratch: Scratch::new()?, far };
        let [of_cluster, of_osd] = [uuid()?, uuid()?];
        std::fs::write(
            cluster.scratch.file("ceph.conf"),
            config(&cluster.scratch.file(""), share, &of_cluster),
        )?;
        cluster.introduce()?;
        for name in [MON, OSD, MDS] {
            std::fs::create_dir(share.join(name))?;
        }
        cluster.make_monitor(&of_cluster)?;
        cluster.daemon(MON, "leader")?;
        let pools = ["metadata", "data"];
        cluster.tell(&["osd", "new", &of_osd, "0"])?;
        for pool in pools {
            cluster.tell(&["osd", "pool", "create", pool])?;
        }
        cluster.tell(&["fs", "new", "cephfs", pools[0], pools[1]])?;
        cluster.run("ceph-osd", &["-i", "0", "--mkfs", "--no-mon-config", "--osd-uuid", &of_osd])?;
        cluster.daemon(OSD, "active")?;
        cluster.daemon(MDS, "up:active")?;
        Ok(cluster)
    }

    /// Makes everybody's keys.
    fn introduce(&self) -> Result<()> {
        let keyring = self.scratch.file("keyring").display().to_string();
        capture("ceph-authtool", &["--create-keyring", &keyring])?;
        for (user, may) in USERS {
            let mut words = vec![keyring.as_str(), "--gen-key", "-n", user];
            for (of, what) in may {
                words.extend(["--cap", of, what]);
            }
            capture("ceph-authtool", &words)?;
        }
        Ok(())
    }

    fn make_monitor(&self, of_cluster: &str) -> Result<()> {
        let map = self.scratch.file("monmap").display().to_string();
        let keyring = self.scratch.file("keyring").display().to_string();
        let address = monitor_address();
        capture("monmaptool", &["--create", "--fsid", of_cluster, "--addv", "a", &address, &map])?;
        self.run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map, "--keyring", &keyring])
    }

    /// A command of the monitor's.
    fn tell(&self, words: &[&str]) -> Result<()> {
        let patience = START_PATIENCE.as_secs().to_string();
        self.run("ceph", &[&["--connect-timeout", &patience], words].concat())
    }

    /// Runs a program at the far end to its end.
    fn run(&self, program: &str, words: &[&str]) -> Result<()> {
        let config = self.scratch.file("ceph.conf").display().to_string();
        let words = [&["-c", &config], words].concat();
        self.far.within(|| capture(program, &words))?.map(drop)
    }

    /// Starts a daemon, and waits until it says of itself that it is in that state.
    fn daemon(&mut self, name: &'static str, serving: &str) -> Result<()> {
        let (kind, id) = name.split_once('.').context("a daemon without a kind")?;
        let mut command = Command::new(format!("ceph-{kind}"));
        command.args(["-f", "-i", id, "-c"]).arg(self.scratch.file("ceph.conf")).quiet();
        let server = self.far.within(|| Server::start(&mut command))??;
        self.daemons.push((name, server));
        let deadline = Instant::now() + START_PATIENCE;
        while self.state(name).is_none_or(|state| state != serving) {
            let is_running = self.daemons.iter_mut().all(|(_, daemon)| daemon.is_running());
            let log = || std::fs::read(self.scratch.file(&format!("{name}.log"))).unwrap_or_default();
            ensure!(
                is_running && Instant::now() < deadline,
                "{name} of Ceph is not {serving}; its log ends with\n{}",
                tail(&String::from_utf8_lossy(&log()), 5)
            );
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// What a daemon says of itself, when it says anything yet.
    fn state(&self, name: &str) -> Option<String> {
        let question = if name == MON { "mon_status" } else { "status" };
        let told = ask(&self.scratch.file(&format!("{name}.asok")), question).ok()?;
        told.get("state")?.as_str().map(str::to_owned)
    }
}

/// One question to a daemon's socket of administration: the command ends with NUL, and the answer begins with its length.
fn ask(socket: &Path, question: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(format!("{{\"prefix\": \"{question}\", \"format\": \"json\"}}\0").as_bytes())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = Vec::new();
    stream.take(u32::from_be_bytes(length).into()).read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

fn uuid() -> Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

fn monitor_address() -> String {
    format!("[v2:{}:3300]", Link::FAR)
}

/// Defaults for all that bears on speed. What differs is what one OSD without a manager needs, and what has the cluster
/// there sooner.
fn config(files: &Path, data: &Path, id: &str) -> String {
    let (files, data) = (files.display(), data.display());
    let (monitor, far) = (monitor_address(), Link::FAR);
    format!(
        "[global]\n\
         fsid = {id}\n\
         mon host = {monitor}\n\
         mon initial members = a\n\
         public addr = {far}\n\
         ms bind msgr1 = false\n\
         auth allow insecure global id reclaim = false\n\
         keyring = {files}/keyring\n\
         run dir = {files}\n\
         crash dir = {files}\n\
         pid file =\n\
         log file = {files}/$name.log\n\
         admin socket = {files}/$name.asok\n\
         mon data = {data}/$name\n\
         osd data = {data}/$name\n\
         mds data = {data}/$name\n\
         bluestore block size = {OSD_BYTES}\n\
         mon allow pool size one = true\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd pool default pg num = 16\n\
         osd pool default pgp num = 16\n\
         osd pool default pg autoscale mode = off\n\
         osd crush chooseleaf type = 0\n\
         paxos propose interval = 0.02\n\
         paxos min wait = 0.01\n\
         mds beacon interval = 0.5\n\
         [client]\n\
         log file =\n\
         admin socket =\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_is_asked_and_its_answer_read() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while asked.last() != Some(&0) {
                let mut one = [0];
                stream.read_exact(&mut one).unwrap();
                asked.extend(one);
            }
            let told = br#"{"state": "up:active"}"#;
            stream.write_all(&(told.len() as u32).to_be_bytes()).unwrap();
            stream.write_all(told).unwrap();
            asked
        });
        assert_eq!(ask(&socket, "status").unwrap()["state"], "up:active");
        let asked = daemon.join().unwrap();
        let asked: Value = serde_json::from_slice(asked.strip_suffix(b"\0").unwrap()).unwrap();
        assert_eq!(asked["prefix"], "status");
    }

    #[test]
    fn who_serves_is_reached_over_the_link_alone() {
        let told = config(Path::new("/files"), Path::new("/data"), "an-id");
        let addresses = told.lines().filter(|line| line.contains("addr") || line.contains("host"));
        assert!(
            addresses.clone().count() == 2 && addresses.clone().all(|line| line.contains("198.18.0.2")),
            "{told}"
        );
    }
}
