//! The command line, as `docs/design` fixes it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_server::{ClientRule, LocalUse, Share, Squash};

use crate::admin::args::{
    ClientsArgs, DropCachesArgs, GraceArgs, LocksArgs, LogArgs, ReloadArgs, StatusArgs, TopArgs,
};
use crate::mount::args::{MountArgs, UmountArgs};

/// A network file system for Linux, in user space.
#[derive(Parser)]
#[command(name = "holdfast", version, max_term_width = 100, subcommand_required = true)]
pub(crate) struct Cli {
    /// What to log: error, warn, info, debug or trace, also by part: "info,holdfast_nfs4=debug".
    #[arg(long, global = true, value_name = "LEVELS", default_value = "info", env = "HOLDFAST_LOG",
        value_parser = crate::checked_levels)]
    pub(crate) log: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve directories over NFSv3, NFSv4.0, 4.1 and 4.2.
    Serve(Box<ServeArgs>),
    /// Mount an export of a server, or ask a mount.
    Mount(Box<MountArgs>),
    /// Send what a mount has still to send, and unmount it.
    Umount(UmountArgs),
    /// Read a configuration file and say whether it can be served.
    Check(CheckArgs),
    /// Say how the running server is: work done, grace, state, memory.
    Status(StatusArgs),
    /// Show the busiest clients, exports and operations, again and again.
    Top(TopArgs),
    /// Show the running server's clients, or take everything from one.
    Clients(ClientsArgs),
    /// Show who has which file open, locked or delegated, or unlock it.
    Locks(LocksArgs),
    /// Have the running server read its configuration again, or hand over to another version.
    Reload(ReloadArgs),
    /// Tell or change what the running server logs.
    Log(LogArgs),
    /// End the grace period: the time after a restart in which clients reclaim what they had, and nothing new is granted.
    Grace(GraceArgs),
    /// Have the running server drop what it caches and can read again.
    DropCaches(DropCachesArgs),
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man(ManArgs),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  holdfast serve /srv/data
      exports the directory as /data to this host; mount it with
      mount -t nfs -o vers=4.2,port=2049 localhost:/data /mnt
  holdfast serve /srv/data:/projects --allow 192.0.2.0/24,2001:db8::/32
      exports it as /projects to two networks
  holdfast serve --config /etc/holdfast.toml
      exports what the file says; SIGHUP reads the file again";

/// The arguments of `holdfast serve`.
#[derive(Args)]
#[command(after_help = SERVE_EXAMPLES)]
#[command(group = clap::ArgGroup::new("what to serve").args(["sources", "config"]).multiple(true).required(true))]
pub(crate) struct ServeArgs {
    /// Directories to export; DIR:/PATH chooses the path clients see (default: / and DIR's last component).
    /// "mem:" exports memory, for trying things out.
    #[arg(value_name = "SOURCE[:/EXPORT]")]
    pub(crate) sources: Vec<Share>,

    /// Address to listen on, once or more [default: every address, port 2049, or 20490 when not root].
    #[arg(long, value_name = "ADDR:PORT", value_parser = holdfast_server::parse_listen)]
    pub(crate) listen: Vec<SocketAddr>,

    /// Where records that must outlive the server are kept [default: /var/lib/holdfast, or below the home
    /// directory when not root].
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Configuration file; exports named on the command line are served beside those in it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Which callers become the anonymous user.
    #[arg(long, value_enum, default_value_t = SquashArg::Root)]
    pub(crate) squash: SquashArg,

    /// The anonymous user's id.
    #[arg(long, value_name = "UID", default_value_t = holdfast_server::ANONYMOUS_ID)]
    pub(crate) anonymous_uid: u32,

    /// The anonymous user's group.
    #[arg(long, value_name = "GID", default_value_t = holdfast_server::ANONYMOUS_ID)]
    pub(crate) anonymous_gid: u32,

    /// Hosts and networks that may mount, separated by commas, or "all" [default: this host].
    #[arg(long, value_name = "NETWORK,...", value_delimiter = ',')]
    pub(crate) allow: Vec<ClientRule>,

    /// Serve read-only.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Answer before changes are on disk: faster, and a power cut takes what was acknowledged last.
    #[arg(long = "async")]
    pub(crate) is_async: bool,

    /// How processes of this host use the directory meanwhile.
    #[arg(long, value_enum, default_value_t = LocalArg::Lazy)]
    pub(crate) local: LocalArg,

    /// Do not register with rpcbind, nor answer on port 111 in its place: clients of NFSv3 then name the ports, and cannot
    /// lock.
    #[arg(long)]
    pub(crate) no_rpcbind: bool,

    /// Do not keep a parent process that starts the server again when it is killed. (Under a service manager there is
    /// none: it does that itself.)
    #[arg(long, env = "HOLDFAST_NO_SUPERVISE")]
    pub(crate) no_supervise: bool,

    /// Lease in seconds, and the grace period after a restart [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) lease: Option<u32>,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The configuration file.
    pub(crate) config: PathBuf,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// Made when missing.
    pub(crate) dir: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SquashArg {
    /// The superuser
    Root,
    /// Nobody
    None,
    /// Everybody
    All,
}

impl From<SquashArg> for Squash {
    fn from(arg: SquashArg) -> Self {
        match arg {
            SquashArg::Root => Self::Root,
            SquashArg::None => Self::None,
            SquashArg::All => Self::All,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LocalArg {
    /// Not at all
    None,
    /// They may; their changes are noticed soon
    Lazy,
    /// They may; only what the kernel guards against them is promised
    Strict,
}

impl From<LocalArg> for LocalUse {
    fn from(arg: LocalArg) -> Self {
        match arg {
            LocalArg::None => Self::None,
            LocalArg::Lazy => Self::Lazy,
            LocalArg::Strict => Self::Strict,
        }
    }
}
