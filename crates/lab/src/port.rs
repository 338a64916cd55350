//! A port for a server that goes away and comes back: nobody else gets it meanwhile.

use anyhow::{Result, bail};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that Linux gives to who names none (`ip_local_port_range`, from 32,768 on).
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port of our own; its lock dies with us, however we end.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes one that nobody listens on, and not one that was given back a moment ago.
    ///
    /// Errors when all are taken.
    pub(crate) fn take() -> Result<Self> {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        let dir = std::env::temp_dir().join("holdfast-lab.ports");
        std::fs::create_dir_all(&dir)?;
        // Processes begin at places of their own.
        let begin = std::process::id().wrapping_mul(97);
        for _ in 0..COUNT {
            let place = begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT);
            let number = FIRST + place as u16;
            let lock = File::create(dir.join(number.to_string()))?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("all {COUNT} ports for servers are taken")
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_port_has_it_alone_though_nobody_listens_on_it() {
        let all: Vec<_> = (0..20).map(|_| Port::take().unwrap()).collect();
        let mut numbers: Vec<_> = all.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 20);
        let path = std::env::temp_dir().join("holdfast-lab.ports").join(numbers[0].to_string());
        let held = File::open(&path).unwrap();
        assert!(held.try_lock().is_err());
        drop(all);
        held.lock().unwrap();
    }
}
