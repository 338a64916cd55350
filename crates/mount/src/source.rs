//! What is mounted: servers, and the export's path on them.

use std::fmt;
use std::str::FromStr;

/// The port of NFS where none is named.
pub const PORT_DEFAULT: u16 = 2049;

/// A server as it was named: a host name or address, and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerName {
    /// A name to be looked up, or an address; without the brackets of an IPv6 address.
    pub host: String,
    /// The port, where one was named.
    pub port: Option<u16>,
}

/// An export of a server: `SERVER[:PORT]:/EXPORT` or `nfs://SERVER[:PORT]/EXPORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The server.
    pub server: ServerName,
    /// The export's path from the server's pseudo-root: begins with `/`, has no empty, `.` or `..` component.
    pub export: String,
}

impl Source {
    /// The components of the export's path.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.export.split('/').filter(|name| !name.is_empty())
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bracketed = self.host.contains(':');
        match (is_bracketed, self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (true, None) => write!(f, "[{}]", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (false, None) => f.write_str(&self.host),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server, self.export)
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) =
                    rest.split_once(']').ok_or(format!("{text}: the bracket is not closed"))?;
                let port = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':').ok_or(format!("{text}: no port after the bracket"))?),
                };
                (host, port)
            }
            // An IPv6 address without brackets cannot carry a port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(['/', '[', ']', ' ']) {
            return Err(format!("{text}: no host name or address"));
        }
        let port = port.map(|port| port_of(port).ok_or(format!("{port}: no port number"))).transpose()?;
        Ok(Self { host: host.to_owned(), port })
    }
}

fn port_of(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write SERVER:/EXPORT, SERVER:PORT:/EXPORT or nfs://SERVER:PORT/EXPORT";
        let (server, export) = if let Some(rest) = text.strip_prefix("nfs://") {
            let cut = rest.find('/').unwrap_or(rest.len());
            (&rest[..cut], &rest[cut..])
        } else {
            // The path begins at the first ":/", which no host name and no port contain.
            let cut = text.find(":/").ok_or(format!("{text}: no export in it; {FORM}"))?;
            (&text[..cut], &text[cut + 1..])
        };
        let server = server.parse().map_err(|e| format!("{e}; {FORM}"))?;
        Ok(Self { server, export: normal_path(export)? })
    }
}

fn normal_path(path: &str) -> Result<String, String> {
    let mut normal = String::new();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            return Err(format!("{path}: \"..\" in an export's path"));
        }
        normal.push('/');
        normal.push_str(name);
    }
    Ok(if normal.is_empty() { "/".to_owned() } else { normal })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Option<u16>, String) {
        let source: Source = text.parse().unwrap();
        (source.server.host, source.server.port, source.export)
    }

    #[test]
    fn all_forms_of_a_source_are_understood() {
        let host = |h: &str, p, e: &str| (h.to_owned(), p, e.to_owned());
        assert_eq!(parsed("files:/data"), host("files", None, "/data"));
        assert_eq!(parsed("files:20490:/data//x/"), host("files", Some(20490), "/data/x"));
        assert_eq!(parsed("192.0.2.7:/"), host("192.0.2.7", None, "/"));
        assert_eq!(parsed("[2001:db8::1]:/a"), host("2001:db8::1", None, "/a"));
        assert_eq!(parsed("[2001:db8::1]:99:/a"), host("2001:db8::1", Some(99), "/a"));
        assert_eq!(parsed("2001:db8::1:/a"), host("2001:db8::1", None, "/a"));
        assert_eq!(parsed("nfs://files:2049/a/b"), host("files", Some(2049), "/a/b"));
        assert_eq!(parsed("nfs://files"), host("files", None, "/"));
    }

    #[test]
    fn what_is_no_source_is_refused_with_the_form_that_is_one() {
        for text in
            ["", "/data", "files", "files:data", ":/data", "files:0:/data", "files:99999:/x", "[::1:/x"]
        {
            let error = text.parse::<Source>().unwrap_err();
            assert!(error.contains("SERVER:/EXPORT"), "{text}: {error}");
        }
        assert!("files:/a/../b".parse::<Source>().is_err());
    }

    #[test]
    fn a_source_is_shown_as_it_can_be_read_again() {
        for text in ["files:/data", "files:20490:/data", "[2001:db8::1]:99:/a", "[::1]:/"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
    }
}
