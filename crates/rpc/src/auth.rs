//! Who calls: the credential of a call, decoded and bounded. What an export makes of it (squashing, groups looked
//! up on the server) is decided elsewhere.

use std::sync::Arc;

use holdfast_base::limits::AUTH_SYS_NAME_BYTES_MAX;
use holdfast_wire::rpc::{self as wire, AUTH_NONE, AUTH_SYS, AuthStat, Groups};
use holdfast_xdr::{Encode, Writer, from_bytes};

/// A caller's identity as the transport vouches for it. Kerberos and TLS principals become further variants.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// AUTH_NONE: nobody in particular.
    None,
    /// AUTH_SYS: what the client's kernel says.
    Sys(AuthSys),
}

/// An AUTH_SYS credential (RFC 5531 appendix A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups, at most 16.
    pub groups: Vec<u32>,
    /// What the client calls itself; any bytes, at most 255.
    pub machine: Vec<u8>,
}

impl Auth {
    /// The AUTH_SYS credential, when it is one.
    #[must_use]
    pub const fn sys(&self) -> Option<&AuthSys> {
        match self {
            Self::Sys(sys) => Some(sys),
            Self::None => None,
        }
    }

    /// The flavor's number, as SECINFO and MOUNT speak of it.
    #[must_use]
    pub const fn flavor(&self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys(_) => AUTH_SYS,
        }
    }

    /// Decodes a credential.
    ///
    /// # Errors
    /// [`AuthStat::BadCred`] for a flavor not served and for a body that does not decode, as Linux answers.
    pub fn decode(flavor: u32, body: &[u8]) -> Result<Self, AuthStat> {
        match flavor {
            AUTH_NONE if body.is_empty() => Ok(Self::None),
            AUTH_SYS => decode_sys(body).map(Self::Sys).map_err(|_| AuthStat::BadCred),
            _ => Err(AuthStat::BadCred),
        }
    }

    /// Appends the credential as a call carries it: flavor, length, body.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.flavor());
        let length = w.mark();
        if let Self::Sys(sys) = self {
            let machine_name = &sys.machine[..sys.machine.len().min(AUTH_SYS_NAME_BYTES_MAX)];
            let gids = Groups::new(&sys.groups);
            wire::AuthSys { stamp: 0, machine_name, uid: sys.uid, gid: sys.gid, gids }.encode(w);
        }
        let n = w.since(length);
        w.fill(length, n as u32);
    }
}

fn decode_sys(body: &[u8]) -> holdfast_xdr::Result<AuthSys> {
    let sys: wire::AuthSys<'_> = from_bytes(body)?;
    let (groups, machine) = (sys.gids.as_slice().to_vec(), sys.machine_name.to_vec());
    Ok(AuthSys { uid: sys.uid, gid: sys.gid, groups, machine })
}

/// The credentials a connection saw last, so that the one it repeats in every call is decoded once.
#[derive(Debug, Default)]
pub(crate) struct AuthCache {
    entries: [Option<Entry>; 4],
    next: usize,
}

#[derive(Debug)]
struct Entry {
    flavor: u32,
    body: Vec<u8>,
    auth: Arc<Auth>,
}

impl AuthCache {
    /// The decoded credential. Flavors that carry a verifier of their own do not go through here.
    pub(crate) fn decode(&mut self, flavor: u32, body: &[u8]) -> Result<&Arc<Auth>, AuthStat> {
        let known = self
            .entries
            .iter()
            .position(|e| e.as_ref().is_some_and(|e| e.flavor == flavor && e.body == body));
        let at = match known {
            Some(at) => at,
            None => self.insert(flavor, body)?,
        };
        self.entries[at].as_ref().map(|e| &e.auth).ok_or(AuthStat::BadCred)
    }

    fn insert(&mut self, flavor: u32, body: &[u8]) -> Result<usize, AuthStat> {
        let auth = Arc::new(Auth::decode(flavor, body)?);
        let at = self.next;
        self.next = (at + 1) % self.entries.len();
        self.entries[at] = Some(Entry { flavor, body: body.to_vec(), auth });
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(auth: &Auth) -> Vec<u8> {
        let mut w = Writer::new();
        auth.encode(&mut w);
        w.into_vec()[8..].to_vec()
    }

    fn alice() -> Auth {
        Auth::Sys(AuthSys { uid: 1000, gid: 100, groups: vec![100, 7], machine: b"box".to_vec() })
    }

    #[test]
    fn auth_sys_comes_back_as_it_was_sent() {
        assert_eq!(Auth::decode(AUTH_SYS, &body_of(&alice())), Ok(alice()));
    }

    #[test]
    fn seventeen_groups_and_cut_bodies_are_bad_credentials() {
        let mut w = Writer::new();
        w.u32(0);
        w.opaque(b"x");
        w.u32(1);
        w.u32(1);
        w.list(&[1u32; 17]);
        assert_eq!(Auth::decode(AUTH_SYS, w.as_slice()), Err(AuthStat::BadCred));
        let body = body_of(&alice());
        for cut in 0..body.len() {
            assert_eq!(Auth::decode(AUTH_SYS, &body[..cut]), Err(AuthStat::BadCred), "cut at {cut}");
        }
        assert_eq!(Auth::decode(6, b""), Err(AuthStat::BadCred));
    }

    #[test]
    fn a_repeated_credential_is_decoded_once() {
        let mut cache = AuthCache::default();
        let body = body_of(&alice());
        let first = cache.decode(AUTH_SYS, &body).cloned().unwrap();
        for uid in 0..3 {
            let other = Auth::Sys(AuthSys { uid, ..AuthSys::default() });
            assert_eq!(**cache.decode(AUTH_SYS, &body_of(&other)).unwrap(), other);
        }
        assert!(Arc::ptr_eq(&first, cache.decode(AUTH_SYS, &body).unwrap()));
    }
}
