//! The listening sockets: those of the configuration, taken from who had them before where they fit.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::config::Config;
use crate::handover;

/// NFS's port, and the one that an ordinary user can have.
const NFS_PORT: u16 = 2049;
const USER_NFS_PORT: u16 = 20490;

/// How long an address may still be taken by a socket that is being given up: the service manager closes its
/// descriptor of it when it gets round to it.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(1);

/// Whether there is more to lose than a start: then sockets that cannot be had are told of, and no reason to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From nothing.
    Ordinary,
    /// In another process' place, with its connections and all that clients hold.
    InPlace,
}

/// The listening sockets of the configuration. Those that are there already are used; what is not wanted is closed.
///
/// # Errors
/// An address that cannot be listened on, of an ordinary start.
pub(crate) fn listen(config: &Config, present: Vec<TcpListener>, start: Start) -> Result<Vec<TcpListener>> {
    let wanted = Wanted::of(config);
    let (mut found, left) = sort(&wanted.addresses, present);
    let given_up: Vec<_> = left.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    // Before anything is bound: they may be in the way, as 0.0.0.0 is of every other address.
    drop(left);
    let patience = if given_up.is_empty() { Duration::ZERO } else { GIVEN_UP_WITHIN };
    if !given_up.is_empty() {
        handover::forget_listeners();
    }
    let mut bound = Ok(());
    for (place, address) in found.iter_mut().zip(&wanted.addresses).filter(|(place, _)| place.is_none()) {
        match listen_on(*address, patience) {
            Ok(listener) => *place = Some(listener),
            Err(error) if wanted.is_default && address.is_ipv6() => {
                tracing::warn!("IPv4 only: {error:#}");
            }
            Err(error) => bound = Err(error),
        }
    }
    let mut listeners: Vec<_> = found.into_iter().flatten().collect();
    if let Err(error) = bound {
        if start == Start::Ordinary {
            return Err(error);
        }
        tracing::error!("{error:#}; what was listened on before stays in its place");
        listeners.extend(given_up.iter().filter_map(|address| listen_on(*address, patience).ok()));
    }
    Ok(listeners)
}

/// Where to listen.
struct Wanted {
    addresses: Vec<SocketAddr>,
    /// Nobody named them, so a host without IPv6 is fine.
    is_default: bool,
}

impl Wanted {
    fn of(config: &Config) -> Self {
        if !config.listen.is_empty() {
            return Self { addresses: config.listen.clone(), is_default: false };
        }
        let port = if rustix::process::geteuid().is_root() { NFS_PORT } else { USER_NFS_PORT };
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Self { addresses: any.map(|ip| SocketAddr::new(ip, port)).to_vec(), is_default: true }
    }
}

/// For each address the socket that is there for it, and the sockets that are for none.
fn sort(wanted: &[SocketAddr], present: Vec<TcpListener>) -> (Vec<Option<TcpListener>>, Vec<TcpListener>) {
    let mut found: Vec<_> = wanted.iter().map(|_| None).collect();
    let mut left = Vec::new();
    for listener in present {
        let at = listener.local_addr();
        let mut places = found.iter_mut().zip(wanted);
        let place = places.find(|(place, address)| {
            place.is_none() && at.as_ref().is_ok_and(|at| is_asked_for(**address, *at))
        });
        match place {
            Some((place, _)) => *place = Some(listener),
            None => left.push(listener),
        }
    }
    (found, left)
}

/// Whether a socket that listens at `at` is what `address` asks for; port 0 asks for any.
fn is_asked_for(address: SocketAddr, at: SocketAddr) -> bool {
    at == address || address.port() == 0 && at.ip() == address.ip()
}

fn listen_on(address: SocketAddr, patience: Duration) -> Result<TcpListener> {
    let until = Instant::now() + patience;
    loop {
        match holdfast_rpc::server::listen(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            other => {
                return other.with_context(|| {
                    format!("cannot listen on {address}: choose another with --listen ADDR:PORT")
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &[SocketAddr]) -> Config {
        Config { listen: listen.to_vec(), ..Config::default() }
    }

    fn at(listeners: &[TcpListener]) -> Vec<SocketAddr> {
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
    }

    fn before(address: &str) -> (TcpListener, SocketAddr) {
        let listener = holdfast_rpc::server::listen(address.parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Of nobody (RFC 5737).
    fn unreachable() -> SocketAddr {
        "192.0.2.1:2049".parse().unwrap()
    }

    #[test]
    fn a_socket_that_is_there_is_used() {
        let (listener, address) = before("127.0.0.1:0");
        let any_port: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for wanted in [address, any_port] {
            let present = vec![listener.try_clone().unwrap()];
            assert_eq!(at(&listen(&config(&[wanted]), present, Start::Ordinary).unwrap()), [address]);
        }
    }

    #[test]
    fn a_socket_that_is_not_wanted_any_more_is_not_in_the_way_of_one_that_is() {
        let (listener, any) = before("0.0.0.0:0");
        let narrow = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), any.port());
        let listeners = listen(&config(&[narrow]), vec![listener], Start::InPlace).unwrap();
        assert_eq!(at(&listeners), [narrow]);
        assert_eq!(at(&listen(&config(&[any]), listeners, Start::InPlace).unwrap()), [any]);
    }

    #[test]
    fn one_that_is_given_up_late_is_waited_for() {
        let (listener, any) = before("0.0.0.0:0");
        let kept_elsewhere = listener.try_clone().unwrap();
        let narrow = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), any.port());
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(kept_elsewhere);
        });
        assert_eq!(at(&listen(&config(&[narrow]), vec![listener], Start::Ordinary).unwrap()), [narrow]);
        later.join().unwrap();
    }

    #[test]
    fn an_address_that_cannot_be_had_ends_a_start_and_never_a_handover() {
        let (listener, address) = before("127.0.0.1:0");
        let wanted = config(&[unreachable()]);
        assert!(listen(&wanted, Vec::new(), Start::Ordinary).is_err());
        assert_eq!(at(&listen(&wanted, vec![listener], Start::InPlace).unwrap()), [address]);
    }
}
