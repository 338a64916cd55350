//! What clients answer to callbacks.

use holdfast_wire::nfs4::{CbSequence4Ok, CompoundResHeader, NfsStat4, ResOpHeader};
use holdfast_xdr::{Decode, Reader};

use super::CallbackError;

/// The result of a callback's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: NfsStat4,
    /// What follows the status, up to the end of the record.
    pub(crate) body: &'a [u8],
}

/// Reads what was answered to a call of 4.1 that had been made before, and perhaps executed then. A client that has not kept
/// its answer says so of the operation behind CB_SEQUENCE (RFC 8881 section 2.10.6.1.3). Of CB_SEQUENCE itself, which may
/// fail with it as well (section 15.3), it means the same: the call's number is the last one that the client has counted.
pub(super) fn read_again(results: &[u8]) -> Result<Answer<'_>, CallbackError> {
    match read(results, true) {
        Err(CallbackError::Refused(NfsStat4::RetryUncachedRep)) => {
            Ok(Answer { status: NfsStat4::RetryUncachedRep, body: &[] })
        }
        answer => answer,
    }
}

/// Reads what was answered to CB_SEQUENCE alone, or once to a call with its number.
pub(super) fn read_sequence(results: &[u8]) -> Result<Answer<'_>, CallbackError> {
    let mut r = Reader::new(results);
    let mut read = || -> holdfast_xdr::Result<_> {
        CompoundResHeader::decode(&mut r)?;
        ResOpHeader::decode(&mut r)
    };
    match read().map_err(|_| CallbackError::Garbled)?.status {
        NfsStat4::Ok | NfsStat4::RetryUncachedRep => Ok(Answer { status: NfsStat4::Ok, body: &[] }),
        refused => Err(CallbackError::Refused(refused)),
    }
}

/// Reads the operation's result: the one behind CB_SEQUENCE's in 4.1, the only one in 4.0.
pub(super) fn read(results: &[u8], has_sequence: bool) -> Result<Answer<'_>, CallbackError> {
    let mut r = Reader::new(results);
    let mut read = || -> holdfast_xdr::Result<_> {
        let header = CompoundResHeader::decode(&mut r)?;
        if has_sequence {
            let sequence = ResOpHeader::decode(&mut r)?;
            if sequence.status != NfsStat4::Ok {
                return Ok(Err(CallbackError::Refused(sequence.status)));
            }
            CbSequence4Ok::decode(&mut r)?;
        }
        if header.ops < 1 + u32::from(has_sequence) {
            return Ok(Err(CallbackError::Refused(header.status)));
        }
        let op = ResOpHeader::decode(&mut r)?;
        Ok(Ok(Answer { status: op.status, body: r.rest() }))
    };
    read().unwrap_or(Err(CallbackError::Garbled))
}
