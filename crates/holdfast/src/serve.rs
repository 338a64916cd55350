//! `holdfast serve`.

use anyhow::Result;
use holdfast_server::supervisor;
use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions};

use crate::cli::ServeArgs;

/// Serves until told to stop.
pub(crate) fn run(args: ServeArgs) -> Result<()> {
    if !args.no_supervise && supervisor::is_wanted() {
        return supervisor::supervise();
    }
    holdfast_server::serve(options(args)?)
}

fn options(args: ServeArgs) -> Result<ServeOptions> {
    let mut config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let rules = ExportOptions {
        is_read_only: args.read_only,
        squash: args.squash.into(),
        anonymous_uid: args.anonymous_uid,
        anonymous_gid: args.anonymous_gid,
        clients: if args.allow.is_empty() { ClientRule::this_host() } else { args.allow },
        is_sync: !args.is_async,
        local: args.local.into(),
        ..ExportOptions::default()
    };
    let exports = args.sources.into_iter().map(|share| ExportConfig::from_share(share, &rules)).collect();
    if !args.listen.is_empty() {
        config.listen = args.listen;
    }
    config.state_dir = args.state_dir.or(config.state_dir);
    config.lease = args.lease.or(config.lease);
    if args.no_rpcbind {
        config.rpcbind = Some(false);
    }
    Ok(ServeOptions { config, config_file: args.config, exports })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use clap::Parser as _;

    use super::options;
    use crate::cli::{Cli, Command};

    fn exports(line: &str) -> Result<Vec<holdfast_server::ExportConfig>, String> {
        let cli = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Command::Serve(args) = cli.command else { panic!("{line}") };
        Ok(options(*args).unwrap().exports)
    }

    #[test]
    fn the_anonymous_ids_of_the_command_line_are_those_of_every_export_on_it() {
        let line = "holdfast serve /a /b --squash all --anonymous-uid 1001 --anonymous-gid 1002";
        for export in exports(line).unwrap() {
            assert_eq!((export.anonymous_uid, export.anonymous_gid), (1001, 1002));
            assert_eq!(export.options().squash, holdfast_server::Squash::All);
        }
        let export = &exports("holdfast serve /a").unwrap()[0];
        assert_eq!((export.anonymous_uid, export.anonymous_gid), (65534, 65534));
        assert!(exports("holdfast serve /a --anonymous-uid -1").is_err());
    }

    #[test]
    fn a_command_line_that_cannot_be_served_says_what_would_do() {
        let nothing = exports("holdfast serve").unwrap_err();
        assert!(nothing.contains("SOURCE[:/EXPORT]") && nothing.contains("--config <FILE>"), "{nothing}");
        for address in ["localhost:2049", "127.0.0.1"] {
            let listen = exports(&format!("holdfast serve /a --listen {address}")).unwrap_err();
            assert!(listen.contains("no IP address and port"), "{listen}");
        }
    }

    /// What `@system-service` and `@setuid` of systemd 252 have of what we call by number, and what a server under that unit
    /// does without: it may not mount, so that it lends no descriptors for reading.
    const ALLOWED_OR_NOT_NEEDED: &[&str] = &[
        "capget",
        "faccessat2",
        "fchmodat2",
        "gettid",
        "mount_setattr",
        "setfsgid",
        "setfsuid",
        "setgroups",
    ];

    fn called(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                called(&entry, found);
            } else if entry.extension().is_some_and(|kind| kind == "rs") {
                let source = fs::read_to_string(&entry).unwrap();
                let calls = source.split("libc::SYS_").skip(1);
                found.extend(calls.map(|rest| {
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
                }));
            }
        }
    }

    #[test]
    fn the_shipped_unit_allows_every_system_call_made_by_number() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let unit = fs::read_to_string(root.join("dist/holdfast.service")).unwrap();
        let filters = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
        let named: BTreeSet<&str> = filters.flat_map(str::split_whitespace).collect();
        let mut found = BTreeSet::new();
        for part in fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"))
        {
            if part.is_dir() && !part.ends_with("holdfast/src") {
                called(&part, &mut found);
            }
        }
        assert!(found.contains("fanotify_init"), "{found:?}");
        let is_refused = |call: &&String| {
            !named.contains(call.as_str()) && !ALLOWED_OR_NOT_NEEDED.contains(&call.as_str())
        };
        let refused: Vec<_> = found.iter().filter(is_refused).collect();
        assert!(refused.is_empty(), "dist/holdfast.service refuses {refused:?}");
    }
}
