//! Who the clients are: their records, the addresses they come from, and what chooses them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_admin::report::Client;
use holdfast_base::{ClientId, Instant};
use holdfast_nlm::OwnerFileReport;
use holdfast_state::ClientReport;
use rustc_hash::FxHashMap;

use super::Admin;
use super::words::{client_id, protocol, text};

/// Who is meant by an id, a name or an address.
pub(super) struct Chosen<'a> {
    text: &'a str,
    address: Option<IpAddr>,
}

impl<'a> Chosen<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text, address: text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()) }
    }

    pub(super) fn is(&self, client: &Client) -> bool {
        let address = self.address.map(|address| address.to_string());
        client.id == self.text
            || client.name == self.text
            || address.is_some_and(|address| client.addresses.contains(&address))
    }
}

impl Admin {
    /// All clients, those of NFSv4 by id and then those of NLM by host.
    pub(super) fn all_clients(&self) -> Vec<Client> {
        let addresses = self.addresses();
        let now = self.programs.manager().clock().now();
        let reports = self.programs.manager().look(|engine| engine.report_clients(now));
        let none = Vec::new();
        let lease_ms = self.programs.manager().lease_ms();
        let of_nfs4 = reports.iter().map(|report| Client {
            idle_ms: idle_ms(report, lease_ms, now),
            ..nfs4(report, addresses.get(&report.id).unwrap_or(&none))
        });
        let mut all: Vec<Client> = of_nfs4.collect();
        let mut hosts: BTreeMap<String, Client> = BTreeMap::new();
        for held in self.programs.lockd().report() {
            hosts.entry(nlm_id(&held)).or_insert_with(|| nlm(&held)).locks += 1;
        }
        all.extend(hosts.into_values());
        all
    }

    /// Where clients of NFSv4 come from: their sessions' connections.
    fn addresses(&self) -> FxHashMap<ClientId, Vec<IpAddr>> {
        let connections = self.view.connections();
        let peers: FxHashMap<u64, IpAddr> =
            connections.iter().map(|c| (c.id(), c.peer().ip().to_canonical())).collect();
        let mut of_client: FxHashMap<ClientId, Vec<IpAddr>> = FxHashMap::default();
        self.programs.manager().look(|engine| {
            for (_, session) in engine.sessions().iter() {
                let addresses = of_client.entry(session.client()).or_default();
                addresses.extend(session.connection_ids().filter_map(|id| peers.get(&id.0)));
            }
        });
        for addresses in of_client.values_mut() {
            addresses.sort_unstable();
            addresses.dedup();
        }
        of_client
    }
}

/// How long ago a client gave a sign of life: a lease began with it.
fn idle_ms(report: &ClientReport, lease_ms: u64, now: Instant) -> Option<u64> {
    match (report.lease_left_ms, report.courteous_since) {
        (Some(left), _) => Some(lease_ms.saturating_sub(left)),
        (None, Some(since)) => Some(lease_ms + now.ms_since(since)),
        (None, None) => None,
    }
}

fn nfs4(report: &ClientReport, addresses: &[IpAddr]) -> Client {
    let mut addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    // A client of 4.0 has no sessions that would know its connections, but tells where to call it.
    if let Some(callback) = report.callback.as_ref().and_then(holdfast_nfs4::callback_address) {
        addresses.push(callback.ip().to_canonical().to_string());
    }
    addresses.dedup();
    let back_channel = match (report.can_be_called, report.delegations) {
        (true, _) => "up",
        (false, 0) => "none",
        // Something was given to it once, over a channel that is not there now.
        (false, _) => "down",
    };
    Client {
        id: client_id(report.id),
        protocol: protocol(report.dialect).to_owned(),
        name: text(report.name.as_bytes()),
        addresses,
        is_confirmed: report.is_confirmed,
        is_courteous: report.courteous_since.is_some(),
        lease_left_ms: report.lease_left_ms,
        back_channel: back_channel.to_owned(),
        sessions: report.sessions as u64,
        opens: report.opens as u64,
        locks: report.locks as u64,
        delegations: report.delegations as u64,
        recalled: report.recalled as u64,
        capabilities: report.capabilities as u64,
        capabilities_recalled: report.capabilities_recalled as u64,
        revoked: report.revoked as u64,
        ..Client::default()
    }
}

pub(super) fn nlm_id(held: &OwnerFileReport) -> String {
    format!("nlm:{}@{}", text(&held.caller), held.ip.to_canonical())
}

pub(super) fn nlm(held: &OwnerFileReport) -> Client {
    Client {
        id: nlm_id(held),
        protocol: "NLM".to_owned(),
        name: text(&held.caller),
        addresses: vec![held.ip.to_canonical().to_string()],
        is_confirmed: true,
        back_channel: "none".to_owned(),
        ..Client::default()
    }
}
