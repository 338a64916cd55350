//! Access lists (POSIX 1003.1e), as far as anybody but the file system needs to know of them: whether there are any.

/// The list of an object that says who may do what, as Linux has it among the extended attributes.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// The one that a directory hands on to what is made in it.
pub const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Which lists an object has beside its mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// One that says who may do what.
    pub access: bool,
    /// One that it hands on; of directories alone.
    pub default: bool,
}

impl AccessLists {
    /// Those among the names of all extended attributes, each with a NUL behind it.
    #[must_use]
    pub fn among(names: &[u8]) -> Self {
        let has = |list: &[u8]| names.split(|b| *b == 0).any(|name| name == list);
        Self { access: has(ACCESS_LIST), default: has(DEFAULT_LIST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_known_by_their_whole_names() {
        let among = |names: &[u8]| AccessLists::among(names);
        assert_eq!(among(b""), AccessLists::default());
        assert_eq!(
            among(b"user.system.posix_acl_access\0system.posix_acl_defaults\0"),
            AccessLists::default()
        );
        let both = AccessLists { access: true, default: true };
        assert_eq!(among(b"system.posix_acl_default\0user.a\0system.posix_acl_access\0"), both);
        assert!(among(b"security.selinux\0system.posix_acl_access\0").access);
    }
}
