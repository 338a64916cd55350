//! Who holds what, and on which path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use holdfast_admin::report::{Client, Holding, HoldingKind, Page};
use holdfast_admin::request::{Code, LocksWanted, Refusal, Which};
use holdfast_base::FileKey;
use holdfast_base::limits::ADMIN_ROWS_MAX;
use holdfast_export::{Export, Object};
use holdfast_nlm::OwnerFileReport;
use holdfast_state::{Engine, ForeignOwner, Held, HolderReport, StateId};
use holdfast_vfs::{FileObject, Handle};
use rustc_hash::FxHashMap;
use std::sync::Arc;

use super::Admin;
use super::who::{Chosen, nlm};
use super::words::{Calendar, access, capabilities, client_id, delegated, path, range, text};

/// Files looked at under the engine's lock at a time: some tens of microseconds.
const FILES_AT_ONCE: usize = 64;

/// A holding, and how it is taken away.
pub(super) struct Found {
    pub(super) row: Holding,
    pub(super) grip: Grip,
}

/// What takes a holding away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Grip {
    /// Revoking this state.
    State(StateId),
    /// Having NLM let go of all that this owner has of the file.
    Nlm(ForeignOwner, FileKey),
    /// Nothing: it is only waited for, or of a door that is not served.
    None,
}

/// Where a file is.
enum Named {
    /// In this export, by its handle.
    Handle(Arc<Export>, Handle),
    /// In this export, where its descriptor says.
    Open(Arc<Export>, Arc<dyn FileObject>),
}

/// What is known of clients and files while rows are made.
struct Scene<'a> {
    clients: HashMap<String, Client>,
    nlm: FxHashMap<(ForeignOwner, FileKey), OwnerFileReport>,
    names: FxHashMap<FileKey, Named>,
    calendar: &'a Calendar,
}

impl Admin {
    /// A page of what is chosen.
    pub(super) fn page(&self, wanted: &LocksWanted) -> Result<Page<Holding>, Refusal> {
        let from = wanted.after.as_deref().map_or(Ok(Spot::default()), Spot::of)?;
        let mut page = Page { rows: Vec::new(), next: None };
        self.find(&wanted.which, from, &mut |spot, found| {
            if page.rows.len() == ADMIN_ROWS_MAX {
                page.next = Some(spot.text());
                return false;
            }
            page.rows.push(found.row);
            true
        })?;
        Ok(page)
    }

    /// Gives what is chosen to `take`, by file, beginning at a spot, for as long as it wants more.
    pub(super) fn find(
        &self,
        which: &Which,
        from: Spot,
        take: &mut dyn FnMut(Spot, Found) -> bool,
    ) -> Result<(), Refusal> {
        if let Some(export) = &which.export
            && !self.programs.namespace().exports().iter().any(|e| e.path_display() == *export)
        {
            return Err(Refusal::new(Code::NotFound, format!("there is no export {export}")));
        }
        let with_caps = which.kinds.contains(&HoldingKind::Capability);
        let scene = self.scene(with_caps);
        let chosen = which.client.as_deref().map(Chosen::of);
        let mut files = self.programs.manager().look(Engine::report_files);
        if with_caps {
            files.extend(self.programs.manager().look(Engine::report_caps_files));
            files.sort_unstable();
            files.dedup();
        }
        files.retain(|file| *file >= from.file);
        for files in files.chunks(FILES_AT_ONCE) {
            let reports: Vec<_> = self.programs.manager().look(|engine| {
                files.iter().map(|file| (*file, report_of(engine, *file, with_caps))).collect()
            });
            for (file, held) in reports {
                let first = if file == from.file { from.row } else { 0 };
                let mut place = None;
                for (row, held) in held.iter().enumerate().skip(first) {
                    let place = place.get_or_insert_with(|| scene.place(file));
                    let found = scene.row(held, place);
                    let found = found.filter(|found| is_chosen(which, chosen.as_ref(), &found.row, &scene));
                    if found.is_some_and(|found| !take(Spot { file, row }, found)) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn scene(&self, with_caps: bool) -> Scene<'_> {
        self.calendar.look(self.programs.manager().clock());
        let clients = self.all_clients().into_iter().map(|client| (client.id.clone(), client)).collect();
        let nlm = self.programs.lockd().report();
        let mut names = self.names(with_caps);
        for held in &nlm {
            names.entry(held.file).or_insert_with(|| Named::Handle(Arc::clone(&held.export), held.handle));
        }
        let nlm = nlm.into_iter().map(|held| ((held.owner, held.file), held)).collect();
        Scene { clients, nlm, names, calendar: &self.calendar }
    }

    /// Where the files are that clients of NFSv4 hold something of.
    fn names(&self, with_caps: bool) -> FxHashMap<FileKey, Named> {
        let exports = self.programs.namespace().exports();
        let roots: Vec<_> = exports.iter().filter_map(|e| Some((e.backend.root().ok()?, e))).collect();
        let held = self.programs.nfs4().held_files();
        let mut names = FxHashMap::default();
        for file in &held.open {
            let Some(handed) = file.hand_over() else { continue };
            let Some((_, export)) = roots.iter().find(|(root, _)| *root == handed.root) else { continue };
            let open = || Named::Open(Arc::clone(export), Arc::clone(file));
            names.entry(handed.handle.key()).or_insert_with(open);
        }
        let of_mounts = if with_caps { self.programs.held_by_mounts() } else { Vec::new() };
        for (file, fh) in held.named.iter().chain(&of_mounts) {
            if let Ok(Object::Export(export, handle)) = self.programs.namespace().open(fh.as_bytes()) {
                names.entry(*file).or_insert(Named::Handle(export, handle));
            }
        }
        names
    }
}

/// What is held of a file, capabilities last.
fn report_of(engine: &Engine, file: FileKey, with_caps: bool) -> Vec<holdfast_state::Holding> {
    let mut held = engine.report_file(file);
    if with_caps {
        held.extend(engine.report_caps(file));
    }
    held
}

/// Where an open file is at the moment.
fn descriptor_path(fd: std::os::fd::BorrowedFd<'_>) -> Option<PathBuf> {
    use std::os::fd::AsRawFd as _;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

/// Export, path, and whether it is deleted.
type Place = (Option<String>, Option<String>, bool);

impl Scene<'_> {
    fn place(&self, file: FileKey) -> Place {
        let (export, found) = match self.names.get(&file) {
            None => return (None, None, false),
            Some(Named::Open(export, file)) => {
                (export, file.hand_over().and_then(|of| descriptor_path(of.fd)))
            }
            Some(Named::Handle(export, handle)) => (export, export.backend.path_of(handle)),
        };
        let (path, is_deleted) = found.map(|found| path(&found)).unzip();
        (Some(export.path_display()), path, is_deleted.unwrap_or_default())
    }

    /// `None` for what is of no interest: states without anything in them.
    fn row(&self, held: &holdfast_state::Holding, place: &Place) -> Option<Found> {
        let (client, owner, grip, id) = self.holder(held)?;
        let (export, path, is_deleted) = place.clone();
        let mut row = Holding {
            id,
            kind: HoldingKind::Open,
            client: client.id,
            client_name: client.name,
            addresses: client.addresses,
            protocol: client.protocol,
            is_courteous: client.is_courteous,
            export,
            path,
            is_deleted,
            file: file_text(held.file),
            owner,
            since_unix_ms: held.since.map(|at| self.calendar.unix_ms(at)),
            access: None,
            deny: None,
            ranges: Vec::new(),
            recalled_unix_ms: None,
            is_revoked: false,
        };
        match &held.held {
            Held::Open(share) => {
                if matches!(held.holder, HolderReport::Foreign(_)) {
                    row.kind = HoldingKind::Share;
                }
                row.access = Some(access(share.access));
                row.deny = Some(access(share.deny));
            }
            Held::Locks(ranges) if ranges.is_empty() => return None,
            Held::Locks(ranges) => {
                row.kind = HoldingKind::Lock;
                row.ranges = ranges.iter().copied().map(range).collect();
            }
            Held::Waiting(at, kind) => {
                row.kind = HoldingKind::Waiting;
                row.ranges = vec![range((*at, *kind))];
            }
            Held::Delegation { kind, recalled } => {
                row.kind = HoldingKind::Delegation;
                row.access = Some(delegated(*kind));
                row.recalled_unix_ms = recalled.map(|(since, _)| self.calendar.unix_ms(since));
            }
            Held::Capabilities { held, recalled } => {
                row.kind = HoldingKind::Capability;
                row.access = Some(capabilities(*held));
                row.recalled_unix_ms = recalled.map(|(since, _)| self.calendar.unix_ms(since));
            }
            Held::Revoked => row.is_revoked = true,
        }
        let grip = if row.kind == HoldingKind::Waiting { Grip::None } else { grip };
        Some(Found { row, grip })
    }

    /// Who holds it, for whom, how it is taken, and what it is called.
    fn holder(&self, held: &holdfast_state::Holding) -> Option<(Client, Option<String>, Grip, String)> {
        match &held.holder {
            HolderReport::Nfs4 { client, owner, stateid } => {
                // One that came after the list of clients was made is on the next list.
                let client = self.clients.get(&client_id(*client))?.clone();
                let grip = stateid.map_or(Grip::None, Grip::State);
                let id = stateid.map_or_else(String::new, |id| hex(&id.other));
                Some((client, owner.as_ref().map(|owner| text(owner.as_bytes())), grip, id))
            }
            HolderReport::Foreign(owner) => {
                let id = format!("nlm:{:x}:{}", owner.id, file_text(held.file));
                let Some(of) = self.nlm.get(&(*owner, held.file)) else {
                    return Some((Client::default(), None, Grip::None, id));
                };
                let process = of.svid.map(|svid| format!("process {svid} ")).unwrap_or_default();
                let name = format!("{process}{}", text(&of.name));
                Some((nlm(of), Some(name), Grip::Nlm(*owner, held.file), id))
            }
        }
    }
}

fn is_chosen(which: &Which, client: Option<&Chosen<'_>>, row: &Holding, scene: &Scene<'_>) -> bool {
    let of_client = || {
        client.is_none_or(|chosen| {
            row.client == *which.client.as_deref().unwrap_or_default()
                || scene.clients.get(&row.client).is_some_and(|client| chosen.is(client))
        })
    };
    let on_path = || {
        which
            .path
            .as_ref()
            .is_none_or(|wanted| row.path.as_ref().is_some_and(|path| Path::new(path).starts_with(wanted)))
    };
    which.id.as_ref().is_none_or(|id| row.id == *id)
        && (which.kinds.is_empty() || which.kinds.contains(&row.kind))
        && which.export.as_ref().is_none_or(|export| row.export.as_ref() == Some(export))
        && of_client()
        && on_path()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_text(file: FileKey) -> String {
    format!("{:032x}", file.0)
}

/// Where a page begins: a file, and how many of what is held of it came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    file: FileKey,
    row: usize,
}

impl Spot {
    fn of(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let (file, row) = text.split_once('+')?;
            Some(Self { file: FileKey(u128::from_str_radix(file, 16).ok()?), row: row.parse().ok()? })
        };
        parse().ok_or_else(|| Refusal::new(Code::BadRequest, "`after` is `next` of the page before"))
    }

    fn text(self) -> String {
        format!("{}+{}", file_text(self.file), self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_is_found_again_and_nothing_else_is_one() {
        let spot = Spot { file: FileKey(0xabc), row: 17 };
        assert_eq!(Spot::of(&spot.text()).unwrap(), spot);
        for text in ["", "+", "abc", "xyz+1", "abc+-1", "abc+1+2"] {
            assert_eq!(Spot::of(text).unwrap_err().code, Code::BadRequest, "{text}");
        }
    }
}
