//! libnfs as a client: a small program in C, compiled when first needed, so that building Holdfast needs neither a
//! C compiler nor libnfs.

use super::target::Target;
use super::{Amount, Burst};
use crate::plan::{Op, Shape};
use crate::volume::DATA_BYTES;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("../../assets/libnfs-load.c");

/// The compiled program.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// Compiles it into `scratch`.
    ///
    /// Errors when the compiler or libnfs is missing.
    pub(crate) fn compile(scratch: &Path) -> Result<Self> {
        let (source, program) = (scratch.join("libnfs-load.c"), scratch.join("libnfs-load"));
        fs::write(&source, SOURCE)?;
        let output = Command::new("cc")
            .args(["-O2", "-o"])
            .args([&program, &source])
            .arg("-lnfs")
            .output()
            .context("starting cc (scripts/install-bench installs it and libnfs-dev)")?;
        ensure!(
            output.status.success(),
            "compiling against libnfs: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self(program))
    }

    /// Starts it and lets it connect.
    ///
    /// Errors when it cannot.
    pub(crate) fn ready(
        &self,
        server: SocketAddrV4,
        op: Op,
        shape: Shape,
        amount: Amount,
        target: &Target,
    ) -> Result<Ready> {
        let (kind, number) = match amount {
            Amount::For(time) => ("for", u64::try_from(time.as_nanos())?),
            Amount::Calls(count) => ("calls", count),
        };
        let mut child = Command::new(&self.0)
            .args([server.ip().to_string(), server.port().to_string()])
            .args([shape.connections.to_string(), shape.depth.to_string()])
            .args([kind.to_owned(), number.to_string(), op.name().to_owned()])
            .args([target.small_files.len().to_string(), DATA_BYTES.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut ready = Ready { child, stdin, stdout };
        ready.stdin.write_all(handles(target).as_bytes())?;
        let said = ready.line()?;
        ensure!(said == "ready", "libnfs's load said {said:?}");
        Ok(ready)
    }
}

/// The program, connected; killed when dropped before its end.
#[derive(Debug)]
pub(crate) struct Ready {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Ready {
    /// Lets it work to its end.
    ///
    /// Errors when a call fails.
    pub(crate) fn run(mut self) -> Result<Burst> {
        self.stdin.write_all(b"go\n")?;
        let said = self.line()?;
        read_done(&said)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("libnfs's load ended early (its complaint is above)");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `done UNITS ELAPSED-NS CPU-NS P50-NS P99-NS`.
fn read_done(said: &str) -> Result<Burst> {
    let numbers: Option<Vec<u64>> =
        said.strip_prefix("done ").map(|rest| rest.split(' ').flat_map(str::parse).collect());
    let Some(&[units, elapsed, cpu, p50, p99]) = numbers.as_deref() else {
        bail!("libnfs's load said {said:?}");
    };
    Ok(Burst {
        units,
        elapsed: Duration::from_nanos(elapsed),
        client_cpu: Duration::from_nanos(cpu),
        p50_us: p50 as f64 / 1e3,
        p99_us: p99 as f64 / 1e3,
    })
}

fn handles(target: &Target) -> String {
    let fixed = [&target.small, &target.changing, &target.listed, &target.read_file, &target.write_file];
    let mut text = String::new();
    for handle in fixed.into_iter().chain(&target.small_files) {
        text.extend(handle.iter().map(|byte| format!("{byte:02x}")));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        let burst = read_done("done 10 2000000000 500000000 1500 9000").unwrap();
        assert_eq!((burst.units, burst.elapsed), (10, Duration::from_secs(2)));
        assert_eq!(burst.client_cpu, Duration::from_millis(500));
        assert!((burst.p50_us - 1.5).abs() < 1e-9 && (burst.p99_us - 9.0).abs() < 1e-9);
        assert!(read_done("done 10 20").is_err() && read_done("ready").is_err());
    }
}
