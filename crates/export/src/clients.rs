//! Which hosts an export admits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address with the number of leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// A network that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address or network: write for instance 192.0.2.7, 192.0.2.0/24, 2001:db8::/32, or \"all\""
)]
pub struct NetworkParseError {
    text: String,
}

impl Network {
    /// The network of `bits` leading bits of `address`; `None` when it has not as many.
    #[must_use]
    pub const fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let max = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        match address.to_canonical() {
            _ if bits > max => None,
            // Of an IPv4 address mapped into IPv6 the first 96 bits are the mapping.
            IpAddr::V4(v4) if address.is_ipv6() => {
                if bits < 96 {
                    None
                } else {
                    Some(Self { address: IpAddr::V4(v4), bits: bits - 96 })
                }
            }
            canonical => Some(Self { address: canonical, bits }),
        }
    }

    /// Whether the address lies in it. IPv4 addresses mapped into IPv6 count as IPv4.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same_prefix(&a.octets(), &b.octets(), self.bits),
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(&a.octets(), &b.octets(), self.bits),
            _ => false,
        }
    }
}

fn same_prefix(a: &[u8], b: &[u8], bits: u8) -> bool {
    let (whole, rest) = (usize::from(bits / 8), bits % 8);
    if a[..whole] != b[..whole] {
        return false;
    }
    let mask = !(0xff_u16 >> rest) as u8;
    rest == 0 || (a[whole] & mask) == (b[whole] & mask)
}

impl FromStr for Network {
    type Err = NetworkParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (address, bits) = match text.split_once('/') {
                Some((address, bits)) => (address, Some(bits.parse().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let all = if address.is_ipv4() { 32 } else { 128 };
            Self::new(address, bits.unwrap_or(all))
        };
        parse().ok_or_else(|| NetworkParseError { text: text.to_owned() })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// One line of an export's list of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRule {
    /// Every host.
    All,
    /// The hosts of a network.
    Network(Network),
}

impl ClientRule {
    /// The rules that admit processes of this host over the loopback addresses, and nobody else.
    #[must_use]
    pub fn this_host() -> Vec<Self> {
        let loopback4 = Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 };
        let loopback6 = Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 };
        vec![Self::Network(loopback4), Self::Network(loopback6)]
    }

    /// Whether the rule admits the host.
    #[must_use]
    pub fn matches(&self, peer: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => network.contains(peer),
        }
    }
}

impl FromStr for ClientRule {
    type Err = NetworkParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::Network) }
    }
}

impl fmt::Display for ClientRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_of_both_families_match_by_prefix() {
        assert!(contains("10.1.2.0/23", "10.1.3.255"));
        assert!(!contains("10.1.2.0/23", "10.1.4.0"));
        assert!(contains("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!contains("2001:db8::/33", "2001:db8:8000::1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "::1"));
    }

    #[test]
    fn mapped_addresses_count_as_ipv4() {
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.9"));
    }

    #[test]
    fn a_mapped_network_counts_its_bits_from_the_mapping() {
        assert!(contains("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert!("::ffff:10.0.0.0/95".parse::<Network>().is_err());
    }

    #[test]
    fn nonsense_is_refused_with_the_text_in_the_message() {
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.1/"] {
            let e = bad.parse::<ClientRule>().unwrap_err();
            assert!(e.to_string().contains(&format!("{bad:?}")), "{e}");
        }
    }

    #[test]
    fn this_host_is_loopback_only() {
        let rules = ClientRule::this_host();
        let admits = |a: &str| rules.iter().any(|r| r.matches(a.parse().unwrap()));
        assert!(admits("127.0.0.1") && admits("::1") && admits("127.9.9.9"));
        assert!(!admits("10.0.0.1") && !admits("fe80::1"));
    }
}
