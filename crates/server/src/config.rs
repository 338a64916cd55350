//! The configuration file: TOML, every key optional but an export's `source`, unknown keys refused. What each
//! key means, its default and range stand in `docs/config.md`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use holdfast_base::limits::EXPORT_LOCATIONS_MAX;
use holdfast_export::{ANONYMOUS_ID, ClientRule, ExportOptions, LocalUse, Location, Squash};
use holdfast_state::Directories;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::source::{Share, Source, parse_export_path};

/// Shortest and longest lease in seconds: below, clients spend their time renewing; above, a dead client's
/// locks stand in everybody's way for an hour.
pub const LEASE_SECONDS: std::ops::RangeInclusive<u32> = 1..=3600;

/// A configuration file's content.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Addresses to listen on for NFS.
    #[serde(default, deserialize_with = "addresses")]
    pub listen: Vec<SocketAddr>,
    /// Where records that must outlive the server are kept.
    pub state_dir: Option<PathBuf>,
    /// Lease and grace period in seconds.
    #[serde(default, deserialize_with = "lease")]
    pub lease: Option<u32>,
    /// The domain of owners' names in NFSv4; without one they are numbers.
    #[serde(default, deserialize_with = "domain")]
    pub domain: Option<String>,
    /// The file with the key that signs file handles; the state directory's own when not set.
    pub handle_key: Option<PathBuf>,
    /// Whether to register with rpcbind when one runs.
    pub rpcbind: Option<bool>,
    /// Which directories are delegated to NFSv4 clients.
    #[serde(default)]
    pub directory_delegations: Directories,
    /// Whether NFSv4 clients that hold directory delegations are told of changes (CB_NOTIFY) when they ask for it.
    #[serde(default)]
    pub directory_notifications: bool,
    /// Whether Holdfast mounts may use the caps program: capabilities and batches. They may unless this is false.
    pub caps: Option<bool>,
    /// Whether Holdfast mounts of this host are handed descriptors. They are unless this is false.
    pub same_host: Option<bool>,
    /// Below which directory `proc` and `sys` tell how much memory there is; `/` unless a test says otherwise.
    #[doc(hidden)]
    #[serde(skip)]
    pub memory_told_below: Option<PathBuf>,
    /// Metrics over HTTP.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// The exports.
    #[serde(default, rename = "export")]
    pub exports: Vec<ExportConfig>,
}

/// `[metrics]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where Prometheus finds them; nowhere when not set.
    #[serde(default, deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
}

/// One `[[export]]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The file that it stands in; none when it was named on the command line. For messages.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// What is served.
    #[serde(deserialize_with = "parsed")]
    pub source: Source,
    /// The path it is exported as.
    #[serde(default, deserialize_with = "export_path")]
    pub path: Option<Vec<Vec<u8>>>,
    /// Its number in file handles, from 1; derived from the path when not set.
    pub id: Option<std::num::NonZeroU16>,
    /// Refuse every change.
    #[serde(default)]
    pub read_only: bool,
    /// `root`, `none` or `all`.
    #[serde(default, deserialize_with = "squash")]
    pub squash: Squash,
    /// User id of the anonymous.
    #[serde(default = "anonymous")]
    pub anonymous_uid: u32,
    /// Group id of the anonymous.
    #[serde(default = "anonymous")]
    pub anonymous_gid: u32,
    /// Addresses and networks, or `all`.
    #[serde(default, deserialize_with = "rules")]
    pub clients: Option<Vec<ClientRule>>,
    /// Whether stable means on disk.
    #[serde(default = "yes")]
    pub sync: bool,
    /// `none`, `lazy` or `strict`.
    #[serde(default, deserialize_with = "local_use")]
    pub local: LocalUse,
    /// Whether source ports of 1024 and above are accepted.
    #[serde(default = "yes")]
    pub high_ports: bool,
    /// Whether groups always come from the server's own user database.
    #[serde(default)]
    pub server_groups: bool,
    /// Other servers of the same files, for clients to go to when this one is away.
    #[serde(default, deserialize_with = "locations")]
    pub replicas: Vec<Location>,
    /// Servers of these files instead of this one.
    #[serde(default, deserialize_with = "locations")]
    pub moved_to: Vec<Location>,
}

/// Why a configuration cannot be used; the message names the file and, where there is one, the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is no such configuration.
    #[error("{}: {error}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: toml::de::Error,
    },
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        let parsed = toml::from_str::<Self>(&text);
        let mut config = parsed.map_err(|error| ConfigError::Parse { path: path.to_owned(), error })?;
        config.exports.iter_mut().for_each(|export| export.file = Some(path.to_owned()));
        Ok(config)
    }

    /// The keys of the server itself that this file sets otherwise than the one served now: they count from the next
    /// start on. What the file does not set may have come from the command line.
    pub(crate) fn needs_restart(&self, served: &Self) -> Vec<&'static str> {
        let changed = [
            ("listen", !self.listen.is_empty() && self.listen != served.listen),
            ("state_dir", self.state_dir.is_some() && self.state_dir != served.state_dir),
            ("lease", self.lease.is_some() && self.lease != served.lease),
            ("domain", self.domain != served.domain),
            ("handle_key", self.handle_key != served.handle_key),
            ("caps", self.caps != served.caps),
            ("same_host", self.same_host != served.same_host),
            ("directory_delegations", self.directory_delegations != served.directory_delegations),
            ("directory_notifications", self.directory_notifications != served.directory_notifications),
            ("metrics.listen", self.metrics != served.metrics),
            ("rpcbind", self.rpcbind.is_some() && self.rpcbind != served.rpcbind),
        ];
        changed.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key)).collect()
    }
}

/// Reads a key that signs file handles: 32 hexadecimal digits.
///
/// # Errors
/// What is wrong with the file, and the way out.
pub(crate) fn read_handle_key(file: &Path) -> anyhow::Result<[u8; 16]> {
    let text = std::fs::read_to_string(file).with_context(|| format!("handle_key {}", file.display()))?;
    let number = (text.trim().len() == 32 && !text.contains('+'))
        .then(|| u128::from_str_radix(text.trim(), 16).ok())
        .flatten();
    let number = number.with_context(|| {
        let way = "write 32 hexadecimal digits, made by `head -c 16 /dev/urandom | xxd -p`";
        format!("handle_key {}: it has no key: {way}", file.display())
    })?;
    Ok(number.to_be_bytes())
}

impl ExportConfig {
    /// An export of the command line, under the options given there.
    #[must_use]
    pub fn from_share(share: Share, options: &ExportOptions) -> Self {
        Self {
            file: None,
            source: share.source,
            path: share.path,
            id: None,
            read_only: options.is_read_only,
            squash: options.squash,
            anonymous_uid: options.anonymous_uid,
            anonymous_gid: options.anonymous_gid,
            clients: Some(options.clients.clone()),
            sync: options.is_sync,
            local: options.local,
            high_ports: options.accepts_high_ports,
            server_groups: options.looks_up_groups,
            replicas: options.replicas.clone(),
            moved_to: options.moved_to.clone(),
        }
    }

    /// Its rules.
    #[must_use]
    pub fn options(&self) -> ExportOptions {
        ExportOptions {
            is_read_only: self.read_only,
            squash: self.squash,
            anonymous_uid: self.anonymous_uid,
            anonymous_gid: self.anonymous_gid,
            clients: self.clients.clone().unwrap_or_else(ClientRule::this_host),
            is_sync: self.sync,
            local: self.local,
            accepts_high_ports: self.high_ports,
            looks_up_groups: self.server_groups,
            replicas: self.replicas.clone(),
            moved_to: self.moved_to.clone(),
        }
    }
}

/// Reads an address and port to listen on.
///
/// # Errors
/// What it should look like.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is no IP address and port: write for instance 127.0.0.1:2049, 0.0.0.0:2049 or [::]:2049"
        )
    })
}

const fn yes() -> bool {
    true
}

const fn anonymous() -> u32 {
    ANONYMOUS_ID
}

fn parsed<'de, D: Deserializer<'de>, T: std::str::FromStr<Err: std::fmt::Display>>(
    d: D,
) -> Result<T, D::Error> {
    String::deserialize(d)?.parse().map_err(D::Error::custom)
}

fn addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    texts.iter().map(|text| parse_listen(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<SocketAddr>, D::Error> {
    parse_listen(&String::deserialize(d)?).map(Some).map_err(D::Error::custom)
}

fn export_path<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Vec<u8>>>, D::Error> {
    parse_export_path(&String::deserialize(d)?).map(Some).map_err(D::Error::custom)
}

fn rules<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<ClientRule>>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    texts.iter().map(|t| t.parse()).collect::<Result<_, _>>().map(Some).map_err(D::Error::custom)
}

fn locations<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Location>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    if texts.len() > EXPORT_LOCATIONS_MAX {
        return Err(D::Error::custom(format!("{} places: {EXPORT_LOCATIONS_MAX} at most", texts.len())));
    }
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn lease<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let seconds = u32::deserialize(d)?;
    if LEASE_SECONDS.contains(&seconds) {
        return Ok(Some(seconds));
    }
    let (low, high) = LEASE_SECONDS.into_inner();
    Err(D::Error::custom(format!("a lease of {seconds} seconds: choose {low} to {high}")))
}

fn domain<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(d)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if (1..=253).contains(&text.len()) && text.chars().all(is_name) {
        return Ok(Some(text));
    }
    Err(D::Error::custom(format!("{text:?} is no domain: write for instance \"example.org\"")))
}

fn squash<'de, D: Deserializer<'de>>(d: D) -> Result<Squash, D::Error> {
    let text = String::deserialize(d)?;
    parse_squash(&text)
        .ok_or_else(|| D::Error::custom(format!("{text:?}: write \"root\", \"none\" or \"all\"")))
}

fn local_use<'de, D: Deserializer<'de>>(d: D) -> Result<LocalUse, D::Error> {
    let text = String::deserialize(d)?;
    parse_local(&text)
        .ok_or_else(|| D::Error::custom(format!("{text:?}: write \"none\", \"lazy\" or \"strict\"")))
}

/// The squash rule of this name.
#[must_use]
pub(crate) fn parse_squash(text: &str) -> Option<Squash> {
    match text {
        "root" => Some(Squash::Root),
        "none" => Some(Squash::None),
        "all" => Some(Squash::All),
        _ => None,
    }
}

/// The local use of this name.
#[must_use]
pub(crate) fn parse_local(text: &str) -> Option<LocalUse> {
    match text {
        "none" => Some(LocalUse::None),
        "lazy" => Some(LocalUse::Lazy),
        "strict" => Some(LocalUse::Strict),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn an_export_needs_only_its_source() {
        let config = parse("[[export]]\nsource = \"/srv\"").unwrap();
        let export = &config.exports[0];
        assert_eq!(export.options(), ExportOptions::default());
        assert_eq!(export.source, Source::Directory("/srv".into()));
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"
            listen = ["127.0.0.1:2049", "[::1]:2049"]
            state_dir = "/var/lib/h"
            lease = 90
            rpcbind = false
            domain = "example.org"
            handle_key = "/etc/holdfast/handle.key"
            [metrics]
            listen = "127.0.0.1:9049"
            [[export]]
            source = "/srv/data"
            path = "/pub/data"
            id = 7
            read_only = true
            squash = "all"
            anonymous_uid = 1
            anonymous_gid = 2
            clients = ["10.0.0.0/8", "2001:db8::1"]
            sync = false
            local = "strict"
            high_ports = false
            server_groups = true
            replicas = ["192.0.2.7:20490", "files.example.org:/other"]
            moved_to = ["192.0.2.8"]
        "#;
        let config = parse(text).unwrap();
        assert_eq!((config.listen.len(), config.lease, config.rpcbind), (2, Some(90), Some(false)));
        assert_eq!(config.handle_key.as_deref(), Some(Path::new("/etc/holdfast/handle.key")));
        assert_eq!(config.metrics.listen, "127.0.0.1:9049".parse().ok());
        let options = config.exports[0].options();
        assert!(
            options.is_read_only
                && !options.is_sync
                && !options.accepts_high_ports
                && options.looks_up_groups
        );
        assert_eq!(
            (options.squash, options.local, options.clients.len()),
            (Squash::All, LocalUse::Strict, 2)
        );
        let shown = |all: &[Location]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&options.replicas), ["192.0.2.7:20490", "files.example.org:/other"]);
        assert_eq!(shown(&options.moved_to), ["192.0.2.8"]);
    }

    #[test]
    fn errors_name_the_key_and_the_way_out() {
        for (text, says) in [
            ("lease = 0", "choose 1 to 3600"),
            ("lease = 3601", "choose 1 to 3600"),
            ("domain = \"a b\"", "is no domain"),
            ("domain = \"\"", "is no domain"),
            ("leese = 5", "unknown field `leese`"),
            ("[[export]]\nsource = \"/a\"\nsquash = \"some\"", "write \"root\""),
            ("[[export]]\nsource = \"/a\"\nclients = [\"host\"]", "no address or network"),
            ("[[export]]\nsource = \"/a\"\npath = \"b\"", "no export path"),
            ("[[export]]\nsource = \"/a\"\nid = 0", "nonzero"),
            ("[[export]]\nsource = \"/a\"\nreplicas = [\"a b\"]", "is no place of an export"),
            ("[[export]]\nsource = \"/a\"\nmoved_to = [\"name:99\"]", "write its address"),
            ("[[export]]\npath = \"/a\"", "missing field `source`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn keys_that_a_reload_cannot_change_are_named() {
        let served = parse("lease = 60\nlisten = [\"127.0.0.1:1\"]").unwrap();
        let fresh = parse("lease = 90\ndomain = \"a.b\"").unwrap();
        assert_eq!(fresh.needs_restart(&served), ["lease", "domain"]);
        assert!(served.needs_restart(&served).is_empty());
    }

    #[test]
    fn which_directories_are_delegated_is_one_of_three_words() {
        assert_eq!(parse("").unwrap().directory_delegations, Directories::Unchanged);
        for (word, meant) in [
            ("unchanged", Directories::Unchanged),
            ("always", Directories::Always),
            ("never", Directories::Never),
        ] {
            let config = parse(&format!("directory_delegations = \"{word}\"")).unwrap();
            assert_eq!(config.directory_delegations, meant);
        }
        let error = parse("directory_delegations = \"some\"").unwrap_err();
        assert!(error.contains("`unchanged`, `always`, `never`"), "{error}");
    }

    #[test]
    fn an_export_has_as_many_places_as_are_allowed_and_none_more() {
        for key in ["replicas", "moved_to"] {
            let parsed = |count: usize| {
                let places = vec!["\"192.0.2.7\""; count].join(", ");
                let config = parse(&format!("[[export]]\nsource = \"/a\"\n{key} = [{places}]"))?;
                let options = config.exports[0].options();
                Ok::<_, String>(options.replicas.len() + options.moved_to.len())
            };
            assert_eq!(parsed(0), Ok(0));
            assert_eq!(parsed(EXPORT_LOCATIONS_MAX), Ok(EXPORT_LOCATIONS_MAX));
            let error = parsed(EXPORT_LOCATIONS_MAX + 1).unwrap_err();
            assert!(error.contains("8 at most"), "{error}");
        }
    }

    #[test]
    fn a_key_has_32_digits_no_less_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_handle_key(&file).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(read("000102030405060708090a0b0c0d0e0F\n"), Ok(std::array::from_fn(|n| n as u8)));
        for text in
            ["", "00", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), &format!("+{}", "0".repeat(31))]
        {
            let error = read(text);
            // A sign is no digit.
            assert!(error.is_err_and(|error| error.contains("32 hexadecimal digits")), "{text}");
        }
        assert!(read_handle_key(&dir.path().join("none")).is_err());
    }

    #[test]
    fn the_ends_of_the_lease_range_are_accepted() {
        assert_eq!(parse("lease = 1").unwrap().lease, Some(1));
        assert_eq!(parse("lease = 3600").unwrap().lease, Some(3600));
    }
}
