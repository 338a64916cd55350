//! A TUN device: an interface whose packets a descriptor gives and takes.
#![allow(unsafe_code)]

use crate::missing::Missing;
use crate::process::capture;
use crate::way::NARROW_PIECE_BYTES;
use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};
use std::ffi::{c_int, c_short};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Its name, in each namespace; there is one in each.
const NAME: &str = "holdfast-link";

/// Headers of IP and TCP, with timestamps.
const HEADER_BYTES: usize = 20 + 20 + 12;

/// What a packet is at most, so that one holds what passes at once: carrying them then takes no more of the machine than a relay.
pub(crate) const PACKET_BYTES_MAX: usize = NARROW_PIECE_BYTES + HEADER_BYTES;

const CLONE_DEVICE: &str = "/dev/net/tun";
const NAME_BYTES: usize = 16;

/// `struct ifreq` (netdevice(7)).
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: c_short,
    rest: [u8; 22],
}

/// Makes one in this thread's namespace, with its address and that of its only neighbour. It is gone when closed; reads and writes
/// do not wait.
///
/// Errors with [`Missing`] where there are none, and when this namespace has it already.
pub(crate) fn open(address: Ipv4Addr, neighbour: Ipv4Addr) -> Result<OwnedFd> {
    if !Path::new(CLONE_DEVICE).exists() {
        return Err(Missing::new(CLONE_DEVICE, "a kernel with CONFIG_TUN").into());
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(CLONE_DEVICE, flags, Mode::empty()).context(CLONE_DEVICE)?;
    let mut request = InterfaceRequest { name: [0; NAME_BYTES], flags: 0, rest: [0; 22] };
    request.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    request.flags = (libc::IFF_TUN | libc::IFF_NO_PI) as c_short;
    // SAFETY: TUNSETIFF takes a `struct ifreq`, whose size the kernel's is, with a name that ends with 0.
    unsafe {
        let set_interface = Setter::<{ opcode::write::<c_int>(b'T', 202) }, _>::new(request);
        ioctl(&device, set_interface)
    }
    .with_context(|| format!("making the TUN device {NAME}"))?;
    let (address, neighbour) = (address.to_string(), neighbour.to_string());
    capture("ip", &["address", "add", &address, "peer", &neighbour, "dev", NAME])?;
    capture("ip", &["link", "set", "dev", NAME, "mtu", &PACKET_BYTES_MAX.to_string(), "up"])?;
    Ok(device)
}
