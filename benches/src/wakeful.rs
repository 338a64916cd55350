//! Processors that stay awake while something is measured.
//!
//! Where the machine is a guest, a processor with nothing to do is given up to its host, and what it costs to have it back is
//! the host's affair: a byte there and back by loopback took 94 µs on such a machine, of which the network's part is 11. A run
//! measures servers, which wait for each other's processors all the time, so it asks that idle processors poll
//! (`Documentation/power/pm_qos_interface.rst`). Polling is no process's time.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

/// Set to anything: processors sleep as the machine has it.
const SLEEP_VARIABLE: &str = "HOLDFAST_BENCH_SLEEP";
const REQUEST: &str = "/dev/cpu_dma_latency";
/// Who chooses how idle processors sleep; where nobody does, nobody heeds the wish.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// Microseconds that a processor may take to wake.
const NOTHING: i32 = 0;

/// The wish, which holds until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Wakeful {
    _request: Option<File>,
}

/// Asks for it, unless the environment says otherwise or nobody on the machine heeds it.
pub(crate) fn ask() -> Wakeful {
    Wakeful { _request: is_wanted().then(request).flatten() }
}

/// Whether processors sleep during the run, for a report.
pub(crate) fn described() -> &'static str {
    if is_wanted() && request().is_some() { "idle processors awake" } else { "idle processors asleep" }
}

fn is_wanted() -> bool {
    std::env::var_os(SLEEP_VARIABLE).is_none()
}

fn request() -> Option<File> {
    let driver = fs::read_to_string(DRIVER).ok()?;
    if driver.trim() == "none" {
        return None;
    }
    let mut file = OpenOptions::new().write(true).open(REQUEST).ok()?;
    file.write_all(&NOTHING.to_ne_bytes()).ok()?;
    Some(file)
}
