//! What became of an operation of a batch, in the form in which it is recorded: what cannot be found out from the file
//! system again. Statuses are numbers of the caps program, handles are as clients know them.

use holdfast_base::limits::{CAPS_FAILED_REMOVALS_MAX, NAME_BYTES_MAX, WIRE_HANDLE4_BYTES_MAX};
use holdfast_export::WireHandle;
use holdfast_recovery::sequence::Came;
use holdfast_vfs::Handle;
use holdfast_xdr::{Decode, Encode, from_bytes};

/// The form in which it is recorded.
#[derive(Encode, Decode)]
pub enum Recorded<'a> {
    /// It was refused.
    #[xdr(case = 0)]
    Failed(u32),
    /// Done, and nothing is to be told of it.
    #[xdr(case = 1)]
    Done,
    /// It made something.
    #[xdr(case = 2)]
    Made {
        /// What.
        #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
        handle: &'a [u8],
        /// Its name, where another was taken.
        #[xdr(max = NAME_BYTES_MAX)]
        other_name: &'a [u8],
    },
    /// It changed this.
    #[xdr(case = 3)]
    Changed(#[xdr(max = WIRE_HANDLE4_BYTES_MAX)] &'a [u8]),
    /// Removals that stood together: how many, and which of them were refused.
    #[xdr(case = 5)]
    Removals {
        /// How many.
        count: u32,
        /// Those refused.
        #[xdr(max = CAPS_FAILED_REMOVALS_MAX)]
        failed: Vec<Refused>,
    },
    /// Where an append is, or is to be.
    #[xdr(case = 6)]
    Appended {
        /// The file.
        #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
        handle: &'a [u8],
        /// From here.
        offset: u64,
        /// So many bytes.
        count: u32,
        /// The write verifier before.
        verifier: [u8; 8],
    },
}

/// One of several that was refused.
#[derive(Encode, Decode)]
pub struct Refused {
    /// Its place among them.
    pub nth: u32,
    /// Why.
    pub status: u32,
}

/// What there is to a record, of an operation whose intent is known. `made` takes the handle of what was made.
pub(crate) fn came<'h>(recorded: Option<&[u8]>, made: &'h mut Option<Handle>) -> Came<'h> {
    let Some(bytes) = recorded else { return Came::CutShort };
    match from_bytes::<Recorded<'_>>(bytes) {
        Ok(Recorded::Failed(_)) => Came::Refused,
        Ok(Recorded::Made { handle, .. }) => {
            *made = WireHandle::new(handle).and_then(|handle| handle.object());
            made.as_ref().map_or(Came::Done, |handle| Came::Made(handle.as_bytes()))
        }
        Ok(Recorded::Removals { count, failed }) => {
            Came::Removed { count, refused: failed.iter().map(|refused| refused.nth).collect() }
        }
        // What another version has written is of something that was done.
        Ok(Recorded::Done | Recorded::Changed(_) | Recorded::Appended { .. }) | Err(_) => Came::Done,
    }
}
