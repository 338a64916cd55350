//! Memory is freed of what clients have said they will not need, once it is on disk: by a thread of its own, for it may wait for other
//! processors and go through a file of any size, which neither a committer nor whoever waits for his reply is to do.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use holdfast_base::ByteRange;
use holdfast_vfs::Advice;

use crate::cx::At;
use crate::io::IoFile;

/// Ranges that wait at most. What comes on top stays in memory: it was advice.
const WAITING_MAX: usize = 256;

/// A range of a file that is on disk.
pub(crate) type Written = (At, IoFile, ByteRange);

/// Where they wait; the thread begins with the first, and ends with this.
#[derive(Default)]
pub(crate) struct Memory(OnceLock<Option<SyncSender<Written>>>);

impl Memory {
    /// Has memory freed of these. Changed again meanwhile they may stay: that was not what it was said of.
    pub(crate) fn free(&self, written: impl Iterator<Item = Written>) {
        let mut written = written.peekable();
        if written.peek().is_none() {
            return;
        }
        let Some(queue) = self.0.get_or_init(begin) else { return };
        // Full, or its thread has ended.
        written.for_each(|range| drop(queue.try_send(range)));
    }
}

fn begin() -> Option<SyncSender<Written>> {
    let (queue, waiting) = sync_channel(WAITING_MAX);
    let begun = std::thread::Builder::new().name("memory".into()).spawn(move || run(&waiting));
    begun
        .map_err(|error| tracing::warn!(%error, "no thread to free memory: clients' advice is not followed"))
        .ok()?;
    Some(queue)
}

fn run(waiting: &Receiver<Written>) {
    for (at, file, range) in waiting {
        let advised = at.backend().advise(&at.cx(), file.of(&at.handle), range, Advice::DontNeed);
        tracing::trace!(?advised, ?range, "memory freed of what was written");
    }
}
