//! GET_DIR_DELEGATION (RFC 8881 sections 10.9, 18.39): names in a directory, and its attributes, stay as they are until
//! the server recalls.

use holdfast_wire::nfs4::{ArgOp, Bitmap4, GetDirDelegation4Args, GetDirDelegation4Ok, NfsTime4, OpNum4};

use crate::compound::Answer;
use crate::exchange::Late;
use crate::run::Manner;
use crate::{Attributes, Client, Cred, Cx, Delegated, DelegationKind, Handle, Result};

/// No notifications: every change of others has the delegation recalled before it is made.
const ARGS: GetDirDelegation4Args = GetDirDelegation4Args {
    signal_deleg_avail: false,
    notification_types: Bitmap4::EMPTY,
    child_attr_delay: NfsTime4 { seconds: 0, nseconds: 0 },
    dir_attr_delay: NfsTime4 { seconds: 0, nseconds: 0 },
    child_attributes: Bitmap4::EMPTY,
    dir_attributes: Bitmap4::EMPTY,
};

impl Client {
    /// Asks for the delegation of a directory, and for its attributes after that; nothing where the server gives none
    /// now. What this client changes itself does not have it recalled.
    ///
    /// # Errors
    /// Those of every operation; NOTSUPP where the server has no such delegations.
    pub fn delegate_directory(
        &self,
        cx: Cx<'_>,
        dir: &Handle,
        want: Bitmap4,
    ) -> Result<Option<(Delegated, Attributes)>> {
        let inner = self.inner();
        let (late_dir, late_cred) = (dir.clone(), cx.cred.clone());
        let late = || -> Late {
            let (dir, cred) = (late_dir.clone(), late_cred.clone());
            Box::new(move |inner, mut answer| {
                if let Ok(Some(_)) = read(inner, &mut answer, &dir, &cred) {
                    inner.recall_later(&dir, DelegationKind::Directory);
                }
            })
        };
        inner.run(
            cx,
            &Manner { essential: Some(2), is_idle: false, late: Some(&late) },
            |compound| {
                compound.put(dir).op(&ArgOp::GetDirDelegation(ARGS)).attributes(want);
                Ok(())
            },
            |answer| {
                let Some(delegated) = read(inner, answer, dir, cx.cred)? else { return Ok(None) };
                let attributes = answer.attributes().inspect_err(|_| {
                    // Without them it is of no use, and nobody knows of it but the server.
                    inner.recall_later(dir, DelegationKind::Directory);
                })?;
                Ok(Some((delegated, attributes)))
            },
        )
    }
}

/// Notes what came, while the slot is held.
fn read(
    inner: &crate::client::Inner,
    answer: &mut Answer,
    dir: &Handle,
    cred: &Cred,
) -> Result<Option<Delegated>> {
    answer.put()?;
    Ok(match answer.next::<GetDirDelegation4Ok>(OpNum4::GetDirDelegation)? {
        GetDirDelegation4Ok::Granted(granted) => Some(inner.note_directory(dir, cred, granted.stateid)),
        GetDirDelegation4Ok::Unavail(_) => None,
    })
}
