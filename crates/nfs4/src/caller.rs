//! Whom a compound acts for, without mapping the same credential again and again.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use holdfast_base::limits::AUTH_SYS_GROUPS_MAX;
use holdfast_export::{Credential, Export, GroupSource};
use holdfast_rpc::Auth;
use holdfast_vfs::{Caller, FsResult};

/// Weak: neither an export that was configured away nor a connection's credential is to live on here. Their addresses
/// are not given to others while these are held.
struct Last {
    export: Weak<Export>,
    auth: Weak<Auth>,
    caller: Caller,
}

thread_local! {
    /// The mapping this thread made last: a client sends its compounds in runs of one user, and a connection keeps
    /// the credential that it decoded.
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// The caller of a compound on an export.
///
/// # Errors
/// Those of [`Export::caller`].
pub(crate) fn caller(export: &Arc<Export>, auth: &Arc<Auth>, groups: &dyn GroupSource) -> FsResult<Caller> {
    let credential = match auth.sys() {
        Some(sys) => Credential::Sys { uid: sys.uid, gid: sys.gid, groups: &sys.groups },
        None => Credential::Anonymous,
    };
    let lists_all = auth.sys().is_none_or(|sys| sys.groups.len() < AUTH_SYS_GROUPS_MAX);
    if export.options.looks_up_groups || !lists_all {
        // The server's list of groups may change at any time.
        return export.caller(&credential, groups);
    }
    LAST.with_borrow_mut(|last| {
        if let Some(last) = last
            && std::ptr::eq(last.export.as_ptr(), Arc::as_ptr(export))
            && std::ptr::eq(last.auth.as_ptr(), Arc::as_ptr(auth))
        {
            return Ok(last.caller.clone());
        }
        let caller = export.caller(&credential, groups)?;
        let (export, auth) = (Arc::downgrade(export), Arc::downgrade(auth));
        *last = Some(Last { export, auth, caller: caller.clone() });
        Ok(caller)
    })
}
