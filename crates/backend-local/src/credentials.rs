//! Acting as the caller: which file-system user, group and groups the thread has, and when it gets its own back.
//!
//! Switching costs 0.7-1 us a call, so a thread keeps what it has until somebody else is wanted. Handles are
//! resolved with the server's own rights: [`Identity::as_server`] comes before every such step.

use std::cell::RefCell;
use std::sync::Arc;

use holdfast_vfs::{Caller, FsError, FsResult};

use crate::errors::fs_error;
use crate::sys::{self, Capability};

/// Whether and how this process can act as others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    can_switch: bool,
    must_verify: bool,
    keeps: bool,
    own_uid: u32,
    own_gid: u32,
}

/// What this thread is at the moment. `groups` is `None` while nobody has set them.
struct Present {
    uid: u32,
    gid: u32,
    groups: Option<Arc<[u32]>>,
    is_prepared: bool,
    /// Whether we take the capabilities to pass by permissions from callers: the kernel does it only with the
    /// superuser's file-system user, which an ordinary user who runs the server with capabilities never had.
    takes_capabilities: bool,
    has_capabilities: bool,
}

thread_local! {
    static PRESENT: RefCell<Present> = RefCell::new(Present::of_new_thread());
}

/// Gives the calling thread the server's own identity back. Whoever does file work of the server's own on a
/// thread that also serves requests of a backend opened with `keep_credentials` calls this first; the natural
/// place is the end of a batch of requests. Costs nothing when the thread has it already.
pub fn release_thread() {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    PRESENT.with_borrow_mut(|p| p.become_ids(own.0, own.1, true));
}

impl Present {
    /// A thread begins with what the one that started it was at that moment, which may be a caller.
    fn of_new_thread() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        sys::set_fsgid(gid);
        sys::set_fsuid(uid);
        let takes_capabilities = uid != 0 || !sys::fixes_file_capabilities();
        let mut present = Self {
            uid,
            gid,
            groups: None,
            is_prepared: false,
            takes_capabilities,
            has_capabilities: !takes_capabilities,
        };
        present.become_ids(uid, gid, true);
        present
    }

    /// Takes the ids, and for the server itself (`is_server`) its capabilities.
    fn become_ids(&mut self, uid: u32, gid: u32, is_server: bool) {
        if self.gid != gid {
            sys::set_fsgid(gid);
            self.gid = gid;
        }
        let is_other = self.uid != uid;
        if is_other {
            sys::set_fsuid(uid);
            self.uid = uid;
        }
        if self.takes_capabilities {
            let has = is_server || uid == 0;
            // The kernel may have moved them with the user.
            if (is_other || has != self.has_capabilities) && sys::use_file_capabilities(has).is_ok() {
                self.has_capabilities = has;
            }
        }
    }

    fn become_caller(&mut self, caller: &Caller) -> FsResult<()> {
        if !self.is_prepared {
            // Not taken away with the file-system user. The first would let every caller use the space reserved
            // for root and pass his quota, the others set attributes that make a program of his the superuser's.
            let unfit = [Capability::SysResource, Capability::SysAdmin, Capability::SetFcap];
            sys::drop_capabilities(&unfit).map_err(fs_error)?;
            self.is_prepared = true;
        }
        let same = |g: &Arc<[u32]>| Arc::ptr_eq(g, &caller.groups) || **g == *caller.groups;
        if !self.groups.as_ref().is_some_and(same) {
            sys::set_groups(&caller.groups).map_err(fs_error)?;
            self.groups = Some(Arc::clone(&caller.groups));
        }
        self.become_ids(caller.uid, caller.gid, false);
        // Nobody is served with rights that are not his.
        if self.takes_capabilities && self.has_capabilities && caller.uid != 0 {
            return Err(FsError::Access);
        }
        Ok(())
    }
}

/// While it lives, the thread acts as the caller. It is not `Send`: what it stands for belongs to the thread.
pub(crate) struct Acting {
    identity: Identity,
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        if self.identity.can_switch && !self.identity.keeps {
            self.identity.as_server_fully();
        }
    }
}

impl Identity {
    /// Finds out what the process may do. `keeps` leaves threads as the last caller.
    pub(crate) fn probe(keeps: bool) -> Self {
        let can_switch = sys::has_capability(Capability::SetUid) && sys::has_capability(Capability::SetGid);
        // In a user namespace an id without a mapping cannot be taken, and the kernel does not say so.
        let is_whole = |path: &str| {
            std::fs::read_to_string(path)
                .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
        };
        Self {
            can_switch,
            must_verify: !(is_whole("/proc/self/uid_map") && is_whole("/proc/self/gid_map")),
            keeps,
            own_uid: rustix::process::geteuid().as_raw(),
            own_gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Whether callers are told apart at all; if not, all are served as the user who runs the server.
    pub(crate) const fn can_switch(self) -> bool {
        self.can_switch
    }

    /// Lets the kernel judge what follows as the caller.
    pub(crate) fn act_as(self, caller: &Caller) -> FsResult<Acting> {
        let acting = Acting { identity: self, _of_this_thread: std::marker::PhantomData };
        if self.can_switch {
            // The kernel takes -1 for "leave it", which here would mean the superuser.
            if caller.uid == u32::MAX || caller.gid == u32::MAX {
                return Err(FsError::Access);
            }
            PRESENT.with_borrow_mut(|p| p.become_caller(caller))?;
            if self.must_verify
                && (sys::set_fsuid(u32::MAX) != caller.uid || sys::set_fsgid(u32::MAX) != caller.gid)
            {
                self.as_server_fully();
                return Err(FsError::Access);
            }
        }
        Ok(acting)
    }

    /// Gives the thread the server's rights. The group stays: beside the superuser's rights it means nothing but
    /// the group of new files, and none are made so.
    pub(crate) fn as_server(self) {
        if self.can_switch {
            PRESENT.with_borrow_mut(|p| {
                let gid = p.gid;
                p.become_ids(self.own_uid, gid, true);
            });
        }
    }

    fn as_server_fully(self) {
        PRESENT.with_borrow_mut(|p| p.become_ids(self.own_uid, self.own_gid, true));
    }
}
