//! Arguments of the commands that ask a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_admin::report::HoldingKind;
use holdfast_admin::request::Which;

/// Exit codes, as every such command's help tells them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 no server runs with this state directory; 4 nothing there is \
meant by the arguments";

const CLIENTS_EXAMPLES: &str = "\
Examples:
  holdfast clients
      who is connected, what each holds, and who is silent
  holdfast clients revoke 192.0.2.7
      take everything from a client that will not come back

Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 no server runs with this state directory; 4 no such client";

const LOCKS_EXAMPLES: &str = "\
Examples:
  holdfast locks --path /srv/data/mail.db
      who has this file open or locked
  holdfast locks --client 192.0.2.7 --kind lock
      what a client has locked
  holdfast locks release --path /srv/data/mail.db
      unlock the file, whoever holds it

Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 no server runs with this state directory; 4 nothing is held there";

/// Which server is asked, and in which form it answers.
#[derive(Args, Clone)]
pub(crate) struct Asking {
    /// State directory of the server [default: /var/lib/holdfast, or below the home directory when not root].
    #[arg(long, value_name = "DIR", env = "HOLDFAST_STATE_DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,

    /// Answer in JSON, complete.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    /// Answer with metrics as Prometheus reads them.
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    /// Seconds between looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = interval)]
    pub(crate) interval: f64,

    /// End after so many looks [default: go on].
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Rows of each table.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rows: usize,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, 0.1 to 3600".into()),
    }
}

#[derive(Args)]
#[command(after_help = CLIENTS_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct ClientsArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    /// Only this one: its id, name or address.
    #[arg(value_name = "ID|NAME|ADDRESS")]
    pub(crate) client: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Option<ClientsCommand>,
}

#[derive(Subcommand)]
pub(crate) enum ClientsCommand {
    /// Take all opens, locks and delegations from a client and forget it. If it lives, it will start anew, and its
    /// applications see errors on files they had open.
    Revoke {
        /// The client: its id, name or address.
        #[arg(value_name = "ID|NAME|ADDRESS")]
        client: String,
    },
}

#[derive(Args)]
#[command(after_help = LOCKS_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    #[command(flatten)]
    pub(crate) which: WhichArgs,

    #[command(subcommand)]
    pub(crate) command: Option<LocksCommand>,
}

#[derive(Subcommand)]
pub(crate) enum LocksCommand {
    /// Take locks from whoever holds them: byte-range locks and NLM's share reservations, or what --kind says. The
    /// holder is told as far as its protocol has words for it.
    #[command(group = clap::ArgGroup::new("chosen").args(["id", "client", "path", "export"]).multiple(true).required(true))]
    Release(WhichArgs),
}

/// A choice of holdings.
#[derive(Args, Clone)]
pub(crate) struct WhichArgs {
    /// Only this one, by the id that `--json` shows.
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Only this client's: its id, name or address.
    #[arg(long, value_name = "ID|NAME|ADDRESS")]
    client: Option<String>,

    /// Only those on this file, or below this directory, by its path on the server.
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,

    /// Only those on this export, by its path for clients.
    #[arg(long, value_name = "EXPORT")]
    export: Option<String>,

    /// Only these kinds, separated by commas.
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kind: Vec<KindArg>,
}

impl WhichArgs {
    pub(crate) fn which(&self) -> Which {
        // The server knows paths without symbolic links; one that is gone is taken as it stands.
        let path = self.path.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
        Which {
            id: self.id.clone(),
            client: self.client.clone(),
            path: path.map(|path| path.display().to_string()),
            export: self.export.clone(),
            kinds: self.kind.iter().map(|kind| (*kind).into()).collect(),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum KindArg {
    Open,
    Lock,
    Delegation,
    Share,
    Waiting,
    /// Of Holdfast mounts; shown only when asked for.
    Capability,
}

impl From<KindArg> for HoldingKind {
    fn from(arg: KindArg) -> Self {
        match arg {
            KindArg::Open => Self::Open,
            KindArg::Lock => Self::Lock,
            KindArg::Delegation => Self::Delegation,
            KindArg::Share => Self::Share,
            KindArg::Capability => Self::Capability,
            KindArg::Waiting => Self::Waiting,
        }
    }
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    /// Hand over to the program that is installed now: connections, opens and locks go on, clients notice nothing.
    #[arg(long)]
    pub(crate) upgrade: bool,
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    /// What to log from now on: error, warn, info, debug or trace, also by part: "info,holdfast_nfs4=debug". Without
    /// it the present levels are told.
    #[arg(value_name = "LEVELS")]
    pub(crate) levels: Option<String>,
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct GraceArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,

    #[command(subcommand)]
    pub(crate) command: GraceCommand,
}

#[derive(Subcommand)]
pub(crate) enum GraceCommand {
    /// End it: clients that `holdfast status` says are still waited for will not come back. One that does has lost its
    /// opens and locks, and its applications see errors on them.
    End,
}

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DropCachesArgs {
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        which: WhichArgs,
    }

    fn which(args: &[&str]) -> Which {
        Line::parse_from([&["test"], args].concat()).which.which()
    }

    #[test]
    fn each_argument_of_a_choice_narrows_it_in_its_own_way() {
        let none = Which::default;
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(which(&[]), none());
        assert_eq!(which(&["--id", "7"]), Which { id: some("7"), ..none() });
        assert_eq!(which(&["--client", "192.0.2.7"]), Which { client: some("192.0.2.7"), ..none() });
        assert_eq!(which(&["--path", "/none/such"]), Which { path: some("/none/such"), ..none() });
        assert_eq!(which(&["--export", "/data"]), Which { export: some("/data"), ..none() });
        let kinds = vec![HoldingKind::Lock, HoldingKind::Delegation];
        assert_eq!(which(&["--kind", "lock,delegation"]), Which { kinds, ..none() });
        let all = ["--id", "1", "--client", "c", "--path", "/none", "--export", "/e", "--kind", "open"];
        let (id, client, path, export) = (some("1"), some("c"), some("/none"), some("/e"));
        assert_eq!(which(&all), Which { id, client, path, export, kinds: vec![HoldingKind::Open] });
    }

    #[test]
    fn each_kind_is_the_servers_of_that_name() {
        for kind in KindArg::value_variants() {
            let name = kind.to_possible_value().expect("none is hidden");
            assert_eq!(HoldingKind::from(*kind).name(), name.get_name());
        }
    }

    #[test]
    fn a_path_is_the_one_that_the_server_knows() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&dir, dir.join("link")).unwrap();
        let asked = dir.join("link").join("..").join(dir.file_name().unwrap());
        assert_eq!(which(&["--path", asked.to_str().unwrap()]).path, dir.to_str().map(str::to_owned));
    }
}
