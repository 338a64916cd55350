//! How the server is: work, state, grace, memory.

use std::collections::HashMap;

use holdfast_admin::prometheus;
use holdfast_admin::report::{
    Count, Counters, ExportStatus, Fill, GraceStatus, GroupCounters, MemoryStatus, OperationCounters,
    RateStatus, STORED, Status, Totals,
};
use holdfast_admin::stats::{GroupSums, Reading, quantile};
use holdfast_base::limits;
use holdfast_state::Census;

use super::words::{text, unix_ms};
use super::{Admin, process};
use crate::exports::describe;
use crate::handover;
use crate::memory::Watched;

/// Names of awaited clients that are told.
const AWAITED_NAMES: usize = 10;

impl Admin {
    pub(super) fn report_status(&self) -> Status {
        let programs = &self.programs;
        let stats = &programs.tally().stats;
        let totals = stats.read().totals();
        // It walks all state: once is enough.
        let (census, open_files, lock_files) = programs.nfs4().census();
        let rates = stats.rates().map(|rate| RateStatus {
            seconds: rate.seconds,
            operations: rate.operations,
            received_bytes: rate.received,
            sent_bytes: rate.sent,
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            run: programs.epoch(),
            instance: self.instance.clone(),
            started_unix_ms: self.started_unix_ms,
            uptime_ms: unix_ms().saturating_sub(self.started_unix_ms),
            state_dir: self.state_dir.display().to_string(),
            listen: self.listen.iter().map(ToString::to_string).collect(),
            metrics: self.metrics.get().map(ToString::to_string),
            lease_ms: programs.manager().lease_ms(),
            grace: self.grace(),
            exports: self.exports(),
            connections: self.view.connections().len() as u64,
            connections_max: limits::CONNECTIONS_MAX as u64,
            totals: Totals {
                operations: totals.operations,
                errors: totals.errors,
                received_bytes: totals.received,
                sent_bytes: totals.sent,
            },
            rates: rates.to_vec(),
            state: self.state(&census, (open_files, lock_files)),
            events: self.events.counts(),
            fills: self.fills(&census, open_files + lock_files),
            memory: self.memory(),
            process: process::status(),
        }
    }

    fn memory(&self) -> Option<MemoryStatus> {
        let Watched { memory, bound, shortages } = self.programs.memory().watched()?;
        Some(MemoryStatus {
            total_bytes: memory.total,
            available_bytes: memory.available,
            short_below_bytes: memory.short_below(),
            is_short: memory.is_short(),
            bound: bound.to_string(),
            shortages,
        })
    }

    fn exports(&self) -> Vec<ExportStatus> {
        let sources = self.programs.sources();
        let exports = self.programs.namespace().exports();
        let status = |export: &std::sync::Arc<holdfast_export::Export>| ExportStatus {
            id: export.id.0,
            path: export.path_display(),
            source: sources.get(&export.id).cloned(),
            rules: describe(export).split_once("): ").map(|(_, rules)| rules.to_owned()).unwrap_or_default(),
        };
        exports.iter().map(status).collect()
    }

    fn grace(&self) -> GraceStatus {
        let grace = self.programs.durable().grace_report();
        if grace.is_over {
            return GraceStatus::default();
        }
        let now = self.programs.manager().clock().now();
        let ends_in_ms = grace.ends_at.map(|at| at.ms_since(now));
        let reason = match (grace.awaited.len(), grace.has_untold) {
            (0, true) => "clients of NFSv3 or NFSv4.0 may still reclaim, and cannot say that they are done",
            (0, false) => "it is about to end",
            (_, true) => {
                "clients have yet to reclaim; some of NFSv3 or NFSv4.0 cannot say that they are done"
            }
            (_, false) => "clients have yet to reclaim or to say that they are done",
        };
        GraceStatus {
            is_active: true,
            ends_in_ms,
            reason: Some(reason.to_owned()),
            awaited: grace.awaited.iter().take(AWAITED_NAMES).map(|name| text(name)).collect(),
            awaited_count: grace.awaited.len() as u64,
        }
    }

    fn state(&self, census: &Census, (open_files, lock_files): (usize, usize)) -> Vec<Count> {
        let (nlm_files, nlm_waiting) = self.programs.lockd().counts();
        [
            ("clients", census.clients),
            ("unconfirmed clients", census.clients_unconfirmed),
            ("courteous clients", census.courteous),
            ("sessions", census.sessions),
            ("owners", census.owners),
            ("opens", census.opens),
            ("lock states", census.locks),
            ("locked ranges", census.ranges),
            ("waiting locks", census.waiters),
            ("read delegations", census.delegations_read),
            ("write delegations", census.delegations_write),
            ("directory delegations", census.delegations_directory),
            ("delegations being recalled", census.recalls),
            ("delegations revoked and not yet freed", census.delegations_revoked),
            ("wanted delegations", census.wants),
            ("files", census.files),
            ("open files", open_files),
            ("lock files", lock_files),
            ("NLM owners and files", nlm_files),
            ("NLM requests waiting", nlm_waiting),
        ]
        .map(|(name, count)| Count::new(name, count))
        .to_vec()
    }

    fn fills(&self, census: &Census, nfs4_files: usize) -> Vec<Fill> {
        let replies = self.programs.replies();
        let stateids = census.opens + census.locks;
        let (held_bytes, held_bytes_max) = self.view.held_bytes();
        let fill = |name: String, used: usize, max: usize| Fill { name, used: used as u64, max: max as u64 };
        let (policy, in_use) = self.programs.manager().look(|engine| (*engine.policy(), engine.in_use()));
        let mut fills = vec![
            fill("stateids".to_owned(), stateids, policy.stateids_max),
            fill("delegations".to_owned(), in_use.delegations, policy.delegations_max),
            fill("slots".to_owned(), in_use.slots, policy.slots_max),
            fill("capabilities".to_owned(), in_use.capabilities, policy.capabilities_max),
            fill("clients known".to_owned(), census.clients, limits::CLIENTS_MAX),
            fill("replies kept".to_owned(), replies.len(), limits::REPLY_CACHE_ENTRIES_MAX),
            fill("bytes in transit".to_owned(), held_bytes, held_bytes_max),
        ];
        if let Some(max) = handover::places() {
            fills.push(fill(STORED.to_owned(), self.to_be_stored(census, nfs4_files), max));
        }
        for export in self.programs.namespace().exports() {
            if let Some((used, max)) = export.backend.cached() {
                fills.push(fill(format!("cached, {}", export.path_display()), used, max));
            }
        }
        fills
    }

    /// Descriptors that a restart by the service manager would leave with it, at most: some of those counted may be one. The
    /// image's and the state engine's files are among them.
    fn to_be_stored(&self, census: &Census, nfs4_files: usize) -> usize {
        let (nlm_files, _) = self.programs.lockd().counts();
        let delegations = census.delegations_read + census.delegations_write;
        self.listen.len() + self.view.connections().len() + nfs4_files + delegations + nlm_files + 2
    }

    pub(super) fn report_counters(&self) -> Counters {
        let Reading { operations, clients, other_clients, exports, no_export } =
            self.programs.tally().stats.read();
        let operations = operations.iter().filter(|(_, sums)| sums.count > 0).map(|(op, sums)| {
            let timed: u64 = sums.buckets.iter().sum();
            OperationCounters {
                protocol: op.protocol.to_owned(),
                name: op.name.to_owned(),
                count: sums.count,
                errors: sums.errors,
                p50_ns: quantile(&sums.buckets, 0.5),
                p99_ns: quantile(&sums.buckets, 0.99),
                mean_ns: sums.nanos.checked_div(timed).unwrap_or_default(),
            }
        });
        let known = self.known_addresses();
        let client = |(address, sums): &(std::net::IpAddr, GroupSums)| {
            let name = address.to_canonical().to_string();
            let known_as = known.get(&name).cloned().unwrap_or_default();
            group(name, known_as, sums)
        };
        let mut clients: Vec<_> = clients.iter().map(client).collect();
        if other_clients.operations() > 0 {
            clients.push(group("others".to_owned(), Vec::new(), &other_clients));
        }
        Counters {
            at_unix_ms: unix_ms(),
            operations: operations.collect(),
            clients,
            exports: self
                .named_exports(&exports, &no_export)
                .iter()
                .map(|(n, s)| group(n.clone(), Vec::new(), s))
                .collect(),
        }
    }

    /// Names of clients by address.
    fn known_addresses(&self) -> HashMap<String, Vec<String>> {
        let mut known: HashMap<String, Vec<String>> = HashMap::new();
        for client in self.all_clients() {
            for address in client.addresses {
                let names = known.entry(address).or_default();
                if !names.contains(&client.name) {
                    names.push(client.name.clone());
                }
            }
        }
        known
    }

    /// Counters by export's path. What was done nowhere is left out when there is nothing.
    fn named_exports(
        &self,
        exports: &[(holdfast_base::ExportId, GroupSums)],
        no_export: &GroupSums,
    ) -> Vec<(String, GroupSums)> {
        let served = self.programs.namespace().exports();
        let name = |id| {
            let export = served.iter().find(|export| export.id == id);
            // It was served before a reload.
            export.map_or_else(|| format!("export {id}"), |export| export.path_display())
        };
        let mut named: Vec<_> = exports.iter().map(|(id, sums)| (name(*id), *sums)).collect();
        if no_export.operations() > 0 {
            named.push(("none".to_owned(), *no_export));
        }
        named
    }

    pub(super) fn report_metrics(&self) -> String {
        let reading = self.programs.tally().stats.read();
        let mut out = prometheus::Text::default();
        prometheus::status(&mut out, &self.report_status());
        prometheus::operations(&mut out, &reading.operations);
        let others = ("others".to_owned(), reading.other_clients);
        let clients = reading.clients.iter().map(|(ip, sums)| (ip.to_canonical().to_string(), *sums));
        prometheus::groups(&mut out, "client", &clients.chain([others]).collect::<Vec<_>>());
        prometheus::groups(&mut out, "export", &self.named_exports(&reading.exports, &reading.no_export));
        out.finish()
    }
}

fn group(name: String, known_as: Vec<String>, sums: &GroupSums) -> GroupCounters {
    let [read, write, look, change, state] = sums.classes;
    GroupCounters {
        name,
        known_as,
        read,
        write,
        look,
        change,
        state,
        errors: sums.errors,
        received_bytes: sums.received,
        sent_bytes: sums.sent,
    }
}
