//! Mount options, as `-o`, `/etc/fstab` and `mount -t fuse.holdfast` give them.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_volume::{SameHost, There};

use crate::source::ServerName;

/// What the kernel is told of a mount: the flags of `mount(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFlags {
    /// Nothing may be changed through this mount.
    pub is_read_only: bool,
    /// Device files are opened as what they are.
    pub allows_devices: bool,
    /// Set-user-id and set-group-id bits, and file capabilities, count.
    pub allows_suid: bool,
    /// Programs may be executed.
    pub allows_exec: bool,
    /// Times of access are not kept.
    pub is_noatime: bool,
}

/// How much the client keeps and puts off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// What the server's promises cover, changes of data and of names included.
    #[default]
    All,
    /// What NFSv4 delegations cover, as with servers that are not Holdfast's: changes of data are put off, those of
    /// names are not.
    Delegations,
    /// Nothing: every operation asks the server, every change is on the server when it returns.
    None,
}

/// How long an operation waits for a server that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For ever, or until the process is killed.
    Hard,
    /// For so long; then it fails with `ETIMEDOUT`.
    Soft(Duration),
}

/// All options of one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// For the kernel.
    pub kernel: KernelFlags,
    /// `remount`: what is mounted there gets these flags; everything else stays as it was mounted.
    pub is_remount: bool,
    /// Other users than the one who mounted may use it; the default where root mounts.
    pub allow_other: bool,
    /// `port=`: where the source names none.
    pub port: Option<u16>,
    /// `minorversion`: 1 or 2, where only that one is to be spoken.
    pub minor_version: Option<u32>,
    /// `soft` and `hard`.
    pub patience: Patience,
    /// `nconnect=`: connections to the server.
    pub connections: u32,
    /// `cache=`.
    pub cache: CacheMode,
    /// `nolocal` and `local=`: whether a server on this host is used by its descriptors.
    pub same_host: SameHost,
    /// `direct=`: where an application's `O_DIRECT` ends.
    pub direct_ends: There,
    /// `passthrough`: the kernel reads and writes a server's files on this host by itself.
    pub passes_through: bool,
    /// `offline` and `offline=FILE`.
    pub offline: Offline,
    /// `offline_mib=`: how much of files' contents is kept on this host's disk, where that is said; else a default by what is
    /// free there.
    pub offline_mib: Option<u32>,
    /// `server=`, in order: tried in turn after the source's own.
    pub more_servers: Vec<ServerName>,
    /// `referrals` and `noreferrals`: whether servers that a server tells of are connected to.
    pub goes_where_told: bool,
}

/// Whether the mount works without the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Offline {
    /// It waits for it.
    #[default]
    No,
    /// It does, with a journal in this file, or in one of the source's own.
    In(Option<PathBuf>),
}

/// MiB of contents on this host's disk at most: 16 TiB, of which 16 GiB of memory would be needed to know where they are.
const OFFLINE_MIB_MAX: u32 = 16 << 20;

/// Connections at most: as Linux's client.
const CONNECTIONS_MAX: u32 = 16;

/// Until the first look after a call: 60 seconds, as Linux's client over TCP.
const TIMEO_DEFAULT: Duration = Duration::from_secs(60);

/// What `retrans` is by default.
const RETRANS_DEFAULT: u32 = 2;

impl Default for MountOptions {
    fn default() -> Self {
        let kernel = KernelFlags {
            is_read_only: false,
            allows_devices: false,
            allows_suid: false,
            allows_exec: true,
            is_noatime: false,
        };
        Self {
            kernel,
            is_remount: false,
            allow_other: rustix::process::geteuid().is_root(),
            port: None,
            minor_version: None,
            patience: Patience::Hard,
            connections: 1,
            cache: CacheMode::All,
            same_host: SameHost::AsTold,
            direct_ends: There::Server,
            passes_through: false,
            offline: Offline::No,
            offline_mib: None,
            more_servers: Vec::new(),
            goes_where_told: true,
        }
    }
}

/// What is gathered before `soft` can be worked out, for options come in any order.
#[derive(Default)]
struct Pending {
    is_soft: bool,
    timeo: Option<Duration>,
    retrans: Option<u32>,
}

impl MountOptions {
    /// Reads lists of options separated by commas; a later option overrules an earlier one. `is_sloppy` passes over
    /// options that are not known, as `mount -s` asks.
    ///
    /// # Errors
    /// The option and what is wrong with it, as a sentence.
    pub fn parse<S: AsRef<str>>(lists: &[S], is_sloppy: bool) -> Result<Self, String> {
        let mut options = Self::default();
        let mut pending = Pending::default();
        let all = || lists.iter().flat_map(|list| list.as_ref().split(',')).map(str::trim);
        // mount(8) adds what the kernel shows of the mount, which are not only options of ours.
        options.is_remount = all().any(|option| option == "remount");
        for option in all().filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            let is_known = options.kernel_option(name)
                || is_for_others(name)
                || options.own_option(name, value, &mut pending)?;
            if !is_known && !is_sloppy && !options.is_remount {
                return Err(format!("{option}: no such option (see `holdfast mount --help`)"));
            }
        }
        let timeo = pending.timeo.unwrap_or(TIMEO_DEFAULT);
        if options.offline != Offline::No && options.cache != CacheMode::All {
            return Err(
                "offline: what is not cached cannot be used without the server: it needs cache=all".into()
            );
        }
        if options.offline_mib.is_some() && options.offline == Offline::No {
            return Err("offline_mib: contents are kept on this host's disk with `offline` alone".into());
        }
        if pending.is_soft {
            options.patience = Patience::Soft(timeo * (pending.retrans.unwrap_or(RETRANS_DEFAULT) + 1));
        }
        Ok(options)
    }

    fn kernel_option(&mut self, name: &str) -> bool {
        let kernel = &mut self.kernel;
        match name {
            "remount" => {}
            "ro" => kernel.is_read_only = true,
            "rw" => kernel.is_read_only = false,
            "nodev" => kernel.allows_devices = false,
            "dev" => kernel.allows_devices = true,
            "nosuid" => kernel.allows_suid = false,
            "suid" => kernel.allows_suid = true,
            "noexec" => kernel.allows_exec = false,
            "exec" => kernel.allows_exec = true,
            "noatime" => kernel.is_noatime = true,
            "atime" => kernel.is_noatime = false,
            _ => return false,
        }
        true
    }

    fn own_option(&mut self, name: &str, value: Option<&str>, pending: &mut Pending) -> Result<bool, String> {
        match (name, value) {
            ("allow_other", None) => self.allow_other = true,
            ("noallow_other", None) => self.allow_other = false,
            ("soft", None) => pending.is_soft = true,
            ("hard", None) => pending.is_soft = false,
            ("noac", None) => self.cache = CacheMode::None,
            ("local", None) => self.same_host = SameHost::AsTold,
            ("passthrough", None) => self.passes_through = true,
            ("nopassthrough", None) => self.passes_through = false,
            ("nolocal", None) => self.same_host = SameHost::Never,
            ("local", Some(dir)) if dir.starts_with('/') => self.same_host = SameHost::In(dir.into()),
            ("local", Some(dir)) => {
                return Err(format!("local={dir}: the whole path of a directory is wanted"));
            }
            ("port", Some(port)) => self.port = Some(number(name, port, 1, 65535)?),
            ("vers" | "nfsvers" | "minorversion", Some(version)) => {
                self.minor_version = minor_version(name, version)?;
            }
            ("sec", Some("sys")) | ("proto", Some("tcp" | "tcp6")) => {}
            ("sec", Some(other)) => return Err(format!("sec={other}: only sec=sys is understood")),
            ("proto", Some(other)) => return Err(format!("proto={other}: only proto=tcp is understood")),
            ("timeo", Some(tenths)) => {
                let tenths: u32 = number(name, tenths, 1, 36_000)?;
                pending.timeo = Some(Duration::from_millis(u64::from(tenths) * 100));
            }
            ("retrans", Some(times)) => pending.retrans = Some(number(name, times, 0, 100)?),
            ("nconnect", Some(count)) => self.connections = number(name, count, 1, CONNECTIONS_MAX)?,
            ("cache", Some("none")) => self.cache = CacheMode::None,
            ("cache", Some("all")) => self.cache = CacheMode::All,
            ("cache", Some("delegations")) => self.cache = CacheMode::Delegations,
            ("cache", Some(other)) => {
                return Err(format!("cache={other}: write cache=all, cache=delegations or cache=none"));
            }
            ("direct", Some("server")) => self.direct_ends = There::Server,
            ("direct", Some("disk")) => self.direct_ends = There::Disk,
            ("direct", Some(other)) => {
                return Err(format!("direct={other}: write direct=server or direct=disk"));
            }
            ("server", Some(server)) => self.more_servers.push(server.parse()?),
            ("referrals", None) => self.goes_where_told = true,
            ("noreferrals", None) => self.goes_where_told = false,
            ("offline", None) => self.offline = Offline::In(None),
            ("nooffline", None) => self.offline = Offline::No,
            ("offline_mib", Some(mib)) => {
                self.offline_mib = Some(number(name, mib, 0, OFFLINE_MIB_MAX)?);
            }
            ("offline", Some(file)) if file.starts_with('/') => self.offline = Offline::In(Some(file.into())),
            ("offline", Some(file)) => {
                return Err(format!("offline={file}: the whole path of a file is wanted"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Options for `mount(8)`, the init system or libfuse, that say nothing here. `default_permissions` is always on.
fn is_for_others(name: &str) -> bool {
    const NAMES: [&str; 25] = [
        "defaults",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "_netdev",
        "nofail",
        "async",
        "loud",
        "silent",
        "relatime",
        "norelatime",
        "strictatime",
        "nostrictatime",
        "diratime",
        "nodiratime",
        "lazytime",
        "nolazytime",
        "iversion",
        "noiversion",
        "default_permissions",
        "comment",
    ];
    NAMES.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

fn number<T: TryFrom<u32>>(name: &str, text: &str, least: u32, most: u32) -> Result<T, String> {
    let number = text.parse::<u32>().ok().filter(|n| (least..=most).contains(n));
    number
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("{name}={text}: a number from {least} to {most} is wanted"))
}

fn minor_version(name: &str, version: &str) -> Result<Option<u32>, String> {
    match (name, version) {
        ("minorversion", "1") | (_, "4.1") => Ok(Some(1)),
        ("minorversion", "2") | (_, "4.2") => Ok(Some(2)),
        ("vers" | "nfsvers", "4") => Ok(None),
        _ => Err(format!("{name}={version}: this client speaks NFS 4.1 and 4.2")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> MountOptions {
        MountOptions::parse(&[list], false).unwrap()
    }

    fn refused(list: &str) -> String {
        MountOptions::parse(&[list], false).unwrap_err()
    }

    #[test]
    fn what_fstab_has_for_others_is_passed_over() {
        let options = parsed("defaults,_netdev,noauto,nofail,x-systemd.automount,users,default_permissions");
        assert_eq!(options, MountOptions::default());
    }

    #[test]
    fn o_direct_ends_with_the_server_or_at_its_disk() {
        assert_eq!(parsed("").direct_ends, There::Server);
        assert_eq!(parsed("direct=disk").direct_ends, There::Disk);
        assert_eq!(parsed("direct=disk,direct=server").direct_ends, There::Server);
        assert_eq!(refused("direct=yes"), "direct=yes: write direct=server or direct=disk");
    }

    #[test]
    fn the_last_word_counts() {
        assert!(parsed("ro").kernel.is_read_only);
        assert!(!parsed("ro,rw").kernel.is_read_only);
        assert_eq!(parsed("soft,hard").patience, Patience::Hard);
        assert!(MountOptions::parse(&["rw", "ro"], false).unwrap().kernel.is_read_only);
    }

    #[test]
    fn a_remount_takes_flags_and_passes_over_what_the_kernel_shows_beside_them() {
        let options = parsed("rw,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,remount,ro");
        assert!(options.is_remount && options.kernel.is_read_only && !options.kernel.allows_suid);
        assert!(!parsed("ro").is_remount);
        assert!(refused("user_id=0").contains("no such option"));
    }

    #[test]
    fn soft_gives_up_after_the_last_retransmission_would_have_run_out() {
        assert_eq!(parsed("soft").patience, Patience::Soft(Duration::from_secs(180)));
        assert_eq!(parsed("retrans=1,soft,timeo=20").patience, Patience::Soft(Duration::from_secs(4)));
        assert_eq!(parsed("timeo=20").patience, Patience::Hard, "without it nothing is given up");
    }

    #[test]
    fn versions_that_are_not_spoken_are_refused() {
        assert_eq!(parsed("vers=4.1").minor_version, Some(1));
        assert_eq!(parsed("nfsvers=4.2").minor_version, Some(2));
        assert_eq!(parsed("minorversion=1,vers=4").minor_version, None);
        for list in ["vers=3", "vers=4.0", "minorversion=0"] {
            assert!(refused(list).contains("4.1 and 4.2"), "{list}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_a_sentence() {
        assert!(refused("offline,cache=none").contains("needs cache=all"));
        assert!(refused("offline=here").contains("whole path"));
        assert!(refused("sec=krb5").contains("only sec=sys"));
        assert!(refused("nconnect=17").contains("from 1 to 16"));
        assert!(refused("cash=none").contains("no such option"));
        assert!(MountOptions::parse(&["cash=none"], true).is_ok(), "mount -s");
    }

    #[test]
    fn a_server_on_this_host_is_used_unless_that_is_switched_off() {
        assert_eq!(parsed("").same_host, SameHost::AsTold);
        assert_eq!(parsed("local=/run/x,nolocal").same_host, SameHost::Never);
        assert_eq!(parsed("nolocal,local=/run/x").same_host, SameHost::In("/run/x".into()));
        assert!(refused("local=x").contains("whole path"));
    }

    #[test]
    fn a_mount_works_without_the_server_where_that_is_asked_for() {
        assert_eq!(parsed("").offline, Offline::No);
        assert_eq!(parsed("offline").offline, Offline::In(None));
        assert_eq!(parsed("offline=/x/y").offline, Offline::In(Some("/x/y".into())));
        assert_eq!(parsed("offline,nooffline").offline, Offline::No);
    }

    #[test]
    fn how_much_of_contents_is_kept_can_be_said_where_any_is() {
        assert_eq!(parsed("offline").offline_mib, None);
        assert_eq!(parsed("offline_mib=0,offline").offline_mib, Some(0));
        assert_eq!(parsed("offline=/x,offline_mib=16777216").offline_mib, Some(16 << 20));
        assert!(refused("offline,offline_mib=16777217").contains("from 0 to"));
        assert!(refused("offline_mib=1").contains("`offline` alone"));
    }

    #[test]
    fn servers_that_are_told_of_are_gone_to_unless_that_is_refused() {
        assert!(parsed("").goes_where_told && !parsed("noreferrals").goes_where_told);
        assert!(parsed("noreferrals,referrals").goes_where_told);
        assert!(refused("noreferrals=yes").contains("no such option"));
    }

    #[test]
    fn noac_is_another_word_for_no_cache() {
        assert_eq!(parsed("noac").cache, CacheMode::None);
        assert_eq!(parsed("cache=none").cache, CacheMode::None);
    }
}
