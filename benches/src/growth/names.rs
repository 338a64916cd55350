//! Names by many clients, in the phases of `mdtest`: each makes as many directories, files and a tree as the others, and
//! they go on to the next phase together. One call is in flight for each client, over a connection of its own.

use anyhow::{Context, Result, ensure};
use holdfast_wire::nfs3::{
    Create3Args, Create3Ok, CreateHow3, DirOpArgs3, Fh3, Lookup3Ok, Mkdir3Args, Proc3, Sattr3, SetTime3,
};
use holdfast_xdr::{Decode, Encode, Writer};
use std::fs;

use super::figures::Sample;
use super::stand::{Stand, watch};
use super::{Curve, doublings};
use crate::client::Amount;
use crate::client::call::{connect, header_after_xid};
use crate::client::pump::{self, Lane, Load, succeeded};
use crate::client::target::{self, Handle, nfs3};
use crate::rival::Server;
use crate::volume::CHANGING;

/// Directories in each directory of a tree, but for the last of them.
const BRANCHES: u64 = 7;

/// What all clients do at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    DirectoryCreate,
    DirectoryStat,
    DirectoryRemove,
    FileCreate,
    FileStat,
    FileRemove,
    TreeCreate,
    TreeRemove,
}

impl Phase {
    /// In their order: what is looked at and removed was made before.
    const ALL: [Self; 8] = [
        Self::DirectoryCreate,
        Self::DirectoryStat,
        Self::DirectoryRemove,
        Self::FileCreate,
        Self::FileStat,
        Self::FileRemove,
        Self::TreeCreate,
        Self::TreeRemove,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::DirectoryCreate => "directory create",
            Self::DirectoryStat => "directory stat",
            Self::DirectoryRemove => "directory remove",
            Self::FileCreate => "file create",
            Self::FileStat => "file stat",
            Self::FileRemove => "file remove",
            Self::TreeCreate => "tree create",
            Self::TreeRemove => "tree remove",
        }
    }

    const fn procedure(self) -> Proc3 {
        match self {
            Self::DirectoryCreate | Self::TreeCreate => Proc3::Mkdir,
            Self::DirectoryStat | Self::FileStat => Proc3::Lookup,
            Self::DirectoryRemove | Self::TreeRemove => Proc3::Rmdir,
            Self::FileCreate => Proc3::Create,
            Self::FileRemove => Proc3::Remove,
        }
    }
}

/// One client: where it works, and what it has made.
#[derive(Debug)]
struct Worker {
    directory: Handle,
    /// Calls of this phase so far.
    issued: u64,
    /// Its tree's directories, by number.
    tree: Vec<Handle>,
}

/// One phase as a load.
struct NamesLoad<'a> {
    phase: Phase,
    header: Vec<u8>,
    workers: &'a mut [Worker],
    items: u64,
}

impl<'a> NamesLoad<'a> {
    fn new(phase: Phase, workers: &'a mut [Worker], items: u64) -> Self {
        for worker in &mut *workers {
            worker.issued = 0;
        }
        Self { phase, header: header_after_xid(nfs3(phase.procedure())), workers, items }
    }

    /// The directory and name of a client's next call.
    fn place(&self, client: usize, number: u64) -> (&Handle, String) {
        let worker = &self.workers[client];
        match self.phase {
            // What another has made, as `mdtest -N 1` does it: a client that looks at its own need not ask.
            Phase::DirectoryStat | Phase::FileStat => {
                let other = (client + 1) % self.workers.len();
                let letter = if self.phase == Phase::FileStat { 'f' } else { 'd' };
                (&self.workers[other].directory, format!("{letter}{other}-{number}"))
            }
            Phase::FileCreate | Phase::FileRemove => (&worker.directory, format!("f{client}-{number}")),
            Phase::DirectoryCreate | Phase::DirectoryRemove => {
                (&worker.directory, format!("d{client}-{number}"))
            }
            Phase::TreeCreate => self.place_in_tree(client, number),
            // Leaves first.
            Phase::TreeRemove => self.place_in_tree(client, self.items - 1 - number),
        }
    }

    fn place_in_tree(&self, client: usize, number: u64) -> (&Handle, String) {
        let worker = &self.workers[client];
        match parent(number) {
            Some(parent) => (&worker.tree[parent as usize], format!("n{number}")),
            None => (&worker.directory, format!("t{client}")),
        }
    }
}

/// In which directory of a tree another lies, all being numbered from the root on, level by level; `None` of the root.
fn parent(number: u64) -> Option<u64> {
    number.checked_sub(1).map(|before| before / BRANCHES)
}

const ATTRIBUTES: Sattr3 = Sattr3 {
    mode: Some(0o755),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

impl Load for NamesLoad<'_> {
    fn has_more(&self, lane: Lane) -> bool {
        self.workers[lane.connection].issued < self.items
    }

    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let number = self.workers[lane.connection].issued;
        self.workers[lane.connection].issued += 1;
        let (dir, name) = self.place(lane.connection, number);
        let place = DirOpArgs3 { dir: Fh3(dir), name: name.as_bytes() };
        match self.phase.procedure() {
            Proc3::Mkdir => Mkdir3Args { place, attributes: ATTRIBUTES }.encode(w),
            Proc3::Create => Create3Args { place, how: CreateHow3::Guarded(ATTRIBUTES) }.encode(w),
            _ => place.encode(w),
        }
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        let mut results = succeeded(reply).with_context(|| self.phase.name())?;
        let tree = &mut self.workers[lane.connection].tree;
        match self.phase {
            Phase::TreeCreate => {
                let made = Create3Ok::decode(&mut results)?;
                tree.push(made.obj.context("a MKDIR that gives no handle")?.0.to_vec());
            }
            Phase::TreeRemove => {
                tree.pop();
            }
            Phase::DirectoryStat | Phase::FileStat => {
                let found = Lookup3Ok::decode(&mut results)?;
                ensure!(found.obj_attributes.is_some(), "a LOOKUP that gives no attributes");
            }
            _ => {}
        }
        Ok(1)
    }
}

impl Stand<'_> {
    /// All phases by 1 client, 2, 4 and so on: `items` names of each kind for each client.
    pub(super) fn names(&self, curve: Curve, (most, items): (u64, u64)) -> Result<Vec<Sample>> {
        let server = self.start(if curve == Curve::Clients { "clients" } else { "clients-shared" })?;
        // What the first of all calls cost, counts nowhere.
        self.phases(&server, curve, (1, items.div_ceil(10)), "names-first")?;
        let mut samples = Vec::new();
        for clients in doublings(most) {
            samples.extend(self.phases(&server, curve, (clients, items), &format!("names-{clients}"))?);
        }
        Ok(samples)
    }

    fn phases(
        &self,
        server: &Server,
        curve: Curve,
        (clients, items): (u64, u64),
        folder: &str,
    ) -> Result<Vec<Sample>> {
        let mut workers = self.workers(server, (curve, clients), folder)?;
        let streams = (0..clients).map(|_| connect(server.ports.nfs)).collect::<Result<Vec<_>>>()?;
        let mut samples = Vec::new();
        for phase in Phase::ALL {
            let mut load = NamesLoad::new(phase, &mut workers, items);
            let all = Amount::Calls(clients * items);
            let taken = watch(server, || pump::run(&streams, 1, all, &mut load))?;
            samples.push(self.sample((curve, phase.name()), clients, taken));
        }
        Ok(samples)
    }

    /// The clients, each in a directory of its own, or all in one.
    fn workers(&self, server: &Server, (curve, clients): (Curve, u64), folder: &str) -> Result<Vec<Worker>> {
        let path = self.volume.export().join(CHANGING).join(folder);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let shared = target::find(server.ports, &[CHANGING, folder])?;
        let worker = |client: u64| -> Result<Worker> {
            let directory = if curve == Curve::Clients {
                let own = format!("client-{client}");
                fs::create_dir(path.join(&own))?;
                target::find(server.ports, &[CHANGING, folder, &own])?
            } else {
                shared.clone()
            };
            Ok(Worker { directory, issued: 0, tree: Vec::new() })
        };
        (0..clients).map(worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The directories and names of a phase, as all clients in turn ask for them.
    fn asked(phase: Phase, workers: &mut [Worker], items: u64) -> Vec<(Handle, String)> {
        let clients = workers.len();
        let load = NamesLoad::new(phase, workers, items);
        let all = (0..items).flat_map(|number| (0..clients).map(move |client| (client, number)));
        all.map(|(client, number)| load.place(client, number))
            .map(|(dir, name)| (dir.clone(), name))
            .collect()
    }

    /// Clients in these directories, each with a tree of 20.
    fn workers(directories: &[u8]) -> Vec<Worker> {
        let worker = |(client, first): (usize, &u8)| Worker {
            directory: vec![*first],
            issued: 0,
            tree: (0..20).map(|number| vec![100 + client as u8, number]).collect(),
        };
        directories.iter().enumerate().map(worker).collect()
    }

    #[test]
    fn what_is_looked_at_and_removed_is_what_was_made_also_in_one_directory() {
        for directories in [&[1, 2, 3][..], &[1, 1, 1], &[1]] {
            let mut workers = workers(directories);
            for (made, others) in [
                (Phase::DirectoryCreate, [Phase::DirectoryStat, Phase::DirectoryRemove]),
                (Phase::FileCreate, [Phase::FileStat, Phase::FileRemove]),
                (Phase::TreeCreate, [Phase::TreeRemove, Phase::TreeRemove]),
            ] {
                let made = asked(made, &mut workers, 20);
                let distinct: HashSet<_> = made.iter().cloned().collect();
                assert_eq!(distinct.len(), made.len());
                for other in others {
                    let asked: HashSet<_> = asked(other, &mut workers, 20).into_iter().collect();
                    assert_eq!(asked, distinct, "{other:?}");
                }
            }
        }
    }

    #[test]
    fn others_names_are_looked_at_where_there_are_others() {
        let mut workers = workers(&[1, 2, 3]);
        assert_eq!(asked(Phase::FileStat, &mut workers, 1)[2], (vec![1], "f0-0".to_owned()));
    }

    #[test]
    fn a_trees_directories_come_after_those_that_they_lie_in() {
        assert_eq!(parent(0), None);
        let children: Vec<_> = (1..=400).map(parent).collect();
        assert_eq!((children[0], children[6], children[7]), (Some(0), Some(0), Some(1)));
        assert!(
            (1..=400).zip(&children).all(|(number, parent)| parent.is_some_and(|parent| parent < number))
        );
    }
}
