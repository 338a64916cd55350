//! Who on this machine wants to hear of whose restarts: the kernel's own NFSv3 client, when it finds our monitor
//! through our port mapper. Kept in memory: that client restarts when this machine does.

use std::net::IpAddr;

use holdfast_base::limits::NSM_MONITORS_MAX;
use holdfast_wire::nsm::{Mon, MonId, MyId, Status};
use holdfast_xdr::to_bytes;
use serde::{Deserialize, Serialize};

use crate::lockd::Lockd;
use crate::peers::PeerCall;

/// A host watched, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// The host watched.
    host: Vec<u8>,
    /// Whom to tell.
    program: u32,
    version: u32,
    procedure: u32,
    private: [u8; 16],
}

/// The hosts watched for others on this machine.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    pub(crate) watched: Vec<Watched>,
}

impl Watched {
    fn is_for(&self, my: &MyId<'_>) -> bool {
        (self.program, self.version, self.procedure) == (my.my_prog, my.my_vers, my.my_proc)
    }

    fn of(mon: &Mon<'_>) -> Self {
        let MonId { mon_name, my_id } = &mon.mon_id;
        Self {
            host: mon_name.to_vec(),
            program: my_id.my_prog,
            version: my_id.my_vers,
            procedure: my_id.my_proc,
            private: mon.private,
        }
    }
}

impl Monitors {
    /// Watches a host; false when too many are.
    pub(crate) fn watch(&mut self, mon: &Mon<'_>) -> bool {
        self.unwatch(&mon.mon_id);
        let has_room = self.watched.len() < NSM_MONITORS_MAX;
        if has_room {
            self.watched.push(Watched::of(mon));
        }
        has_room
    }

    pub(crate) fn unwatch(&mut self, id: &MonId<'_>) {
        self.watched.retain(|w| w.host != id.mon_name || !w.is_for(&id.my_id));
    }

    pub(crate) fn unwatch_all(&mut self, my: &MyId<'_>) {
        self.watched.retain(|w| !w.is_for(my));
    }

    pub(crate) fn watches(&self, host: &[u8]) -> bool {
        self.watched.iter().any(|w| w.host == host)
    }
}

impl Lockd {
    /// Tells those on this machine who have a host watched that it restarted. It may be watched by its name or by its
    /// address.
    pub(crate) fn tell_watchers(&self, ip: IpAddr, name: &[u8], state: i32) {
        let address = ip.to_string();
        let watched = self.monitors.lock().watched.clone();
        let is_meant = |w: &&Watched| w.host.eq_ignore_ascii_case(name) || w.host == address.as_bytes();
        for w in watched.iter().filter(is_meant) {
            let status = Status { mon_name: &w.host, state, private: w.private };
            let call = PeerCall {
                peer: std::net::Ipv4Addr::LOCALHOST.into(),
                from: std::net::Ipv4Addr::LOCALHOST.into(),
                program: w.program,
                version: w.version,
                procedure: w.procedure,
                args: to_bytes(&status),
            };
            self.parts.peers.call(call, Box::new(|_| ()));
        }
    }
}
