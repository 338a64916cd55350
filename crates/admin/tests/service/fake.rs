//! A server that answers from a script.

use std::sync::Arc;

use holdfast_admin::report::{
    Client, Counters, Holding, HoldingKind, LogLevels, Page, Reloaded, Status, Taken, Upgrading,
};
use holdfast_admin::request::{ClientsWanted, Code, LocksWanted, Refusal, Which};
use holdfast_admin::{Administered, Service};
use parking_lot::Mutex;

/// Rows of a page here: few, so that there are pages.
pub(crate) const PAGE: usize = 3;

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) clients: usize,
    pub(crate) holdings: usize,
    /// One when not set.
    pub(crate) metrics_lines: usize,
    /// What it was asked to do.
    pub(crate) done: Mutex<Vec<String>>,
}

/// A fake server behind a socket of its own.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) server: Arc<Fake>,
    pub(crate) service: Service,
}

pub(crate) fn scene(fake: Fake) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let server = Arc::new(fake);
    let weak = Arc::downgrade(&(server.clone() as Arc<dyn Administered>));
    let service = Service::start(dir.path(), weak).unwrap();
    Scene { dir, server, service }
}

fn page<T>(all: usize, after: Option<&str>, row: impl Fn(usize) -> T) -> Page<T> {
    let from = after.map_or(0, |after| after.parse().unwrap());
    let to = (from + PAGE).min(all);
    Page { rows: (from..to).map(row).collect(), next: (to < all).then(|| to.to_string()) }
}

pub(crate) fn holding(n: usize) -> Holding {
    Holding {
        id: n.to_string(),
        kind: HoldingKind::Lock,
        client: "c".into(),
        client_name: "name".into(),
        addresses: vec!["192.0.2.1".into()],
        protocol: "NFSv4.1+".into(),
        is_courteous: false,
        export: None,
        path: None,
        is_deleted: false,
        file: "f".into(),
        owner: None,
        since_unix_ms: None,
        access: None,
        deny: None,
        ranges: Vec::new(),
        recalled_unix_ms: None,
        is_revoked: false,
    }
}

impl Administered for Fake {
    fn status(&self) -> Status {
        Status { version: "1.2.3".into(), pid: 7, ..Status::default() }
    }

    fn clients(&self, wanted: &ClientsWanted) -> Result<Page<Client>, Refusal> {
        let row = |n: usize| Client { id: n.to_string(), ..Client::default() };
        Ok(page(self.clients, wanted.after.as_deref(), row))
    }

    fn locks(&self, wanted: &LocksWanted) -> Result<Page<Holding>, Refusal> {
        Ok(page(self.holdings, wanted.after.as_deref(), holding))
    }

    fn revoke(&self, client: &str) -> Result<Taken, Refusal> {
        if client != "here" {
            return Err(Refusal::new(Code::NotFound, "no client"));
        }
        self.done.lock().push(format!("revoke {client}"));
        Ok(Taken { clients: vec![client.into()], holdings: 2 })
    }

    fn release(&self, which: &Which) -> Result<Taken, Refusal> {
        self.done.lock().push(format!("release {:?}", which.path));
        Ok(Taken::default())
    }

    fn reload(&self) -> Result<Reloaded, Refusal> {
        Err(Refusal::new(Code::Failed, "line 3: no"))
    }

    fn upgrade(&self) -> Result<Upgrading, Refusal> {
        Ok(Upgrading { instance: "i".into() })
    }

    fn drop_caches(&self) {
        self.done.lock().push("drop caches".into());
    }

    fn end_grace(&self) -> Result<(), Refusal> {
        Err(Refusal::new(Code::NotFound, "no grace"))
    }

    fn log(&self, levels: Option<&str>) -> Result<LogLevels, Refusal> {
        Ok(LogLevels { levels: levels.unwrap_or("info").into() })
    }

    fn counters(&self) -> Counters {
        Counters { at_unix_ms: 1, ..Counters::default() }
    }

    fn metrics(&self) -> String {
        "holdfast_x 1\n".repeat(self.metrics_lines.max(1))
    }
}
