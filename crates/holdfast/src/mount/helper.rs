//! The program under the names by which `mount(8)` and `umount(8)` call their helpers: `mount.fuse.holdfast SOURCE DIR
//! [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` and `umount.fuse.holdfast DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Exit code of a helper whose mount failed (mount(8)).
pub(crate) const MOUNT_FAILURE: u8 = 32;

/// What mount(8) means where it says nothing: it passes on `nodev` and `nosuid`, but never their opposites. An ordinary user's mount
/// has neither.
const MEANT_BY_ROOT: [&str; 2] = ["-o", "dev,suid"];

/// The arguments of the `holdfast` command that a helper's arguments mean; `None` when the program goes by its own name.
pub(crate) fn translated(arguments: &[OsString], is_root: bool) -> Option<Vec<OsString>> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let is_ours =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|of| matches!(of, "fuse.holdfast" | "holdfast"));
    let command = if is_ours("mount.") {
        "mount"
    } else if is_ours("umount.") {
        "umount"
    } else {
        return None;
    };
    let mut out: Vec<OsString> = vec!["holdfast".into(), command.into()];
    if command == "mount" && is_root {
        out.extend(MEANT_BY_ROOT.map(OsString::from));
    }
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match flags(argument) {
            None => out.push(argument.clone()),
            Some("o") => out.extend(["-o".into(), rest.next().cloned().unwrap_or_default()]),
            Some("t" | "N") => drop(rest.next()),
            Some(flags) => out.extend(flags.chars().filter_map(|flag| own(command, flag))),
        }
    }
    Some(out)
}

fn flags(argument: &OsStr) -> Option<&str> {
    argument.to_str()?.strip_prefix('-').filter(|flags| !flags.is_empty() && !flags.starts_with('-'))
}

/// `-n`, `-v` and `-r` say nothing here.
fn own(command: &str, flag: char) -> Option<OsString> {
    match (command, flag) {
        ("mount", 's') => Some("--sloppy".into()),
        ("mount", 'f') => Some("--dry-run".into()),
        ("umount", 'f') => Some("--force".into()),
        ("umount", 'l') => Some("--lazy".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translation(line: &str, is_root: bool) -> Option<String> {
        let arguments: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let words: Vec<_> =
            translated(&arguments, is_root)?.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        Some(words.join(" "))
    }

    #[test]
    fn what_mount_and_umount_call_becomes_the_command() {
        let mount = translation(
            "/sbin/mount.fuse.holdfast files:/data /mnt -sn -o rw,_netdev -t fuse.holdfast",
            false,
        );
        assert_eq!(mount.unwrap(), "holdfast mount files:/data /mnt --sloppy -o rw,_netdev");
        let umount = translation("/sbin/umount.fuse.holdfast /mnt -fl -t fuse.holdfast", true);
        assert_eq!(umount.unwrap(), "holdfast umount /mnt --force --lazy");
        assert_eq!(translation("/usr/bin/holdfast mount files:/data /mnt", true), None);
        assert_eq!(translation("mount.nfs files:/data /mnt", true), None);
    }

    #[test]
    fn what_mount_does_not_say_is_allowed_where_root_mounts() {
        let by = |is_root| translation("/sbin/mount.fuse.holdfast files:/data /mnt -o rw,nosuid", is_root);
        // The last word counts.
        assert_eq!(by(true).unwrap(), "holdfast mount -o dev,suid files:/data /mnt -o rw,nosuid");
        assert_eq!(by(false).unwrap(), "holdfast mount files:/data /mnt -o rw,nosuid");
    }
}
