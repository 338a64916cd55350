//! The JSON of answers, word by word: programs of others read it, and fields may be added and nothing else.

use holdfast_admin::report::*;
use serde::Serialize;
use serde_json::{Value, json};

/// All fields of a value, in the order in which they are sent.
fn words(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap();
    let Value::Object(fields) = serde_json::from_str(&text).unwrap() else { panic!("no object: {text}") };
    // A map of this library may be sorted; where a field stands in the text is where it is sent.
    let mut names: Vec<_> = fields.keys().collect();
    names.sort_by_key(|name| text.find(&format!("\"{name}\":")));
    names.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_lock_is_told_in_these_words() {
    let held = Holding {
        id: "1-2".into(),
        kind: HoldingKind::Lock,
        client: "00000001".into(),
        client_name: "Linux NFSv4.2 box".into(),
        addresses: vec!["192.0.2.1:700".into()],
        protocol: "NFSv4.1+".into(),
        is_courteous: false,
        export: Some("/data".into()),
        path: Some("/srv/data/a".into()),
        is_deleted: false,
        file: "ff".into(),
        owner: None,
        since_unix_ms: Some(1000),
        access: None,
        deny: None,
        ranges: vec![
            Range { kind: "read".into(), first: 0, last: Some(9) },
            Range { kind: "write".into(), first: 10, last: None },
        ],
        recalled_unix_ms: None,
        is_revoked: true,
    };
    let told = json!({
        "id": "1-2", "kind": "lock", "client": "00000001", "client_name": "Linux NFSv4.2 box",
        "addresses": ["192.0.2.1:700"], "protocol": "NFSv4.1+", "is_courteous": false, "export": "/data",
        "path": "/srv/data/a", "is_deleted": false, "file": "ff", "owner": null, "since_unix_ms": 1000,
        "access": null, "deny": null,
        "ranges": [{"kind": "read", "first": 0, "last": 9}, {"kind": "write", "first": 10, "last": null}],
        "recalled_unix_ms": null, "is_revoked": true,
    });
    assert_eq!(
        serde_json::to_value(Page { rows: vec![held], next: None }).unwrap(),
        json!({"rows": [told], "next": null})
    );
    let kinds = [
        HoldingKind::Open,
        HoldingKind::Lock,
        HoldingKind::Delegation,
        HoldingKind::Share,
        HoldingKind::Waiting,
        HoldingKind::Capability,
    ];
    assert_eq!(
        serde_json::to_value(kinds).unwrap(),
        json!(["open", "lock", "delegation", "share", "waiting", "capability"])
    );
}

#[test]
fn every_answer_has_these_fields() {
    assert_eq!(
        words(&Client::default()),
        "id protocol name addresses is_confirmed is_courteous idle_ms lease_left_ms back_channel sessions opens locks \
         delegations recalled capabilities capabilities_recalled revoked"
    );
    assert_eq!(
        words(&Status::default()),
        "version pid run instance started_unix_ms uptime_ms state_dir listen metrics lease_ms grace exports connections \
         connections_max totals rates state events fills memory process"
    );
    assert_eq!(words(&GraceStatus::default()), "is_active ends_in_ms reason awaited awaited_count");
    assert_eq!(words(&ExportStatus::default()), "id path source rules");
    assert_eq!(words(&Totals::default()), "operations errors received_bytes sent_bytes");
    assert_eq!(words(&RateStatus::default()), "seconds operations received_bytes sent_bytes");
    assert_eq!(words(&Count::default()), "name count");
    assert_eq!(words(&Fill::default()), "name used max");
    assert_eq!(
        words(&MemoryStatus::default()),
        "total_bytes available_bytes short_below_bytes is_short bound shortages"
    );
    assert_eq!(
        words(&ProcessStatus::default()),
        "resident_bytes resident_peak_bytes descriptors descriptors_max threads cpu_ms"
    );
    assert_eq!(words(&Taken::default()), "clients holdings");
    assert_eq!(words(&Reloaded::default()), "file exports needs_restart");
    assert_eq!(words(&Upgrading::default()), "instance");
    assert_eq!(words(&LogLevels::default()), "levels");
    assert_eq!(words(&Counters::default()), "at_unix_ms operations clients exports");
    assert_eq!(words(&OperationCounters::default()), "protocol name count errors p50_ns p99_ns mean_ns");
    assert_eq!(
        words(&GroupCounters::default()),
        "name known_as read write look change state errors received_bytes sent_bytes"
    );
}
