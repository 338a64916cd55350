//! Which hosts hold locks, on stable storage: they are told of a restart, and may then reclaim.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::limits::NLM_NAME_BYTES_MAX;
use holdfast_store::{Batch, Flow, Store, StoreError};
use holdfast_xdr::{Reader, Writer};

use crate::names::HostName;

const HOSTS: &[u8] = b"nlm/";
/// The version of records of hosts that may reclaim.
const VERSION: u8 = 1;
/// That of hosts that are to be told of a restart and may reclaim nothing; the rest is the same.
const VERSION_OF_LOSERS: u8 = 2;

/// A host on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRecord {
    pub(crate) host: HostName,
    /// The address of ours that it knows: it is told of a restart from there.
    pub(crate) local: IpAddr,
    /// Something was taken from it that it may believe to hold: it may not reclaim.
    pub(crate) has_lost: bool,
}

fn address(w: &mut Writer, ip: IpAddr) {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    w.fixed(&ip.octets());
}

fn key_of(host: &HostName) -> Vec<u8> {
    let mut w = Writer::new();
    address(&mut w, host.ip);
    [HOSTS, w.as_slice(), &host.caller].concat()
}

impl HostRecord {
    fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put(&[if self.has_lost { VERSION_OF_LOSERS } else { VERSION }]);
        address(&mut w, self.host.ip);
        address(&mut w, self.local);
        w.opaque(&self.host.caller);
        w.into_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let has_lost = match *r.take(1).ok()?.first()? {
            VERSION => false,
            VERSION_OF_LOSERS => true,
            _ => return None,
        };
        let ip = IpAddr::from(r.array::<16>().ok()?).to_canonical();
        let local = IpAddr::from(r.array::<16>().ok()?).to_canonical();
        let caller = r.opaque(NLM_NAME_BYTES_MAX).ok()?.to_vec();
        r.finish().ok()?;
        Some(Self { host: HostName { ip, caller }, local, has_lost })
    }
}

/// The records in a store.
#[derive(Clone)]
pub(crate) struct HostRecords {
    store: Arc<dyn Store>,
}

impl HostRecords {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Stores a record; durable when this returns. Waits for the disk.
    pub(crate) fn keep(&self, record: &HostRecord) -> Result<(), StoreError> {
        self.store.put(&key_of(&record.host), &record.to_bytes())
    }

    /// Removes records. Waits for the disk.
    pub(crate) fn forget(&self, hosts: &[HostName]) -> Result<(), StoreError> {
        hosts.chunks(holdfast_base::limits::STORE_BATCH_CHANGES_MAX).try_for_each(|part| {
            let batch = part.iter().fold(Batch::new(), |batch, host| batch.delete(&key_of(host)));
            self.store.transaction(&batch)
        })
    }

    /// All that can be read. One that cannot costs its host the right to reclaim, and not everybody the server.
    pub(crate) fn all(&self) -> Result<Vec<HostRecord>, StoreError> {
        let mut all = Vec::new();
        self.store.scan(HOSTS, &mut |key, value| {
            match HostRecord::from_bytes(value) {
                Some(record) => all.push(record),
                None => {
                    tracing::error!(key = %key.escape_ascii(), "a record of a host with locks cannot be read");
                }
            }
            Flow::Continue
        })?;
        Ok(all)
    }
}

/// Whether hosts with NLM locks are on record: grace is then kept open for its whole time, for nothing tells when
/// they have reclaimed all.
///
/// # Errors
/// Those of the store.
pub fn has_holders(store: &dyn Store) -> Result<bool, StoreError> {
    let mut has = false;
    store.scan(HOSTS, &mut |_, _| {
        has = true;
        Flow::Stop
    })?;
    Ok(has)
}

#[cfg(test)]
mod tests {
    use holdfast_store::MemoryStore;

    use super::*;

    fn record() -> HostRecord {
        let host = HostName { ip: [192, 0, 2, 1].into(), caller: b"web".to_vec() };
        HostRecord { host, local: "2001:db8::1".parse().unwrap(), has_lost: false }
    }

    #[test]
    fn the_record_has_the_bytes_of_version_1_or_of_2_where_its_host_may_not_reclaim() {
        let mut bytes = vec![1];
        bytes.extend([0; 10]);
        bytes.extend([0xff, 0xff, 192, 0, 2, 1]);
        bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend([0, 0, 0, 3, b'w', b'e', b'b', 0]);
        assert_eq!(record().to_bytes(), bytes);
        assert_eq!(HostRecord::from_bytes(&bytes), Some(record()));
        assert_eq!(HostRecord::from_bytes(&bytes[1..]), None);
        let loser = HostRecord { has_lost: true, ..record() };
        bytes[0] = 2;
        assert_eq!(loser.to_bytes(), bytes);
        assert_eq!(HostRecord::from_bytes(&bytes), Some(loser));
        bytes[0] = 3;
        assert_eq!(HostRecord::from_bytes(&bytes), None);
    }

    #[test]
    fn what_is_kept_is_there_until_it_is_forgotten() {
        let store = Arc::new(MemoryStore::new());
        let records = HostRecords::new(store.clone());
        assert_eq!(has_holders(store.as_ref()), Ok(false));
        records.keep(&record()).unwrap();
        assert_eq!((records.all(), has_holders(store.as_ref())), (Ok(vec![record()]), Ok(true)));
        records.forget(&[record().host]).unwrap();
        assert_eq!((records.all(), has_holders(store.as_ref())), (Ok(vec![]), Ok(false)));
    }
}
