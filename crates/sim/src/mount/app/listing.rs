//! Listings, without attributes and with them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_cache::{DirEntry, Errno, NodeId};

use super::{Application, look, outcome};
use crate::oracle::mounts::model::{Deed, Look, Outcome};

impl Application {
    pub(super) async fn list(&self, dir: NodeId) {
        self.tell(Deed::List { dir }, async { outcome(self.names(dir).await, Outcome::Names) }).await;
    }

    /// Looks a name up as who lists with attributes does (READDIRPLUS): only what is not told by that is asked for by itself.
    pub(super) async fn list_with_attributes(&self, (dir, name): (NodeId, String)) {
        let deed = Deed::Lookup { dir, name: name.clone() };
        self.tell(deed, async {
            match self.entries(dir, true).await {
                Err(errno) => Outcome::Failed(errno),
                Ok(all) => match all.get(&name) {
                    None => Outcome::Absent,
                    Some(Some((node, look))) => Outcome::Found(*node, *look),
                    Some(None) => self.find((dir, &name)).await,
                },
            }
        })
        .await;
    }

    async fn names(&self, dir: NodeId) -> Result<BTreeSet<String>, Errno> {
        Ok(self.entries(dir, false).await?.into_keys().collect())
    }

    /// All names, in one call of the machine's: what is read in several may be of several moments. Of each what a lookup would tell,
    /// where that comes with it.
    async fn entries(
        &self,
        dir: NodeId,
        with_attributes: bool,
    ) -> Result<BTreeMap<String, Option<(NodeId, Look)>>, Errno> {
        let opened = self.mount.run(|m, turn, now| m.opendir(turn, dir, now)).await?;
        let mut all = BTreeMap::new();
        let read = self.mount.run(|m, turn, now| {
            all.clear();
            let mut take = |entry: &DirEntry| {
                let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                all.insert(name, entry.entry.as_ref().map(|told| (told.node, look(&told.attrs))));
                true
            };
            m.readdir(turn, opened.fh, 0, with_attributes, &mut take, now)
        });
        let read = read.await;
        self.mount.touched(|machine, _| machine.releasedir(opened.fh));
        read.map(|()| all)
    }
}
