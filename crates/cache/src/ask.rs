//! Questions to the server, and its answers. The driver performs an [`Ask`] and hands the answer to
//! [`Machine::absorb`](crate::Machine::absorb). The machine never waits; it asks.

use bytes::Bytes;

use crate::acting::Acting;
use crate::attrs::{Attrs, Changes, Device, Kind, NewAttrs};
use crate::caps::Grant;
use crate::disk::BlockAt;
use crate::errno::Errno;
use crate::ids::{Caller, Handle, Name, NodeId, OpenToken};
use crate::leases::Promise;
use holdfast_base::CapSet;

/// Order of events in the machine: what is known of an object is compared with when a question was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// A question, with the credential it has to be asked with.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// When it was asked.
    pub at: Generation,
    /// Whose credential the call carries.
    pub caller: Caller,
    /// What is asked.
    pub question: Question,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
}

impl Access {
    /// Whether it covers `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        (self.read || !other.read) && (self.write || !other.write)
    }
}

/// Flags of a rename (`renameat2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// The new name is replaced.
    #[default]
    Replace,
    /// The new name must not exist.
    NoReplace,
    /// The two names change places.
    Exchange,
}

/// What is to be allocated or freed (`fallocate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Space is reserved, the size grows.
    Extend,
    /// Space is reserved, the size stays.
    KeepSize,
    /// The range becomes a hole, the size stays.
    PunchHole,
    /// The range reads as zeros; the size grows.
    ZeroRange,
    /// The range reads as zeros; the size stays.
    ZeroRangeKeepSize,
}

impl AllocateMode {
    /// Whether something of it may be done when it fails.
    pub(crate) const fn is_in_steps(self) -> bool {
        matches!(self, Self::ZeroRange | Self::ZeroRangeKeepSize)
    }
}

/// What is looked for (`lseek`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekKind {
    /// The next data.
    Data,
    /// The next hole.
    Hole,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Made or replaced.
    #[default]
    Either,
    /// Must be new.
    Create,
    /// Must exist.
    Replace,
}

/// What is to be made under a new name, when it is not a regular file.
#[derive(Clone, Debug, PartialEq)]
pub enum Making {
    /// A directory.
    Dir,
    /// A symbolic link with this text.
    Symlink(Bytes),
    /// A device, pipe or socket.
    Node(Kind, Device),
}

/// Every question the machine may have.
#[expect(missing_docs, reason = "fields are named for what they are; each variant says the rest")]
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Which object has this name? `want` on the object, `want_dir` on the directory. Answer: `Looked`.
    Lookup { dir: Handle, name: Name, want: CapSet, want_dir: CapSet },
    /// Attributes. Answer: `Attrs`.
    GetAttr { object: Handle, open: Option<OpenToken>, want: CapSet },
    /// A part of a directory. `cookie` 0 begins. Answer: `Listed`.
    List { dir: Handle, cookie: u64, verifier: u64, bytes_max: u32, want: CapSet, want_dir: CapSet },
    /// Capabilities on objects; what cannot be had at once is not granted. Answer: `Acquired`.
    Acquire { items: Vec<(Handle, CapSet)> },
    /// Data; with `from_disk` the server does not keep it in memory. Answer: `Read`.
    Read { object: Handle, open: Option<OpenToken>, offset: u64, length: u32, from_disk: bool },
    /// A link's text. Answer: `Text`.
    ReadLink { object: Handle },
    /// An open that the server knows of. Answer: `Opened`.
    Open { object: Handle, access: Access, truncate: bool, want: CapSet },
    /// Its end. Answer: `Done`.
    Close { open: OpenToken },
    /// A file made and opened. When it exists: EEXIST if `exclusive`, else it is opened as it is. Answer: `Created`.
    Create {
        dir: Handle,
        name: Name,
        attrs: NewAttrs,
        access: Access,
        exclusive: bool,
        want: CapSet,
        want_dir: CapSet,
    },
    /// A file without a name made and opened, as if in this directory. Answer: `Created`.
    Nameless { dir: Handle, attrs: NewAttrs, access: Access, want: CapSet },
    /// Anything else made. Answer: `Created` without an open.
    Make { dir: Handle, name: Name, making: Making, attrs: NewAttrs, want: CapSet, want_dir: CapSet },
    /// One more name. Answer: `Created` with the object's new attributes.
    Link { object: Handle, dir: Handle, name: Name, want_dir: CapSet },
    /// A name removed; `is_dir` as in `rmdir`. `victim` is what it stood for, where that is known: the machine's own
    /// note. Answer: `Gone`.
    Remove { dir: Handle, name: Name, is_dir: bool, victim: Option<Handle>, want_dir: CapSet },
    /// A name changed; `object` and `victim` are what the two stood for, as above. Answer: `Gone`.
    Rename {
        from_dir: Handle,
        from: Name,
        to_dir: Handle,
        to: Name,
        mode: RenameMode,
        object: Option<Handle>,
        victim: Option<Handle>,
        want_dir: CapSet,
    },
    /// Attributes changed. Answer: `Attrs`.
    SetAttr { object: Handle, open: Option<OpenToken>, changes: Changes, want: CapSet },
    /// Data written; `stable` means on disk before the answer, and not kept in the server's memory. Answer: `Written`.
    Write { object: Handle, open: Option<OpenToken>, offset: u64, data: Bytes, stable: bool },
    /// Data written where the file ends when the server does it. Answer: `Appended`.
    Append { object: Handle, open: Option<OpenToken>, data: Bytes },
    /// What was written unstably put on disk. Answer: `Committed`.
    Commit { object: Handle, open: Option<OpenToken> },
    /// Space reserved, freed or zeroed. Answer: `Done`.
    Allocate { object: Handle, open: Option<OpenToken>, mode: AllocateMode, offset: u64, length: u64 },
    /// The next data or hole. Answer: `Sought`.
    Seek { object: Handle, open: Option<OpenToken>, offset: u64, kind: SeekKind },
    /// Data copied on the server. Answer: `Copied`.
    Copy {
        from: Handle,
        from_open: Option<OpenToken>,
        from_offset: u64,
        to: Handle,
        to_open: Option<OpenToken>,
        to_offset: u64,
        length: u64,
    },
    /// One extended attribute. Answer: `Value`.
    GetXattr { object: Handle, name: Name },
    /// The names of all. Answer: `Names`.
    ListXattr { object: Handle },
    /// One set. Answer: `Done`.
    SetXattr { object: Handle, name: Name, value: Bytes, mode: XattrMode },
    /// One removed. Answer: `Done`.
    RemoveXattr { object: Handle, name: Name },
    /// Room on the file system. Answer: `Room`.
    StatFs { object: Handle },
    /// Blocks of a file's contents on this host's disk: no question to the server. Answer: `Blocks`.
    Blocks { node: NodeId, blocks: Vec<BlockAt> },
    /// As whom does this caller act on the server? Answer: `Acts`.
    WhoAmI,
}

/// An object that a reply tells of.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, read after `grant` was given.
    pub attrs: Attrs,
    /// What is held on it, when the reply says so.
    pub grant: Option<Grant>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name; never `.` or `..`.
    pub name: Name,
    /// Where to go on after it.
    pub cookie: u64,
    /// The object, when the server could tell.
    pub object: Option<Object>,
    /// Kind and inode number, for readers that want no more.
    pub brief: (Option<Kind>, u64),
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes free for this caller.
    pub bytes_available: u64,
    /// Files in all.
    pub files_total: u64,
    /// Files free.
    pub files_free: u64,
    /// Longest name.
    pub name_bytes_max: u32,
}

/// What the server answered.
#[expect(missing_docs, reason = "as with questions")]
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// `found` is `None` where the name does not exist; `promise`: that it stays so.
    Looked { found: Option<Object>, dir: Option<Grant>, promise: Option<Promise> },
    /// Attributes after the operation.
    Attrs { attrs: Attrs, grant: Option<Grant> },
    /// A part of a directory; `dir` with its attributes where the server told them.
    Listed { entries: Vec<Listed>, eof: bool, verifier: u64, dir: Option<Grant>, dir_attrs: Option<Attrs> },
    /// One for each item asked for.
    Acquired { items: Vec<Result<(Attrs, Grant), Errno>> },
    /// Shorter than asked for only where the file ends.
    Read { data: Bytes, eof: bool },
    /// A link's text.
    Text { text: Bytes },
    /// `open` is `None` where the server keeps no state of it.
    Opened { open: Option<OpenToken>, attrs: Attrs, grant: Option<Grant> },
    /// `made` is false where the file existed.
    Created {
        object: Object,
        open: Option<OpenToken>,
        made: bool,
        dir: Option<Grant>,
        dir_attrs: Option<Attrs>,
    },
    /// Names removed or changed.
    Gone { dir: Option<Grant>, dir_attrs: Option<Attrs> },
    /// `verifier` changes when the server may have lost unstable data.
    Written { count: u32, stable: bool, verifier: u64, attrs: Option<Attrs> },
    /// As above; `offset` is where it was written.
    Appended { offset: u64, count: u32, stable: bool, verifier: u64, attrs: Option<Attrs> },
    /// As above.
    Committed { verifier: u64 },
    /// Done, nothing to tell. Of what was to be made, or to get a name: that it was done, and that somebody else has removed the
    /// object since.
    Done,
    /// Where it is.
    Sought { offset: u64 },
    /// How much was copied.
    Copied { count: u64 },
    /// An extended attribute's value.
    Value { value: Bytes },
    /// Names of extended attributes.
    Names { names: Vec<Name> },
    /// Room.
    Room { room: Room },
    /// One for each that was asked for: its bytes, if they are what was written there.
    Blocks { found: Vec<Option<Bytes>> },
    /// As whom the caller acts on the server.
    Acts(Acting),
}

/// What a question changes: kinds of attributes of objects, and names.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) objects: Vec<(Handle, CapSet)>,
    pub(crate) names: Vec<(Handle, Name)>,
}

impl Question {
    /// Whether it changes something. The answers of these must be absorbed in any case.
    #[must_use]
    pub fn is_mutation(&self) -> bool {
        let touched = self.touched();
        !touched.objects.is_empty() || !touched.names.is_empty()
    }

    /// Whether it is one to this host's disk, and none to the server.
    #[must_use]
    pub const fn is_of_disk(&self) -> bool {
        matches!(self, Self::Blocks { .. })
    }

    /// The opens by which it changes something.
    pub(crate) fn opens_named(&self) -> impl Iterator<Item = OpenToken> {
        let named = match self {
            Self::SetAttr { open, .. }
            | Self::Write { open, .. }
            | Self::Append { open, .. }
            | Self::Allocate { open, .. } => [*open, None],
            Self::Copy { from_open, to_open, .. } => [*from_open, *to_open],
            _ => [None, None],
        };
        named.into_iter().flatten()
    }

    /// The name that it takes from whatever has that by then, seen or not.
    pub(crate) const fn name_taken(&self) -> Option<(&Handle, &Name)> {
        match self {
            Self::Remove { dir, name, .. } => Some((dir, name)),
            Self::Rename { to_dir, to, mode: RenameMode::Replace, .. } => Some((to_dir, to)),
            _ => None,
        }
    }

    /// Whether it sets a file's size.
    pub(crate) const fn cuts(&self) -> bool {
        matches!(
            self,
            Self::Open { truncate: true, .. } | Self::SetAttr { changes: Changes { size: Some(_), .. }, .. }
        )
    }

    pub(crate) fn touched(&self) -> Touched {
        let entry = |dir: &Handle, name: &Name| Touched {
            objects: vec![(dir.clone(), CapSet::FILE_S)],
            names: vec![(dir.clone(), name.clone())],
        };
        let object = |object: &Handle, kinds: CapSet| Touched {
            objects: vec![(object.clone(), kinds)],
            names: Vec::new(),
        };
        match self {
            Self::Create { dir, name, .. } | Self::Make { dir, name, .. } => entry(dir, name),
            Self::Link { object, dir, name, .. } => {
                let mut touched = entry(dir, name);
                touched.objects.push((object.clone(), CapSet::LINK_S));
                touched
            }
            Self::Remove { dir, name, victim, .. } => {
                let mut touched = entry(dir, name);
                touched.objects.extend(victim.iter().map(|v| (v.clone(), CapSet::LINK_S)));
                touched
            }
            Self::Rename { from_dir, from, to_dir, to, object, victim, .. } => {
                let mut touched = entry(from_dir, from);
                touched.objects.push((to_dir.clone(), CapSet::FILE_S));
                touched.names.push((to_dir.clone(), to.clone()));
                let both = object.iter().chain(victim);
                touched.objects.extend(both.map(|v| (v.clone(), CapSet::LINK_S)));
                touched
            }
            Self::SetAttr { object: o, .. } => object(o, CapSet::AUTH_S | CapSet::FILE_S),
            Self::Write { object: o, .. }
            | Self::Append { object: o, .. }
            | Self::Allocate { object: o, .. } => object(o, CapSet::FILE_S),
            Self::Copy { to, .. } => object(to, CapSet::FILE_S),
            Self::Open { object: o, truncate: true, .. } => object(o, CapSet::FILE_S),
            Self::SetXattr { object: o, .. } | Self::RemoveXattr { object: o, .. } => {
                object(o, CapSet::XATTR_S | CapSet::AUTH_S)
            }
            _ => Touched::default(),
        }
    }
}
