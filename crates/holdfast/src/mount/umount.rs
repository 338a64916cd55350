//! `holdfast umount`.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use holdfast_mount::control::{AskError, Controller, Progress, Request};
use holdfast_mount::{Unmount, dead, mountinfo, unmount};

use super::args::UmountArgs;
use super::progress::ProgressBar;

/// How long the daemon may take to end once everything is sent and the mount is gone: it says goodbye to the server.
const GOODBYE: Duration = Duration::from_secs(20);

/// Sends what is left, unmounts, and waits for the daemon to end.
pub(crate) fn run(args: &UmountArgs) -> Result<()> {
    let shown = args.mountpoint.display().to_string();
    let mountpoint = mountinfo::resolve(&args.mountpoint).with_context(|| shown.clone())?;
    let daemon = match Controller::connect(&args.mountpoint) {
        Err(AskError::NoDaemon { .. }) if dead::take_away(&mountpoint).with_context(|| shown.clone())? => {
            eprintln!(
                "{shown}: its daemon had died; unmounted. What it had not sent is lost, but for what was kept (`offline`)"
            );
            return Ok(());
        }
        Err(AskError::NoDaemon { reason, .. }) if args.force || args.lazy => {
            tracing::debug!(reason, "the daemon does not answer");
            None
        }
        other => Some(other?),
    };
    if args.force {
        return force(daemon, &mountpoint).with_context(|| shown);
    }
    let Some(mut daemon) = daemon else { return unmount(&mountpoint, Unmount::Lazy).with_context(|| shown) };
    let mut bar = ProgressBar::new("sending");
    let drained = daemon.ask_with_progress::<()>(&Request::Drain, &mut |left| bar.show(left));
    bar.end();
    // What could not be done is told, and will not become better by staying mounted.
    let complaint = drained.err();
    let manner = if args.lazy { Unmount::Lazy } else { Unmount::Plain };
    let device = daemon.mount().device.clone();
    // Sending may have taken long.
    if mountinfo::topmost(&mountpoint)?.is_some_and(|now| now.device != device) {
        bail!("{shown}: everything is sent, but something else has been mounted there meanwhile");
    }
    unmount(&mountpoint, manner).with_context(|| shown)?;
    // What was bound to another place lives on there.
    if !args.lazy
        && !mountinfo::is_mounted(&device)?
        && let Err(error) = daemon.wait_end(GOODBYE)
    {
        let elsewhere = mountinfo::in_other_namespace(&device);
        let pid = elsewhere.ok_or(error).context("unmounted, but its daemon has not ended yet")?;
        eprintln!(
            "unmounted here; process {pid} has it in a mount namespace of its own, and is still served"
        );
    }
    match complaint {
        Some(complaint) => bail!("unmounted, but not everything was done: {complaint}"),
        None => Ok(()),
    }
}

fn force(daemon: Option<Controller>, mountpoint: &std::path::Path) -> Result<()> {
    let abandoned = daemon.map(|mut daemon| daemon.ask::<Progress>(&Request::Abandon));
    unmount(mountpoint, Unmount::Force)?;
    match abandoned {
        Some(Ok(lost)) if lost != Progress::default() => {
            bail!("unmounted; {} changes and {} bytes were not sent and are lost", lost.changes, lost.bytes)
        }
        _ => Ok(()),
    }
}
