//! BATCH: many mutations in one call.

use holdfast_base::CapSet;
use holdfast_base::limits::{
    CAPS_BATCH_OPS_MAX, CAPS_FAILED_MAX, IO_BYTES_MAX, PATH_BYTES_MAX, WIRE_NAME_BYTES_MAX,
    XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use super::calls::FailedOp;
use super::types::{Attrs, Grant, Handle, NodeKind, Res, SetAttrs, Ticket, TxnId};
use crate::number::numbered;

/// An object, by handle or by where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Ref<'a> {
    /// By handle.
    #[xdr(case = 0)]
    Handle(Handle<'a>),
    /// What this operation made: of this transaction or of an earlier one that is not forgotten.
    #[xdr(case = 1)]
    Made {
        /// The transaction.
        txn: TxnId,
        /// The operation's place in it, from 0.
        op: u32,
    },
}

numbered! {
    /// What to do when the name of something to be made is taken.
    IfTaken {
        Fail = 0, "FAIL", "EXIST.";
        KeepBoth = 1, "KEEP_BOTH", "Make it as `NAME-YYYYMMDDTHHMMSSZ`, or `….N`, and say so in the result.";
        Share = 2, "SHARE", "Of directories: take the one that is there.";
    }
}

numbered! {
    /// How a rename treats the target.
    RenameHow {
        Replace = 0, "REPLACE", "As POSIX.";
        NoReplace = 1, "NOREPLACE", "EXIST when it is there.";
        Exchange = 2, "EXCHANGE", "Swap the two.";
    }
}

numbered! {
    /// What to do about an extended attribute that is there or not.
    SetXattrHow {
        Either = 0, "EITHER", "Make or replace.";
        Create = 1, "CREATE", "EXIST when it is there.";
        Replace = 2, "REPLACE", "NOXATTR when it is not there.";
    }
}

numbered! {
    /// The number of a [`BatchOp`].
    BatchOpKind {
        Create = 0, "CREATE", "A regular file with its first data.";
        Mkdir = 1, "MKDIR", "A directory.";
        Symlink = 2, "SYMLINK", "A symbolic link.";
        Mknod = 3, "MKNOD", "A device, pipe or socket.";
        Link = 4, "LINK", "Another name.";
        SetAttr = 5, "SETATTR", "Attributes.";
        Data = 6, "DATA", "Data.";
        Rename = 7, "RENAME", "A rename.";
        Unlink = 8, "UNLINK", "Removal of a name that is no directory.";
        Rmdir = 9, "RMDIR", "Removal of an empty directory.";
        SetXattr = 11, "SETXATTR", "An extended attribute.";
        RemoveXattr = 12, "REMOVEXATTR", "Its removal.";
        Append = 13, "APPEND", "Data at the end of a file.";
        Place = 14, "PLACE", "As CREATE, of a file that POOL gave.";
        Reserve = 15, "RESERVE", "Room for a file, whose size stays.";
    }
}

/// One mutation. `victim`, where given, is the object that the name must stand for: CHANGED when it does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum BatchOp<'a> {
    /// Makes a regular file and writes its first bytes.
    #[xdr(case = BatchOpKind::Create as u32)]
    Create {
        /// Where.
        dir: Ref<'a>,
        /// Its name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// When the name is taken.
        if_taken: IfTaken,
        /// Its attributes; a size beyond the data adds zeros.
        set: SetAttrs,
        /// Capabilities wanted.
        want: CapSet,
        /// Its data, from 0.
        #[xdr(max = IO_BYTES_MAX)]
        data: &'a [u8],
    },
    /// Makes a directory.
    #[xdr(case = BatchOpKind::Mkdir as u32)]
    Mkdir {
        /// Where.
        dir: Ref<'a>,
        /// Its name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// When the name is taken.
        if_taken: IfTaken,
        /// Its attributes.
        set: SetAttrs,
        /// Capabilities wanted.
        want: CapSet,
    },
    /// Makes a symbolic link.
    #[xdr(case = BatchOpKind::Symlink as u32)]
    Symlink {
        /// Where.
        dir: Ref<'a>,
        /// Its name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// When the name is taken.
        if_taken: IfTaken,
        /// Its attributes.
        set: SetAttrs,
        /// Capabilities wanted.
        want: CapSet,
        /// Its text.
        #[xdr(max = PATH_BYTES_MAX)]
        target: &'a [u8],
    },
    /// Makes a device, pipe or socket.
    #[xdr(case = BatchOpKind::Mknod as u32)]
    Mknod {
        /// Where.
        dir: Ref<'a>,
        /// Its name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// When the name is taken.
        if_taken: IfTaken,
        /// Its attributes.
        set: SetAttrs,
        /// Capabilities wanted.
        want: CapSet,
        /// What.
        kind: NodeKind,
        /// Of a device, the major number.
        rdev_major: u32,
        /// The minor number.
        rdev_minor: u32,
    },
    /// Gives an object another name.
    #[xdr(case = BatchOpKind::Link as u32)]
    Link {
        /// The object.
        object: Ref<'a>,
        /// Where.
        dir: Ref<'a>,
        /// The name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
    },
    /// Changes attributes.
    #[xdr(case = BatchOpKind::SetAttr as u32)]
    SetAttr {
        /// Of what.
        object: Ref<'a>,
        /// To what.
        set: SetAttrs,
    },
    /// Writes data.
    #[xdr(case = BatchOpKind::Data as u32)]
    Data {
        /// To what.
        object: Ref<'a>,
        /// From where on.
        offset: u64,
        /// What.
        #[xdr(max = IO_BYTES_MAX)]
        data: &'a [u8],
    },
    /// Renames.
    #[xdr(case = BatchOpKind::Rename as u32)]
    Rename {
        /// From this directory.
        from: Ref<'a>,
        /// This name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        from_name: &'a [u8],
        /// To this directory.
        to: Ref<'a>,
        /// Under this name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        to_name: &'a [u8],
        /// What about the target.
        how: RenameHow,
        /// What the old name must stand for.
        victim: Option<Ref<'a>>,
        /// What the new name must stand for where it stands for anything, else EXIST. Only with `how` REPLACE.
        over: Option<Ref<'a>>,
    },
    /// Removes a name that is no directory.
    #[xdr(case = BatchOpKind::Unlink as u32)]
    Unlink {
        /// In this directory.
        dir: Ref<'a>,
        /// This name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// What it must stand for.
        victim: Option<Ref<'a>>,
    },
    /// Removes an empty directory.
    #[xdr(case = BatchOpKind::Rmdir as u32)]
    Rmdir {
        /// In this directory.
        dir: Ref<'a>,
        /// This name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// What it must stand for.
        victim: Option<Ref<'a>>,
    },
    /// Sets an extended attribute.
    #[xdr(case = BatchOpKind::SetXattr as u32)]
    SetXattr {
        /// Of what.
        object: Ref<'a>,
        /// What about one that is there.
        how: SetXattrHow,
        /// Its full name, `user.` and all.
        #[xdr(max = XATTR_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// Its value.
        #[xdr(max = XATTR_VALUE_BYTES_MAX)]
        value: &'a [u8],
    },
    /// Removes an extended attribute.
    #[xdr(case = BatchOpKind::RemoveXattr as u32)]
    RemoveXattr {
        /// Of what.
        object: Ref<'a>,
        /// Its full name.
        #[xdr(max = XATTR_NAME_BYTES_MAX)]
        name: &'a [u8],
    },
    /// Writes data where the file ends when it is executed. To servers that have the feature only.
    #[xdr(case = BatchOpKind::Append as u32)]
    Append {
        /// To what.
        object: Ref<'a>,
        /// What.
        #[xdr(max = IO_BYTES_MAX)]
        data: &'a [u8],
    },
    /// As CREATE, of a file that POOL gave. Where that is not there any more, or is not what a create would make by now,
    /// another is made: its handle tells. To servers that have the feature only.
    #[xdr(case = BatchOpKind::Place as u32)]
    Place {
        /// Where.
        dir: Ref<'a>,
        /// Its name.
        #[xdr(max = WIRE_NAME_BYTES_MAX)]
        name: &'a [u8],
        /// When the name is taken.
        if_taken: IfTaken,
        /// Its attributes; a size beyond the data adds zeros.
        set: SetAttrs,
        /// Capabilities wanted.
        want: CapSet,
        /// Its data, from 0.
        #[xdr(max = IO_BYTES_MAX)]
        data: &'a [u8],
        /// The file.
        pooled: Handle<'a>,
    },
    /// Reserves room for a part of a file, also beyond its end; size and contents stay. To servers that have the feature only.
    #[xdr(case = BatchOpKind::Reserve as u32)]
    Reserve {
        /// For what.
        object: Ref<'a>,
        /// From where on.
        offset: u64,
        /// How much.
        bytes: u64,
    },
}

impl BatchOp<'_> {
    /// Which.
    #[must_use]
    pub const fn kind(&self) -> BatchOpKind {
        match self {
            Self::Create { .. } => BatchOpKind::Create,
            Self::Mkdir { .. } => BatchOpKind::Mkdir,
            Self::Symlink { .. } => BatchOpKind::Symlink,
            Self::Mknod { .. } => BatchOpKind::Mknod,
            Self::Link { .. } => BatchOpKind::Link,
            Self::SetAttr { .. } => BatchOpKind::SetAttr,
            Self::Data { .. } => BatchOpKind::Data,
            Self::Rename { .. } => BatchOpKind::Rename,
            Self::Unlink { .. } => BatchOpKind::Unlink,
            Self::Rmdir { .. } => BatchOpKind::Rmdir,
            Self::SetXattr { .. } => BatchOpKind::SetXattr,
            Self::RemoveXattr { .. } => BatchOpKind::RemoveXattr,
            Self::Append { .. } => BatchOpKind::Append,
            Self::Place { .. } => BatchOpKind::Place,
            Self::Reserve { .. } => BatchOpKind::Reserve,
        }
    }
}

/// When BATCH is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Until {
    /// When all of it is executed.
    #[default]
    Executed,
    /// When that, and all that was executed before it, is durable, by a [`ForcedOk`]; to servers that have the feature. It may be
    /// answered before, as `stable_through` tells.
    Stable,
}

/// A batch's circumstances: two bits of a word. To those who do not know the second it is the boolean `is_resent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchHow {
    /// It was, or may have been, sent before.
    pub is_resent: bool,
    /// When it is answered.
    pub until: Until,
}

impl BatchHow {
    /// It was not sent before, and is answered when it is executed.
    pub const FIRST: Self = Self { is_resent: false, until: Until::Executed };
    /// The same of one that was, or may have been, sent before.
    pub const AGAIN: Self = Self { is_resent: true, until: Until::Executed };

    const RESENT_BIT: u32 = 1;
    const STABLE_BIT: u32 = 2;

    /// The same, answered then.
    #[must_use]
    pub const fn until(self, until: Until) -> Self {
        Self { until, ..self }
    }
}

impl Encode for BatchHow {
    fn encode(&self, w: &mut Writer) {
        let stable = if self.until == Until::Stable { Self::STABLE_BIT } else { 0 };
        let resent = if self.is_resent { Self::RESENT_BIT } else { 0 };
        w.u32(resent | stable);
    }
}

impl Decode<'_> for BatchHow {
    fn decode(r: &mut Reader<'_>) -> holdfast_xdr::Result<Self> {
        let value = r.u32()?;
        if value & !(Self::RESENT_BIT | Self::STABLE_BIT) != 0 {
            return Err(holdfast_xdr::Error::BadEnum { name: "BatchHow", value });
        }
        let until = if value & Self::STABLE_BIT == 0 { Until::Executed } else { Until::Stable };
        Ok(Self { is_resent: value & Self::RESENT_BIT != 0, until })
    }
}

/// BATCH: mutations, executed in this order and after those of all lower transactions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BatchArgs<'a> {
    /// Whose.
    pub ticket: Ticket,
    /// This transaction's number, one more than that of the client's batch before.
    pub txn: TxnId,
    /// How it is sent, and when it is to be answered.
    pub how: BatchHow,
    /// The client has all results up to this transaction and heard that they are stable: they may be forgotten.
    pub done_through: TxnId,
    /// What to do.
    #[xdr(max = CAPS_BATCH_OPS_MAX)]
    pub ops: Vec<BatchOp<'a>>,
}

/// What an operation made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Made<'a> {
    /// Its handle.
    pub handle: Handle<'a>,
    /// Its attributes, as they are now. Absent when a later operation has removed it since.
    pub attrs: Option<Attrs>,
    /// What is held of it.
    pub grant: Grant,
    /// Its name, where it could not have the one that was asked for.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub other_name: &'a [u8],
}

/// What APPEND has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Appended {
    /// Where it begins.
    pub offset: u64,
    /// Bytes written; below what was given only when space ran out.
    pub count: u32,
    /// As of an unstable WRITE by NFS: another one tells that the data may be lost.
    pub verifier: [u8; 8],
    /// The file's attributes as they are now, when it still is.
    pub attrs: Option<Attrs>,
}

/// What an operation that succeeded gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum OpResult<'a> {
    /// RENAME, UNLINK, RMDIR.
    #[xdr(case = 0)]
    Done,
    /// CREATE, MKDIR, SYMLINK, MKNOD, PLACE.
    #[xdr(case = 1)]
    Made(Made<'a>),
    /// LINK, SETATTR, DATA, SETXATTR, REMOVEXATTR, RESERVE: the object's attributes as they are now, when it still is.
    #[xdr(case = 2)]
    Changed(Option<Attrs>),
    /// APPEND.
    #[xdr(case = 4)]
    Appended(Appended),
}

/// A directory after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DirState<'a> {
    /// Which.
    pub dir: Handle<'a>,
    /// Its attributes.
    pub attrs: Attrs,
}

/// What BATCH gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct BatchOk<'a> {
    /// A result an operation, in order.
    #[xdr(max = CAPS_BATCH_OPS_MAX)]
    pub results: Vec<Res<OpResult<'a>>>,
    /// The directories whose entries it changed, as they are after it.
    #[xdr(max = CAPS_BATCH_OPS_MAX * 2)]
    pub dirs: Vec<DirState<'a>>,
    /// The last transaction of which all is executed.
    pub executed_through: TxnId,
    /// The last of which all is durable.
    pub stable_through: TxnId,
}

/// What BATCH gives where it was asked to answer when it is durable ([`Until::Stable`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ForcedOk<'a> {
    /// As without. Where its `stable_through` is before the transaction, the answer did not wait: ask STABLE.
    pub batch: BatchOk<'a>,
    /// As STABLE tells it with this `stable_through`; nothing where the answer did not wait.
    #[xdr(max = CAPS_FAILED_MAX)]
    pub failed: Vec<FailedOp>,
}
