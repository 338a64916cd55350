//! The protocol: one JSON object a line in each direction (`docs/admin.md`). A connection may ask any number of
//! times, one after the other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::HoldingKind;

/// The version of the protocol spoken here.
pub const VERSION: u32 = 1;

/// A line of the asking side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The version; absent means [`VERSION`].
    #[serde(default = "version", rename = "v")]
    pub version: u32,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

const fn version() -> u32 {
    VERSION
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// How the server is: [`crate::report::Status`].
    Status,
    /// Who its clients are: a page of [`crate::report::Client`].
    Clients(ClientsWanted),
    /// Who holds what: a page of [`crate::report::Holding`].
    Locks(LocksWanted),
    /// Takes everything from clients and forgets them: [`crate::report::Taken`].
    Revoke {
        /// Which: an id, a name or an address.
        client: String,
    },
    /// Takes some of what clients hold: [`crate::report::Taken`].
    Release(Which),
    /// Reads the configuration again: [`crate::report::Reloaded`].
    Reload,
    /// Hands over to the program that is installed now: [`crate::report::Upgrading`].
    Upgrade,
    /// Drops what can be read again from caches; `null`.
    DropCaches,
    /// Ends the grace period: who has not reclaimed loses what it had; `null`.
    EndGrace,
    /// Tells, and sets when given, what is logged: [`crate::report::LogLevels`].
    Log {
        /// Levels as `--log` takes them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        levels: Option<String>,
    },
    /// What was done, by operation, client and export: [`crate::report::Counters`].
    Counters,
    /// The same and more as Prometheus reads it: a string.
    Metrics,
}

/// Which clients to tell of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsWanted {
    /// Those with this id, name or address; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Where to go on: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Which holdings to tell of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksWanted {
    /// Which; all when it names nothing.
    #[serde(flatten)]
    pub which: Which,
    /// Where to go on: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A choice of holdings: those that every given field names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// This one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Of clients with this id, name or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// On this file, or on anything below this directory, as this host sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// On this export, by its path for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Of these kinds; none given: all but capabilities for a list, locks and shares for a release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<HoldingKind>,
}

impl Which {
    /// Whether it names nothing but kinds.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.id.is_none() && self.client.is_none() && self.path.is_none() && self.export.is_none()
    }
}

/// A line of the answering side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The version.
    #[serde(rename = "v")]
    pub version: u32,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The answer.
    Ok(Value),
    /// Why there is none.
    Error(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
}

/// Why a request was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It is no request of this protocol.
    BadRequest,
    /// It is of a version that is not spoken here.
    BadVersion,
    /// Nothing there is meant by it.
    NotFound,
    /// This server cannot do it as it was started.
    NotPossible,
    /// It was tried and failed.
    Failed,
    /// Too many ask at once.
    Busy,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Reads a request.
///
/// # Errors
/// What is wrong with it, as the answer says it.
pub fn decode(line: &[u8]) -> Result<Request, Refusal> {
    let bad = |e: serde_json::Error| Refusal::new(Code::BadRequest, format!("no request: {e}"));
    // The version is looked at first: what else is there may be of another.
    let value: Value = serde_json::from_slice(line).map_err(bad)?;
    match value.get("v").map(Value::as_u64) {
        None => {}
        Some(Some(v)) if v == u64::from(VERSION) => {}
        Some(_) => {
            return Err(Refusal::new(Code::BadVersion, format!("version {VERSION} is spoken here")));
        }
    }
    serde_json::from_value::<Call>(value).map(|call| call.request).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_the_documentation_writes_them() {
        for (text, request) in [
            (r#"{"ask":"status"}"#, Request::Status),
            (r#"{"v":1,"ask":"clients"}"#, Request::Clients(ClientsWanted::default())),
            (
                r#"{"ask":"locks","path":"/srv/a","kinds":["lock","delegation"]}"#,
                Request::Locks(LocksWanted {
                    which: Which {
                        path: Some("/srv/a".into()),
                        kinds: vec![HoldingKind::Lock, HoldingKind::Delegation],
                        ..Which::default()
                    },
                    after: None,
                }),
            ),
            (r#"{"ask":"revoke","client":"192.0.2.7"}"#, Request::Revoke { client: "192.0.2.7".into() }),
            (r#"{"ask":"reload"}"#, Request::Reload),
            (r#"{"ask":"log","levels":"debug"}"#, Request::Log { levels: Some("debug".into()) }),
            (r#"{"ask":"drop_caches"}"#, Request::DropCaches),
            (r#"{"ask":"end_grace"}"#, Request::EndGrace),
        ] {
            assert_eq!(decode(text.as_bytes()).unwrap(), request, "{text}");
            let again = serde_json::to_vec(&Call { version: VERSION, request: request.clone() }).unwrap();
            assert_eq!(decode(&again).unwrap(), request);
        }
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        for (text, code) in [
            ("", Code::BadRequest),
            ("{}", Code::BadRequest),
            (r#"{"ask":"fly"}"#, Code::BadRequest),
            (r#"{"v":2,"ask":"status"}"#, Code::BadVersion),
            (r#"{"v":"one","ask":"status"}"#, Code::BadVersion),
            (r#"{"ask":"revoke"}"#, Code::BadRequest),
            ("[1]", Code::BadRequest),
        ] {
            assert_eq!(decode(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
    }
}
