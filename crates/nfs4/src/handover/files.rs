//! Open files and lock files as plain data.

use std::sync::atomic::Ordering;

use holdfast_base::FileKey;
use holdfast_export::WireHandle;
use holdfast_state::{LockToken, OpenId};
use holdfast_vfs::handover::{FileNumber, Incoming, Outgoing};
use serde::{Deserialize, Serialize};

use super::{OpenFiles, Opened};

/// All open files and lock files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FilesImage {
    next: u64,
    opens: Vec<OpenImage>,
    locks: Vec<LockImage>,
    waited: Vec<(u128, Vec<u8>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct OpenImage {
    id: u64,
    file: FileNumber,
    uid: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LockImage {
    token: u64,
    of: u128,
    file: FileNumber,
    can_write: bool,
}

impl OpenFiles {
    /// `None` when one of them cannot be handed over.
    pub(crate) fn freeze(&self, outgoing: &mut Outgoing) -> Option<FilesImage> {
        let mut image = FilesImage { next: self.next.load(Ordering::Relaxed), ..FilesImage::default() };
        for (id, open) in self.opens.read().iter() {
            image.opens.push(OpenImage { id: id.0, file: outgoing.add_file(&open.file)?, uid: open.uid });
        }
        for (token, lock) in self.locks.read().iter() {
            let file = outgoing.add_file(&lock.file)?;
            image.locks.push(LockImage { token: token.0, of: lock.of.0, file, can_write: lock.can_write });
        }
        let waited = self.waited.lock();
        image.waited = waited.handles.iter().map(|(key, fh)| (key.0, fh.as_bytes().to_vec())).collect();
        Some(image)
    }

    /// Returns how many did not come along.
    pub(crate) fn thaw(&self, image: FilesImage, incoming: &Incoming) -> usize {
        self.next.fetch_max(image.next, Ordering::Relaxed);
        let mut lost = 0;
        for OpenImage { id, file, uid } in image.opens {
            match incoming.file(file) {
                Some(file) => drop(self.opens.write().insert(OpenId(id), Opened { file, uid })),
                None => lost += 1,
            }
        }
        for LockImage { token, of, file, can_write } in image.locks {
            match incoming.file(file) {
                Some(file) => drop(self.keep_locks(LockToken(token), FileKey(of), (file, can_write))),
                None => lost += 1,
            }
        }
        let waited = image.waited.iter().filter_map(|(key, fh)| Some((FileKey(*key), WireHandle::new(fh)?)));
        self.waited.lock().handles.extend(waited);
        lost
    }
}
