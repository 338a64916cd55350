//! `holdfast reload`.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use holdfast_admin::report::{Reloaded, Status, Upgrading};
use holdfast_admin::request::Request;
use holdfast_admin::{AdminClient, AskError};

use super::args::{Asking, ReloadArgs};
use super::table::number;

/// How long the successor may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &ReloadArgs) -> Result<()> {
    let mut server = args.asking.connect()?;
    if args.upgrade {
        return upgrade(&args.asking, server);
    }
    let reloaded: Reloaded = server.ask(Request::Reload)?;
    args.asking.show(&reloaded, people)
}

fn people(reloaded: &Reloaded) -> String {
    let exports = number(reloaded.exports);
    let plural = if reloaded.exports == 1 { "" } else { "s" };
    let mut text = format!("{} read: {exports} export{plural} served\n", reloaded.file);
    for key in &reloaded.needs_restart {
        text += &format!("`{key}` changed, which counts from the next start on\n");
    }
    text
}

/// Has the server hand over, and waits until its successor answers.
fn upgrade(asking: &Asking, mut server: AdminClient) -> Result<()> {
    let begun: Upgrading = server.ask(Request::Upgrade)?;
    drop(server);
    let asked_at = Instant::now();
    while asked_at.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
        if let Some(status) = status(asking)?.filter(|status| status.instance != begun.instance) {
            return asking.show(&status, |status| {
                format!("version {} serves now, in process {}\n", status.version, status.pid)
            });
        }
    }
    bail!("the server has not handed over within {} s: its log says why", PATIENCE.as_secs())
}

/// The status of whoever answers; nobody may for a moment.
fn status(asking: &Asking) -> Result<Option<Status>> {
    let asked = AdminClient::connect(&asking.dir()?).and_then(|mut server| server.ask(Request::Status));
    match asked {
        Ok(status) => Ok(Some(status)),
        Err(AskError::NoServer(_) | AskError::Lost(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
