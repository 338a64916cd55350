//! Owners as names of a domain, `user@example.org` (RFC 8881 section 5.9), for sites whose ids differ between
//! client and server. A name not asked for yet is written as its number, which Linux clients take as well, and
//! one that arrives is answered with NFS4ERR_DELAY until it is known.

use std::io;

use holdfast_nfs4::{Id, IdNames};
use holdfast_xdr::Writer;

use super::{Directory, Known, sys};

/// An [`IdNames`] over the name service switch.
pub(crate) struct NssNames {
    /// With its leading `@`.
    domain: Vec<u8>,
    user_names: Directory<u32, Vec<u8>>,
    group_names: Directory<u32, Vec<u8>>,
    users: Directory<Vec<u8>, u32>,
    groups: Directory<Vec<u8>, u32>,
}

impl NssNames {
    /// Names of this domain.
    ///
    /// # Errors
    /// When no threads can be had.
    pub(crate) fn start(domain: &str) -> io::Result<Self> {
        Ok(Self {
            domain: [b"@", domain.as_bytes()].concat(),
            user_names: Directory::start("user-names", |uid| sys::user_name(*uid))?,
            group_names: Directory::start("group-names", |gid| sys::group_name(*gid))?,
            users: Directory::start("users", |name: &Vec<u8>| sys::user_id(name))?,
            groups: Directory::start("groups-by-name", |name: &Vec<u8>| sys::group_id(name))?,
        })
    }

    fn write(&self, id: u32, name: Known<Vec<u8>>, to: &mut Writer) {
        match name {
            Known::Answer(Some(name)) => to.opaque(&[&name[..], &self.domain].concat()),
            Known::Answer(None) | Known::NotYet => to.opaque(id.to_string().as_bytes()),
        }
    }

    fn find(&self, text: &[u8], of: &Directory<Vec<u8>, u32>) -> Id {
        if let Some(number) = holdfast_nfs4::parse_number(text) {
            return Id::Known(number);
        }
        let name = match text.strip_suffix(&*self.domain) {
            Some(name) if !name.is_empty() => name.to_vec(),
            // Another domain's names mean nothing here.
            _ => return Id::Unknown,
        };
        match of.look(&name) {
            Known::Answer(Some(id)) => Id::Known(id),
            Known::Answer(None) => Id::Unknown,
            Known::NotYet => Id::NotYet,
        }
    }
}

impl IdNames for NssNames {
    fn write_user(&self, uid: u32, to: &mut Writer) {
        self.write(uid, self.user_names.look(&uid), to);
    }

    fn write_group(&self, gid: u32, to: &mut Writer) {
        self.write(gid, self.group_names.look(&gid), to);
    }

    fn user(&self, text: &[u8]) -> Id {
        self.find(text, &self.users)
    }

    fn group(&self, text: &[u8]) -> Id {
        self.find(text, &self.groups)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn settled(mut ask: impl FnMut() -> Id) -> Id {
        for _ in 0..1000 {
            match ask() {
                Id::NotYet => thread::sleep(Duration::from_millis(5)),
                id => return id,
            }
        }
        Id::NotYet
    }

    #[test]
    fn names_of_the_domain_and_numbers_are_owners_and_nothing_else_is() {
        let names = NssNames::start("example.org").unwrap();
        assert_eq!(settled(|| names.user(b"root@example.org")), Id::Known(0));
        assert_eq!(settled(|| names.group(b"root@example.org")), Id::Known(0));
        assert_eq!(names.user(b"4711"), Id::Known(4711));
        assert_eq!(settled(|| names.user(b"nobody-of-that-name@example.org")), Id::Unknown);
        for text in [&b"root"[..], b"root@example.com", b"@example.org", b""] {
            assert_eq!(names.user(text), Id::Unknown);
        }
    }

    #[test]
    fn a_user_is_written_by_name_once_it_is_known() {
        let names = NssNames::start("example.org").unwrap();
        let mut expected = Writer::new();
        expected.opaque(b"root@example.org");
        for _ in 0..1000 {
            let mut w = Writer::new();
            names.write_user(0, &mut w);
            if w.as_slice() == expected.as_slice() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("root was never written by name");
    }
}
