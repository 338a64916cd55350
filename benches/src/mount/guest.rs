//! The kernel's own NFS client, in a guest: this program runs there once more and tells the times.

use super::load::{Load, Scale, Told};
use super::stand;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use holdfast_lab::server::Target;
use holdfast_lab::{Guest, Relay, Way};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(3600);

/// Names and attributes are on the server when an operation returns; `syncfs` sends data and commits it.
const SCRIPT: &str = r#"
lab_mount 4.2 /mnt
"$BENCH" mount-loads /mnt $LOADS
umount /mnt
"#;

/// Mounts an export of a Holdfast server over a relay, and does the loads.
///
/// Errors when the guest, the mount or a load fails.
pub(super) fn turn(way: Way, scale: &Scale, told: &mut Told<'_>) -> Result<()> {
    let Some(loads) = scale.for_guest() else { return Ok(()) };
    let (_file_system, share) = stand::fresh_share()?;
    let server = stand::serve(&share, Target::Holdfast)?;
    let serving = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    // A guest is not on the loopback interface.
    let relay = Relay::start_on(IpAddr::from(Ipv4Addr::UNSPECIFIED), serving, way)?;
    let bench = std::env::current_exe()?;
    let environment = [
        ("PORT", relay.port().to_string()),
        ("EXPORT", server.export()),
        ("BENCH", bench.display().to_string()),
        ("LOADS", loads.join(" ")),
    ];
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let outcome = Guest::builder().timeout(PATIENCE).run_script(SCRIPT, &environment)?;
    let said = outcome.success()?;
    let mut lines = said.lines().filter(|line| !line.trim().is_empty()).peekable();
    ensure!(lines.peek().is_some(), "the guest told nothing");
    lines.try_for_each(|line| {
        let (load, seconds) = parse(line).with_context(|| format!("the guest said {line:?}"))?;
        told(load, seconds, None);
        Ok(())
    })
}

fn parse(line: &str) -> Result<(Load, Duration)> {
    let (load, seconds) = line.trim().split_once(' ').context("no load and seconds")?;
    let load = Load::from_str(load, false).map_err(anyhow::Error::msg)?;
    Ok((load, Duration::try_from_secs_f64(seconds.parse()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_tells_is_understood() {
        let told = parse("find-again 0.25\r").unwrap();
        assert_eq!(told, (Load::FindAgain, Duration::from_millis(250)));
        assert!(parse("elsewhere 1").is_err() && parse("create").is_err() && parse("create -1").is_err());
    }
}
