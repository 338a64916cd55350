//! Where in a compound an operation may stand (RFC 8881 sections 2.10.6.1.1 and 16.2.3).

use holdfast_wire::nfs4::{NfsStat4, OpNum4};

use crate::compound::Compound;
use crate::desc::{Flags, OpDesc};

/// Whether an operation may stand where it does.
pub(crate) fn check(compound: &Compound, desc: Option<&OpDesc>) -> Result<(), NfsStat4> {
    if !compound.minor.has_sessions() {
        return Ok(());
    }
    let num = desc.map(|desc| desc.num);
    if compound.slot.is_some() {
        return match num {
            Some(OpNum4::Sequence) => Err(NfsStat4::SequencePos),
            // Its own session and connection are what it would change under its feet (section 18.34.3).
            Some(OpNum4::BindConnToSession) => Err(NfsStat4::NotOnlyOp),
            _ => Ok(()),
        };
    }
    match desc {
        Some(desc) if desc.num == OpNum4::Sequence => Ok(()),
        Some(desc) if desc.flags.has(Flags::OUTSIDE_SESSION) => {
            if compound.ops == 1 {
                Ok(())
            } else {
                Err(NfsStat4::NotOnlyOp)
            }
        }
        _ => Err(NfsStat4::OpNotInSession),
    }
}
