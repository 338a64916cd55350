//! Making: files with their first data, directories, links, devices; and what happens when the name is taken.

use std::sync::Arc;

use holdfast_base::limits::{CAPS_OTHER_NAMES_MAX, NAME_BYTES_MAX};
use holdfast_base::{CapSet, Civil};
use holdfast_ledger::Now;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::EntryKinds;
use holdfast_vfs::{
    self as vfs, AttrMask, Caller, File, FileKind, FileObject, FsError, Name, NewNode, OpenMode,
    SetAttrs as VfsSetAttrs, Stability, WriteAt,
};
use holdfast_wire::caps::{CapsStat, Handle, IfTaken, Ref, SetAttrs};

use crate::attrs;
use crate::lane::Partial;
use crate::ops::{Doing, Stop};
use crate::outcome::Outcome;
use crate::site::Site;

/// Bits of a mode that a write takes away.
const SET_ID_BITS: u32 = 0o6000;

/// What is to be made, and under which name.
pub(crate) struct Making<'m> {
    pub(crate) name: &'m [u8],
    pub(crate) if_taken: IfTaken,
    pub(crate) set: &'m SetAttrs,
    /// Capabilities asked for.
    pub(crate) want: CapSet,
}

/// Names to be tried, one after the other.
pub(crate) struct Names {
    tried: u32,
    base: Vec<u8>,
    /// Made when it is needed, which is rarely.
    stamp: Option<String>,
    wall: Now,
    /// Begun in a former life, or a moment ago.
    begun: Option<Vec<u8>>,
}

impl Names {
    pub(crate) fn next(&mut self, if_taken: IfTaken) -> Option<Vec<u8>> {
        if let Some(begun) = self.begun.take() {
            return Some(begun);
        }
        let name = match self.tried {
            0 => self.base.clone(),
            _ if if_taken == IfTaken::Fail => return None,
            n if n <= CAPS_OTHER_NAMES_MAX => {
                let stamp = match n {
                    1 => self.stamp().to_owned(),
                    n => format!("{}.{}", self.stamp(), n - 1),
                };
                beside(&self.base, &stamp)
            }
            _ => return None,
        };
        self.tried += 1;
        Some(name)
    }

    fn stamp(&mut self) -> &str {
        // Before 1970 there were no such names.
        let now = || u64::try_from((self.wall)().seconds).unwrap_or_default();
        self.stamp.get_or_insert_with(|| stamp(now()))
    }
}

/// `NAME-STAMP`, the name cut so that it fits.
fn beside(name: &[u8], stamp: &str) -> Vec<u8> {
    let room = NAME_BYTES_MAX - 1 - stamp.len();
    let mut whole = name[..name.len().min(room)].to_vec();
    whole.push(b'-');
    whole.extend_from_slice(stamp.as_bytes());
    whole
}

/// `YYYYMMDDTHHMMSSZ`, of seconds since 1970.
fn stamp(seconds: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::from_unix(seconds);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

impl Doing<'_> {
    pub(crate) fn names(&mut self, making: &Making<'_>) -> Names {
        let in_former_life = self.record.as_deref().and_then(|record| record.intended_name());
        let begun = self.this.partial.as_ref().filter(|partial| partial.op == self.op);
        let begun = begun.map(|partial| partial.name.clone()).or(in_former_life);
        Names {
            tried: 0,
            base: making.name.to_vec(),
            stamp: None,
            wall: Arc::clone(&self.caps.parts.wall),
            begun,
        }
    }

    /// Makes a file and writes its first data; of one that was made to be this, if it is still there. What was made stays
    /// made when the data has to wait.
    pub(crate) fn make_file(
        &mut self,
        dir: &Ref<'_>,
        (making, pooled): (&Making<'_>, Option<&Handle<'_>>),
        data: &[u8],
    ) -> Result<Outcome, Stop> {
        let dir = self.site(dir)?;
        let caller = self.caller(&dir)?;
        self.will_change(&dir, &caller, EntryKinds::ADD)?;
        let set = attrs::set_attrs(making.set);
        let partial = self.this.partial.clone().filter(|partial| partial.op == self.op);
        if let Some(Partial { handle: Some(handle), name, .. }) = partial {
            let site = dir.beside(handle);
            self.fill((&dir, &site), &caller, (File::Stateless(&handle), data), &set)?;
            return Ok(self.made(&dir, &site, (making, &name), !data.is_empty()));
        }
        let is_own = self.holds_entries(&dir);
        let spare = pooled.map(|handle| self.spare((&dir, &caller), handle)).transpose()?.flatten();
        if let Some(spare) = spare
            && let Some(placed) = self.place((&dir, &caller, is_own), &spare, (making, data))?
        {
            return Ok(placed);
        }
        if let Some(pooled) = pooled
            && let Some(there) = self.made_before((&dir, &caller), pooled, (making, data))?
        {
            return Ok(there);
        }
        // To be written through, and for what guards capabilities of it to stand on.
        let is_opened = !data.is_empty() || !making.want.is_empty();
        let open = is_opened.then_some(OpenMode { read: true, write: true, nfs_exceptions: true });
        // Writing changes the times: they are set once, after it.
        let times = if data.is_empty() { (set.atime, set.mtime) } else { (None, None) };
        let first = VfsSetAttrs { atime: times.0, mtime: times.1, ..set };
        let mut names = self.names(making);
        while let Some(name) = names.next(making.if_taken) {
            let at = (&dir.handle, Name::new(&name)?);
            let made = match self.mutation(&dir, &caller).make_file(at, (&first, open), is_own) {
                Err(FsError::Exists) => continue,
                other => other?,
            };
            let site = dir.beside(made.handle);
            self.this.partial = Some(Partial { op: self.op, handle: Some(site.handle), name: name.clone() });
            if let Some(file) = &made.file {
                self.fill((&dir, &site), &caller, (File::Open(&site.handle, file), data), &set)?;
            }
            let outcome = self.made(&dir, &site, (making, &name), !data.is_empty());
            self.grant_first(&site, making, made.file.as_ref());
            return Ok(outcome);
        }
        Err(Stop::Refused(CapsStat::Exist))
    }

    /// Writes a new file's first data, and sets once more what that has changed.
    pub(crate) fn fill(
        &mut self,
        (dir, site): (&Site, &Site),
        caller: &Caller,
        (file, data): (File<'_>, &[u8]),
        set: &VfsSetAttrs,
    ) -> Result<(), Stop> {
        if data.is_empty() {
            return Ok(());
        }
        let again = VfsSetAttrs {
            mode: set.mode.filter(|mode| set.umask.is_none() && mode & SET_ID_BITS != 0),
            atime: set.atime,
            mtime: set.mtime,
            ..VfsSetAttrs::default()
        };
        failpoint::pass(Point::BeforeMutation);
        let filled = site.export.backend.write_first(&self.actor.cx(caller), file, data, &again);
        failpoint::pass(Point::AfterMutation);
        // Its name is there, whatever has to wait.
        Ok(filled.inspect_err(|_| self.touch_dir(dir))?)
    }

    /// Whether the client knows of every entry of a directory.
    fn holds_entries(&self, dir: &Site) -> bool {
        let (client, key) = (self.actor.client, dir.key());
        self.caps.parts.manager.look(|engine| engine.caps_of(client, key).held.contains(CapSet::FILE_X))
    }

    /// Gives what is asked for of a file that was made just now, before anybody else can find it.
    pub(crate) fn grant_first(
        &mut self,
        site: &Site,
        making: &Making<'_>,
        file: Option<&Arc<dyn FileObject>>,
    ) {
        if making.want.is_empty() {
            return;
        }
        let client = self.actor.client;
        // What cannot be given is no error.
        let grant = self.caps.grant_made((client, site), making.want, file);
        if let Some(vfs::SetTime::At(mtime)) = attrs::set_attrs(making.set).mtime {
            self.caps.members.writes_since(client, site.key(), mtime);
        }
        self.grants.insert(self.op, grant.unwrap_or_default());
    }

    /// Makes anything else.
    pub(crate) fn make(
        &mut self,
        dir: &Ref<'_>,
        making: &Making<'_>,
        node: &NewNode<'_>,
    ) -> Result<Outcome, Stop> {
        let dir = self.site(dir)?;
        let caller = self.caller(&dir)?;
        self.will_change(&dir, &caller, EntryKinds::ADD)?;
        let set = attrs::set_attrs(making.set);
        let mut names = self.names(making);
        while let Some(name) = names.next(making.if_taken) {
            let made = self.mutation(&dir, &caller).make(&dir.handle, Name::new(&name)?, *node, &set);
            let site = match made {
                Ok((made, _)) => dir.beside(made.handle),
                Err(FsError::Exists) => match self.shared(&dir, &caller, (making, &name))? {
                    Some(there) => return Ok(there),
                    None => continue,
                },
                Err(error) => return Err(error.into()),
            };
            return Ok(self.made(&dir, &site, (making, &name), false));
        }
        Err(Stop::Refused(CapsStat::Exist))
    }

    /// The directory that is there already, where that will do. What is no directory has the name, as any other's.
    fn shared(
        &mut self,
        dir: &Site,
        caller: &Caller,
        (making, name): (&Making<'_>, &[u8]),
    ) -> Result<Option<Outcome>, Stop> {
        if making.if_taken != IfTaken::Share {
            return Ok(None);
        }
        let cx = self.actor.cx(caller);
        let found = match dir.export.backend.lookup(&cx, &dir.handle, Name::new(name)?, AttrMask::NONE) {
            // It went a moment ago: another name is as good.
            Err(FsError::NotFound) => return Ok(None),
            other => other?,
        };
        let handle = self.caps.seal(&dir.beside(found.handle));
        let other_name = if name == making.name { Vec::new() } else { name.to_vec() };
        let is_dir = found.attrs.kind == FileKind::Directory;
        Ok(is_dir.then_some(Outcome::Made { handle, other_name }))
    }

    /// Ends a making.
    pub(crate) fn made(
        &mut self,
        dir: &Site,
        site: &Site,
        (making, name): (&Making<'_>, &[u8]),
        has_data: bool,
    ) -> Outcome {
        self.touch_dir(dir);
        self.touch(&site.export, site.handle, has_data);
        let other_name = if name == making.name { Vec::new() } else { name.to_vec() };
        Outcome::Made { handle: self.caps.seal(site), other_name }
    }

    /// Writes all of it.
    pub(crate) fn write(
        &mut self,
        site: &Site,
        caller: &Caller,
        (file, offset): (File<'_>, u64),
        data: &[u8],
    ) -> Result<(), Stop> {
        failpoint::pass(Point::BeforeMutation);
        let mut done = 0;
        while done < data.len() {
            let at = WriteAt {
                offset: offset.saturating_add(done as u64),
                stability: Stability::Unstable,
                want_change: false,
            };
            let written = site.export.backend.write(&self.actor.cx(caller), file, at, &data[done..])?;
            if written.bytes == 0 {
                return Err(Stop::Refused(CapsStat::NoSpc));
            }
            done += written.bytes;
        }
        failpoint::pass(Point::AfterMutation);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::Timestamp;

    use super::*;

    #[test]
    fn stamps_are_dates() {
        for (seconds, date) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_709_251_199, "20240229T235959Z"),
            (4_102_444_800, "21000101T000000Z"),
        ] {
            assert_eq!(stamp(seconds), date);
        }
    }

    #[test]
    fn a_name_beside_another_fits_whatever_its_length() {
        assert_eq!(beside(b"a", "S"), b"a-S");
        assert_eq!(beside(&[b'x'; NAME_BYTES_MAX], &stamp(0)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn other_names_are_tried_only_where_both_are_to_be_kept_and_end() {
        let wall: Now = Arc::new(Timestamp::default);
        let names = || Names {
            tried: 0,
            base: b"n".to_vec(),
            stamp: Some("S".into()),
            wall: Arc::clone(&wall),
            begun: None,
        };
        let all = |if_taken| {
            let mut names = names();
            std::iter::from_fn(|| names.next(if_taken)).collect::<Vec<_>>()
        };
        assert_eq!(all(IfTaken::Fail), [b"n"]);
        let both = all(IfTaken::KeepBoth);
        assert_eq!(both[..3], [&b"n"[..], b"n-S", b"n-S.1"].map(<[u8]>::to_vec));
        assert_eq!(both.len() as u32, CAPS_OTHER_NAMES_MAX + 1);
        assert_eq!(all(IfTaken::Share), both);
    }
}
