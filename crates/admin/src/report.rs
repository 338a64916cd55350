//! What the server tells of itself, in the words of the protocol: these types are the JSON of `docs/admin.md`.
//!
//! Times of day are milliseconds since 1970 (`*_unix_ms`), durations milliseconds (`*_ms`). Fields may be added within
//! a version of the protocol; none is renamed or taken away.

use serde::{Deserialize, Serialize};

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program that serves.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Counts the starts of this server with its state directory. A planned restart goes on with the same number.
    pub run: u64,
    /// Another one after every restart, planned or not.
    pub instance: String,
    /// When this run began.
    pub started_unix_ms: u64,
    /// How long ago.
    pub uptime_ms: u64,
    /// The state directory.
    pub state_dir: String,
    /// Addresses listened on.
    pub listen: Vec<String>,
    /// Where metrics are to be had over HTTP.
    pub metrics: Option<String>,
    /// The lease.
    pub lease_ms: u64,
    /// The grace period.
    pub grace: GraceStatus,
    /// What is exported.
    pub exports: Vec<ExportStatus>,
    /// Connections open.
    pub connections: u64,
    /// The most that there may be.
    pub connections_max: u64,
    /// Work done since the start.
    pub totals: Totals,
    /// Work a second, over the last ten and sixty seconds.
    pub rates: Vec<RateStatus>,
    /// How much state there is.
    pub state: Vec<Count>,
    /// What happened to state since the start: recalls, revocations, expiries.
    pub events: Vec<Count>,
    /// How full caches and pools are.
    pub fills: Vec<Fill>,
    /// The memory there is for it; absent where nothing tells.
    #[serde(default)]
    pub memory: Option<MemoryStatus>,
    /// Memory and descriptors of the process.
    pub process: ProcessStatus,
}

/// The name among [`Status::fills`] of the descriptors that a restart by the service manager would leave with it. With more
/// than it keeps that is an ordinary restart, after which clients reclaim.
pub const STORED: &str = "stored at restart";

/// The grace period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraceStatus {
    /// Whether it lasts: nothing new is granted, what was held before the restart may be reclaimed.
    pub is_active: bool,
    /// When it ends at the latest, from now.
    pub ends_in_ms: Option<u64>,
    /// Why it lasts, in words.
    pub reason: Option<String>,
    /// Clients that are waited for, by name; the first of them when they are many.
    pub awaited: Vec<String>,
    /// How many are waited for.
    pub awaited_count: u64,
}

/// An export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its number.
    pub id: u16,
    /// Its path for clients.
    pub path: String,
    /// What is served there.
    pub source: Option<String>,
    /// Its rules in one line.
    pub rules: String,
}

/// Work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Operations (NFSv3 procedures, operations of NFSv4 compounds).
    pub operations: u64,
    /// Those that failed. Not finding a name is a failure too: many are normal.
    pub errors: u64,
    /// Bytes of arguments.
    pub received_bytes: u64,
    /// Bytes of results.
    pub sent_bytes: u64,
}

/// Work a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateStatus {
    /// Over so many seconds.
    pub seconds: f64,
    /// Operations.
    pub operations: f64,
    /// Bytes of arguments.
    pub received_bytes: f64,
    /// Bytes of results.
    pub sent_bytes: f64,
}

/// A number with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Of what.
    pub name: String,
    /// How many.
    pub count: u64,
}

impl Count {
    /// So many of these.
    #[must_use]
    pub fn new(name: &str, count: usize) -> Self {
        Self { name: name.to_owned(), count: count as u64 }
    }
}

/// How full something bounded is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// What.
    pub name: String,
    /// In use.
    pub used: u64,
    /// The bound.
    pub max: u64,
}

/// The memory there is for the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// All: the machine's, or what a control group allows.
    pub total_bytes: u64,
    /// What can still be had of it, as of the last second.
    pub available_bytes: u64,
    /// With fewer bytes available memory is short.
    pub short_below_bytes: u64,
    /// Whether it is: clients are asked to give back delegations and slots, and caches shrink.
    pub is_short: bool,
    /// Who bounds it, in words: the machine, or a control group.
    pub bound: String,
    /// How often it ran short since the start.
    pub shortages: u64,
}

/// The process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Memory in use.
    pub resident_bytes: u64,
    /// The most that ever was.
    pub resident_peak_bytes: u64,
    /// Descriptors open.
    pub descriptors: u64,
    /// The most that may be.
    pub descriptors_max: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time used.
    pub cpu_ms: u64,
}

/// One client, in `clients`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Names it in requests: 16 hexadecimal digits for NFSv4, `nlm:HOST` for NLM.
    pub id: String,
    /// `NFSv4.0`, `NFSv4.1+` or `NLM`.
    pub protocol: String,
    /// What it calls itself; what is no text is escaped.
    pub name: String,
    /// Addresses it is connected from.
    pub addresses: Vec<String>,
    /// Whether it finished introducing itself.
    pub is_confirmed: bool,
    /// Its lease ran out, and what it holds was left to it because nobody asked for that.
    pub is_courteous: bool,
    /// How long ago it gave a sign of life; absent where nothing tells.
    pub idle_ms: Option<u64>,
    /// What is left of its lease; absent when it ran out, and where there is none.
    pub lease_left_ms: Option<u64>,
    /// Its back channel: `up`; `down` when it holds delegations and cannot be called; `none` when it cannot be called
    /// and need not be.
    pub back_channel: String,
    /// Sessions.
    pub sessions: u64,
    /// Opens.
    pub opens: u64,
    /// Files with byte-range locks.
    pub locks: u64,
    /// Delegations.
    pub delegations: u64,
    /// Delegations that it was asked to give back and has not yet.
    pub recalled: u64,
    /// Objects that it, a Holdfast mount, holds capabilities of.
    #[serde(default)]
    pub capabilities: u64,
    /// Of those, how many it was asked to give something back of and has not yet.
    #[serde(default)]
    pub capabilities_recalled: u64,
    /// What was taken from it and it has not taken note of.
    pub revoked: u64,
}

/// What sort of thing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldingKind {
    /// A file is open.
    Open,
    /// Bytes of a file are locked.
    Lock,
    /// A delegation.
    Delegation,
    /// A share reservation of NLM.
    Share,
    /// A request that waits for a lock.
    Waiting,
    /// Capabilities of a Holdfast mount. Listed only when they are asked for: there may be one for every file.
    Capability,
}

impl HoldingKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Lock => "lock",
            Self::Delegation => "delegation",
            Self::Share => "share",
            Self::Waiting => "waiting",
            Self::Capability => "capability",
        }
    }
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// `read` or `write`.
    pub kind: String,
    /// First byte.
    pub first: u64,
    /// Last byte; absent when it reaches to the end of the file, wherever that comes to lie.
    pub last: Option<u64>,
}

/// Something a client holds, in `locks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    /// Names it in requests.
    pub id: String,
    /// What it is.
    pub kind: HoldingKind,
    /// The client's id.
    pub client: String,
    /// The client's name.
    pub client_name: String,
    /// The client's addresses.
    pub addresses: Vec<String>,
    /// The client's protocol.
    pub protocol: String,
    /// Whether the client's lease ran out.
    pub is_courteous: bool,
    /// Path of the export, as clients have it.
    pub export: Option<String>,
    /// The file as this host sees it; absent when nobody knows. Bytes that are no text are escaped.
    pub path: Option<String>,
    /// The file has no name any more.
    pub is_deleted: bool,
    /// The file's key, for those without a path.
    pub file: String,
    /// Who on the client; escaped.
    pub owner: Option<String>,
    /// When it was granted, or began to wait.
    pub since_unix_ms: Option<u64>,
    /// Of opens, shares and delegations: `read`, `write`, `both`; `directory` for directory delegations. Of capabilities:
    /// what they cover, `s` for shared and `x` for exclusive ones, as in `auth=s link=x xattr=s file=x`.
    pub access: Option<String>,
    /// Of opens and shares, what is denied to others: `none`, `read`, `write`, `both`.
    pub deny: Option<String>,
    /// Of locks: where.
    pub ranges: Vec<Range>,
    /// Of delegations and capabilities: since when the client has been asked to give it back.
    pub recalled_unix_ms: Option<u64>,
    /// It was taken from the client, which has not taken note yet.
    pub is_revoked: bool,
}

/// Part of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// Where the next part begins; absent after the last.
    pub next: Option<String>,
}

/// What was taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Clients that were revoked, by name.
    pub clients: Vec<String>,
    /// How many opens, locks and delegations ended.
    pub holdings: u64,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The file that was read.
    pub file: String,
    /// How many exports are served now.
    pub exports: u64,
    /// Keys that changed and count from the next start on.
    pub needs_restart: Vec<String>,
}

/// A handover that has begun: soon another run answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrading {
    /// `instance` of the server that hands over.
    pub instance: String,
}

/// What is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevels {
    /// Levels, as `--log` takes them.
    pub levels: String,
}

/// What was done, by operation, client and export, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// When this was read.
    pub at_unix_ms: u64,
    /// By operation; those never executed are left out.
    pub operations: Vec<OperationCounters>,
    /// By client's address.
    pub clients: Vec<GroupCounters>,
    /// By export's path.
    pub exports: Vec<GroupCounters>,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationCounters {
    /// `nfs3` or `nfs4`.
    pub protocol: String,
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How often it failed.
    pub errors: u64,
    /// The time it takes: of half, of 99 in a hundred; and on average.
    pub p50_ns: u64,
    /// Of 99 in a hundred.
    pub p99_ns: u64,
    /// On average.
    pub mean_ns: u64,
}

/// One client or export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounters {
    /// An address, an export's path, or `others`.
    pub name: String,
    /// Names under which this address is known in `clients`.
    pub known_as: Vec<String>,
    /// Operations that read data.
    pub read: u64,
    /// That write or commit data.
    pub write: u64,
    /// That look at names and attributes.
    pub look: u64,
    /// That change them.
    pub change: u64,
    /// About clients, sessions, opens, locks.
    pub state: u64,
    /// That failed.
    pub errors: u64,
    /// Bytes of arguments.
    pub received_bytes: u64,
    /// Bytes of results.
    pub sent_bytes: u64,
}

impl GroupCounters {
    /// Operations of all sorts.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.read + self.write + self.look + self.change + self.state
    }
}
