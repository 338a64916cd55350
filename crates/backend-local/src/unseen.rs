//! Changes of which nobody is told how things looked before and after: those of a batch, which tells it once for all of them. What
//! they leave out are looks; who is judged and kept out, and what is noted of the change, is as for every other.

use holdfast_vfs::{
    Cx, File, FileKind, FsError, FsResult, Handle, Name, NewFile, OpenMode, RemoveKind, Removed, SetAttrs,
    is_gone, stands_for,
};
use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::failpoint;
use crate::files::{Made, write_all};
use crate::filesystem::{HandleKind, LOOK};
use crate::local::LocalBackend;
use crate::looks;
use crate::marks::Changing;
use crate::names::unlink;
use crate::object::{Object, kind_of};
use crate::opening::Opening;
use crate::residency;

/// What has to be known of a new file, and none of its times: were they seen, the first write would have to give it others, and the
/// file system's journal a transaction for them.
const UNTIMED: StatxFlags = LOOK
    .difference(StatxFlags::ATIME)
    .difference(StatxFlags::MTIME)
    .difference(StatxFlags::CTIME)
    .difference(StatxFlags::BTIME);

/// A change under way.
struct Unseen<'a> {
    object: &'a Object,
    /// Keeps others from coming between our change and their looks, where those are to be of one moment.
    _sole: Option<MutexGuard<'a, ()>>,
    _changing: Changing,
}

impl LocalBackend {
    fn begin_unseen<'a>(&'a self, object: &'a Object) -> Unseen<'a> {
        let sole = self.options.is_sole_writer.then(|| self.stripe(object).lock());
        Unseen { object, _sole: sole, _changing: Changing::of(object) }
    }

    /// It was made, or some of it.
    fn end_unseen(&self, unseen: Unseen<'_>) {
        self.note_change(unseen.object);
        drop(unseen);
    }

    /// See [`holdfast_vfs::Backend::make_file`].
    pub(crate) fn do_make_file(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        set: &SetAttrs,
        open: Option<OpenMode>,
    ) -> FsResult<NewFile> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        Self::begin_unnamed();
        // Elsewhere times and number tell the file from others.
        let needs_no_times = dir.fs.is_multigrain && dir.fs.handles == HandleKind::Kernel;
        let asked = if needs_no_times { UNTIMED } else { LOOK };
        let unseen = self.begin_unseen(&dir);
        let acting = self.identity.act_as(cx.caller)?;
        let mode = self.creation_mode(&dir, set, 0o600)?;
        let made = self.make_named(cx, (&dir, name.as_bytes()), (set, open), (mode, asked));
        let Made { object, st, fd } = match made {
            Ok(None) => return Err(FsError::Exists),
            Err(FsError::NotFound) if dir.look()?.stx_nlink == 0 => return Err(FsError::Stale),
            made => made?.ok_or(FsError::Exists)?,
        };
        drop(acting);
        self.note_as(&object, &st);
        let handle = object.handle;
        let file = open.zip(fd).map(|(mode, fd)| self.opened(object, Opening::own(fd), mode));
        self.end_unseen(unseen);
        Ok(NewFile { handle, file })
    }

    /// See [`holdfast_vfs::Backend::write_first`].
    pub(crate) fn do_write_first(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        data: &[u8],
        set: &SetAttrs,
    ) -> FsResult<()> {
        let object = self.object_of(cx, file)?;
        self.may_wait(cx, &object)?;
        let fd = self.writable(cx, &object, file)?;
        let reads_first = || residency::reads_first(&fd, (0, data.len() as u64), || looks::size_of(&fd));
        if !cx.wait.may_last() && reads_first()? {
            return Err(FsError::WouldBlock);
        }
        let unseen = self.begin_unseen(&object);
        let written = {
            let _acting = self.identity.act_as(cx.caller)?;
            let mut done = 0;
            loop {
                match write_all(&fd, done as u64, &data[done..]) {
                    Ok(bytes) => done += bytes,
                    Err(error) => break Err(error),
                }
                if done == data.len() {
                    break Ok(());
                }
            }
        };
        // As after every write: whatever the outcome.
        let marked = self.mark_dirty(&object, &fd);
        failpoint::pass();
        let done = marked.and(written).and_then(|()| self.apply_open(cx, (&fd, object.kind), set));
        self.end_unseen(unseen);
        done
    }

    /// See [`holdfast_vfs::Backend::remove_seen`].
    pub(crate) fn do_remove_seen(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        if !stands_for(self, cx, (dir, name), victim)? {
            return Ok(None);
        }
        let dir = self.resolve(cx.wait, dir)?;
        let unseen = self.begin_unseen(&dir);
        let seen_gone = {
            let _acting = self.identity.act_as(cx.caller)?;
            let name = name.as_bytes();
            let held = self.held_child(&dir, name);
            let is_last = held.is_none() && has_one_name(&dir, name);
            unlink(&dir, name, kind)?;
            self.let_go(held).or_else(|| is_last.then(|| self.watch.removed(victim)).map(|()| true))
        };
        self.end_unseen(unseen);
        Ok(Some(Removed { is_gone: seen_gone.unwrap_or_else(|| is_gone(self, cx, victim)) }))
    }
}

/// Whether nothing is left of an object without this name, where its file system says how many it has. Of what we hold no descriptor of that is
/// asked before: afterwards its number would have to be looked for among those that are given. Should a local process link it in between, its remover
/// holds it no more all the same, as he expects.
fn has_one_name(dir: &Object, name: &[u8]) -> bool {
    if dir.fs.handles != HandleKind::Kernel || !dir.fs.nature.kind.numbers_are_unique() {
        return false;
    }
    let asked = StatxFlags::NLINK | StatxFlags::TYPE;
    statx(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW, asked)
        .is_ok_and(|st| st.stx_nlink <= 1 || kind_of(&st) == FileKind::Directory)
}
