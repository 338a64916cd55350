//! Network namespaces of this process's own. No name of theirs is left anywhere: each is gone with the last who is in it or has its
//! descriptor.
#![allow(unsafe_code)]

use crate::missing;
use crate::process::capture;
use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::thread;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Makes one that has its loopback interface and nothing else.
    ///
    /// Errors with [`missing::Missing`] without the superuser's rights, and where the kernel has no namespaces.
    pub fn new() -> Result<Self> {
        missing::superuser()?;
        let made = on_a_thread(|| -> Result<File> {
            // SAFETY: of what the threads of a process share, descriptors among it, this one leaves the network alone.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("a network namespace")?;
            capture("ip", &["link", "set", "lo", "up"])?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        Ok(Self { handle: made?? })
    }

    /// Does something in it, on a thread of its own. Sockets that are made there stay there, and so do processes that are started.
    ///
    /// Errors when the namespace cannot be entered, and when `act` panics.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))
                .context("entering a network namespace")?;
            Ok(act())
        })?
    }
}

fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(act).join())
        .map_err(|_| anyhow!("what went on in a namespace panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn what_listens_in_one_is_reached_from_within_alone() {
        let namespace = Namespace::new().unwrap();
        let listener = namespace.within(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        assert!(TcpStream::connect(address).is_err(), "another's loopback");
        assert!(namespace.within(|| TcpStream::connect(address)).unwrap().is_ok());
    }
}
