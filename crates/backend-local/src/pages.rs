//! Parts of listings that are kept as they were written to a client, and given again as long as nothing in them has
//! changed. Changes that pass through this process are counted (`marks.rs`), those of local processes are told by the
//! kernel (`watch/listed.rs`). `docs/design/hot-path.md` has the argument and the figures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::limits::{
    LISTING_PAGE_LAZY_SECONDS_MAX, LISTING_PAGE_SECONDS_MAX, LISTING_PAGES_BYTES_MAX,
};
use holdfast_vfs::{Cx, Grounds, Handle, Mark, Page, PageKey, Wait};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::filesystem::HandleKind;
use crate::local::LocalBackend;
use crate::marks;
use crate::object::Object;
use crate::options::{LocalOptions, LocalUse};
use crate::watch::listed;

/// Bytes of the pages of all backends of this process.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

type Key = (Handle, PageKey);

struct Kept {
    page: Arc<Page>,
    marks: Box<[Mark]>,
    written: Instant,
}

impl Kept {
    /// What it takes, with its places in the table and in the row.
    fn bytes(&self) -> usize {
        self.page.bytes.len()
            + size_of_val(&*self.marks)
            + 2 * size_of::<Key>()
            + size_of::<(Self, Page)>()
            + 64
    }

    fn holds(&self, seconds_max: u64) -> bool {
        self.written.elapsed() < Duration::from_secs(seconds_max)
            && self.marks.iter().all(|mark| marks::holds(*mark))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        HELD_BYTES.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Table {
    by_key: FxHashMap<Key, Arc<Kept>>,
    /// The same keys, in the order in which they came.
    row: VecDeque<Key>,
}

/// The pages of one backend.
#[derive(Default)]
pub(crate) struct Pages(Mutex<Table>);

impl Pages {
    /// For how many seconds a page may be shown; `None` where none may be kept.
    pub(crate) const fn seconds_under(options: &LocalOptions) -> Option<u64> {
        match (options.is_sole_writer, options.local) {
            (true, _) => Some(LISTING_PAGE_SECONDS_MAX),
            (false, LocalUse::Lazy) => Some(LISTING_PAGE_LAZY_SECONDS_MAX),
            (false, LocalUse::None | LocalUse::Strict) => None,
        }
    }

    fn find(&self, key: &Key) -> Option<Arc<Kept>> {
        self.0.lock().by_key.get(key).cloned()
    }

    /// Takes a page in, in place of the oldest ones where there is no room. One that holds no more stays in its place
    /// until it is written anew.
    fn put(&self, key: Key, page: Page, marks: Box<[Mark]>) {
        let kept = Kept { page: Arc::new(page), marks, written: Instant::now() };
        // Given back when it goes, and it may go at once.
        HELD_BYTES.fetch_add(kept.bytes(), Ordering::Relaxed);
        let mut table = self.0.lock();
        while HELD_BYTES.load(Ordering::Relaxed) > LISTING_PAGES_BYTES_MAX {
            let Some(oldest) = table.row.pop_front() else { return };
            table.by_key.remove(&oldest);
        }
        if table.by_key.insert(key, Arc::new(kept)).is_none() {
            table.row.push_back(key);
        }
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}

impl LocalBackend {
    /// Whether pages may be kept at all of what lies on the file system of `dir`: its numbers tell objects apart, and
    /// what a page shows beside them is the kernel's own word.
    pub(crate) fn keeps_pages(&self, dir: &Object) -> bool {
        Pages::seconds_under(&self.options).is_some()
            && dir.fs.is_multigrain
            && dir.fs.handles == HandleKind::Kernel
            && dir.fs.nature.kind.numbers_are_unique()
    }

    /// See [`holdfast_vfs::Backend::kept_page`].
    pub(crate) fn find_page(&self, cx: &Cx<'_>, dir: &Handle, key: &PageKey) -> Option<Arc<Page>> {
        let seconds_max = Pages::seconds_under(&self.options)?;
        let kept = self.pages.find(&(*dir, *key))?;
        let dir = self.resolve(Wait::No, dir).ok()?;
        let may_list = self.keeps_pages(&dir) && self.mounts.is_bare(dir.mount_id) && {
            let seen = dir.look().ok().filter(|st| st.stx_nlink > 0)?;
            self.may(cx, &dir, libc::R_OK | libc::X_OK, &seen).ok()?
        };
        if may_list && !self.options.is_sole_writer {
            listed::catch_up();
        }
        (may_list && kept.holds(seconds_max)).then(|| Arc::clone(&kept.page))
    }

    /// See [`holdfast_vfs::Backend::keep_page`].
    pub(crate) fn put_page(&self, dir: &Handle, key: &PageKey, (page, grounds): (Page, Grounds)) {
        // Only what was listed where pages may be kept has grounds, the directory's own entries first.
        let Some(marks) = grounds.into_marks().filter(|marks| !marks.is_empty()) else { return };
        self.pages.put((*dir, *key), page, marks.into());
    }
}
