//! SQLite, whose writers need locks that hold and data that is seen behind them.

use crate::fixture::{Served, guest, kernels, run_in, serve, start_in};
use anyhow::Result;
use holdfast_lab::{Kernel, Scale, Trial};
use std::time::Duration;

const TRANSACTIONS: usize = 40;
const TRANSACTIONS_SOAK: usize = 400;
const PATIENCE: Duration = Duration::from_secs(240);
const LIMIT: Duration = Duration::from_secs(300);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    kernels()
        .iter()
        .flat_map(|at_hand| {
            [
                at_hand.trial("sqlite::writers_on_two_mounts_lose_nothing::v4.1", two_mounts),
                at_hand.trial("sqlite::writers_in_two_guests_lose_nothing::v4.1", two_guests),
            ]
        })
        .map(|trial| trial.limit(LIMIT))
        .collect()
}

fn transactions() -> String {
    Scale::from_env().pick(TRANSACTIONS, TRANSACTIONS_SOAK).to_string()
}

fn two_mounts(kernel: &Kernel) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let script = "lab_mount 4.1 /mnt/one nosharecache; lab_mount 4.1 /mnt/two nosharecache\n\
                  sql() { python3 $SCRIPTS/sqlite_writers.py \"$@\"; }\n\
                  sql make /mnt/one\n\
                  sql write $COUNT w /mnt/one /mnt/two /mnt/one /mnt/two\n\
                  sql judge $COUNT 4 /mnt/two\n\
                  umount /mnt/one /mnt/two";
    let count = transactions();
    run_in(guest(kernel, "512M", PATIENCE), &mut served, script, &[("COUNT", &count)]).map(drop)
}

fn two_guests(kernel: &Kernel) -> Result<()> {
    let mut served = serve(1 << 30, &[])?;
    let writer = "lab_mount 4.1 /mnt\n\
                  sql() { python3 $SCRIPTS/sqlite_writers.py \"$@\"; }\n\
                  [ $NAME != one ] || sql make /mnt\n\
                  echo ready; lab_wait write 120; sql write $COUNT $NAME /mnt /mnt\n\
                  echo written; lab_wait judge 600; sql judge $COUNT 4 /mnt; umount /mnt";
    let count = transactions();
    let start = |served: &Served, name: &str| {
        start_in(guest(kernel, "512M", PATIENCE), served, writer, &[("COUNT", &count), ("NAME", name)])
    };
    let guests = [start(&served, "one")?, start(&served, "two")?];
    for (said, signal) in [("ready", "write"), ("written", "judge")] {
        guests
            .iter()
            .try_for_each(|guest| guest.wait_for(said, Scale::from_env().pick(PATIENCE, PATIENCE * 10)))?;
        guests.iter().try_for_each(|guest| guest.signal(signal))?;
    }
    for guest in guests {
        guest.wait()?.success()?;
    }
    served.server.check_alive()
}
