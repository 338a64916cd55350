//! The network status monitor, version 1 (X/Open XNFS): who restarted, for the sake of NLM's locks.

use holdfast_base::limits::NLM_NAME_BYTES_MAX;
use holdfast_xdr::{Decode, Encode};

/// The status monitor's program.
pub const NSM_PROGRAM: u32 = 100_024;
/// Its version.
pub const NSM_V1: u32 = 1;
/// Does nothing.
pub const SM_NULL: u32 = 0;
/// [`SmName`] to [`SmStatRes`].
pub const SM_STAT: u32 = 1;
/// [`Mon`] to [`SmStatRes`].
pub const SM_MON: u32 = 2;
/// [`MonId`] to [`SmStat`].
pub const SM_UNMON: u32 = 3;
/// [`MyId`] to [`SmStat`].
pub const SM_UNMON_ALL: u32 = 4;
/// Nothing to nothing.
pub const SM_SIMU_CRASH: u32 = 5;
/// [`StatChange`] to nothing: a peer restarted.
pub const SM_NOTIFY: u32 = 6;

/// `sm_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SmName<'a> {
    /// A host.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub name: &'a [u8],
}

/// `my_id`: whom to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct MyId<'a> {
    /// The host.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub my_name: &'a [u8],
    /// The program.
    pub my_prog: u32,
    /// Its version.
    pub my_vers: u32,
    /// The procedure, which takes a [`Status`].
    pub my_proc: u32,
}

/// `mon_id`: of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct MonId<'a> {
    /// The host to watch.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub mon_name: &'a [u8],
    /// Whom to tell.
    pub my_id: MyId<'a>,
}

/// `mon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Mon<'a> {
    /// Of whom, and whom to tell.
    pub mon_id: MonId<'a>,
    /// To be given back.
    pub private: [u8; 16],
}

/// `sm_stat_res`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SmStatRes {
    /// The host is not watched (`STAT_FAIL`).
    pub failed: bool,
    /// The monitor's own state.
    pub state: i32,
}

/// `sm_stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SmStat {
    /// The monitor's own state.
    pub state: i32,
}

/// `stat_chge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StatChange<'a> {
    /// The host that restarted.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub mon_name: &'a [u8],
    /// Its new state: odd while it is up.
    pub state: i32,
}

/// `status`: what the monitor tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Status<'a> {
    /// The host that restarted.
    #[xdr(max = NLM_NAME_BYTES_MAX)]
    pub mon_name: &'a [u8],
    /// Its new state.
    pub state: i32,
    /// What was given with [`Mon`].
    pub private: [u8; 16],
}
