//! Whom a call acts for, without mapping the same credential again and again.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use holdfast_base::limits::AUTH_SYS_GROUPS_MAX;
use holdfast_export::{Credential, Export, GroupSource};
use holdfast_rpc::Auth;
use holdfast_vfs::{Caller, FsError};

struct Last {
    export: Weak<Export>,
    auth: Arc<Auth>,
    caller: Caller,
}

thread_local! {
    /// The mapping this thread made last: a client sends its calls in runs of one user.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// The credential of a call; `None` for a flavor that this protocol cannot act for.
pub(crate) fn credential(auth: &Auth) -> Option<Credential<'_>> {
    match auth {
        Auth::None => Some(Credential::Anonymous),
        Auth::Sys(sys) => Some(Credential::Sys { uid: sys.uid, gid: sys.gid, groups: &sys.groups }),
        _ => None,
    }
}

/// The caller of a call on an export.
///
/// # Errors
/// [`FsError::Access`] where there is no [`credential`]; [`FsError::Delay`] while groups are looked up.
pub(crate) fn caller(
    export: &Arc<Export>,
    auth: &Arc<Auth>,
    groups: &dyn GroupSource,
) -> Result<Caller, FsError> {
    let credential = credential(auth).ok_or(FsError::Access)?;
    if looks_up(export, auth) {
        // The server's list of groups may change at any time.
        return export.caller(&credential, groups);
    }
    LAST.with_borrow_mut(|last| {
        if let Some(last) = last
            && std::ptr::eq(last.export.as_ptr(), Arc::as_ptr(export))
            && (Arc::ptr_eq(&last.auth, auth) || last.auth == *auth)
        {
            if !Arc::ptr_eq(&last.auth, auth) {
                // A connection's calls come in runs too, and what they share is told at once.
                last.auth = Arc::clone(auth);
            }
            return Ok(last.caller.clone());
        }
        let caller = export.caller(&credential, groups)?;
        // Weak: an export that was configured away must not live on here; and its address is not given to
        // another one while this is held.
        *last = Some(Last { export: Arc::downgrade(export), auth: Arc::clone(auth), caller: caller.clone() });
        Ok(caller)
    })
}

fn looks_up(export: &Export, auth: &Auth) -> bool {
    export.options.looks_up_groups || auth.sys().is_some_and(|sys| sys.groups.len() >= AUTH_SYS_GROUPS_MAX)
}
