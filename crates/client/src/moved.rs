//! File systems that lie elsewhere as well, or instead (RFC 8881 section 11): what the server tells of that, and the way there.
//!
//! Handles stay what they are: who says that they are persistent, and says nothing else of migration, promises that
//! (section 11.9). What is under way is answered before we leave, so that nothing is done on both servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_wire::nfs4::{
    ArgOp, Attr, Bitmap4, Fattr4, FsLocations4, Lookup4Args, NfsStat4, OpNum4, PathName4,
};
use holdfast_xdr::{Decode as _, Reader};

use crate::client::Inner;
use crate::compound::Compound;
use crate::program::SessionEvent;
use crate::recover::Setback;
use crate::session::Session;
use crate::{Client, Cx, Error, Event, Handle, Result};

/// The port of servers that are told without one.
const PORT: u16 = 2049;

/// How long what is under way may take before we leave.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Between moves, where servers send us from one to the other.
const SENT_AROUND_PAUSE: Duration = Duration::from_secs(5);
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// What is said to lie elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum Missing {
    /// The file system of an object.
    Of(Handle),
    /// Something at the end of a path from the server's root.
    At(Vec<Vec<u8>>),
}

/// Where a file system is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Its root on the server that tells.
    pub(crate) here: Vec<Vec<u8>>,
    /// Servers, as they are connected to.
    pub(crate) servers: Vec<String>,
    /// Its root on them.
    pub(crate) there: Vec<Vec<u8>>,
}

impl Client {
    /// How often a server has sent us to others.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.inner().servers.lock().moves()
    }

    /// Another program was told that what it asked about lies elsewhere, when there had been `moves`: goes there, or finds
    /// that we have gone meanwhile. False when the server does not say where.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::TimedOut`] (soft), [`Error::Closed`].
    pub fn follow(&self, cx: Cx<'_>, file: &Handle, moves: u64) -> Result<bool> {
        self.inner().follow(cx, Missing::Of(file.clone()), moves)
    }

    /// Servers that a server has told of.
    #[must_use]
    pub fn told_servers(&self) -> Vec<String> {
        self.inner().servers.lock().told()
    }

    /// One more server, tried last. False when it was named before.
    pub fn add_server(&self, name: String) -> bool {
        let is_new = self.inner().servers.lock().add(name);
        self.inner().todo.wake();
        is_new
    }

    /// Takes a server away, and the connection to it; what a server tells does not bring it back. False when it is none of
    /// them.
    pub fn remove_server(&self, name: &str) -> bool {
        let Some(is_kept) = self.inner().servers.lock().remove(name) else { return false };
        if !is_kept {
            self.inner().links.close();
            self.inner().todo.wake();
        }
        true
    }
}

impl Inner {
    /// Has recovery go where something is that is not here, and waits for it. True when we are elsewhere than before.
    pub(crate) fn follow(&self, cx: Cx<'_>, missing: Missing, moves: u64) -> Result<bool> {
        if self.servers.lock().moves() == moves {
            // In this order: who opens the gate looks at what there is to do.
            self.todo.change(|work| work.missing = Some(missing));
            self.gate.close();
            self.gate.ready(cx.cancel, self.deadline())?;
        }
        Ok(self.servers.lock().moves() != moves)
    }

    /// Leaves for where something is that is not here, unless it is, or nobody says where. On the recovery thread.
    pub(crate) fn leave_for(&self, session: &Arc<Session>, missing: &Missing) -> Result<(), Setback> {
        let Some(mut places) = self.places_of(session, missing)? else { return Ok(()) };
        let (own, others) = {
            let servers = self.servers.lock();
            (servers.current_name().map(str::to_owned), servers.others(&places.servers))
        };
        if others.is_empty() {
            let told = &places.servers;
            // Whoever waits asks again, many times a second.
            let is_known = self.is_lost.swap(true, Ordering::SeqCst);
            match told.iter().any(|server| Some(server) != own.as_ref()) {
                _ if is_known => {}
                true => tracing::warn!(?told, "the file system has moved to where nobody named here"),
                false => tracing::warn!("the file system has moved, and the server does not say where to"),
            }
            return Ok(());
        }
        self.is_lost.store(false, Ordering::SeqCst);
        self.gate.close();
        if self.servers.lock().is_sent_around() && self.quit_or_sleep(SENT_AROUND_PAUSE) {
            return Err(Setback::Because(Error::Closed));
        }
        self.drain(session);
        self.run_hooks(SessionEvent { is_leaving: true, ..SessionEvent::of(session.id) });
        self.say_goodbye(session);
        places.servers = self.servers.lock().go(&places.servers);
        // Unless the user has taken those away meanwhile.
        if !places.servers.is_empty() {
            self.tell(&Event::Moved(places.servers.clone()));
            *self.went.lock() = Some(places);
        }
        self.gate.set_identity(None);
        self.lose_session(session);
        self.links.close();
        Err(Setback::Again)
    }

    /// Waits until what was asked here is answered, also of other programs.
    fn drain(&self, session: &Arc<Session>) {
        let until = Instant::now() + DRAIN_PATIENCE;
        let is_cut = || self.links.get(session.id, 0).is_none();
        session.drained(&self.quit, until, is_cut);
        while self.program_calls.load(Ordering::SeqCst) > 0 && Instant::now() < until && !is_cut() {
            if self.quit.sleep_until(Instant::now() + DRAIN_LOOK).is_err() {
                return;
            }
        }
    }

    /// Nothing of ours is held here any more; where it is all the same, it ends with the lease.
    fn say_goodbye(&self, session: &Arc<Session>) {
        let Some(link) = self.links.get(session.id, 0) else { return };
        let _ = self.destroy(&link, session);
    }

    /// Where something is that is not here; `None` when it is here.
    fn places_of(&self, session: &Arc<Session>, missing: &Missing) -> Result<Option<Places>, Setback> {
        match missing {
            Missing::Of(file) => {
                // By an operation that hears of it: who asks where it is may be told of replicas, and is not taken for one who
                // knows (RFC 8881 section 11.10.9.1).
                let mut compound = Compound::new();
                compound.put(file).attributes(Attr::Type.into());
                match self.told(session, &compound, 0)? {
                    Err(Error::Nfs(NfsStat4::Moved)) => {}
                    _ => return Ok(None),
                }
                let mut compound = Compound::new();
                compound.put(file).attributes(Attr::FsLocations.into());
                Ok(Some(self.told(session, &compound, 0)?.unwrap_or_default()))
            }
            // What is not there has no names below it.
            Missing::At(path) => {
                for n in (0..=path.len()).rev() {
                    let mut compound = Compound::new();
                    compound.op(&ArgOp::PutRootFh);
                    for name in &path[..n] {
                        compound.op(&ArgOp::Lookup(Lookup4Args { objname: name }));
                    }
                    compound.attributes(Attr::FsLocations.into());
                    match self.told(session, &compound, n)? {
                        Err(Error::Nfs(NfsStat4::Moved)) => {}
                        told => return Ok(told.ok()),
                    }
                }
                Ok(None)
            }
        }
    }

    /// What an answer tells of places, `lookups` names from where it begins.
    fn told(
        &self,
        session: &Arc<Session>,
        compound: &Compound,
        lookups: usize,
    ) -> Result<Result<Places>, Setback> {
        let begins = if compound.about.is_some() { OpNum4::PutFh } else { OpNum4::PutRootFh };
        let until = Some(Instant::now() + self.options.patience);
        let told = self.ask_until(until, session, &self.options.machine, compound, |answer| {
            answer.ok(begins)?;
            (0..lookups).try_for_each(|_| answer.ok(OpNum4::Lookup))?;
            answer.attributes_as(read)
        });
        match told {
            Ok(places) => Ok(Ok(places)),
            Err(Setback::Because(e @ (Error::Nfs(_) | Error::Protocol(_)))) => Ok(Err(e)),
            Err(setback) => Err(setback),
        }
    }

    /// Asks where else the mount's files are, for when this server is away. Whatever it says, it serves.
    pub(crate) fn ask_for_others(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let Some(root) = self.root.lock().clone() else { return Ok(()) };
        if !self.facts.read().supported.has(Attr::FsLocations) {
            return Ok(());
        }
        let mut compound = Compound::new();
        compound.put(&root).attributes(Attr::FsLocations.into());
        match self.told(session, &compound, 0)? {
            Ok(places) => {
                if !places.servers.is_empty() {
                    tracing::debug!(servers = ?places.servers, "the same files elsewhere");
                }
                self.servers.lock().learn(places.servers);
            }
            Err(error) => tracing::debug!(%error, "the server does not say where else"),
        }
        Ok(())
    }
}

/// Reads `fs_locations`. Of roots that differ, those that are as the first one's: a path is valid on one server or another.
fn read(fattr: &Fattr4<'_>) -> Result<Places> {
    if fattr.mask != Bitmap4::from(Attr::FsLocations) {
        return Ok(Places::default());
    }
    let found = FsLocations4::decode(&mut Reader::new(fattr.values))?;
    let names = |path: &PathName4<'_>| path.names.iter().map(|name| name.0.to_vec()).collect::<Vec<_>>();
    let mut places = Places { here: names(&found.fs_root), ..Places::default() };
    for place in &found.locations {
        let there = names(&place.rootpath);
        if places.servers.is_empty() {
            places.there = there;
        } else if there != places.there {
            continue;
        }
        places.servers.extend(place.servers.iter().filter_map(|server| address(server.name)));
    }
    Ok(places)
}

/// A server as it is connected to, from a name, an address or a universal address, with its port
/// (RFC 8881 section 11.9; RFC 5665 section 5.2.3.4). Nothing for the server that tells, which has no name there.
fn address(told: &[u8]) -> Option<String> {
    let told = std::str::from_utf8(told).ok()?.trim();
    if told.is_empty() || told.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return None;
    }
    if let Ok(address) = told.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    let bare = told.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(told);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT).to_string());
    }
    let universal = || {
        let (rest, low) = told.rsplit_once('.')?;
        let (ip, high) = rest.rsplit_once('.')?;
        let (high, low) = (high.parse::<u8>().ok()?, low.parse::<u8>().ok()?);
        Some(SocketAddr::new(ip.parse().ok()?, u16::from_be_bytes([high, low])).to_string())
    };
    // Some tell a name with its port.
    let has_port = || told.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    universal().or_else(|| Some(if has_port() { told.to_owned() } else { format!("{told}:{PORT}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_in_many_ways() {
        for (told, is) in [
            ("192.0.2.7", "192.0.2.7:2049"),
            ("192.0.2.7.80.10", "192.0.2.7:20490"),
            ("192.0.2.7:20490", "192.0.2.7:20490"),
            ("2001:db8::1", "[2001:db8::1]:2049"),
            ("[2001:db8::1]", "[2001:db8::1]:2049"),
            ("2001:db8::1.80.10", "[2001:db8::1]:20490"),
            ("files.example.org", "files.example.org:2049"),
            ("files.example.org:99", "files.example.org:99"),
        ] {
            assert_eq!(address(told.as_bytes()).as_deref(), Some(is), "{told}");
        }
        for told in [&b""[..], b" ", b"a b", b"\xff", b"a\nb"] {
            assert_eq!(address(told), None, "{told:?}");
        }
    }
}
