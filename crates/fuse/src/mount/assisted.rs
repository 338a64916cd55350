//! By `fusermount3`, which may mount for an ordinary user, and sends the connected device back.

use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
};

use super::{MountError, MountOptions, Unmount};

const PROGRAM: &str = "fusermount3";

pub(super) fn mount(at: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let pair = |errno: rustix::io::Errno| MountError::NoHelper(errno.into());
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(pair)?;
    let mut command = Command::new(PROGRAM);
    command.arg("-o").arg(words(options)).arg("--").arg(at);
    // The socket is the program's standard input: no descriptor has to be made inheritable, which threads that start
    // other programs would pass on too.
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(MountError::NoHelper)?;
    // The command keeps the other end of the pair open until it is dropped.
    drop(command);
    let received = receive(&ours);
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // What it said is for people alone.
        let _ = errors.read_to_string(&mut said);
    }
    let status = child.wait().map_err(MountError::NoHelper)?;
    match received {
        Some(device) if status.success() => Ok(device),
        _ => Err(refused(&said, status)),
    }
}

fn refused(said: &str, status: std::process::ExitStatus) -> MountError {
    let said = said.trim().trim_start_matches("fusermount3: ");
    MountError::Helper(if said.is_empty() { status.to_string() } else { said.to_owned() })
}

/// Options as the program wants them: what it does not know it refuses, and a comma in a value ends it.
fn words(options: &MountOptions) -> String {
    let escaped = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={escaped}"), format!("subtype={}", options.subtype)];
    let mut word = |is_wanted: bool, word: &str| {
        if is_wanted {
            words.push(word.to_owned());
        }
    };
    word(options.is_read_only, "ro");
    word(!options.allows_suid, "nosuid");
    word(!options.allows_devices, "nodev");
    word(!options.allows_exec, "noexec");
    word(options.no_atime, "noatime");
    word(options.allow_other, "allow_other");
    word(options.default_permissions, "default_permissions");
    words.join(",")
}

/// The descriptor that the program sends with one byte; none when it ended without.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

pub(super) fn unmount(at: &Path, how: Unmount) -> Result<(), MountError> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if !matches!(how, Unmount::Plain) {
        command.arg("-z");
    }
    let output = command.arg("--").arg(at).stdin(Stdio::null()).output().map_err(MountError::NoHelper)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(refused(&String::from_utf8_lossy(&output.stderr), output.status))
    }
}
