//! From what a call claims to whom it acts for: squashing, and groups looked up on the server.

use std::sync::Arc;

use holdfast_base::limits::{AUTH_SYS_GROUPS_MAX, CALLER_GROUPS_MAX};
use holdfast_vfs::{Caller, FsError, FsResult};

use crate::export::{ExportOptions, Squash};

/// What a call claims about its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nothing (AUTH_NONE): always the anonymous user.
    Anonymous,
    /// User, group and supplementary groups (AUTH_SYS).
    Sys {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// At most 16 supplementary groups.
        groups: &'a [u32],
    },
}

/// Where the server learns the groups of a user that the call could not list. Answers come from a cache: the
/// lookup itself may take seconds and never runs on a connection's worker.
pub trait GroupSource: Send + Sync {
    /// The supplementary groups of a user id.
    fn groups_of(&self, uid: u32) -> Groups;
}

/// What the server knows of a user's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// These.
    Known(Arc<[u32]>),
    /// The server has no such user.
    NoSuchUser,
    /// It is being asked.
    NotYet,
}

/// Knows nobody: the groups in the call are all there is.
#[derive(Debug)]
pub struct NoGroups;

impl GroupSource for NoGroups {
    fn groups_of(&self, _: u32) -> Groups {
        Groups::NoSuchUser
    }
}

pub(crate) fn map(
    credential: &Credential<'_>,
    options: &ExportOptions,
    source: &dyn GroupSource,
) -> FsResult<Caller> {
    let anonymous =
        || Caller { uid: options.anonymous_uid, gid: options.anonymous_gid, groups: Arc::new([]) };
    let Credential::Sys { uid, gid, groups } = *credential else { return Ok(anonymous()) };
    if options.squash == Squash::All {
        return Ok(anonymous());
    }
    let groups = all_groups(uid, groups, options, source)?;
    if options.squash == Squash::None || (uid != 0 && gid != 0 && !groups.contains(&0)) {
        return Ok(Caller { uid, gid, groups });
    }
    // Group 0 opens what only root's group may read, so it is squashed wherever it is named.
    let squash_gid = |g: u32| if g == 0 { options.anonymous_gid } else { g };
    Ok(Caller {
        uid: if uid == 0 { options.anonymous_uid } else { uid },
        gid: squash_gid(gid),
        groups: groups.iter().map(|&g| squash_gid(g)).collect(),
    })
}

fn all_groups(
    uid: u32,
    listed: &[u32],
    options: &ExportOptions,
    source: &dyn GroupSource,
) -> FsResult<Arc<[u32]>> {
    // A list of 16 may have been cut by the client (RFC 5531 has room for no more).
    let may_be_cut = listed.len() >= AUTH_SYS_GROUPS_MAX;
    if !may_be_cut && !options.looks_up_groups {
        return Ok(Arc::from(listed));
    }
    match source.groups_of(uid) {
        Groups::Known(known) if known.len() > CALLER_GROUPS_MAX => Ok(Arc::from(&known[..CALLER_GROUPS_MAX])),
        Groups::Known(known) => Ok(known),
        // Where the server's word counts, the client's does not, not even while the server is asked.
        Groups::NoSuchUser if options.looks_up_groups => Ok(Arc::new([])),
        Groups::NotYet if options.looks_up_groups => Err(FsError::Delay),
        Groups::NoSuchUser | Groups::NotYet => Ok(Arc::from(listed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Knows(u32);

    impl GroupSource for Knows {
        fn groups_of(&self, uid: u32) -> Groups {
            match uid {
                1 => Groups::NotYet,
                _ if uid == self.0 => Groups::Known(Arc::from([100, 200])),
                _ => Groups::NoSuchUser,
            }
        }
    }

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credential<'_> {
        Credential::Sys { uid, gid, groups }
    }

    #[test]
    fn root_squash_takes_uid_0_and_every_gid_0() {
        let options = ExportOptions::default();
        let root = map(&sys(0, 0, &[0, 5]), &options, &NoGroups).unwrap();
        assert_eq!((root.uid, root.gid, &*root.groups), (65534, 65534, &[65534, 5][..]));
        let wheel = map(&sys(7, 0, &[]), &options, &NoGroups).unwrap();
        assert_eq!((wheel.uid, wheel.gid), (7, 65534));
        let user = map(&sys(7, 8, &[9]), &options, &NoGroups).unwrap();
        assert_eq!((user.uid, user.gid, &*user.groups), (7, 8, &[9][..]));
    }

    #[test]
    fn all_squash_and_auth_none_give_the_anonymous_user() {
        let options =
            ExportOptions { squash: Squash::All, anonymous_uid: 1, anonymous_gid: 2, ..Default::default() };
        for credential in [sys(7, 8, &[9]), Credential::Anonymous] {
            let caller = map(&credential, &options, &NoGroups).unwrap();
            assert_eq!((caller.uid, caller.gid, caller.groups.len()), (1, 2, 0));
        }
    }

    #[test]
    fn no_squash_leaves_root_alone() {
        let options = ExportOptions { squash: Squash::None, ..Default::default() };
        assert_eq!(map(&sys(0, 0, &[]), &options, &NoGroups).unwrap().uid, 0);
    }

    #[test]
    fn groups_are_looked_up_when_the_list_may_be_cut() {
        let options = ExportOptions::default();
        let full: Vec<u32> = (1..=16).collect();
        assert_eq!(&*map(&sys(7, 8, &full), &options, &Knows(7)).unwrap().groups, [100, 200]);
        assert_eq!(&*map(&sys(7, 8, &full), &options, &Knows(9)).unwrap().groups, &full[..]);
        assert_eq!(&*map(&sys(7, 8, &full[..15]), &options, &Knows(7)).unwrap().groups, &full[..15]);
    }

    #[test]
    fn where_the_server_knows_the_groups_the_clients_list_counts_for_nothing() {
        let options = ExportOptions { looks_up_groups: true, ..ExportOptions::default() };
        assert_eq!(&*map(&sys(7, 8, &[42]), &options, &Knows(7)).unwrap().groups, [100, 200]);
        assert!(map(&sys(9, 8, &[42]), &options, &Knows(7)).unwrap().groups.is_empty());
        assert_eq!(map(&sys(1, 8, &[42]), &options, &Knows(7)), Err(FsError::Delay));
    }
}
