//! A server over [`Fs`], as obvious as can be: it answers questions, runs batches, keeps a table of capabilities, and
//! loses what is not stable when told to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdfast_base::Timestamp;
use holdfast_cache::*;

use super::fs::{Fs, ROOT, Res};
use super::names::Named;

/// Bits of exclusive capabilities alone.
pub(super) const X: u32 = 0xaa;
pub(super) const FILE: u32 = 192;
const AUTH: u32 = 3;
pub(super) const LINK: u32 = 12;
const XATTR: u32 = 48;

#[derive(Clone, Debug, Default)]
pub struct Held {
    pub caps: u32,
    pub seq: u64,
    pub last_grant: u64,
    pub recalling: Option<u32>,
}

/// A recall on its way to a client.
#[derive(Clone, Debug)]
pub struct Recall {
    pub handle: Handle,
    pub keep: CapSet,
    pub seq: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub executed: u64,
    pub results: BTreeMap<u64, Vec<MutationResult>>,
    pub made: BTreeMap<(u64, u32), u64>,
    /// As they came, to tell one that is sent again from another under its number.
    pub sent: BTreeMap<u64, Vec<Mutation>>,
    /// What the client has said that it will neither send again nor name.
    pub done: u64,
    /// Operations of the transactions after that.
    pub remembered: BTreeMap<u64, usize>,
}

#[derive(Clone, Debug)]
pub struct Server {
    pub fs: Fs,
    pub has_caps: bool,
    pub held: BTreeMap<(u64, usize), Held>,
    /// What is promised of single names.
    pub names: BTreeMap<(u64, Vec<u8>, usize), Named>,
    /// Lookups are given no directory, but the name.
    pub is_contested: bool,
    pub opens: BTreeMap<u64, (u64, usize)>,
    pub lanes: BTreeMap<usize, Lane>,
    /// Files made for creates to come: for whom, in which directory.
    pub pooled: BTreeMap<u64, (usize, u64, u32)>,
    /// Numbers of objects, where they are not those of their handles: some have them again.
    pub numbers: BTreeMap<u64, u64>,
    pub last_seq: u64,
    pub last_open: u64,
    pub verifier: u64,
    pub recalls: Vec<(usize, Recall)>,
    /// Whether wishes for exclusive capabilities are granted; switched by tests.
    pub generous: bool,
    /// It promises nothing of the data of files that others have open, as if all did so to write.
    pub is_shy: bool,
    /// Of what others hold exclusively a listing tells the name alone.
    pub is_terse: bool,
    /// It knows what it is to promise beside writers.
    pub lends: bool,
    pub rpcs: u64,
    /// Calls by which files were read ahead.
    pub aheads: u64,
    /// Recalls sent.
    pub recalled: u64,
    /// Others were at the files while nobody watched: names may stand for something else than a mount believes.
    pub unwatched: bool,
    /// A question changed something since this was last cleared.
    pub synchronous: bool,
    /// Entries in one answer to LIST.
    pub page: usize,
    /// The questions, where a test wants to know.
    pub asked: Option<Vec<Question>>,
    /// As whom everybody acts there, where that is another.
    pub squashed_to: Option<Caller>,
    /// Its disk has no room for data.
    pub is_full: bool,
    /// What has an access list.
    pub listed: BTreeSet<u64>,
    /// Directories that hand lists on; `None`: it does not tell, as servers did not at first.
    pub handing_on: Option<BTreeSet<u64>>,
}

/// What stands in the way.
#[derive(Debug)]
pub struct Blocked;

pub fn handle(ino: u64) -> Handle {
    Handle::new(&ino.to_be_bytes())
}

pub(super) fn ino(handle: &Handle) -> u64 {
    u64::from_be_bytes(handle.as_bytes().try_into().unwrap())
}

type Exec<T> = Result<Res<T>, Blocked>;

/// Unwraps the outer `Result` by `?`, the inner by returning.
macro_rules! pass {
    ($e:expr) => {
        match $e {
            Ok(v) => v,
            Err(e) => return Ok(Err(e)),
        }
    };
}

impl Server {
    fn acting(&self) -> Acting {
        self.squashed_to.clone().map_or(Acting::AsItself, Acting::As)
    }

    pub(super) fn uid_of(&self, caller: &Caller) -> u32 {
        self.squashed_to.as_ref().unwrap_or(caller).uid
    }

    pub fn new(has_caps: bool) -> Self {
        Self {
            fs: Fs::default(),
            has_caps,
            held: BTreeMap::new(),
            names: BTreeMap::new(),
            is_contested: false,
            opens: BTreeMap::new(),
            lanes: BTreeMap::new(),
            pooled: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_seq: 0,
            last_open: 0,
            verifier: 7,
            recalls: Vec::new(),
            generous: true,
            is_shy: false,
            is_terse: false,
            lends: true,
            rpcs: 0,
            aheads: 0,
            recalled: 0,
            unwatched: false,
            synchronous: false,
            page: 3,
            asked: None,
            squashed_to: None,
            is_full: false,
            listed: BTreeSet::new(),
            handing_on: Some(BTreeSet::new()),
        }
    }

    pub fn attrs(&self, ino: u64) -> Res<Attrs> {
        let i = self.fs.get(ino)?;
        Ok(Attrs {
            kind: i.kind,
            mode: i.mode,
            nlink: i.nlink,
            uid: i.uid,
            gid: 0,
            size: if i.kind == Kind::Dir { 0 } else { i.data.len() as u64 },
            allocated: 0,
            device: Device::default(),
            atime: Timestamp::default(),
            mtime: Timestamp { seconds: i.mtime, nanos: 0 },
            ctime: Timestamp::default(),
            btime: None,
            change: i.change,
            fileid: self.numbers.get(&ino).copied().unwrap_or(ino),
        })
    }

    pub fn object(&mut self, client: usize, ino: u64, want: CapSet) -> Res<Object> {
        let grant = self.grant(client, ino, want);
        Ok(Object { handle: handle(ino), attrs: self.attrs(ino)?, grant })
    }

    pub fn born(&mut self, client: usize, ino: u64, want: CapSet) -> Born {
        Born { handle: handle(ino), grant: self.grant(client, ino, want) }
    }

    /// Recalls what others must not keep; `Blocked` while they do.
    pub(super) fn clear(&mut self, client: usize, ino: u64, mask: u32) -> Result<(), Blocked> {
        let mut blocked = false;
        let others: Vec<_> = self
            .held
            .range((ino, 0)..=(ino, usize::MAX))
            .filter(|((_, c), _)| *c != client)
            .map(|(k, _)| *k)
            .collect();
        for key in others {
            let held = self.held.get_mut(&key).unwrap();
            if held.caps & mask == 0 {
                continue;
            }
            blocked = true;
            let keep = CapSet(held.caps & !mask).sound();
            if held.recalling.is_none_or(|k| k & !keep.0 != 0) {
                self.last_seq += 1;
                held.seq = self.last_seq;
                held.recalling = Some(keep.0);
                let recall = Recall { handle: handle(ino), keep, seq: held.seq };
                self.recalled += 1;
                self.recalls.push((key.1, recall));
            }
        }
        if blocked { Err(Blocked) } else { Ok(()) }
    }

    /// A client is about to change what is in a directory, or would be if nobody held it.
    pub fn wants(&mut self, client: usize, dir: u64) {
        let _ = self.clear(client, dir, FILE);
    }

    /// Gives what can be given at once.
    pub(super) fn grant(&mut self, client: usize, ino: u64, want: CapSet) -> Option<Grant> {
        if !self.has_caps {
            return None;
        }
        let others = self.held.range((ino, 0)..=(ino, usize::MAX)).filter(|((_, c), _)| *c != client);
        let others = others.fold(0, |all, (_, h)| all | h.caps);
        let others = others | self.held_by_opens(client, ino, want);
        let has_names = self.has_names(client, ino);
        let others = if has_names { others | CapSet::FILE_S.0 } else { others };
        if has_names && want.contains(CapSet::FILE_X) && self.generous {
            // It is had the next time.
            let _ = self.clear_names(client, ino);
        }
        let mut can = 0;
        for kind in [0, 2, 4, 6] {
            let (s, x) = (1 << kind, 2 << kind);
            if want.0 & s != 0 && others & x == 0 {
                can |= s;
            }
            if want.0 & x != 0 && others & (s | x) == 0 && self.generous {
                can |= s | x;
            }
        }
        let entry = self.held.entry((ino, client)).or_default();
        if entry.recalling.is_some() {
            can = 0;
        }
        if can & !entry.caps != 0 {
            self.last_seq += 1;
            entry.caps |= can;
            entry.seq = self.last_seq;
            entry.last_grant = self.last_seq;
        }
        let (caps, seq) = (CapSet(entry.caps), entry.seq);
        let caps = entry.recalling.map_or(caps, |k| CapSet(caps.0 & k));
        let listed = self.listed.contains(&ino);
        let covers = CapSet::AUTH_S | CapSet::XATTR_S;
        let hands_on = self.handing_on.as_ref().is_none_or(|all| all.contains(&ino));
        let is_dir = self.attrs(ino).is_ok_and(|attrs| attrs.kind == Kind::Dir);
        let hands_on_none = is_dir && caps.contains(covers) && !hands_on;
        let plain =
            caps.contains(CapSet::FILE_X) && !self.handing_on.as_ref().is_some_and(|all| all.contains(&ino));
        Some(Grant {
            caps,
            seq,
            plain,
            group_of_directory: false,
            listed,
            hands_on_none,
            changed_since: false,
        })
    }

    /// What opens of others stand for: X of a file is not to be had beside them. Of a shy server S is not, either, but by who
    /// gives it back when the file is changed.
    fn held_by_opens(&self, client: usize, ino: u64, want: CapSet) -> u32 {
        let is_shy = self.is_shy && !(self.lends && want.contains(CapSet::BESIDE_WRITERS));
        match self.opens.values().any(|(of, by)| *of == ino && *by != client) {
            false => 0,
            true if is_shy => (CapSet::FILE_X | CapSet::AUTH_S).0,
            true => (CapSet::FILE_S | CapSet::AUTH_S).0,
        }
    }

    /// Begins anew: nobody holds anything, what was to be recalled is forgotten.
    pub fn restart(&mut self) {
        self.held.clear();
        self.names.clear();
        self.recalls.clear();
        self.pooled.clear();
        self.collect();
    }

    /// Gives back what was held before.
    pub fn reclaim(&mut self, client: usize, claim: &Reclaim) -> Reclaimed {
        let i = ino(&claim.handle);
        let result = self.attrs(i).map(|attrs| {
            self.last_seq += 1;
            let (caps, seq) = (claim.caps.0, self.last_seq);
            self.held.insert((i, client), Held { caps, seq, last_grant: seq, recalling: None });
            let (plain, listed, hands_on_none) = (claim.caps.contains(CapSet::FILE_X), false, false);
            (
                attrs,
                Grant {
                    caps: claim.caps,
                    seq,
                    plain,
                    group_of_directory: false,
                    listed,
                    hands_on_none,
                    changed_since: false,
                },
            )
        });
        Reclaimed { handle: claim.handle.clone(), result }
    }

    /// False: crossed.
    pub fn release(&mut self, client: usize, release: &Release) -> bool {
        if let Some(is_released) = self.release_name(client, release) {
            return is_released;
        }
        let Some(held) = self.held.get_mut(&(ino(&release.handle), client)) else { return true };
        if release.seq < held.last_grant {
            return false;
        }
        held.caps &= release.keep.0;
        if held.recalling.is_some_and(|keep| held.caps & !keep == 0) {
            held.recalling = None;
        }
        true
    }

    /// Forgets files without names that nobody has open.
    pub fn collect(&mut self) {
        let open = self.opens.values().map(|(ino, _)| *ino);
        let open: BTreeSet<u64> = open.chain(self.pooled.keys().copied()).collect();
        let gone: Vec<u64> = self
            .fs
            .inodes
            .iter()
            .filter(|(i, n)| n.nlink == 0 && !open.contains(i))
            .map(|(i, _)| *i)
            .collect();
        for ino in gone {
            self.fs.inodes.remove(&ino);
        }
    }

    /// Makes files for creates to come, after what is given back is gone.
    pub fn pool(&mut self, c: usize, out: &PoolOut) -> Res<Vec<Spare>> {
        self.rpcs += 1;
        for handle in &out.back {
            let i = ino(handle);
            if self.pooled.get(&i).is_some_and(|(of, ..)| *of == c) {
                self.pooled.remove(&i);
            }
        }
        self.collect();
        let (dir, uid) = (ino(&out.dir), out.caller.uid);
        let mut made = Vec::new();
        for _ in 0..out.count {
            let i = self.fs.make_nameless(dir, 0o777, uid)?;
            self.pooled.insert(i, (c, dir, uid));
            made.push(Spare { handle: handle(i), fileid: i });
        }
        Ok(made)
    }

    pub fn close(&mut self, token: OpenToken) {
        self.opens.remove(&token.0).expect("an open is closed once");
        self.collect();
    }

    fn new_open(&mut self, client: usize, ino: u64) -> Option<OpenToken> {
        self.last_open += 1;
        self.opens.insert(self.last_open, (ino, client));
        Some(OpenToken(self.last_open))
    }

    pub fn answer(&mut self, client: usize, ask: &Ask) -> Exec<Answer> {
        self.rpcs += 1;
        self.synchronous |= ask.question.is_mutation();
        if let Some(asked) = &mut self.asked {
            asked.push(ask.question.clone());
        }
        let done = self.answer_question(client, ask);
        self.collect();
        done
    }

    fn answer_question(&mut self, c: usize, ask: &Ask) -> Exec<Answer> {
        let uid = self.uid_of(&ask.caller);
        Ok(Ok(match &ask.question {
            Question::Lookup { dir, name, want, want_dir } => {
                self.clear(c, ino(dir), X & (FILE | AUTH))?;
                let found = pass!(self.fs.look(ino(dir), name.as_bytes()));
                if let Some(i) = found {
                    self.clear(c, i, X)?;
                }
                let d = ino(dir);
                let want_dir =
                    want_dir.without(if self.is_contested { CapSet::FILE_X } else { CapSet::NONE });
                let dir = self.grant(c, d, want_dir);
                let is_held = dir.is_some_and(|dir| dir.caps.contains(CapSet::FILE_S));
                let is_covered = is_held && !self.is_contested;
                let promise = if is_covered { None } else { self.promise(c, d, name.as_bytes()) };
                let found = match found {
                    Some(i) => Some(pass!(self.object(c, i, *want))),
                    None => None,
                };
                Answer::Looked { found, dir, promise }
            }
            Question::GetAttr { object, want, .. } => {
                self.clear(c, ino(object), X)?;
                let o = pass!(self.object(c, ino(object), *want));
                Answer::Attrs { attrs: o.attrs, grant: o.grant }
            }
            Question::List { dir, cookie, want, want_dir, .. } => {
                let d = ino(dir);
                self.clear(c, d, X & (FILE | AUTH))?;
                let names = pass!(self.fs.get(d)).entries.clone();
                let dir = self.grant(c, d, *want_dir);
                let dir_attrs = Some(pass!(self.attrs(d)));
                let mut entries = Vec::new();
                // The cookie of an entry is its object's number and its name's, which suits a test.
                let mut places: Vec<_> = names.into_iter().map(|(n, i)| (place(&n), n, i)).collect();
                places.sort();
                let rest: Vec<_> = places.into_iter().filter(|(p, ..)| p > cookie).collect();
                let eof = rest.len() <= self.page;
                for (cookie, name, i) in rest.into_iter().take(self.page) {
                    let object = match self.clear(c, i, X) {
                        Err(Blocked) if self.is_terse => None,
                        cleared => {
                            cleared?;
                            Some(pass!(self.object(c, i, *want)))
                        }
                    };
                    let brief = (object.as_ref().map(|object| object.attrs.kind), i);
                    entries.push(Listed { name: Name::new(&name), cookie, object, brief });
                }
                Answer::Listed { entries, eof, verifier: 1, dir, dir_attrs }
            }
            Question::Acquire { items } => {
                let mut granted = Vec::new();
                for (h, want) in items {
                    if self.fs.get(ino(h)).is_err() {
                        granted.push(Err(Errno::ESTALE));
                        continue;
                    }
                    self.clear(c, ino(h), X | (want.0 & X) | ((want.0 & X) >> 1))?;
                    if want.contains(CapSet::FILE_X) {
                        self.clear_names(c, ino(h))?;
                    }
                    let o = pass!(self.object(c, ino(h), *want));
                    granted.push(Ok((o.attrs, o.grant.unwrap())));
                }
                Answer::Acquired { items: granted }
            }
            Question::Read { object, offset, length, .. } => {
                self.clear(c, ino(object), X & FILE)?;
                let data = pass!(self.fs.read(ino(object), *offset, *length));
                let eof = *offset + data.len() as u64 >= pass!(self.fs.get(ino(object))).data.len() as u64;
                Answer::Read { data: data.into(), eof }
            }
            Question::ReadLink { object } => {
                Answer::Text { text: pass!(self.fs.get(ino(object))).data.clone().into() }
            }
            Question::Open { object, access, truncate, want } => {
                let i = ino(object);
                self.clear(c, i, X | if access.write || *truncate { FILE } else { 0 })?;
                if *truncate {
                    pass!(self.fs.get_mut(i)).data.clear();
                }
                let o = pass!(self.object(c, i, *want));
                Answer::Opened { open: self.new_open(c, i), attrs: o.attrs, grant: o.grant }
            }
            Question::Close { open } => {
                self.close(*open);
                Answer::Done
            }
            Question::WhoAmI => Answer::Acts(self.acting()),
            Question::StatFs { .. } => Answer::Room { room: Room::default() },
            _ => return self.answer_change(c, &ask.question, uid),
        }))
    }

    fn answer_change(&mut self, c: usize, question: &Question, uid: u32) -> Exec<Answer> {
        Ok(Ok(match question {
            Question::Create { dir, name, attrs, exclusive, want, want_dir, .. } => {
                let d = ino(dir);
                self.clear(c, d, FILE | (X & AUTH))?;
                let found = pass!(self.fs.look(d, name.as_bytes()));
                if found.is_none() {
                    self.clear_name(c, d, name.as_bytes())?;
                }
                let (i, made) = match found {
                    Some(_) if *exclusive => return Ok(Err(Errno::EEXIST)),
                    Some(i) => {
                        match pass!(self.fs.get(i)).kind {
                            Kind::File => {}
                            Kind::Dir => return Ok(Err(Errno::EISDIR)),
                            _ => return Ok(Err(Errno::ELOOP)),
                        }
                        self.clear(c, i, X)?;
                        (i, false)
                    }
                    None => (
                        pass!(self.fs.make(d, name.as_bytes(), Kind::File, attrs.mode & !attrs.umask, uid)),
                        true,
                    ),
                };
                let object = pass!(self.object(c, i, *want));
                let open = self.new_open(c, i);
                self.created(c, d, *want_dir, object, open, made)
            }
            Question::Nameless { dir, attrs, want, .. } => {
                let i = pass!(self.fs.make_nameless(ino(dir), attrs.mode & !attrs.umask, uid));
                let open = self.new_open(c, i);
                let object = pass!(self.object(c, i, *want));
                Answer::Created { object, open, made: true, dir: None, dir_attrs: None }
            }
            Question::Make { dir, name, making, attrs, want, want_dir } => {
                let d = ino(dir);
                self.clear(c, d, FILE | (X & AUTH))?;
                self.clear_name(c, d, name.as_bytes())?;
                let kind = match making {
                    Making::Dir => Kind::Dir,
                    Making::Symlink(_) => Kind::Symlink,
                    Making::Node(kind, _) => *kind,
                };
                let i = pass!(self.fs.make(d, name.as_bytes(), kind, attrs.mode & !attrs.umask, uid));
                if let Making::Symlink(text) = making {
                    pass!(self.fs.get_mut(i)).data = text.to_vec();
                }
                let object = pass!(self.object(c, i, *want));
                self.created(c, d, *want_dir, object, None, true)
            }
            Question::Link { object, dir, name, want_dir } => {
                self.clear(c, ino(dir), FILE | (X & AUTH))?;
                self.clear_name(c, ino(dir), name.as_bytes())?;
                self.clear(c, ino(object), X | LINK)?;
                pass!(self.fs.link(ino(object), ino(dir), name.as_bytes()));
                let object = pass!(self.object(c, ino(object), CapSet::NONE));
                self.created(c, ino(dir), *want_dir, object, None, true)
            }
            Question::Remove { dir, name, is_dir, want_dir, .. } => {
                self.clear(c, ino(dir), FILE | (X & AUTH))?;
                self.clear_name(c, ino(dir), name.as_bytes())?;
                if let Some(i) = pass!(self.fs.look(ino(dir), name.as_bytes())) {
                    self.clear(c, i, LINK | (X & FILE))?;
                }
                pass!(self.fs.remove(ino(dir), name.as_bytes(), *is_dir));
                self.gone(c, ino(dir), *want_dir)
            }
            Question::Rename { from_dir, from, to_dir, to, mode, want_dir, .. } => {
                for (d, name) in [(from_dir, from), (to_dir, to)] {
                    self.clear(c, ino(d), FILE | (X & AUTH))?;
                    self.clear_name(c, ino(d), name.as_bytes())?;
                    if let Some(i) = pass!(self.fs.look(ino(d), name.as_bytes())) {
                        self.clear(c, i, LINK | (X & FILE))?;
                    }
                }
                let (from, to) = ((ino(from_dir), from.as_bytes()), (ino(to_dir), to.as_bytes()));
                pass!(self.fs.rename(from, to, *mode));
                self.gone(c, to.0, *want_dir)
            }
            Question::SetAttr { object, changes, want, .. } => {
                self.clear(c, ino(object), AUTH | XATTR | FILE | (X & LINK))?;
                pass!(self.change(ino(object), changes));
                let o = pass!(self.object(c, ino(object), *want));
                Answer::Attrs { attrs: o.attrs, grant: o.grant }
            }
            Question::Write { object, offset, data, stable, .. } => {
                self.clear(c, ino(object), FILE | (X & AUTH))?;
                pass!(self.fs.write(ino(object), *offset, data));
                let count = u32::try_from(data.len()).unwrap();
                Answer::Written { count, stable: *stable, verifier: self.verifier, attrs: None }
            }
            Question::Append { object, data, .. } => {
                self.clear(c, ino(object), FILE | (X & AUTH))?;
                let offset = pass!(self.fs.get(ino(object))).data.len() as u64;
                pass!(self.fs.write(ino(object), offset, data));
                let count = u32::try_from(data.len()).unwrap();
                Answer::Appended { offset, count, stable: false, verifier: self.verifier, attrs: None }
            }
            Question::SetXattr { object, name, value, .. } => {
                self.clear(c, ino(object), AUTH | XATTR | FILE | (X & LINK))?;
                let xattrs = &mut pass!(self.fs.get_mut(ino(object))).xattrs;
                xattrs.insert(name.as_bytes().to_vec(), value.to_vec());
                Answer::Done
            }
            Question::RemoveXattr { object, name } => {
                self.clear(c, ino(object), AUTH | XATTR | FILE | (X & LINK))?;
                let xattrs = &mut pass!(self.fs.get_mut(ino(object))).xattrs;
                pass!(xattrs.remove(name.as_bytes()).ok_or(Errno::ENODATA));
                Answer::Done
            }
            Question::GetXattr { object, name } => {
                self.clear(c, ino(object), X & (XATTR | AUTH))?;
                let value = pass!(self.fs.get(ino(object))).xattrs.get(name.as_bytes()).cloned();
                Answer::Value { value: pass!(value.ok_or(Errno::ENODATA)).into() }
            }
            other => panic!("{other:?} is not for this test"),
        }))
    }

    pub(super) fn change(&mut self, i: u64, changes: &Changes) -> Res<()> {
        let node = self.fs.get_mut(i)?;
        if changes.uid.is_some() && node.kind != Kind::Dir {
            // As Linux does, and before a mode is set.
            node.mode &= !0o6000;
        }
        node.mode = changes.mode.unwrap_or(node.mode);
        node.uid = changes.uid.unwrap_or(node.uid);
        if let Some(size) = changes.size {
            node.data.resize(usize::try_from(size).unwrap(), 0);
            // The server's own moment.
            node.mtime = i64::MAX;
        }
        if let Some(SetTime::At(at)) = changes.mtime {
            node.mtime = at.seconds;
        }
        Ok(())
    }

    fn created(
        &mut self,
        c: usize,
        dir: u64,
        want: CapSet,
        object: Object,
        open: Option<OpenToken>,
        made: bool,
    ) -> Answer {
        let grant = self.grant(c, dir, want);
        let dir_attrs = self.attrs(dir).ok();
        Answer::Created { object, open, made, dir: grant, dir_attrs }
    }

    fn gone(&mut self, c: usize, dir: u64, want: CapSet) -> Answer {
        let grant = self.grant(c, dir, want);
        Answer::Gone { dir: grant, dir_attrs: self.attrs(dir).ok() }
    }

    /// A WRITE of the flusher.
    pub fn write(&mut self, c: usize, out: &WriteOut) -> Exec<Written> {
        self.rpcs += 1;
        self.clear(c, ino(&out.object), FILE | (X & AUTH))?;
        if self.is_full {
            return Ok(Err(Errno::ENOSPC));
        }
        pass!(self.fs.write(ino(&out.object), out.offset, &out.data));
        // By its own clock.
        pass!(self.fs.get_mut(ino(&out.object))).mtime = i64::MAX;
        let count = u32::try_from(out.data.len()).unwrap();
        Ok(Ok(Written { count, stable: out.to_disk, verifier: self.verifier }))
    }

    pub fn commit(&mut self, out: &CommitOut) -> Result<u64, Errno> {
        self.rpcs += 1;
        self.fs.get(ino(&out.object)).map(|_| self.verifier)
    }

    pub fn root(&mut self) -> Object {
        Object { handle: handle(ROOT), attrs: self.attrs(ROOT).unwrap(), grant: None }
    }
}

/// A position for a name: all positions differ for the names that tests use.
fn place(name: &[u8]) -> u64 {
    name.iter().fold(3_u64, |p, b| p.wrapping_mul(257).wrapping_add(u64::from(*b))) & (u64::MAX >> 1)
}

pub fn bytes(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(data)
}
