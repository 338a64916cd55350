//! A mount as its control socket reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use holdfast_client::KnownAs;
use holdfast_fuse::Session;
use holdfast_volume::cache::{Conflict, Errno, Pending};
use holdfast_volume::{CapsServer, NfsServer, Standing, Volume};
use serde_json::{Value, json};

use crate::complaints::Complaints;
use crate::connecting::address_of;
use crate::control::{ConflictLine, Controlled, Identity, Progress, ServerLine};
use crate::life::MountRequest;
use crate::source::ServerName;

/// A mount and all that belongs to it.
pub(crate) struct Mounted {
    volume: Volume,
    server: Arc<NfsServer>,
    caps: Option<Arc<CapsServer>>,
    session: Session,
    request: MountRequest,
    since: Instant,
    is_abandoned: AtomicBool,
    complaints: Complaints,
}

impl Mounted {
    pub(crate) fn new(
        volume: Volume,
        (server, caps): (Arc<NfsServer>, Option<Arc<CapsServer>>),
        session: Session,
        request: MountRequest,
    ) -> Self {
        Self {
            volume,
            server,
            caps,
            session,
            request,
            since: Instant::now(),
            is_abandoned: AtomicBool::new(false),
            complaints: Complaints::default(),
        }
    }

    /// Puts into the log what could not be done on the server since the last time.
    pub(crate) fn tell_reports(&self) {
        let reports = self.volume.take_reports();
        if reports.is_empty() {
            return;
        }
        let (_, server) = self.server.client().servers();
        self.complaints.tell(reports, (&self.request.source.to_string(), server.as_deref()));
    }

    /// That not everything could be done: what, and where.
    pub(crate) fn complaint(&self, errno: Errno) -> String {
        self.tell_reports();
        let (_, server) = self.server.client().servers();
        let server = server.map(|server| format!(" (server {server})")).unwrap_or_default();
        let what = match self.complaints.take() {
            none if none.is_empty() => std::io::Error::from_raw_os_error(errno.0).to_string(),
            some => some.join("; "),
        };
        format!(
            "not everything could be done on {}{server}: {what}; the mount's log has all",
            self.request.source
        )
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(crate) fn server(&self) -> &Arc<NfsServer> {
        &self.server
    }

    /// Gives all promises back, unless nothing is to be waited for any more.
    pub(crate) fn say_bye(&self) {
        match &self.caps {
            Some(caps) if self.owes_nothing() => caps.bye(self.volume.given_up()),
            // It comes again, and is to be known then.
            Some(_) => {}
            None => self.server.pay_all_times(self.volume.given_up()),
        }
    }

    /// By what the server knows this life of the mount, where nothing of it is to be found again: what the server remembers of a
    /// stream that the next life goes on with it forgets sooner once the client has gone.
    pub(crate) fn known_as(&self) -> Option<KnownAs> {
        if self.volume.standing().is_some() { None } else { self.server.client().known_as() }
    }

    /// Whether a later life of this mount has nothing to send.
    fn owes_nothing(&self) -> bool {
        let is_met = self.volume.standing().is_none_or(|standing| standing == Standing::Online);
        is_met && (self.volume.standing().is_none() || self.volume.pending() == Pending::default())
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::SeqCst)
    }

    fn address(&self, name: &str) -> Result<String, String> {
        Ok(address_of(&name.parse::<ServerName>()?, &self.request.options))
    }
}

const fn progress_of(left: Pending) -> Progress {
    Progress { changes: left.mutations, bytes: left.bytes, bytes_sent: left.bytes_sent }
}

impl Controlled for Mounted {
    fn identity(&self) -> Identity {
        Identity {
            pid: std::process::id(),
            source: self.request.source.to_string(),
            mountpoint: self.request.mountpoint.display().to_string(),
            is_mounted: !self.session.is_gone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn stats(&self) -> Value {
        let (_, current) = self.server.client().servers();
        let limits = self.server.client().limits();
        let mut shown = json!({
            "source": self.request.source.to_string(),
            "mountpoint": self.request.mountpoint.display().to_string(),
            "server": current,
            "promises": self.caps.is_some(),
            "standing": self.volume.standing().map(|standing| match standing {
                Standing::Online => "online",
                Standing::Away => "away",
                Standing::Merging => "merging",
            }),
            "same_host": self.caps.as_ref().map(|caps| caps.same_host_stats()),
            "nfs_version": format!("4.{}", limits.minor),
            "seconds_mounted": self.since.elapsed().as_secs(),
        });
        if let (Some(all), Ok(Value::Object(counted))) =
            (shown.as_object_mut(), serde_json::to_value(self.volume.stats()))
        {
            all.extend(counted);
        }
        shown
    }

    fn progress(&self) -> Progress {
        progress_of(self.volume.pending())
    }

    fn sync(&self) -> Result<(), String> {
        let synced = self.volume.sync(self.volume.given_up()).map_err(|errno| self.complaint(errno));
        if synced.is_ok() {
            self.complaints.take();
        }
        synced
    }

    fn abandon(&self) -> Progress {
        let left = self.volume.abandon();
        self.is_abandoned.store(true, Ordering::SeqCst);
        progress_of(left)
    }

    fn conflicts(&self) -> Vec<ConflictLine> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = |of: Conflict| ConflictLine {
            path: text(&of.path),
            kept_as: of.kept_as.map(|name| text(name.as_bytes())),
            what: of.what,
        };
        self.volume.conflicts().into_iter().map(line).collect()
    }

    fn servers(&self) -> Vec<ServerLine> {
        let (named, current) = self.server.client().servers();
        let told = self.server.client().told_servers();
        let line = |name: String| ServerLine {
            is_current: Some(&name) == current.as_ref(),
            is_told: told.contains(&name),
            name,
        };
        named.into_iter().map(line).collect()
    }

    fn add_server(&self, name: &str) -> Result<(), String> {
        let address = self.address(name)?;
        if !self.server.client().add_server(address.clone()) {
            return Err(format!("{address} is one of the servers already"));
        }
        Ok(())
    }

    fn remove_server(&self, name: &str) -> Result<(), String> {
        let address = self.address(name)?;
        let (named, _) = self.server.client().servers();
        if named == [address.as_str()] {
            return Err(format!("{address} is the only server: add another first"));
        }
        if !self.server.client().remove_server(&address) {
            return Err(format!("{address} is none of the servers"));
        }
        Ok(())
    }
}
