//! What an entry of the journal says of a request: on which export, and the step it was about to take.

use holdfast_base::ExportId;
use holdfast_recovery::{DecodeError, Intent, Step};
use holdfast_xdr::{Reader, Writer};

/// Keys of duplicate-request entries begin with this; slots' keys with another
/// ([`holdfast_recovery::keys::SLOT`]).
pub(crate) const CALL: u8 = b'c';

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
