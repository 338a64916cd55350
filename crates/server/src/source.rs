//! What to serve, as the command line and the configuration write it: `SOURCE[:/EXPORT]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an export's files live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of this host.
    Directory(PathBuf),
    /// Memory: gone when the server stops. For tests and demonstrations.
    Memory,
}

/// A source and the path it is exported as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// What is served.
    pub source: Source,
    /// The path's components below the pseudo-root; `None` to be named after the source's last component.
    pub path: Option<Vec<Vec<u8>>>,
}

/// Why a source or an export path cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Nothing was given.
    #[error(
        "an empty source: name a directory, for instance /srv/data, or /srv/data:/data to choose its name"
    )]
    Empty,
    /// A kind of source this build cannot serve.
    #[error("{0}: this build serves directories and mem: only")]
    UnknownKind(String),
    /// An export path that is none.
    #[error("{0:?} is no export path: it starts with / and has no empty, . or .. component")]
    BadPath(String),
}

/// The components of an export path.
///
/// # Errors
/// [`SourceError::BadPath`].
pub(crate) fn parse_export_path(text: &str) -> Result<Vec<Vec<u8>>, SourceError> {
    let bad = || SourceError::BadPath(text.to_owned());
    let below = text.strip_prefix('/').ok_or_else(bad)?;
    if below.is_empty() {
        return Ok(Vec::new());
    }
    let components = below.strip_suffix('/').unwrap_or(below).split('/');
    components
        .map(|c| match c {
            "" | "." | ".." => Err(bad()),
            c if c.len() > 255 || c.contains('\0') => Err(bad()),
            c => Ok(c.as_bytes().to_vec()),
        })
        .collect()
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err(SourceError::Empty),
            "mem:" => Ok(Self::Memory),
            _ if text.contains("://") || text.starts_with("mem:") => {
                Err(SourceError::UnknownKind(text.to_owned()))
            }
            _ => Ok(Self::Directory(PathBuf::from(text))),
        }
    }
}

impl FromStr for Share {
    type Err = SourceError;

    /// The last `:/` that is not the start of a URL's `://` parts source and path.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let split = text.rmatch_indices(":/").find(|(at, _)| !text[at + 1..].starts_with("//"));
        match split {
            Some((at, _)) => {
                Ok(Self { source: text[..at].parse()?, path: Some(parse_export_path(&text[at + 1..])?) })
            }
            None => Ok(Self { source: text.parse()?, path: None }),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Memory => f.write_str("mem:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> Result<Share, SourceError> {
        text.parse()
    }

    #[test]
    fn a_source_may_name_its_export_path() {
        let plain = share("/srv/data").unwrap();
        assert_eq!((plain.source, plain.path), (Source::Directory("/srv/data".into()), None));
        let named = share("/srv/data:/pub/data").unwrap();
        assert_eq!(named.path, Some(vec![b"pub".to_vec(), b"data".to_vec()]));
        assert_eq!(share("mem::/m").unwrap().source, Source::Memory);
        assert_eq!(share("./demo:/").unwrap().path, Some(Vec::new()));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_its_name() {
        assert_eq!(share(""), Err(SourceError::Empty));
        assert_eq!(share("ceph://fs/path"), Err(SourceError::UnknownKind("ceph://fs/path".into())));
        assert_eq!(share("/a:/b//c"), Err(SourceError::BadPath("/b//c".into())));
        assert_eq!(share("/a:/../c"), Err(SourceError::BadPath("/../c".into())));
    }
}
