//! Asking the holder of a write delegation what its file looks like (CB_GETATTR, RFC 8881 sections 10.4.3 and 20.1,
//! RFC 9754 section 5).

use holdfast_base::{ChangeId, FileKey, Timestamp};
use holdfast_manager::{AttributeHolder, HeldAnswer, HeldAttributes};
use holdfast_state::WriteHolder;
use holdfast_wire::nfs4::{Attr, Bitmap4, CbArgOp, CbGetAttr4Args, CbGetAttr4Ok, Fattr4, NfsStat4, NfsTime4};
use holdfast_xdr::{Decode, Reader};

use crate::attr::{DELEGATED_TIMES, decode};
use crate::callback::{Answer, CallbackError};
use crate::service::Service;

impl AttributeHolder for Service {
    fn ask(&self, holder: &WriteHolder, file: FileKey, answer: HeldAnswer) {
        let Some(service) = self.itself() else { return };
        let Some((fh, refers)) = service.delegations.point((holder.client, file)) else { return };
        let basic = Bitmap4::of(&[Attr::Change, Attr::Size]);
        let attr_request = if holder.delegates_timestamps { basic.or(DELEGATED_TIMES) } else { basic };
        let call = CbArgOp::GetAttr(CbGetAttr4Args { fh: fh.as_bytes(), attr_request });
        let answered = move |answered: Result<Answer<'_>, CallbackError>| {
            answer.give(answered.ok().and_then(|answered| read(&answered)));
        };
        service.call_back_about(holder.client, call, refers, Box::new(answered));
    }
}

fn read(answer: &Answer<'_>) -> Option<HeldAttributes> {
    if answer.status != NfsStat4::Ok {
        return None;
    }
    let CbGetAttr4Ok { obj_attributes: Fattr4 { mask, values } } =
        CbGetAttr4Ok::decode(&mut Reader::new(answer.body)).ok()?;
    let mut values = Reader::new(values);
    let (mut change, mut size, mut atime, mut mtime) = (None, None, None, None);
    for attr in mask.iter().filter_map(Attr::from_u32) {
        match attr {
            Attr::Change => change = Some(ChangeId(values.u64().ok()?)),
            Attr::Size => size = Some(values.u64().ok()?),
            Attr::TimeDelegAccess => atime = Some(time(&mut values)?),
            Attr::TimeDelegModify => mtime = Some(time(&mut values)?),
            // Nobody asked for it, and how long it is is not looked into.
            _ => return None,
        }
    }
    Some(HeldAttributes { change: change?, size: size?, mtime, atime })
}

fn time(from: &mut Reader<'_>) -> Option<Timestamp> {
    decode::time(NfsTime4::decode(from).ok()?).ok()
}
