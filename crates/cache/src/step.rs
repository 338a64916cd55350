//! How an operation proceeds: it is called, and called again after each question it had was answered.

use crate::ask::{Ask, Generation};
use crate::counted::Counted;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Caller, Now};
use holdfast_base::Instant;
use holdfast_base::limits::PARKED_MS_MAX;

/// What came of calling an operation.
#[derive(Debug)]
pub enum Step<T> {
    /// It is done.
    Done(T),
    /// It failed, for good.
    Failed(Errno),
    /// Perform this, [`absorb`](crate::Machine::absorb) the answer with the same turn, and call again.
    Ask(Box<Ask>),
    /// Call again when [`Machine::progress`](crate::Machine::progress) has changed. What is waited for was made
    /// urgent: whoever drives the flusher has to be woken now.
    Wait(Wait),
}

/// Where data that is read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadInto {
    /// Pages that the kernel keeps: those of a mapping, too, of a file that otherwise goes past them.
    Pages,
    /// The memory of whoever reads, and nowhere else: so does `O_DIRECT`, whatever the open.
    Memory,
}

/// Where data that is written goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTo {
    /// To the place that is given.
    Place,
    /// To the end, whatever place is given: that is where whoever writes believes the end to be.
    End,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Queued mutations are to be executed.
    Executed,
    /// Queued mutations are to be on disk.
    Stable,
    /// A file's data is to be written.
    Written,
    /// Room in the queue or for dirty data.
    Room,
    /// The kernel is to have forgotten.
    Forgotten,
    /// It is to have been given a file's data.
    Stored,
    /// What is being given back is to be with the server.
    Released,
    /// A file that is being read ahead is to be here.
    Ahead,
}

/// A file that the server has opened, made or as it was, and nobody else knows to be open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) node: crate::ids::NodeId,
    pub(crate) opened: crate::ops::Opened,
    /// Attributes as they came.
    pub(crate) attrs: crate::attrs::Attrs,
    /// It has still to be emptied.
    pub(crate) is_to_empty: bool,
}

/// One application operation on its way: keep it from the first call to the last, and give it to
/// [`absorb`](crate::Machine::absorb) with each answer. Of one that is given up the machine is told
/// ([`abandoned`](crate::Machine::abandoned)) where it [`has_opened`](Self::has_opened) something.
#[derive(Debug)]
pub struct Turn {
    /// Who asks.
    pub caller: Caller,
    /// Permission bits that the caller does not give what it makes, unless an access list is handed on to that.
    pub umask: u32,
    /// The answer to its last question, usable once.
    pub(crate) fresh: Option<Result<Fresh, Errno>>,
    /// Capabilities were asked for and are not to be asked for again.
    pub(crate) acquired: bool,
    /// The last mutation that has to be executed, or stable, before this operation goes on.
    pub(crate) through: Option<u64>,
    /// Of the files that are synced, the one looked at alone before all of them are again.
    pub(crate) awaited: Option<crate::ids::NodeId>,
    /// Data read so far.
    pub(crate) pieces: Vec<crate::extent::Piece>,
    /// When a name was first asked for, of those that it is about.
    pub(crate) named_at: Option<Generation>,
    /// The file ends here, as far as answers told.
    pub(crate) end_seen: Option<u64>,
    /// What a name was found to be, or got by a change that is done, whose attributes had to be asked for again.
    pub(crate) looked: Option<(crate::ids::NodeId, crate::attrs::Attrs)>,
    /// What a name was known to stand for, of which it asks; and of which it was heard last that it has gone.
    pub(crate) asks_of: Option<crate::ids::NodeId>,
    pub(crate) gone: Option<crate::ids::NodeId>,
    /// It reads a directory as a whole.
    pub(crate) is_filling: bool,
    /// An open that is being asked for so that a file outlives its last name, and the file of which it was had.
    pub(crate) opening: Option<(crate::ids::NodeId, crate::ask::Access)>,
    pub(crate) opened: Option<crate::ids::NodeId>,
    /// What the names of a rename stand for, as far as it was found out.
    pub(crate) source: Option<Option<crate::ids::NodeId>>,
    pub(crate) target: Option<Option<crate::ids::NodeId>>,
    /// The name being removed is the file's last, and nobody has it open.
    pub(crate) removes_last: bool,
    /// The file being opened was emptied, or is being.
    pub(crate) emptied: bool,
    /// What was to be made or opened is open, and has still to be emptied, its attributes to be asked for, or its data to be taken
    /// by the kernel.
    pub(crate) found: Option<Found>,
    /// The name under which a file is being hidden.
    pub(crate) hiding: Option<crate::node::Hidden>,
    /// What the kernel gets of this operation it drops before a recall under way is answered.
    pub(crate) is_dropped: bool,
    /// Since when it waits for a release.
    pub(crate) parked_at: Option<Instant>,
    /// When the first of the parts was asked for that nothing guarantees.
    pub(crate) unsure_at: Generation,
    /// How often it has asked for what covers that, and how many grants had come late by then.
    pub(crate) covers_asked: u32,
    pub(crate) late_before: u64,
    /// What it asked for last was to be had beside writers.
    pub(crate) is_beside_writers: bool,
    /// It is a write that leaves the kernel nothing that was not there before.
    pub(crate) leaves_nothing: bool,
    /// Where what it reads goes, if that is known; else it is as the open.
    pub(crate) reads_into: Option<ReadInto>,
    /// Where what it writes goes, if that is known; else it is as the open.
    pub(crate) writes_to: Option<WriteTo>,
    /// Nothing covers what it has given the kernel.
    pub(crate) is_uncovered: bool,
    /// The kernel had been told of the file's data before this.
    pub(crate) was_told: Option<bool>,
    /// Nothing guaranteed the data when it was last asked for.
    pub(crate) reads_unsure: bool,
    /// When the server was last asked for data.
    pub(crate) read_at: Generation,
    /// When it was first called.
    pub(crate) begun: Option<Generation>,
    /// When the question was asked that was answered last.
    pub(crate) asked_at: Generation,
    /// The answer to what it asked for last does not know of all that was written before, which is known here.
    pub(crate) adds_ours: bool,
    /// The invalidation that is waited for.
    pub(crate) forgets: Option<u64>,
    /// It reads what the server has, whatever is known here.
    pub(crate) passes_cache: bool,
    /// What it reads or writes is to pass the server's memory as well.
    pub(crate) goes_to_disk: bool,
    /// It has failed with this, when the kernel has forgotten what it may have changed.
    pub(crate) failed: Option<Errno>,
    /// What it was counted as.
    pub(crate) counted: Counted,
}

impl Turn {
    /// A new operation by this caller.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            umask: 0,
            fresh: None,
            acquired: false,
            through: None,
            awaited: None,
            pieces: Vec::new(),
            named_at: None,
            end_seen: None,
            looked: None,
            asks_of: None,
            gone: None,
            is_filling: false,
            opening: None,
            opened: None,
            source: None,
            target: None,
            removes_last: false,
            emptied: false,
            found: None,
            hiding: None,
            is_dropped: false,
            parked_at: None,
            unsure_at: Generation(0),
            covers_asked: 0,
            late_before: 0,
            is_beside_writers: false,
            leaves_nothing: false,
            reads_into: None,
            writes_to: None,
            is_uncovered: false,
            was_told: None,
            reads_unsure: false,
            read_at: Generation(0),
            begun: None,
            asked_at: Generation(0),
            adds_ours: false,
            forgets: None,
            passes_cache: false,
            goes_to_disk: false,
            failed: None,
            counted: Counted::default(),
        }
    }
}

/// Why an operation cannot go on, for `?`.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(Errno),
    Ask(Box<Ask>),
    Wait(Wait),
}

pub(crate) type Outcome<T> = Result<T, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl<T> From<Outcome<T>> for Step<T> {
    fn from(outcome: Outcome<T>) -> Self {
        match outcome {
            Ok(v) => Self::Done(v),
            Err(Stop::Failed(errno)) => Self::Failed(errno),
            Err(Stop::Ask(ask)) => Self::Ask(ask),
            Err(Stop::Wait(wait)) => Self::Wait(wait),
        }
    }
}

impl Turn {
    /// Whether it has waited for a release for as long as it may.
    pub(crate) fn has_parked(&self, now: Now) -> bool {
        self.parked_at.is_some_and(|at| now.mono.ms_since(at) >= PARKED_MS_MAX)
    }

    /// Of a read: where it goes, whatever its open does.
    pub const fn reads_into(&mut self, into: ReadInto) {
        self.reads_into = Some(into);
    }

    /// Of a write: where it goes, whatever its open says.
    pub const fn writes_to(&mut self, to: WriteTo) {
        self.writes_to = Some(to);
    }

    /// Has a read ask the server, whatever is known here (`O_DIRECT`).
    pub const fn pass_cache(&mut self) {
        self.passes_cache = true;
    }

    /// Has the server spend no memory on what is read or written, which is on its disk when that is done (`O_DIRECT`, end to end).
    pub const fn go_to_disk(&mut self) {
        self.goes_to_disk = true;
    }

    /// Whether nothing covers what it has given to the kernel: that is to drop it, once it has it
    /// ([`Machine::taken_uncovered`](crate::Machine::taken_uncovered)).
    #[must_use]
    pub const fn is_uncovered(&self) -> bool {
        self.is_uncovered
    }

    /// Whether it has something open that nobody else knows of.
    #[must_use]
    pub const fn has_opened(&self) -> bool {
        self.found.is_some()
    }

    /// The answer to the last question, if it was not used yet.
    pub(crate) fn take(&mut self) -> Outcome<Option<Fresh>> {
        self.fresh.take().transpose().map_err(Stop::Failed)
    }

    /// The same of an operation on names. That what a name stood for has gone says nothing of the name, which others may have given to
    /// another file: it begins anew. Where the server goes on to say so of one file, which it does not find and has a name for, it fails.
    pub(crate) fn take_of_names(&mut self) -> Outcome<Option<Fresh>> {
        let asked_of = self.asks_of.take();
        match self.take() {
            Err(Stop::Failed(Errno::ESTALE)) if asked_of.is_some() && asked_of != self.gone => {
                self.gone = asked_of;
                (self.looked, self.target, self.opening) = (None, None, None);
                Ok(None)
            }
            taken => taken,
        }
    }
}
