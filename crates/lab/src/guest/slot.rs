//! An instance number of a guest, and the network link that goes with it.

use crate::process::{capture, output};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Guests at once on one host: the number is one byte of their addresses.
const SLOTS: u8 = u8::MAX;

/// A number of our own; its lock dies with us, however we end.
#[derive(Debug)]
pub(super) struct Slot {
    number: u8,
    _lock: File,
}

impl Slot {
    /// Takes the first free number.
    pub(super) fn take() -> Result<Self> {
        let dir = std::env::temp_dir().join("holdfast-lab.slots");
        std::fs::create_dir_all(&dir)?;
        for number in 0..SLOTS {
            let lock = File::create(dir.join(number.to_string()))?;
            if lock.try_lock().is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("all {SLOTS} guest slots are taken")
    }

    /// The tap device's name, and the guest's host name.
    pub(super) fn name(&self) -> String {
        format!("hflab{}", self.number)
    }

    /// The host's address on the link: where the guest finds the server.
    pub(super) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 214, self.number, 1)
    }

    /// The guest's address on the link.
    pub(super) fn guest(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 214, self.number, 2)
    }

    /// As [`Slot::host`], for IPv6.
    pub(super) fn host6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x214, u16::from(self.number), 0, 0, 0, 0, 1)
    }

    /// As [`Slot::guest`], for IPv6.
    pub(super) fn guest6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x214, u16::from(self.number), 0, 0, 0, 0, 2)
    }
}

/// A tap device, removed when dropped.
#[derive(Debug)]
pub(super) struct Tap {
    name: String,
}

impl Tap {
    /// Makes the link of a slot, in place of one that a killed run left.
    pub(super) fn new(slot: &Slot) -> Result<Self> {
        let name = slot.name();
        let _ = output("ip", &["link", "del", &name]);
        capture("ip", &["tuntap", "add", "dev", &name, "mode", "tap"]).context("making a tap device")?;
        let tap = Self { name };
        capture("ip", &["addr", "add", &format!("{}/30", slot.host()), "dev", &tap.name])?;
        // A host without IPv6 still runs every guest; tests over IPv6 then fail at their mount, by name.
        let _ =
            output("ip", &["-6", "addr", "add", &format!("{}/64", slot.host6()), "dev", &tap.name, "nodad"]);
        capture("ip", &["link", "set", &tap.name, "up"])?;
        Ok(tap)
    }

    /// The option of the guest kernel that attaches this link.
    pub(super) fn kernel_parameter(&self) -> String {
        format!("vec0:transport=tap,ifname={},depth=128,gro=1", self.name)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = output("ip", &["link", "del", &self.name]);
    }
}
