//! A client of NFSv3: no state, and the same call under the same transaction id until it is answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use holdfast_base::Offset;
use holdfast_rpc::{Auth, AuthSys};
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT, MountRes3};
use holdfast_wire::nfs3::*;
use holdfast_xdr::{Decode, Encode, Reader, to_bytes};

use self::locks::Locks;
use super::app::{BLOCK, BLOCKS, SHARED, directory_name, file_name};
use super::conn::{COPIES_PERCENT, COPY_LATE_MS, Conn, Copy};
use crate::oracle::data::Mark;
use crate::oracle::once::{Deed, End};
use crate::rng::Rng;
use crate::world::World;
use crate::world::calls::Callee;

mod locks;

/// Attributes that nothing is said about.
const NO_ATTRIBUTES: Sattr3 = Sattr3 {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

/// A block written unstable: file, block, mark and the verifier that came back.
type Uncommitted = (usize, u64, Mark, [u8; 8]);

/// A client with one process.
pub(crate) struct Client3 {
    world: Rc<World>,
    conn: Rc<Conn>,
    host: usize,
    who: String,
    rng: RefCell<Rng>,
    marks: Cell<u64>,
    names: Cell<u64>,
    /// Written unstable, not committed.
    uncommitted: RefCell<Vec<Uncommitted>>,
    locks: RefCell<Locks>,
}

impl Client3 {
    /// A client on a host.
    pub(crate) fn new(world: &Rc<World>, host: usize, rng: Rng) -> Rc<Self> {
        let auth = Auth::Sys(AuthSys {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            machine: format!("host{host}").into_bytes(),
        });
        let client = Rc::new(Self {
            world: Rc::clone(world),
            conn: Conn::new(world, host, auth),
            host,
            who: format!("client {host} (v3)"),
            rng: RefCell::new(rng),
            marks: Cell::new(0),
            names: Cell::new(0),
            uncommitted: RefCell::default(),
            locks: RefCell::default(),
        });
        let manager: Rc<dyn Callee> = client.clone();
        world.listen(host, Rc::downgrade(&manager));
        client
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn doing(&self, what: impl Into<String>) {
        let what = what.into();
        self.world.tell(|| format!("{}: {what}", self.who));
        let now = self.world.now();
        self.world.oracles.progress(|progress| progress.doing(&self.who, now, what));
    }

    /// Calls until there is an answer other than "later".
    async fn call<A: Encode>(&self, procedure: Proc3, args: &A) -> Vec<u8> {
        let (args, target) = (to_bytes(args), (NFS3_PROGRAM, NFS_V3, procedure as u32));
        loop {
            let xid = self.conn.next_xid();
            let (results, life) = loop {
                let life = self.world.lives();
                match self.conn.call(xid, target, &args).await {
                    Ok(results) => break (results, life),
                    Err(_) => {
                        self.world.tell(|| format!("{}: no answer to {procedure:?}", self.who));
                        self.world.exec.sleep(20).await;
                    }
                }
            };
            let status = Reader::new(&results).u32().unwrap_or(0);
            if status != NfsStat3::Jukebox as u32 {
                let changes =
                    matches!(procedure, Proc3::Write | Proc3::Create | Proc3::Remove | Proc3::Rename);
                if changes && self.below(100) < COPIES_PERCENT {
                    let copy = Copy { xid, target, args, life };
                    self.conn.copy_late(copy, self.below(COPY_LATE_MS));
                }
                return results;
            }
            self.world.tell(|| format!("{}: hears Jukebox", self.who));
            let ms = 100 + self.below(800);
            self.world.exec.sleep(ms).await;
        }
    }

    async fn mount(&self) -> Option<Vec<u8>> {
        let path = to_bytes(&DirPath(b"/export"));
        loop {
            let xid = self.conn.next_xid();
            let answer = self.conn.call(xid, (MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT), &path).await;
            if let Ok(results) = answer {
                return match MountRes3::decode(&mut Reader::new(&results)) {
                    Ok(MountRes3::Ok(ok)) => Some(ok.fhandle.to_vec()),
                    _ => None,
                };
            }
            self.world.exec.sleep(50).await;
        }
    }

    async fn lookup(&self, dir: &[u8], name: &str) -> Option<Vec<u8>> {
        let args = DirOpArgs3 { dir: Fh3(dir), name: name.as_bytes() };
        let answered = self.call(Proc3::Lookup, &args).await;
        match Lookup3Res::decode(&mut Reader::new(&answered)) {
            Ok(Res3::Ok(ok)) => Some(ok.object.0.to_vec()),
            other => {
                self.world.oracles.violated(format!("{}: LOOKUP of {name} answered {other:?}", self.who));
                None
            }
        }
    }

    /// Runs to its end.
    pub(crate) async fn run(self: Rc<Self>, steps: u64) {
        self.doing("mounts");
        let world = Rc::clone(&self.world);
        if self.steps(steps).await.is_none() {
            world.oracles.violated(format!("{}: could not go on", self.who));
        }
        world.tell(|| format!("{}: ends", self.who));
        world.oracles.progress(|progress| progress.done(&self.who));
    }

    async fn steps(&self, steps: u64) -> Option<()> {
        let root = self.mount().await?;
        let directory = self.lookup(&root, &directory_name(self.host)).await?;
        let mut files = Vec::new();
        for file in 0..SHARED {
            files.push(self.lookup(&root, &file_name(file)).await?);
        }
        for _ in 0..steps * 2 {
            let file = self.below(SHARED as u64) as usize;
            match self.below(12) {
                0..2 => self.read(file, &files[file]).await,
                2..4 => self.write(file, &files[file]).await,
                4 => self.commit(&files).await,
                5..9 => self.lock_and_use(&files).await,
                _ => self.change_names(&directory).await,
            }
            let ms = self.below(1_000);
            self.world.exec.sleep(ms).await;
        }
        self.commit(&files).await;
        Some(())
    }

    async fn read(&self, file: usize, handle: &[u8]) {
        let block = self.below(BLOCKS);
        self.doing(format!("reads block {block} of file {file}"));
        let sent = self.world.now();
        let args = Read3Args { file: Fh3(handle), offset: Offset(block * BLOCK), count: BLOCK as u32 };
        let answered = self.call(Proc3::Read, &args).await;
        match Read3Res::decode(&mut Reader::new(&answered)) {
            Ok(Res3::Ok(ok)) => {
                let mark = Mark::from_be_bytes(*ok.data.first_chunk().unwrap_or(&[0; 8]));
                let now = self.world.now();
                self.world.oracles.data(|data| data.read((file, block), mark, (sent, now)));
            }
            other => self.refused("READ", other.err_status()),
        }
    }

    /// Denied by somebody's open, or by a disk that fails or is full; anything else must not be.
    fn refused(&self, what: &str, status: Option<NfsStat3>) {
        if !matches!(status, Some(NfsStat3::Acces | NfsStat3::Io | NfsStat3::NoSpc)) {
            self.world.oracles.violated(format!("{}: {what} was answered {status:?}", self.who));
        }
    }

    async fn write(&self, file: usize, handle: &[u8]) {
        let block = self.below(BLOCKS);
        self.marks.set(self.marks.get() + 1);
        let mark = (self.host as u64 + 1) * 1_000_000 + self.marks.get();
        let stable = if self.below(2) == 0 { StableHow::Unstable } else { StableHow::FileSync };
        self.write_mark((file, handle), (block, mark), stable).await;
    }

    async fn write_mark(
        &self,
        (file, handle): (usize, &[u8]),
        (block, mark): (u64, Mark),
        stable: StableHow,
    ) {
        self.doing(format!("writes {mark} to block {block} of file {file}, {stable:?}"));
        let (place, sent) = ((file, block), self.world.now());
        self.world.oracles.data(|data| {
            data.sent(place, mark, sent);
            Ok(())
        });
        let data = mark.to_be_bytes();
        let args = Write3Args {
            file: Fh3(handle),
            offset: Offset(block * BLOCK),
            count: BLOCK as u32,
            stable,
            data: &data,
        };
        let answered = self.call(Proc3::Write, &args).await;
        match Write3Res::decode(&mut Reader::new(&answered)) {
            Ok(Res3::Ok(ok)) => {
                let is_stable = ok.committed != StableHow::Unstable;
                if !is_stable {
                    self.uncommitted.borrow_mut().push((file, block, mark, ok.verf));
                }
                let now = self.world.now();
                self.world.oracles.data(|data| {
                    data.answered(place, mark, now, (is_stable, true));
                    Ok(())
                });
            }
            other => self.refused("WRITE", other.err_status()),
        }
    }

    async fn commit(&self, files: &[Vec<u8>]) {
        for _ in 0..8 {
            let waiting = std::mem::take(&mut *self.uncommitted.borrow_mut());
            for (file, block, mark, written) in waiting {
                self.doing(format!("commits file {file}"));
                let args = Commit3Args { file: Fh3(&files[file]), offset: Offset(0), count: 0 };
                let answered = self.call(Proc3::Commit, &args).await;
                let verifier = match Commit3Res::decode(&mut Reader::new(&answered)) {
                    Ok(Res3::Ok(ok)) => Some(ok.verf),
                    other => {
                        self.refused("COMMIT", other.err_status());
                        None
                    }
                };
                if verifier == Some(written) {
                    let now = self.world.now();
                    self.world.oracles.data(|data| {
                        data.committed((file, block), mark, now);
                        Ok(())
                    });
                } else {
                    self.write_mark((file, &files[file]), (block, mark), StableHow::FileSync).await;
                }
            }
        }
    }

    async fn change_names(&self, directory: &[u8]) {
        let mut names = Vec::new();
        self.world.oracles.once(|once| {
            names = once.names(self.host);
            Ok(())
        });
        self.names.set(self.names.get() + 1);
        let fresh = format!("n{}", self.names.get());
        let deed = match (self.below(4), names.is_empty()) {
            (0, false) => Deed::Remove(names[self.below(names.len() as u64) as usize].clone()),
            (1, false) => Deed::Rename(names[self.below(names.len() as u64) as usize].clone(), fresh),
            _ => Deed::Make(fresh),
        };
        self.doing(format!("{deed:?}"));
        let (mut sent, begun) = (None, self.world.now());
        self.world.oracles.once(|once| {
            sent = Some(once.begin(self.host, &deed));
            Ok(())
        });
        let place = |name| DirOpArgs3 { dir: Fh3(directory), name };
        let answered = match &deed {
            Deed::Make(name) => {
                let how = CreateHow3::Guarded(NO_ATTRIBUTES);
                self.call(Proc3::Create, &Create3Args { place: place(name.as_bytes()), how }).await
            }
            Deed::Remove(name) => self.call(Proc3::Remove, &place(name.as_bytes())).await,
            Deed::Rename(from, to) => {
                let args = Rename3Args { from: place(from.as_bytes()), to: place(to.as_bytes()) };
                self.call(Proc3::Rename, &args).await
            }
        };
        let status = NfsStat3::decode(&mut Reader::new(&answered));
        let end = match status {
            Ok(NfsStat3::Ok) => End::Done,
            Ok(NfsStat3::Exist) => End::Exists,
            Ok(NfsStat3::NoEnt) => End::NoEntry,
            Ok(NfsStat3::NoSpc) => End::NoRoom,
            Ok(NfsStat3::Io) => End::Unknown,
            other => {
                return self.world.oracles.violated(format!("{}: {deed:?} was answered {other:?}", self.who));
            }
        };
        if let Some(sent) = sent {
            self.world.oracles.once(|once| once.end(self.host, &deed, sent, (end, false)));
        }
        if end == End::Done {
            let now = self.world.now();
            self.world.oracles.grants(|grants| grants.entries_changed(now, self.host, begun));
        }
    }
}

/// The status of a result that is a failure.
trait Failed {
    fn err_status(&self) -> Option<NfsStat3>;
}

impl<O, F> Failed for holdfast_xdr::Result<Res3<O, F>> {
    fn err_status(&self) -> Option<NfsStat3> {
        match self {
            Ok(Res3::Fail(status, _)) => Some(*status),
            _ => None,
        }
    }
}
