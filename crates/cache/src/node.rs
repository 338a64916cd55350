//! What is known of one object.

use bytes::Bytes;
use holdfast_base::limits::LARGE_EXTENT_BYTES;
use holdfast_base::{Instant, Timestamp};
use rustc_hash::FxHashMap;

use crate::ask::{Access, Generation};
use crate::attrs::{Attrs, Kind};
use crate::caps::Grant;
use crate::dir::Dir;
use crate::errno::Errno;
use crate::extent::{Extents, Progress};
use crate::ids::{Caller, Fh, Handle, Name, NodeId, OpenToken};
use crate::losses::{Heard, Losses};
use crate::mutation::WriteId;
use holdfast_base::CapSet;

/// One object.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// `None` until the mutation that makes it was executed.
    pub(crate) handle: Option<Handle>,
    /// The operation of a batch that made it.
    pub(crate) made: Option<(u64, u32)>,
    /// Attributes as last known, `fileid` as shown; guaranteed as far as `sure` says.
    pub(crate) attrs: Attrs,
    /// The change attribute in them is the server's, and nothing was changed here since it was told.
    pub(crate) is_theirs: bool,
    /// The modification time that the server was last given here.
    pub(crate) told_mtime: Option<Timestamp>,
    /// What the server had, as it told or was told last; only where there is a journal.
    pub(crate) base: Option<Box<crate::persist::Base>>,
    /// Kinds (shared bits) whose attributes are guaranteed; always within `held`.
    pub(crate) sure: CapSet,
    /// When the number of its names last became sure by an answer.
    pub(crate) links_sure_at: Generation,
    pub(crate) held: CapSet,
    /// When something shared that was not held was last given: answers of before, told under no such grant, are not covered by it.
    pub(crate) given_at: Generation,
    /// What is not used any more, and is not given back yet: others wait for it.
    pub(crate) giving_back: CapSet,
    /// The last grant or recall seen.
    pub(crate) seq: u64,
    pub(crate) plain: bool,
    pub(crate) group_of_directory: bool,
    /// It has an access list, or may have one. Of what is not sure of `AUTH_S` nothing is known.
    pub(crate) listed: bool,
    /// It surely hands on no list: true as long as what covers lists is held and sure.
    pub(crate) hands_on_none: bool,
    /// The server that began anew last said, when it was claimed, that somebody had changed it while there was none.
    pub(crate) is_changed_since: bool,
    /// When an access list of it was last changed here: earlier answers may not know.
    pub(crate) lists_changed: Generation,
    pub(crate) recall: Option<Recalling>,
    /// Of a directory that is recalled: what was in it, for whoever asked for it will look at that next.
    pub(crate) yields: Vec<NodeId>,
    pub(crate) recalled_at: Option<Instant>,
    /// The last event after which earlier answers about it must not be kept.
    pub(crate) disturbed: Generation,
    /// The last event after which earlier answers about names in it must not be kept.
    pub(crate) names_lost: Generation,
    /// The change asked for at this moment was the only thing that happened meanwhile: its reply is to be believed.
    pub(crate) clean_for: Option<Generation>,
    /// Mutations of ours on it that are being asked for now.
    pub(crate) changing: u32,
    /// That it has one name was sure when the last of them was asked for.
    pub(crate) had_one_name: bool,
    /// References the kernel has.
    pub(crate) lookups: u64,
    pub(crate) opens: Vec<Fh>,
    /// Whom the server has let in since `AUTH_S` is held, and for what; of servers that promise by delegations.
    pub(crate) admitted: Vec<(Caller, Access)>,
    /// The last queued mutation that concerns it.
    pub(crate) last_serial: u64,
    /// The last of its changes that the server had executed and lost, until it is seen that it has executed that again.
    pub(crate) lost_serial: u64,
    /// Mutations queued or on their way that name it.
    pub(crate) pending: u32,
    /// Serials of those about it (not: in it) that are not sent.
    pub(crate) unsent: Vec<u64>,
    pub(crate) data: FileData,
    pub(crate) dir: Option<Box<Dir>>,
    /// Of a directory: the one that it was last found in. It may have been moved since.
    pub(crate) above: Option<NodeId>,
    /// Where it was last known to be, when that name was forgotten: something may have to be put beside it. It may have been
    /// moved since. Only where there is a journal.
    pub(crate) place: Option<(NodeId, Name)>,
    pub(crate) text: Option<Bytes>,
    /// It was made here, and nothing was set since: it has no extended attributes.
    pub(crate) no_xattrs: bool,
    pub(crate) xattrs: FxHashMap<Name, Result<Bytes, Errno>>,
    /// What was lost of it after it had been said to be done.
    pub(crate) losses: Losses,
    /// A name of it was removed here, or given to another: it may be gone.
    pub(crate) has_lost_name: bool,
    /// It was made without a name, and nobody has asked to give it one.
    pub(crate) is_nameless: bool,
    /// It was removed at the server, which ends by itself what was held.
    pub(crate) is_over: bool,
    /// It is not at the server, and will not be.
    pub(crate) dead: Option<Errno>,
    /// The directory that the kernel was last told of it in, and its position there; 0 where it had none.
    pub(crate) told_in: Option<(NodeId, u64)>,
    /// The kernel was told that attributes are valid.
    pub(crate) told_attrs: bool,
    /// The kernel may have data that it takes for valid.
    pub(crate) told_data: bool,
    /// The last word to the kernel to drop all of the data.
    pub(crate) data_forget: u64,
    /// Grants that a recall had overtaken: they count for nothing.
    pub(crate) late_grants: u64,
    /// What would cover its data was refused: others have it open for writing.
    pub(crate) refused_at: Option<Instant>,
    /// It was refused even until they write.
    pub(crate) denied_at: Option<Instant>,
    /// All of it was asked for and not given: others use it, or the server has it open for somebody who writes.
    pub(crate) shared_at: Option<Instant>,
    /// What covers its data was given beside writers, and is given back then.
    pub(crate) lent_until: Option<Instant>,
    /// Parts that the kernel drops while a recall is answered: by which word to it, from where, to where.
    pub(crate) dropping: Vec<(u64, u64, u64)>,
    /// When the kernel last dropped what nothing covered, and when it will again.
    pub(crate) dropped_at: Option<Instant>,
    pub(crate) drop_due: Option<Instant>,
    /// What was asked back is on its way to the server: until it is there nothing can be had anew.
    pub(crate) is_releasing: bool,
    /// All data that the kernel has was read while `FILE_S` was held.
    pub(crate) pages_covered: bool,
    /// A name of it is hidden until the last close.
    pub(crate) hidden: Option<Hidden>,
    pub(crate) touched: Instant,
}

/// A name under which a file is hidden that is open and has lost its own.
#[derive(Debug)]
pub(crate) struct Hidden {
    pub(crate) dir: NodeId,
    pub(crate) name: Name,
    /// Who has removed its own.
    pub(crate) caller: Caller,
    /// It has no other: that was sure, and whoever gives it one asks `LINK_S` back.
    pub(crate) is_only_name: bool,
}

/// A recall that is being answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recalling {
    pub(crate) keep: CapSet,
    /// The kernel has to have forgotten everything up to this invalidation.
    pub(crate) invalidation: u64,
    /// Mutations up to this one have to be executed.
    pub(crate) through: u64,
    /// When it came.
    pub(crate) at: Generation,
    /// What was written before is being committed.
    pub(crate) is_committing: bool,
}

impl Recalling {
    /// One that came then, and waits for nothing.
    pub(crate) const fn new(keep: CapSet, at: Generation) -> Self {
        Self { keep, invalidation: 0, through: 0, at, is_committing: false }
    }
}

/// Data of a file that is not known to be on the server's disk.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    pub(crate) extents: Extents,
    /// WRITEs on their way: what they cover, whatever was written over it since.
    pub(crate) in_flight: Vec<(WriteId, u64, u64)>,
    /// WRITEs wait until this mutation was executed.
    pub(crate) barrier: u64,
    /// The last one sent that has brought contents, or cut them off: until it is on the server's disk it may come again.
    pub(crate) filled_by: u64,
    /// That one as it was when data was last written beside the stream: a COMMIT of what was written waits until it cannot come
    /// again. What was sent since comes behind that data, again or not.
    pub(crate) written_over: u64,
    /// `FILE_S` came last at this moment: what was sent before others may have overwritten.
    pub(crate) readable_since: Generation,
    /// WRITEs and COMMITs up to this one were of a file that the server had made and lost.
    pub(crate) lost_through: WriteId,
    /// The server did not find it, and has not said yet whether what made it is on its disk: nothing is written meanwhile.
    pub(crate) is_doubted: bool,
    /// Data was last forgotten here at this moment, as the server has it.
    pub(crate) moved: Generation,
    /// All of it is kept, under this number.
    pub(crate) clean: Option<u64>,
    /// All of it as it is shown is kept, under this number: the server may not have all of that.
    pub(crate) grown: Option<u64>,
    /// Which blocks of it on this host's disk are what the server has.
    pub(crate) kept: crate::disk::Validity,
    /// When it last became, or may have become, something else than the server had.
    pub(crate) differs_since: Generation,
    /// Truncations that the server has not executed: from where on its data is void, and the mutation's serial.
    pub(crate) truncations: Vec<(u64, u64)>,
    /// It is in the queue of files to be written.
    pub(crate) in_bulk: bool,
    /// It is in the queue of files to be committed.
    pub(crate) in_commits: bool,
    pub(crate) committing: Option<(WriteId, Generation)>,
    /// It may be locked through this mount: what is written goes by WRITE, which names a state that ends with the locks, and
    /// not in a batch, which comes out again whatever has become of them. Never where there is a journal.
    pub(crate) is_locked: bool,
    /// Who has it open to be written may write by that alone: what is written goes by WRITE, which names the open, and not in a
    /// batch, which the server judges by what the file is then.
    pub(crate) needs_open: bool,
    /// Of this much, not sent yet, somebody waits until it is on the server's disk (`O_DIRECT`, end to end): it goes by WRITE.
    pub(crate) to_disk: Option<(u64, u64)>,
    /// Just this, not sent yet, is to be on the server's disk when it is answered, as somebody waits for no more than that.
    pub(crate) forced: Option<(u64, u64)>,
    /// It is in the queue of files that grow old.
    pub(crate) is_aging: bool,
    /// Nobody wants its data to go yet: what is not [large](LARGE_EXTENT_BYTES) waits for what may be written beside it. Only while it
    /// grows old.
    pub(crate) keeps_back: bool,
    /// The mutation not sent yet that carries its data.
    pub(crate) carrier: Option<u64>,
    /// Who wrote last.
    pub(crate) writer: Option<Caller>,
    /// It has no name, nobody had it open, and what was written and not sent was dropped: nobody opens it any more.
    pub(crate) is_let_go: bool,
    /// The server's modification time is not what was shown.
    pub(crate) mtime_owed: bool,
    /// The last mutations about the file do nothing but pay that, as they were queued: those behind the first serial, through the second.
    pub(crate) mtime_paid: Option<(u64, u64)>,
    /// The modification time that somebody last set, who is told if the server will not have it.
    pub(crate) mtime_set: Option<Timestamp>,
    /// The server's modification time may be of its own clock, by a WRITE or a truncation of ours, which nobody told here:
    /// until one is set by a mutation behind this serial.
    pub(crate) clocked_since: Option<u64>,
    /// It was so at some time since the mount began: of what the server may lose nobody can tell when it was changed last.
    pub(crate) was_clocked: bool,
}

/// One open.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) node: NodeId,
    pub(crate) access: Access,
    pub(crate) append: bool,
    pub(crate) token: Option<OpenToken>,
    /// What the server's open is good for, which may be more than this one: others depend on it as well.
    pub(crate) covers: Access,
    /// The server was told of it, whether or not it keeps state of it.
    pub(crate) at_server: bool,
    /// It is being told, or is about to be.
    pub(crate) is_being_told: bool,
    pub(crate) caller: Caller,
    pub(crate) stream: Option<Box<crate::dir::Stream>>,
    /// Its data goes past the kernel's pages.
    pub(crate) is_direct: bool,
    /// A program that runs (or is about to).
    pub(crate) executes: bool,
    /// Of what was lost.
    pub(crate) heard: Heard,
}

impl FileData {
    /// What was sent with a mutation and is lost counts again, but for what was written since, or cut off by one behind it.
    pub(crate) fn take_back(&mut self, sent: &[(u64, Bytes)], serial: u64) {
        let cuts = self.truncations.iter().filter(|(_, by)| *by > serial);
        let end = cuts.map(|(from, _)| *from).min().unwrap_or(u64::MAX);
        for (offset, bytes) in sent.iter().filter(|(offset, _)| *offset < end) {
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let bytes = bytes.slice(..bytes.len().min(room));
            self.extents.put_below(*offset, &bytes, Progress::Stream(serial), Generation(0));
        }
    }

    /// Where all that the server does not have on its disk is, if that is one short run of bytes, of which nothing is on its way.
    pub(crate) fn one_run(&self) -> Option<(u64, u64)> {
        let is_at_rest = self.in_flight.is_empty() && self.committing.is_none();
        self.extents.one_run().filter(|(from, to)| is_at_rest && to - from <= LARGE_EXTENT_BYTES as u64)
    }

    /// Whether any of it is to be sent now.
    pub(crate) fn is_to_go(&self) -> bool {
        if self.keeps_back { self.extents.has_large() } else { self.extents.has_dirty() }
    }

    /// Whether the server may have lost some of what it took before then, when it began anew: a COMMIT will tell.
    pub(crate) fn may_be_lost(&self, epoch: Generation) -> bool {
        let is_of_before = |p| matches!(p, Progress::Unstable { since, .. } if since < epoch);
        self.extents.weights().unstable > 0 && self.extents.any(|p, _| is_of_before(p))
    }

    /// It is not any more what it was before.
    pub(crate) fn differs(&mut self, at: Generation) {
        (self.clean, self.grown) = (None, None);
        self.differs_since = at;
    }
}

impl Node {
    /// What a grant says beside what is held. One that may be older than a change of ours says nothing good. Whether the
    /// kernel has to hear that there is an access list: it may have been told that there is none.
    #[must_use]
    pub(crate) fn take_traits(&mut self, grant: &Grant, is_doubtful: bool) -> bool {
        let (was_listed, handed_on_none) = (self.listed, self.hands_on_none);
        self.plain = grant.plain && (self.plain || !is_doubtful);
        self.hands_on_none = grant.hands_on_none && (self.hands_on_none || !is_doubtful);
        self.listed = grant.listed || (self.listed && is_doubtful);
        self.group_of_directory = grant.group_of_directory;
        let has_more = (self.listed && !was_listed) || (handed_on_none && !self.hands_on_none);
        let is_news = has_more && self.told_attrs;
        if is_news {
            self.xattrs.clear();
        }
        is_news
    }

    /// Whether the last name known of it was removed here, and nobody has it open: what becomes of it nobody will see.
    pub(crate) fn has_ended_here(&self) -> bool {
        self.opens.is_empty() && self.has_lost_name && self.attrs.nlink == 0
    }

    pub(crate) fn new(id: NodeId, handle: Option<Handle>, attrs: Attrs, now: Instant) -> Self {
        Self {
            id,
            handle,
            made: None,
            dir: (attrs.kind == Kind::Dir).then(Box::default),
            attrs,
            is_theirs: false,
            told_mtime: None,
            base: None,
            sure: CapSet::NONE,
            links_sure_at: Generation(0),
            held: CapSet::NONE,
            given_at: Generation(0),
            giving_back: CapSet::NONE,
            seq: 0,
            plain: false,
            group_of_directory: false,
            listed: false,
            hands_on_none: false,
            is_changed_since: false,
            lists_changed: Generation(0),
            recall: None,
            yields: Vec::new(),
            recalled_at: None,
            disturbed: Generation(0),
            names_lost: Generation(0),
            clean_for: None,
            changing: 0,
            had_one_name: false,
            lookups: 0,
            opens: Vec::new(),
            admitted: Vec::new(),
            last_serial: 0,
            lost_serial: 0,
            pending: 0,
            unsent: Vec::new(),
            data: FileData::default(),
            above: None,
            place: None,
            text: None,
            no_xattrs: false,
            xattrs: FxHashMap::default(),
            losses: Losses::default(),
            has_lost_name: false,
            is_nameless: false,
            is_over: false,
            dead: None,
            told_in: None,
            told_attrs: false,
            told_data: false,
            data_forget: 0,
            late_grants: 0,
            refused_at: None,
            denied_at: None,
            shared_at: None,
            lent_until: None,
            dropping: Vec::new(),
            dropped_at: None,
            drop_due: None,
            is_releasing: false,
            pages_covered: false,
            hidden: None,
            touched: now,
        }
    }

    /// Whether `stat` can be answered.
    pub(crate) fn is_sure(&self) -> bool {
        self.sure.contains(CapSet::ALL_S)
    }

    /// Whether this may be changed here: held exclusively, and what it is now is known.
    pub(crate) fn may_change(&self, exclusive: CapSet) -> bool {
        self.held.contains(exclusive) && self.sure.contains(exclusive.shared()) && self.changing == 0
    }

    /// Whether it has a name that nobody takes unseen: until that is asked back it is there, whoever has it open.
    pub(crate) fn has_sure_name(&self) -> bool {
        self.sure.contains(CapSet::LINK_S) && self.attrs.nlink > 0
    }

    /// Whether no name leads to it, and that is no guess: of what was removed by asking, and may have got another name meanwhile, the
    /// number of names is one.
    pub(crate) fn has_surely_no_name(&self) -> bool {
        self.sure.contains(CapSet::LINK_S) && self.attrs.nlink == 0
    }

    /// What a server that begins anew has to know of, for others to wait as they did: with what is held what is asked back, as
    /// long as not all that was done under it is there.
    pub(crate) fn to_claim(&self) -> CapSet {
        let is_given_back =
            self.recall.is_none() && self.pending == 0 && !self.has_unsent(Generation(u64::MAX));
        if is_given_back { self.held } else { self.held | self.giving_back }
    }

    /// Whether nothing refers to it and nothing is under way, so that it can be forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        self.lookups == 0
            && self.opens.is_empty()
            && self.pending == 0
            && self.changing == 0
            && self.recall.is_none()
            && self.hidden.is_none()
            && self.data.extents.is_empty()
            && self.data.in_flight.is_empty()
            && self.data.committing.is_none()
            && self.id != NodeId::ROOT
    }

    /// Whether what is held covers an answer to a question asked at `at`, which came with this grant. One without, and under way
    /// when something was given, may be of before: others may have made changes between the two.
    pub(crate) fn is_covered(&self, at: Generation, grant: Option<Grant>) -> bool {
        self.given_at <= at || grant.is_some_and(|grant| grant.seq == self.seq)
    }

    /// What the server says about it, where we do not know better.
    pub(crate) fn merged(&self, theirs: &Attrs) -> Attrs {
        let ours = &self.attrs;
        let mut all = *theirs;
        all.fileid = ours.fileid;
        if self.sure.contains(CapSet::AUTH_S) {
            (all.mode, all.uid, all.gid) = (ours.mode, ours.uid, ours.gid);
        }
        if self.sure.contains(if self.dir.is_some() { CapSet::FILE_S } else { CapSet::LINK_S }) {
            all.nlink = ours.nlink;
        }
        if self.sure.contains(CapSet::FILE_S) {
            (all.size, all.allocated) = (ours.size, ours.allocated);
            (all.atime, all.mtime, all.change) = (ours.atime, ours.mtime, ours.change);
        }
        if !self.sure.is_empty() {
            all.ctime = all.ctime.max(ours.ctime);
        }
        all
    }

    /// Whether data is waiting to reach the server, of that written up to `born`.
    pub(crate) fn has_unsent(&self, born: Generation) -> bool {
        self.data.extents.has_unsent(born)
    }
}
