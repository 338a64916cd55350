//! What a procedure is to the engine: a row of the table, its arguments, and its one function.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_export::{Export, Namespace};
use holdfast_ledger::{Mutation, Undertaking};
use holdfast_manager::Manager;
use holdfast_rpc::{Call, FileBody};
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, Backend, Caller, Cx, FsError, Handle, Name, Touched, Wait};
use holdfast_wire::nfs3::{
    Access3Args, Commit3Args, Create3Args, DirOpArgs3, Fh3, Link3Args, Mkdir3Args, Mknod3Args, NfsStat3,
    PostOpAttr, Proc3, Read3Args, ReadDir3Args, ReadDirPlus3Args, Rename3Args, Res3, SetAttr3Args,
    Symlink3Args, WccData, Write3Args,
};
use holdfast_xdr::{Decode, Encode, Writer};

use crate::attr;

/// What follows the status of a failed procedure: attributes of its objects, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailBody {
    /// Nothing.
    Empty,
    /// `post_op_attr` of the first.
    PostOp,
    /// `wcc_data` of the first.
    Wcc,
    /// `wcc_data` of both.
    TwoWcc,
    /// `post_op_attr` of the first, `wcc_data` of the second.
    PostOpWcc,
}

/// A procedure's row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) procedure: Proc3,
    /// Whether it changes something: refused on read-only exports and in pseudo directories.
    pub(crate) mutates: bool,
    /// Whether it always goes to the pool: names and attributes are changed at the pace of a journal.
    pub(crate) waits: bool,
    /// Whether a duplicate must be answered with the first reply and not done again.
    pub(crate) replays: bool,
    /// Whether what it is about to do is recorded first, so that it is not done again after a crash.
    pub(crate) records: bool,
    pub(crate) fail: FailBody,
}

impl Desc {
    /// A procedure that only looks.
    pub(crate) const fn looks(procedure: Proc3, fail: FailBody) -> Self {
        Self { procedure, mutates: false, waits: false, replays: false, records: false, fail }
    }

    /// A procedure that changes names or attributes.
    pub(crate) const fn changes(procedure: Proc3, fail: FailBody) -> Self {
        Self { procedure, mutates: true, waits: true, replays: true, records: true, fail }
    }
}

/// Why a procedure failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// By the backend's word.
    Fs(FsError),
    /// By the protocol's.
    Status(NfsStat3),
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl From<NfsStat3> for Failure {
    fn from(status: NfsStat3) -> Self {
        Self::Status(status)
    }
}

/// An object of an export, and for whom it is used.
pub(crate) struct Site {
    pub(crate) export: Arc<Export>,
    pub(crate) handle: Handle,
    pub(crate) caller: Caller,
}

impl Site {
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.export.backend
    }

    pub(crate) fn cx(&self, wait: Wait) -> Cx<'_> {
        Cx::new(&self.caller, wait)
    }
}

/// What a handle in the arguments names.
pub(crate) enum Target {
    /// A directory above the exports.
    Pseudo(u64),
    /// An object of an export that admits the caller.
    Site(Site),
}

impl Target {
    /// The object; `status` for a pseudo directory.
    pub(crate) fn site_or(&self, status: NfsStat3) -> Result<&Site, Failure> {
        match self {
            Self::Site(site) => Ok(site),
            Self::Pseudo(_) => Err(Failure::Status(status)),
        }
    }

    /// The object to be changed: pseudo directories are read-only.
    pub(crate) fn site(&self) -> Result<&Site, Failure> {
        self.site_or(NfsStat3::Rofs)
    }
}

/// The objects named by the arguments.
pub(crate) struct On {
    pub(crate) first: Target,
    pub(crate) second: Option<Target>,
}

impl On {
    /// Both objects, when they lie in one export.
    pub(crate) fn pair(&self) -> Result<(&Site, &Site), Failure> {
        let second = self.second.as_ref().ok_or(Failure::Status(NfsStat3::ServerFault))?;
        let (first, second) = (self.first.site()?, second.site()?);
        if first.export.id != second.export.id {
            return Err(FsError::CrossDevice.into());
        }
        Ok((first, second))
    }
}

/// One run of a procedure.
pub(crate) struct Op<'a> {
    pub(crate) call: &'a Call<'a>,
    pub(crate) namespace: &'a Namespace,
    pub(crate) manager: &'a Manager,
    pub(crate) peer: IpAddr,
    pub(crate) wait: Wait,
    /// To be committed before the reply.
    pub(crate) touched: Vec<Touched>,
    /// The reply goes on with a stretch of a file.
    pub(crate) file: Option<FileBody>,
    /// The reply ends with the write verifier, which is to be that of after the commit.
    pub(crate) ends_with_verifier: bool,
    /// The call's record in the journal, of a call that must not run twice. Boxed: most calls have none, and all would
    /// carry its room about.
    pub(crate) undertaking: Option<Box<Undertaking>>,
}

impl Op<'_> {
    /// A change in this export, for the caller: recorded before it is made.
    pub(crate) fn mutate<'s>(&'s mut self, site: &'s Site) -> Mutation<'s> {
        Mutation {
            backend: site.backend(),
            cx: site.cx(self.wait),
            export: site.export.id,
            record: self.undertaking.as_deref_mut(),
        }
    }

    /// That no client that has opened a file denies this to others.
    pub(crate) fn check_shares(&self, file: &Handle, access: Access) -> Result<(), FsError> {
        self.manager.check_stateless(file, access)
    }

    /// Whether the next call is of the same procedure by the same caller on the same object, and comes right after this one.
    /// No promise that it does.
    pub(crate) fn goes_on(&self, object: Fh3<'_>) -> bool {
        // The handle with its length and padding, which all arguments begin with.
        let bytes = 4 + object.0.len().next_multiple_of(4);
        let handle = self.call.args.rest().get(..bytes);
        handle.is_some() && self.call.next_alike().is_some_and(|next| next.get(..bytes) == handle)
    }

    /// Notes that the reply promises this object's changes to be durable.
    pub(crate) fn touch(&mut self, site: &Site, handle: Handle, data: bool) {
        if site.export.options.is_sync {
            self.touched.push(Touched { handle, data });
        }
    }

    /// Attributes of a target.
    pub(crate) fn attributes(&self, target: &Target) -> Result<holdfast_vfs::Attrs, FsError> {
        match target {
            Target::Pseudo(dir) => self.namespace.attrs(*dir),
            Target::Site(site) => site.backend().getattr(&site.cx(self.wait), &site.handle, AttrMask::STAT),
        }
    }

    /// Attributes to go with a result: that they cannot be had fails nothing; that they cannot be had without
    /// waiting does.
    pub(crate) fn post_op(&self, target: &Target) -> Result<PostOpAttr, FsError> {
        match self.attributes(target) {
            Ok(attrs) => Ok(Some(attr::fattr(&attrs))),
            Err(FsError::WouldBlock) => Err(FsError::WouldBlock),
            Err(_) => Ok(None),
        }
    }

    /// Cache consistency data of an object that did not change.
    pub(crate) fn wcc_after(&self, target: &Target) -> Result<WccData, FsError> {
        Ok(WccData { before: None, after: self.post_op(target)? })
    }
}

/// Arguments that name one object or two.
pub(crate) trait Handles<'a> {
    /// The handles, in the order in which a failure's body tells of their objects.
    fn handles(&self) -> (Fh3<'a>, Option<Fh3<'a>>);
}

macro_rules! handles {
    ($($args:ident: $first:ident $(.$first_dir:ident)? $(, $second:ident.$second_dir:ident)?;)*) => {$(
        impl<'a> Handles<'a> for $args<'a> {
            fn handles(&self) -> (Fh3<'a>, Option<Fh3<'a>>) {
                (self.$first $(.$first_dir)?, None$(.or(Some(self.$second.$second_dir)))?)
            }
        }
    )*};
}

handles! {
    SetAttr3Args: object;
    DirOpArgs3: dir;
    Access3Args: object;
    Read3Args: file;
    Write3Args: file;
    Create3Args: place.dir;
    Mkdir3Args: place.dir;
    Symlink3Args: place.dir;
    Mknod3Args: place.dir;
    Rename3Args: from.dir, to.dir;
    Link3Args: file, link.dir;
    ReadDir3Args: dir;
    ReadDirPlus3Args: dir;
    Commit3Args: file;
}

impl<'a> Handles<'a> for Fh3<'a> {
    fn handles(&self) -> (Self, Option<Self>) {
        (*self, None)
    }
}

/// A procedure. `run` appends the whole result for success; what it appended before a failure is taken back.
pub(crate) trait Procedure {
    /// Its row of the table.
    const DESC: Desc;
    /// Its arguments.
    type Args<'a>: Decode<'a> + Handles<'a>;

    /// Does it.
    fn run(op: &mut Op<'_>, on: &On, args: &Self::Args<'_>, w: &mut Writer) -> Result<(), Failure>;
}

/// Appends a successful result.
pub(crate) fn put<O: Encode>(w: &mut Writer, ok: O) {
    Res3::<O, ()>::Ok(ok).encode(w);
}

/// A name for a lookup or removal.
pub(crate) fn name(bytes: &[u8]) -> Result<Name<'_>, Failure> {
    Name::new(bytes).map_err(|e| if e == FsError::Invalid { FsError::BadName } else { e }.into())
}

/// A name for something new: `.` and `..` are there already (RFC 1813 section 3.3.8).
pub(crate) fn new_name(bytes: &[u8]) -> Result<Name<'_>, Failure> {
    if is_dots(bytes) { Err(NfsStat3::Exist.into()) } else { name(bytes) }
}

pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
