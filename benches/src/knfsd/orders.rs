//! What passes between the host and the agent in the guest: a line each way over TCP, so that neither of them has to look
//! for anything while a server is measured.

use super::Side;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// No order takes longer to carry out.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the agent is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To begin a turn with so many folders of changing names, and start a server.
    Start(Side, usize),
    /// To stop it.
    Stop,
    /// To make so many system calls that do nothing.
    Calls(u32),
}

impl Order {
    fn line(self) -> String {
        match self {
            Self::Start(side, folders) => format!("start {} {folders}\n", side.name()),
            Self::Stop => "stop\n".to_owned(),
            Self::Calls(count) => format!("calls {count}\n"),
        }
    }

    /// Reads what [`Order::line`] wrote.
    ///
    /// Errors when it is no order.
    pub(super) fn parse(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["stop"] => Ok(Self::Stop),
            ["calls", count] => Ok(Self::Calls(count.parse()?)),
            ["start", name, folders] => {
                let side = Side::by_name(name).with_context(|| format!("no server {name:?}"))?;
                Ok(Self::Start(side, folders.parse()?))
            }
            _ => bail!("{line:?} is no order"),
        }
    }
}

/// How an order ended, as a line.
pub(super) fn outcome_line(outcome: &Result<()>) -> String {
    match outcome {
        Ok(()) => "done\n".to_owned(),
        Err(e) => format!("{}\n", format!("{e:#}").replace('\n', " | ")),
    }
}

/// The host's end.
#[derive(Debug)]
pub(super) struct Orders {
    stream: BufReader<TcpStream>,
    kernel: String,
}

impl Orders {
    /// Connects to an agent that listens.
    ///
    /// Errors when it does not answer.
    pub(super) fn connect(agent: SocketAddrV4) -> Result<Self> {
        let stream = TcpStream::connect(agent).context("the agent in the guest")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut stream = BufReader::new(stream);
        let kernel = line_of(&mut stream)?.trim_end().to_owned();
        Ok(Self { stream, kernel })
    }

    /// The guest's kernel, by its release.
    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Has a server started, and waits until it is ready.
    ///
    /// Errors with what the agent said when it could not.
    pub(super) fn start(&mut self, side: Side, folders: usize) -> Result<()> {
        self.give(Order::Start(side, folders))
    }

    /// Has it stopped.
    ///
    /// Errors likewise.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.give(Order::Stop)
    }

    /// Has so many system calls made.
    ///
    /// Errors likewise.
    pub(super) fn calls(&mut self, count: u32) -> Result<()> {
        self.give(Order::Calls(count))
    }

    fn give(&mut self, order: Order) -> Result<()> {
        self.stream.get_mut().write_all(order.line().as_bytes())?;
        match line_of(&mut self.stream)?.trim_end() {
            "done" => Ok(()),
            other => bail!("the agent in the guest said: {other}"),
        }
    }
}

fn line_of(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).context("waiting for the agent in the guest")? == 0 {
        bail!("the agent in the guest went away");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        let starts = [Order::Start(Side::KnfsdSync, 3), Order::Start(Side::Echo, 0)];
        for order in [Order::Stop, Order::Calls(7)].into_iter().chain(starts) {
            assert_eq!(Order::parse(order.line().trim_end()).unwrap(), order);
        }
        for wrong in ["", "start", "start ganesha 1", "start echo x", "stop it"] {
            assert!(Order::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_went_wrong_is_one_line() {
        let wrong = Err(anyhow::anyhow!("first\nsecond").context("outer"));
        assert_eq!(outcome_line(&wrong), "outer: first | second\n");
        assert_eq!(outcome_line(&Ok(())), "done\n");
    }
}
