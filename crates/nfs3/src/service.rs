//! The NFS program: its parts, and the table of its procedures.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use holdfast_base::ExportId;
use holdfast_export::{Committer, GroupSource, Namespace, Object};
use holdfast_ledger::Ledger;
use holdfast_manager::Manager;
use holdfast_rpc::reply_cache::ReplyCache;
use holdfast_rpc::{Call, Lane, Outcome, Program, Turn};
use holdfast_wire::nfs3::{Fh3, NFS_V3, NFS3_PROGRAM, NfsStat3, Proc3};
use holdfast_xdr::{Decode, Reader, Writer};

use crate::procedures::{attributes, create, io, list, remove, volume};

/// One call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// Its procedure.
    pub procedure: Proc3,
    /// With what outcome.
    pub status: NfsStat3,
    /// Where it came from.
    pub peer: IpAddr,
    /// On which export, when the first object it names lies in one.
    pub export: Option<ExportId>,
    /// Bytes of its arguments.
    pub received: u64,
    /// Bytes of its results.
    pub sent: u64,
    /// How long it took from when a thread took it up, the wait for the disk included; `None` when it was not timed.
    pub took: Option<Duration>,
    /// For how many like it the time stands: what [`Observer::begins`] said.
    pub weight: u32,
}

/// Told of every answered procedure: for metrics and audit.
pub trait Observer: Send + Sync {
    /// A call begins; `may_wait` when it runs where it may wait. Tells when that was, and for how many the time it
    /// takes is to stand; `None` when it need not be timed, as reading the clock costs more than some calls.
    fn begins(&self, may_wait: bool) -> Option<(Instant, u32)> {
        let _ = may_wait;
        Some((Instant::now(), 1))
    }

    /// A procedure was answered. Runs on the thread that answers: it must not wait.
    fn answered(&self, answered: &Answered);
}

/// What the service stands on.
#[derive(Clone)]
pub struct Nfs3Parts {
    /// The exports.
    pub namespace: Arc<Namespace>,
    /// The state of other protocols: what their clients deny to everybody.
    pub manager: Arc<Manager>,
    /// Makes changes durable before their replies leave.
    pub committer: Arc<Committer>,
    /// Answers what is sent twice.
    pub replies: Arc<ReplyCache>,
    /// Where calls that must not run twice are recorded, so that they do not after a crash either.
    pub ledger: Option<Arc<Ledger>>,
    /// Groups that credentials could not list.
    pub groups: Arc<dyn GroupSource>,
    /// Who is told of every answer, if anybody.
    pub observer: Option<Arc<dyn Observer>>,
}

/// NFS version 3. Cheap to clone: all clones are one service.
#[derive(Clone)]
pub struct Nfs3 {
    pub(crate) parts: Arc<Nfs3Parts>,
}

impl Nfs3 {
    /// A service of these parts.
    #[must_use]
    pub fn new(parts: Nfs3Parts) -> Self {
        Self { parts: Arc::new(parts) }
    }
}

/// Stands for a directory's handle, by a secret of the process: nobody can aim at another's turn.
fn turn_of(fh: &[u8]) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one(fh)
}

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        NFS3_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (NFS_V3, NFS_V3)
    }

    fn serves(&self, peer: IpAddr) -> Option<bool> {
        Some(self.parts.namespace.serves(peer))
    }

    fn lane(&self, _: u32, mut args: Reader<'_>) -> Option<Lane> {
        // The arguments of all procedures but NULL begin with a handle.
        let Fh3(fh) = Fh3::decode(&mut args).ok()?;
        match self.parts.namespace.open(fh) {
            Ok(Object::Export(export, _)) => Some(Lane(u64::from(export.id.0))),
            _ => None,
        }
    }

    fn turn(&self, procedure: u32, mut args: Reader<'_>) -> Option<Turn> {
        // Those whose arguments begin with the directory that they change.
        let changes = matches!(
            Proc3::from_u32(procedure)?,
            Proc3::Create
                | Proc3::Mkdir
                | Proc3::Symlink
                | Proc3::Mknod
                | Proc3::Remove
                | Proc3::Rmdir
                | Proc3::Rename
        );
        // A directory has one handle, as the namespace seals it; of what is none, calls fail at once.
        changes.then(|| Fh3::decode(&mut args).ok()).flatten().map(|Fh3(fh)| Turn(turn_of(fh)))
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Some(procedure) = Proc3::from_u32(call.procedure) else { return Outcome::NoProcedure };
        match procedure {
            Proc3::Null => Outcome::Reply,
            Proc3::GetAttr => self.serve::<attributes::GetAttr>(call, reply),
            Proc3::SetAttr => self.serve::<attributes::SetAttr>(call, reply),
            Proc3::Lookup => self.serve::<attributes::Lookup>(call, reply),
            Proc3::Access => self.serve::<attributes::Access>(call, reply),
            Proc3::ReadLink => self.serve::<attributes::ReadLink>(call, reply),
            Proc3::Read => self.serve::<io::Read>(call, reply),
            Proc3::Write => self.serve::<io::Write>(call, reply),
            Proc3::Create => self.serve::<create::Create>(call, reply),
            Proc3::Mkdir => self.serve::<create::Mkdir>(call, reply),
            Proc3::Symlink => self.serve::<create::Symlink>(call, reply),
            Proc3::Mknod => self.serve::<create::Mknod>(call, reply),
            Proc3::Remove => self.serve::<remove::Remove>(call, reply),
            Proc3::Rmdir => self.serve::<remove::Rmdir>(call, reply),
            Proc3::Rename => self.serve::<remove::Rename>(call, reply),
            Proc3::Link => self.serve::<remove::Link>(call, reply),
            Proc3::ReadDir => self.serve::<list::ReadDir>(call, reply),
            Proc3::ReadDirPlus => self.serve::<list::ReadDirPlus>(call, reply),
            Proc3::FsStat => self.serve::<volume::FsStat>(call, reply),
            Proc3::FsInfo => self.serve::<volume::FsInfo>(call, reply),
            Proc3::PathConf => self.serve::<volume::PathConf>(call, reply),
            Proc3::Commit => self.serve::<io::Commit>(call, reply),
        }
    }
}
