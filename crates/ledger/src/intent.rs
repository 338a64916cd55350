//! What an entry of the journal says of a request: on which export, and the step it was about to take.

use holdfast_base::ExportId;
use holdfast_recovery::{DecodeError, Intent, Step};
use holdfast_xdr::{Reader, Writer};

/// Keys of duplicate-request entries begin with this; slots' keys with another
/// ([`holdfast_recovery::keys::SLOT`]).
pub(crate) const CALL: u8 = b'c';

/// Keys of operations of batches (the caps program) begin with this.
pub(crate) const BATCH: u8 = b'b';

/// Bytes of a batch's key: its mark, the incarnation, the transaction, the operation.
const BATCH_KEY_BYTES: usize = 1 + 16 + 8 + 4;

/// The key of one operation of a batch.
pub(crate) fn batch_key(incarnation: &[u8; 16], txn: u64, op: u32) -> [u8; BATCH_KEY_BYTES] {
    let mut key = [BATCH; BATCH_KEY_BYTES];
    key[1..17].copy_from_slice(incarnation);
    key[17..25].copy_from_slice(&txn.to_be_bytes());
    key[25..].copy_from_slice(&op.to_be_bytes());
    key
}

/// What [`batch_key`] was made of.
pub(crate) fn parse_batch_key(key: &[u8]) -> Option<([u8; 16], u64, u32)> {
    let (&BATCH, rest) = key.split_first()? else { return None };
    let (incarnation, rest) = rest.split_first_chunk::<16>()?;
    let (txn, rest) = rest.split_first_chunk::<8>()?;
    let op = rest.try_into().ok()?;
    Some((*incarnation, u64::from_be_bytes(*txn), u32::from_be_bytes(op)))
}

/// Appends an entry's payload: handles in a step are a backend's own, so the export stands before it.
pub(crate) fn write(export: ExportId, step: &Step<'_>, w: &mut Writer) {
    w.u32(u32::from(export.0));
    step.write(w);
}

/// Reads what [`write`] wrote.
pub(crate) fn read(bytes: &[u8]) -> Result<(ExportId, Step<'_>), DecodeError> {
    let mut r = Reader::new(bytes);
    let export = r.u32()?;
    let export = ExportId(u16::try_from(export).map_err(|_| holdfast_xdr::Error::Truncated)?);
    Ok((export, Step::read(r.rest())?))
}

/// The step of a request that is about to do this.
pub(crate) const fn step<'a>(seqid: u32, call_hash: u64, operation: u32, intent: Intent<'a>) -> Step<'a> {
    // Results of earlier operations are made anew on a retry, from what they left: nothing of them is kept.
    Step { seqid, call_hash, operation, results: &[], intent }
}
