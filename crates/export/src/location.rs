//! Where else the same export lies, or where it has gone: what `fs_locations` tells (RFC 8881 section 11.9).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use holdfast_base::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};

/// The port of servers that name none.
const PORT: u16 = 2049;

/// One place of an export: a server, and the path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    server: Server,
    /// The same as here where there is none.
    path: Option<Vec<Vec<u8>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Server {
    At(SocketAddr),
    Named(String),
}

/// A place that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationParseError {
    /// It is none at all.
    #[error(
        "{0:?} is no place of an export: write for instance 192.0.2.7, files.example.org:/data or [2001:db8::1]:20490:/data"
    )]
    Senseless(String),
    /// A name with a port, which the protocol has no words for.
    #[error(
        "{0:?}: a server by its name has port 2049 (RFC 8881 section 11.9 has ports beside addresses alone): write its address"
    )]
    PortOfName(String),
}

impl Location {
    /// The server as clients are told it: a name, or a universal address, with its port where that is not 2049
    /// (RFC 5665 section 5.2.3.4).
    #[must_use]
    pub fn server(&self) -> String {
        match &self.server {
            Server::Named(name) => name.clone(),
            Server::At(at) if at.port() == PORT => at.ip().to_string(),
            Server::At(at) => format!("{}.{}.{}", at.ip(), at.port() >> 8, at.port() & 0xff),
        }
    }

    /// The path there; `own` is the export's path here.
    #[must_use]
    pub fn path<'a>(&'a self, own: &'a [Vec<u8>]) -> &'a [Vec<u8>] {
        self.path.as_deref().unwrap_or(own)
    }
}

impl FromStr for Location {
    type Err = LocationParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let senseless = || LocationParseError::Senseless(text.to_owned());
        let (server, path) = match text.find(":/") {
            Some(at) => (&text[..at], Some(path_of(&text[at + 1..]).ok_or_else(senseless)?)),
            None => (text, None),
        };
        Ok(Self { server: server_of(server, text)?, path })
    }
}

fn server_of(server: &str, whole: &str) -> Result<Server, LocationParseError> {
    let senseless = || LocationParseError::Senseless(whole.to_owned());
    let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(Server::At(SocketAddr::new(ip, PORT)));
    }
    if let Ok(at) = server.parse::<SocketAddr>() {
        return if at.port() == 0 { Err(senseless()) } else { Ok(Server::At(at)) };
    }
    let is_name = |name: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        (1..=ADDRESS_BYTES_MAX).contains(&name.len()) && name.chars().all(is_letter)
    };
    match server.rsplit_once(':') {
        Some((name, port)) if is_name(name) && port.parse::<u16>().is_ok() => {
            Err(LocationParseError::PortOfName(whole.to_owned()))
        }
        // Taken for a name, a wrong address would be looked up by clients for ever.
        None if is_name(server) && server.contains(|c: char| c.is_ascii_alphabetic()) => {
            Ok(Server::Named(server.to_owned()))
        }
        _ => Err(senseless()),
    }
}

fn path_of(text: &str) -> Option<Vec<Vec<u8>>> {
    let names: Vec<_> = text.split('/').filter(|name| !name.is_empty()).collect();
    let is_name = |name: &&str| name.len() <= NAME_BYTES_MAX && ![".", ".."].contains(name);
    let is_path = text.len() <= PATH_BYTES_MAX && names.iter().all(is_name);
    is_path.then(|| names.iter().map(|name| name.as_bytes().to_vec()).collect())
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Named(name) => f.write_str(name)?,
            Server::At(at) if at.port() == PORT => write!(f, "{}", at.ip())?,
            Server::At(at) => write!(f, "{at}")?,
        }
        let Some(path) = &self.path else { return Ok(()) };
        let names: Vec<_> = path.iter().map(|name| String::from_utf8_lossy(name)).collect();
        write!(f, ":/{}", names.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Result<Location, LocationParseError> {
        text.parse()
    }

    #[test]
    fn a_place_is_told_as_the_protocol_writes_it() {
        let own = [b"data".to_vec()];
        let told = |text: &str| {
            let of = location(text).unwrap();
            let path: Vec<_> = of.path(&own).iter().map(|n| String::from_utf8(n.clone()).unwrap()).collect();
            (of.server(), path.join("/"))
        };
        let is = |server: &str, path: &str| (server.to_owned(), path.to_owned());
        assert_eq!(told("192.0.2.7"), is("192.0.2.7", "data"));
        assert_eq!(told("192.0.2.7:2049:/"), is("192.0.2.7", ""));
        assert_eq!(told("192.0.2.7:20490:/a/b"), is("192.0.2.7.80.10", "a/b"));
        assert_eq!(told("[2001:db8::1]:20490"), is("2001:db8::1.80.10", "data"));
        assert_eq!(told("2001:db8::1"), is("2001:db8::1", "data"));
        assert_eq!(told("[2001:db8::1]:/x"), is("2001:db8::1", "x"));
        assert_eq!(told("files.example.org:/x"), is("files.example.org", "x"));
    }

    #[test]
    fn a_place_is_shown_as_it_was_written() {
        for text in ["192.0.2.7", "192.0.2.7:20490:/a/b", "[2001:db8::1]:20490", "files:/x", "files"] {
            assert_eq!(location(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_place_is_refused_with_the_way_out() {
        for text in ["", ":/x", "a b", "192.0.2.7:0", "192.0.2.7777", "1.2.3.4:99999", "a:/x/../y"] {
            assert_eq!(location(text), Err(LocationParseError::Senseless(text.to_owned())), "{text}");
        }
        let error = location("files.example.org:20490:/x").unwrap_err().to_string();
        assert!(error.contains("write its address"), "{error}");
    }
}
