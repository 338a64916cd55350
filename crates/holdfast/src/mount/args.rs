//! Arguments of `holdfast mount` and `holdfast umount`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use holdfast_mount::Source;

const MOUNT_EXAMPLES: &str = "\
Examples:
  holdfast mount files.example:/data /mnt
      mounts the export /data; returns when it is mounted
  holdfast mount nfs://localhost:20490/demo ./mnt -o ro
      the same with a port, read-only
  holdfast mount stats /mnt
      what the mount has done, and what it has still to send
  holdfast umount /mnt
      sends what is left, and unmounts

In /etc/fstab, once mount.fuse.holdfast is linked to this program:
  files.example:/data  /mnt  fuse.holdfast  _netdev  0 0

Exit codes: 0 done; 1 failed; 2 wrong arguments";

const OPTIONS: &str = "\
Options, separated by commas:
  ro, rw, nodev, nosuid, noexec, dev, suid, exec, noatime  as for every mount [default: rw,nodev,nosuid; by mount(8): rw]
  allow_other, noallow_other   other users may use it [default for root: they may]
  port=N                       where the source names none [default: 2049]
  vers=4.1, vers=4.2           that version only [default: the newest the server speaks]
  hard, soft                   wait for a server that is away, or fail after timeo * (retrans + 1) [default: hard]
  timeo=TENTHS, retrans=N      tenths of a second, and how often again [default: 600, 2]
  nconnect=N                   connections to the server, 1 to 16 [default: 1]
  server=HOST[:PORT]           another server of the same export, tried when the first is away; may be repeated
  referrals, noreferrals       go where a server says that the same files are, or are now; or only to servers named here [default: referrals]
  offline, offline=FILE        keep cache and changes on this host's disk, and work while the server is away
  offline_mib=N                with offline: so much of contents of files larger than 64 KiB (1024, or a quarter of what is free)
  local, nolocal               read and write files of a server on this host directly, or not [default: local]
  local=DIR                    the same, where the server's directory of sockets lies elsewhere, as in a container
  passthrough                  have the kernel do that by itself, without the daemon (root)
  direct=server, direct=disk   where O_DIRECT ends: with the server, or on its disk with none of it left in its memory [default: server]
  cache=none, noac             ask the server everything, and change nothing later than told
  cache=delegations            of a Holdfast server use NFSv4 delegations only, as of any other
  sec=sys, proto=tcp           the only ones there are
What init systems and mount(8) use (defaults, _netdev, noauto, nofail, user, x-*) is understood, and says nothing.";

const UMOUNT_EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, or unmounted while not everything could be done on the server: the message says which; \
2 wrong arguments";

#[derive(Args)]
#[command(after_help = MOUNT_EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct MountArgs {
    /// What: SERVER:/EXPORT, SERVER:PORT:/EXPORT or nfs://SERVER:PORT/EXPORT.
    #[arg(value_name = "SERVER[:PORT]:/EXPORT", required = true)]
    pub(crate) source: Option<Source>,

    /// Where: a directory.
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub(crate) mountpoint: Option<PathBuf>,

    /// Mount options.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", long_help = OPTIONS)]
    pub(crate) options: Vec<String>,

    /// Stay in the foreground, until unmounted.
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,

    /// Only look whether the arguments make sense, as mount(8) asks with -f.
    #[arg(long, hide = true)]
    pub(crate) dry_run: bool,

    /// Pass over options that are not known, as mount(8) asks with -s.
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,

    #[command(subcommand)]
    pub(crate) command: Option<MountCommand>,
}

#[derive(Subcommand)]
pub(crate) enum MountCommand {
    /// Say what a mount has done, what it holds, and what it has still to send.
    Stats {
        /// Answer in JSON, complete.
        #[arg(long)]
        json: bool,
        /// The mount.
        mountpoint: PathBuf,
    },
    /// Send what is not sent, wait until it is on the server's disk, and tell what could not be done.
    Sync {
        /// The mount.
        mountpoint: PathBuf,
    },
    /// Show or change the servers of a mount.
    Servers {
        #[command(subcommand)]
        command: ServersCommand,
    },
    /// List objects that were changed on both sides while the server was away.
    Conflicts {
        /// The mount.
        mountpoint: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum ServersCommand {
    /// Show the servers in the order in which they are tried.
    Show {
        /// The mount.
        mountpoint: PathBuf,
    },
    /// Add one, to be tried last.
    Add {
        /// The server.
        #[arg(value_name = "HOST[:PORT]")]
        server: String,
        /// The mount.
        mountpoint: PathBuf,
    },
    /// Take one away.
    Remove {
        /// The server, as it is shown.
        #[arg(value_name = "HOST[:PORT]")]
        server: String,
        /// The mount.
        mountpoint: PathBuf,
    },
}

/// The arguments of `holdfast umount`.
#[derive(Args)]
#[command(after_help = UMOUNT_EXIT_CODES)]
pub(crate) struct UmountArgs {
    /// The mount.
    pub(crate) mountpoint: PathBuf,

    /// Unmount at once, whether the server answers or not: what was not sent is lost, and what waits fails.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Take it out of sight also while it is in use, once all is sent; who uses it may finish.
    #[arg(short = 'l', long)]
    pub(crate) lazy: bool,
}
