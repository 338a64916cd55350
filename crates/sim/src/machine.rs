//! The server's machine: what outlives a server process, and what outlives a power cut.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use holdfast_base::{ManualClock, Timestamp};
use holdfast_journal::BootId;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, FsResult, Handle, Name, NewNode, SetAttrs, Touched,
    Wait,
};
use tempfile::TempDir;

use crate::disk::{Disk, Loss, Moment, Wall};
use crate::rng::Rng;
use crate::store::{Pairs, SimStore};

/// The calendar when a world begins, in seconds since 1970.
const EPOCH_SECONDS: i64 = 1_700_000_000;

/// A machine.
pub struct Machine {
    /// The exported file system.
    pub disk: Disk,
    /// Client records.
    pub store: SimStore,
    /// The machine's monotonic clock.
    pub clock: Arc<ManualClock>,
    pub(crate) wall: Wall,
    /// How far the calendar is off, in milliseconds.
    wall_off_ms: Cell<i64>,
    dir: TempDir,
    /// Which file the journal is in: a dead process may still have the one before open.
    journals: Cell<u64>,
    boots: Cell<u64>,
    /// The journal as it was last forced, while a power cut is to come.
    forced: Rc<std::cell::RefCell<Option<Vec<u8>>>>,
}

/// What a process killed at one moment leaves behind.
pub struct Image {
    moment: Moment,
    pairs: Pairs,
    journal: Vec<u8>,
}

impl Machine {
    /// A machine with an empty disk.
    ///
    /// # Errors
    /// When there is no place for the journal's file.
    pub fn new() -> io::Result<Self> {
        // The journal is mapped; a file in memory costs no disk.
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() { TempDir::new_in(shm)? } else { TempDir::new()? };
        let wall = Wall::default();
        let machine = Self {
            disk: Disk::new(&wall),
            store: SimStore::default(),
            clock: Arc::new(ManualClock::default()),
            wall,
            wall_off_ms: Cell::new(0),
            dir,
            journals: Cell::new(0),
            boots: Cell::new(1),
            forced: Rc::default(),
        };
        machine.set_time(0);
        Ok(machine)
    }

    /// Sets both clocks to a moment of the world.
    pub fn set_time(&self, now_ms: u64) {
        use holdfast_base::Clock;
        let behind = now_ms.saturating_sub(self.clock.now().0);
        self.clock.advance(std::time::Duration::from_millis(behind));
        let ms = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_add(self.wall_off_ms.get());
        let nanos = u32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
        self.wall.set(Timestamp { seconds: EPOCH_SECONDS + ms.div_euclid(1000), nanos });
    }

    /// The calendar jumps.
    pub fn jump_wall(&self, by_ms: i64) {
        self.wall_off_ms.set(self.wall_off_ms.get() + by_ms);
    }

    /// Where the journal lies.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.dir.path().join(format!("journal-{}", self.journals.get()))
    }

    /// Which boot of the machine this is.
    #[must_use]
    pub fn boot(&self) -> BootId {
        BootId([self.boots.get() as u8; 16])
    }

    /// Remembers the journal as it is: it was forced.
    pub(crate) fn journal_forced(&self) {
        *self.forced.borrow_mut() = fs::read(self.journal()).ok();
    }

    /// What a process killed now would leave behind.
    pub(crate) fn image(&self) -> Image {
        let journal = fs::read(self.journal()).unwrap_or_default();
        Image { moment: self.disk.moment(), pairs: self.store.pairs(), journal }
    }

    /// The server's process is dead, and left this. Its journal goes on in another file.
    ///
    /// # Errors
    /// When the journal's file cannot be written.
    pub fn killed(&self, image: &Image) -> io::Result<()> {
        self.disk.kill_at(image.moment);
        self.store.restore(&image.pairs);
        self.next_journal(&image.journal)
    }

    /// Another process of the same server goes on with the journal as it is. In a file of its own, as the one before has
    /// the lock of the last.
    ///
    /// # Errors
    /// When the journal's file cannot be written.
    pub(crate) fn journal_goes_on(&self) -> io::Result<()> {
        self.next_journal(&fs::read(self.journal()).unwrap_or_default())
    }

    fn next_journal(&self, bytes: &[u8]) -> io::Result<()> {
        let last = self.journal();
        self.journals.set(self.journals.get() + 1);
        // Whoever still has it open may go on with it.
        let _ = fs::remove_file(last);
        if bytes.is_empty() { Ok(()) } else { fs::write(self.journal(), bytes) }
    }

    /// Power fails, with a process dead that left this. Returns how many mutations were lost.
    ///
    /// # Errors
    /// When the journal's file cannot be written.
    pub fn power_cut(&self, image: &Image, loss: Loss, rng: &mut Rng) -> io::Result<usize> {
        self.killed(image)?;
        self.boots.set(self.boots.get() + 1);
        let lost = self.disk.power_cut(loss, rng);
        if let Some(forced) = self.forced.borrow_mut().take()
            && loss != Loss::Nothing
        {
            fs::write(self.journal(), forced)?;
        }
        Ok(lost)
    }

    /// Puts something on the disk before the world begins, durably.
    ///
    /// # Errors
    /// The file system's.
    pub fn furnish(&self, name: &str, is_dir: bool) -> FsResult<Handle> {
        let (caller, fs) = (Caller::root(), self.disk.backend(0));
        // Long before the first server, which would wait for another tick.
        self.wall.set(Timestamp { seconds: EPOCH_SECONDS - 60, nanos: 0 });
        let cx = Cx::new(&caller, Wait::Yes);
        let (root, name) = (fs.root()?, Name::new(name.as_bytes())?);
        let set = SetAttrs { mode: Some(0o777), ..SetAttrs::default() };
        let handle = if is_dir {
            fs.make(&cx, &root, name, NewNode::Directory, &set)?.0.handle
        } else {
            let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
            fs.create(&cx, &root, name, &how)?.node.handle
        };
        let mut results = [Ok(())];
        fs.commit(&[Touched { handle: root, data: false }], &mut results);
        results[0].map(|()| handle)
    }
}
