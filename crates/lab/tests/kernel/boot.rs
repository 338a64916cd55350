//! The guest itself: it boots, runs a script as root, and carries its output, status and files back.

use anyhow::{Result, ensure};
use holdfast_lab::{Guest, Kernel, Trial};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// The cases, for each kernel at hand.
pub(crate) fn trials() -> Vec<Trial> {
    crate::fixture::kernels()
        .into_iter()
        .flat_map(|at_hand| {
            [
                at_hand.trial("boot::script_output_status_and_files_come_back", output_and_status),
                at_hand.trial("boot::two_guests_run_at_once_and_wait_for_the_host", two_at_once),
            ]
        })
        .collect()
}

fn output_and_status(kernel: &Kernel) -> Result<()> {
    let script = "uname -r; id -u; echo to-stderr >&2; echo left >\"$OUT/file\"; sync; exit 7";
    let out = tempfile::tempdir()?;
    let outcome = Guest::builder().kernel(kernel.clone()).out_dir(out.path()).run_script(script, &[])?;
    ensure!(outcome.status == 7, "{outcome:?}");
    ensure!(outcome.stdout.lines().nth(1) == Some("0"), "not root: {outcome:?}");
    ensure!(outcome.stderr == "to-stderr\n", "{outcome:?}");
    ensure!(std::fs::read_to_string(out.path().join("file"))? == "left\n");
    Ok(())
}

fn two_at_once(kernel: &Kernel) -> Result<()> {
    let script = "echo ready; lab_wait go; exec 3<>/dev/tcp/$SERVER/$PORT; echo \"$GUEST\" >&3; cat <&3";
    let host = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = host.local_addr()?.port().to_string();
    let start =
        || Guest::builder().kernel(kernel.clone()).memory("256M").start(script, &[("PORT", port.as_str())]);
    let (one, two) = (start()?, start()?);
    ensure!(one.address() != two.address());
    for guest in [one, two] {
        guest.wait_for("ready", Duration::from_secs(60))?;
        guest.signal("go")?;
        let (mut link, peer) = host.accept()?;
        ensure!(peer.ip() == guest.address(), "{peer} called, not {}", guest.address());
        let mut heard = String::new();
        BufReader::new(&link).read_line(&mut heard)?;
        ensure!(heard.trim() == guest.address().to_string(), "{peer} said {heard:?}");
        link.write_all(b"answer\n")?;
        drop(link);
        let said = guest.wait()?.success()?;
        ensure!(said.lines().nth(1) == Some("answer"), "{said}");
    }
    Ok(())
}
