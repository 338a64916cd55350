//! `holdfast mount`, its subcommands, and `holdfast umount`.

pub(crate) mod args;
pub(crate) mod helper;
mod progress;
mod stats;
mod umount;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use holdfast_mount::control::{ConflictLine, Controller, Request, ServerLine};
use holdfast_mount::{MountOptions, MountRequest, Source, daemon, dead, guard, mountinfo};

use args::{MountArgs, MountCommand, ServersCommand};
use progress::ProgressBar;

pub(crate) use umount::run as unmount;

/// Mounts, or asks a mount.
pub(crate) fn run(args: &MountArgs) -> Result<()> {
    match (&args.command, &args.source, &args.mountpoint) {
        (Some(command), ..) => ask(command),
        (None, Some(source), Some(mountpoint)) => mount(args, source, mountpoint),
        (None, ..) => bail!("what to mount, and where? See `holdfast mount --help`"),
    }
}

fn mount(args: &MountArgs, source: &Source, mountpoint: &Path) -> Result<()> {
    let options = MountOptions::parse(&args.options, args.sloppy).map_err(anyhow::Error::msg)?;
    let shown = mountpoint.display();
    let mountpoint = mountinfo::resolve(mountpoint).with_context(|| shown.to_string())?;
    if args.dry_run {
        return Ok(());
    }
    if options.is_remount {
        return holdfast_mount::remount(&mountpoint, &options);
    }
    let request = MountRequest { source: source.clone(), mountpoint, options };
    if guard::is_guard() {
        return guard::watch(&request);
    }
    if daemon::is_daemon() {
        let mounted = holdfast_mount::run(&request, || Ok(daemon::report_mounted()?));
        return mounted.inspect_err(|error| daemon::report_failure(&format!("{error:#}")));
    }
    if dead::take_away(&request.mountpoint).with_context(|| shown.to_string())? {
        eprintln!("{shown}: the daemon of what was mounted here had died: that was unmounted");
    }
    if args.foreground {
        return holdfast_mount::run(&request, || {
            println!("{} mounted at {}", request.source, request.mountpoint.display());
            Ok(())
        });
    }
    daemon::start(&std::env::args_os().collect::<Vec<_>>(), &request.mountpoint)
}

fn ask(command: &MountCommand) -> Result<()> {
    match command {
        MountCommand::Stats { json, mountpoint } => stats::run(mountpoint, *json),
        MountCommand::Sync { mountpoint } => {
            let mut bar = ProgressBar::new("sending");
            let done = Controller::connect(mountpoint)?
                .ask_with_progress(&Request::Sync, &mut |left| bar.show(left));
            bar.end();
            Ok(done?)
        }
        MountCommand::Servers { command } => servers(command),
        MountCommand::Conflicts { mountpoint } => {
            let found: Vec<ConflictLine> = Controller::connect(mountpoint)?.ask(&Request::Conflicts)?;
            for ConflictLine { path, kept_as, what } in found {
                let kept_as = kept_as.map(|name| format!("; ours is {name}")).unwrap_or_default();
                println!("{path}: {what}{kept_as}");
            }
            Ok(())
        }
    }
}

fn servers(command: &ServersCommand) -> Result<()> {
    match command {
        ServersCommand::Show { mountpoint } => {
            let servers: Vec<ServerLine> = Controller::connect(mountpoint)?.ask(&Request::Servers)?;
            for server in servers {
                let (used, told) = (server.is_current, server.is_told);
                let words = [(used, "  in use"), (told, "  told by a server")];
                let said: String = words.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| *word).collect();
                println!("{}{said}", server.name);
            }
            Ok(())
        }
        ServersCommand::Add { server, mountpoint } => {
            Ok(Controller::connect(mountpoint)?.ask(&Request::AddServer { server: server.clone() })?)
        }
        ServersCommand::Remove { server, mountpoint } => {
            Ok(Controller::connect(mountpoint)?.ask(&Request::RemoveServer { server: server.clone() })?)
        }
    }
}
