//! libnfs as a client: a small program in C, compiled when first needed, so that building Holdfast needs neither a
//! C compiler nor libnfs.

use super::target::Target;
use super::{Amount, Burst};
use crate::bout::Share;
use crate::histogram::Histogram;
use crate::plan::Op;
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
        Share { shape, amount, first, .. }: Share,
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
            .args([target.small_files.len().to_string(), DATA_BYTES.to_string(), first.to_string()])
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

/// Lets some work at a time, each to its end.
///
/// Errors when a call fails.
pub(crate) fn run(mut programs: Vec<Ready>) -> Result<Burst> {
    for program in &mut programs {
        program.stdin.write_all(b"go\n")?;
    }
    let ends = programs.iter_mut().map(|program| {
        let said = program.line()?;
        read_done(&said).with_context(|| format!("libnfs's load said {said:?}"))
    });
    Ok(Burst::together(&ends.collect::<Result<Vec<_>>>()?))
}

/// Reads `done UNITS ELAPSED-NS CPU-NS`, and then, as `BUCKET:COUNT`, how many calls took how long.
fn read_done(said: &str) -> Option<Burst> {
    let mut words = said.strip_prefix("done ")?.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (units, elapsed, cpu) = (number()?, number()?, number()?);
    let mut latency = Histogram::new();
    for word in words {
        let (bucket, count) = word.split_once(':')?;
        latency.add_to_bucket(bucket.parse().ok()?, count.parse().ok()?)?;
    }
    Some(Burst::new(units, Duration::from_nanos(elapsed), Duration::from_nanos(cpu), latency))
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
        let burst = read_done("done 10 2000000000 500000000 40:9 200:1").unwrap();
        assert_eq!((burst.units, burst.elapsed), (10, Duration::from_secs(2)));
        assert_eq!(burst.client_cpu, Duration::from_millis(500));
        assert!(burst.p50_us < 0.1 && burst.p99_us > 1.0);
        assert!(read_done("done 10 20").is_none() && read_done("ready").is_none());
        assert!(read_done("done 10 20 30 1:").is_none() && read_done("done 10 20 30 999999:1").is_none());
    }
}
