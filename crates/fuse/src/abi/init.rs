//! INIT: what kernel and daemon agree on.

use crate::abi::fields::{Fields, Malformed, Put};
use crate::flags::InitFlags;

/// What the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitIn {
    /// Its major version.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
    /// Bytes it reads ahead at most.
    pub readahead_bytes_max: u32,
    /// What it can do.
    pub flags: InitFlags,
}

impl InitIn {
    pub(crate) fn decode(f: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (major, minor) = (f.u32()?, f.u32()?);
        let (readahead_bytes_max, low) = (f.u32()?, f.u32()?);
        let mut flags = u64::from(low);
        // Kernels before 7.36 end here.
        if InitFlags::from_bits(flags).contains(InitFlags::INIT_EXT) && !f.is_empty() {
            flags |= u64::from(f.u32()?) << 32;
        }
        Ok(Self { major, minor, readahead_bytes_max, flags: InitFlags::from_bits(flags) })
    }
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitOut {
    /// Version used from now on.
    pub minor: u32,
    /// Bytes read ahead at most.
    pub readahead_bytes_max: u32,
    /// What is used, of what was offered.
    pub flags: InitFlags,
    /// Requests in the background (read-ahead, direct I/O, RELEASE) that the kernel sends at once.
    pub background_max: u16,
    /// Such requests from which on the kernel takes the mount for congested.
    pub congestion_threshold: u16,
    /// Bytes of one WRITE.
    pub write_bytes_max: u32,
    /// Pages of one READ or WRITE.
    pub pages_max: u16,
    /// With passthrough: how deep file systems may be stacked, this one included.
    pub stack_depth_max: u32,
}

impl InitOut {
    /// Appends the reply's body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bits = self.flags.bits();
        let low = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let high = u32::try_from(bits >> 32).unwrap_or(0);
        out.put_u32(super::MAJOR);
        out.put_u32(self.minor);
        out.put_u32(self.readahead_bytes_max);
        out.put_u32(low);
        out.put_u16(self.background_max);
        out.put_u16(self.congestion_threshold);
        out.put_u32(self.write_bytes_max);
        // Times have nanoseconds.
        out.put_u32(1);
        out.put_u16(self.pages_max);
        out.put_u16(0);
        out.put_u32(high);
        out.put_u32(self.stack_depth_max);
        // No request timeout, and what is reserved.
        out.put_zeros(24);
    }
}
