//! pNFS layouts and devices, and directory delegations (RFC 8881 sections 18.39-18.44, RFC 7862
//! sections 15.6 and 15.7).

use holdfast_base::limits::{DEVICE_ERRORS_MAX, LAYOUT_BODY_BYTES_MAX, LAYOUTS_MAX};

use holdfast_base::{Cookie, Length, Offset};
use holdfast_xdr::{Decode, Encode};

use super::{Bitmap4, DeviceId4, LayoutType4, NfsTime4, Stateid4, Verifier4};

/// Layout type: files.
pub const LAYOUT4_NFSV4_1_FILES: u32 = 1;
/// Layout type: objects.
pub const LAYOUT4_OSD2_OBJECTS: u32 = 2;
/// Layout type: blocks.
pub const LAYOUT4_BLOCK_VOLUME: u32 = 3;
/// Layout type: flexible files (RFC 8435).
pub const LAYOUT4_FLEX_FILES: u32 = 4;
/// Layout type: SCSI (RFC 8154).
pub const LAYOUT4_SCSI: u32 = 5;
/// I/O mode: reading. Modes are kept as numbers, since a wrong one is answered with NFS4ERR_BADIOMODE.
pub const LAYOUTIOMODE4_READ: u32 = 1;
/// I/O mode: reading and writing.
pub const LAYOUTIOMODE4_RW: u32 = 2;
/// I/O mode: any, in returns and recalls.
pub const LAYOUTIOMODE4_ANY: u32 = 3;

/// `layout_content4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutContent4<'a> {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// The layout.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: &'a [u8],
}

/// `layout4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Layout4<'a> {
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; all ones to the end.
    pub length: Length,
    /// `LAYOUTIOMODE4_*`.
    pub iomode: u32,
    /// The layout.
    pub content: LayoutContent4<'a>,
}

/// `device_addr4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DeviceAddr4<'a> {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// The addresses.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: &'a [u8],
}

/// `layoutupdate4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutUpdate4<'a> {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// The update.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: &'a [u8],
}

/// The arguments of GETDEVICEINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDeviceInfo4Args {
    /// The device.
    pub device_id: DeviceId4,
    /// Of which type.
    pub layout_type: LayoutType4,
    /// Bytes of the result at most.
    pub maxcount: u32,
    /// Notifications wanted.
    pub notify_types: Bitmap4,
}

/// GETDEVICEINFO succeeded. On NFS4ERR_TOOSMALL a [`GetDeviceInfo4TooSmall`] follows the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDeviceInfo4Ok<'a> {
    /// The device.
    pub device_addr: DeviceAddr4<'a>,
    /// Notifications that will be sent.
    pub notification: Bitmap4,
}

/// What follows NFS4ERR_TOOSMALL of GETDEVICEINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDeviceInfo4TooSmall {
    /// Bytes that would do.
    pub mincount: u32,
}

/// The arguments of GETDEVICELIST (4.1 only).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDeviceList4Args {
    /// Of which type.
    pub layout_type: LayoutType4,
    /// Ids at most.
    pub maxdevices: u32,
    /// Where to go on.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookieverf: Verifier4,
}

/// GETDEVICELIST succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceList4Ok {
    /// Where to go on.
    pub cookie: Cookie,
    /// To be given back.
    pub cookieverf: Verifier4,
    /// The ids.
    #[xdr(max = LAYOUTS_MAX)]
    pub deviceid_list: Vec<DeviceId4>,
    /// There are no more.
    pub eof: bool,
}

/// The arguments of LAYOUTCOMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutCommit4Args<'a> {
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub length: Length,
    /// In the grace period.
    pub reclaim: bool,
    /// The layout.
    pub stateid: Stateid4,
    /// The last byte written.
    pub last_write_offset: Option<Offset>,
    /// The modification time wished for.
    pub time_modify: Option<NfsTime4>,
    /// What the layout type says.
    pub layoutupdate: LayoutUpdate4<'a>,
}

/// LAYOUTCOMMIT succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutCommit4Ok {
    /// The new size, if it changed.
    pub newsize: Option<Length>,
}

/// The arguments of LAYOUTGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutGet4Args {
    /// Tell when one is to be had.
    pub signal_layout_avail: bool,
    /// Of which type.
    pub layout_type: LayoutType4,
    /// `LAYOUTIOMODE4_*`.
    pub iomode: u32,
    /// Where it must begin.
    pub offset: Offset,
    /// Bytes wished for.
    pub length: Length,
    /// Bytes needed.
    pub minlength: Length,
    /// An open, lock, delegation or layout.
    pub stateid: Stateid4,
    /// Bytes of the result at most.
    pub maxcount: u32,
}

/// LAYOUTGET succeeded. On NFS4ERR_LAYOUTTRYLATER a [`LayoutGet4TryLater`] follows the status.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LayoutGet4Ok<'a> {
    /// Return it with the last CLOSE.
    pub return_on_close: bool,
    /// The layout.
    pub stateid: Stateid4,
    /// The segments.
    #[xdr(max = LAYOUTS_MAX)]
    pub layouts: Vec<Layout4<'a>>,
}

/// What follows NFS4ERR_LAYOUTTRYLATER of LAYOUTGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutGet4TryLater {
    /// The server will tell when one is to be had.
    pub will_signal_layout_avail: bool,
}

/// `layoutreturn4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum LayoutReturn4<'a> {
    /// Of the current file.
    #[xdr(case = 1)]
    File(LayoutReturnFile4<'a>),
    /// Of the current file system.
    #[xdr(case = 2)]
    Fsid,
    /// All.
    #[xdr(case = 3)]
    All,
}

/// `layoutreturn_file4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutReturnFile4<'a> {
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub length: Length,
    /// The layout.
    pub stateid: Stateid4,
    /// What the layout type says.
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: &'a [u8],
}

/// The arguments of LAYOUTRETURN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutReturn4Args<'a> {
    /// In the grace period.
    pub reclaim: bool,
    /// Of which type.
    pub layout_type: LayoutType4,
    /// `LAYOUTIOMODE4_*`.
    pub iomode: u32,
    /// What is returned.
    pub layoutreturn: LayoutReturn4<'a>,
}

/// LAYOUTRETURN succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutReturn4Ok {
    /// What the client still holds, if anything.
    pub stateid: Option<Stateid4>,
}

/// `device_error4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DeviceError4 {
    /// The device.
    pub deviceid: DeviceId4,
    /// The `nfsstat4` it gave.
    pub status: u32,
    /// The operation that failed.
    pub opnum: u32,
}

/// The arguments of LAYOUTERROR.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LayoutError4Args {
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub length: Length,
    /// The layout.
    pub stateid: Stateid4,
    /// What went wrong.
    #[xdr(max = DEVICE_ERRORS_MAX)]
    pub errors: Vec<DeviceError4>,
}

/// `io_info4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct IoInfo4 {
    /// Operations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The arguments of LAYOUTSTATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LayoutStats4Args<'a> {
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub length: Length,
    /// The layout.
    pub stateid: Stateid4,
    /// Reads.
    pub read: IoInfo4,
    /// Writes.
    pub write: IoInfo4,
    /// The device.
    pub deviceid: DeviceId4,
    /// What the layout type says.
    pub layoutupdate: LayoutUpdate4<'a>,
}

/// The arguments of GET_DIR_DELEGATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDirDelegation4Args {
    /// Tell when one is to be had.
    pub signal_deleg_avail: bool,
    /// Notifications wanted.
    pub notification_types: Bitmap4,
    /// How late changes of entries may be told.
    pub child_attr_delay: NfsTime4,
    /// How late changes of the directory may be told.
    pub dir_attr_delay: NfsTime4,
    /// Attributes of entries wanted.
    pub child_attributes: Bitmap4,
    /// Attributes of the directory wanted.
    pub dir_attributes: Bitmap4,
}

/// `GET_DIR_DELEGATION4resok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetDirDelegation4Granted {
    /// READDIR's verifier.
    pub cookieverf: Verifier4,
    /// The delegation.
    pub stateid: Stateid4,
    /// Notifications that will be sent.
    pub notification: Bitmap4,
    /// Attributes of entries that will be told.
    pub child_attributes: Bitmap4,
    /// Attributes of the directory that will be told.
    pub dir_attributes: Bitmap4,
}

/// GET_DIR_DELEGATION succeeded (`GET_DIR_DELEGATION4res_non_fatal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum GetDirDelegation4Ok {
    /// `GDD4_OK`.
    #[xdr(case = 0)]
    Granted(GetDirDelegation4Granted),
    /// `GDD4_UNAVAIL`; whether the server will signal.
    #[xdr(case = 1)]
    Unavail(bool),
}
