//! File systems that moved (RFC 8881 section 11): where the server says that they are elsewhere, we go there.

use holdfast_wire::nfs4::{Attr, Bitmap4, FsLocations4};
use holdfast_xdr::Decode;

use crate::client::Inner;
use crate::compound::Compound;
use crate::exchange::Sending;
use crate::session::Lane;
use crate::{Cx, Handle, Result};

impl Inner {
    /// Asks where a file has gone, and tries the servers named from now on. False when the server does not say.
    pub(crate) fn follow(&self, cx: Cx<'_>, file: &Handle) -> bool {
        let Ok(found) = self.locations(cx, file) else { return false };
        let mut servers = self.servers.lock();
        let current = servers.named.get(servers.current).cloned();
        let mut named: Vec<_> = found.into_iter().filter(|name| Some(name) != current.as_ref()).collect();
        if named.is_empty() {
            return false;
        }
        tracing::info!(?named, "the file system has moved");
        let known = std::mem::take(&mut servers.named);
        named.extend(known.into_iter().filter(|name| Some(name) != current.as_ref()));
        // The one that sent us away comes last.
        named.extend(current);
        named.dedup();
        servers.named = named;
        servers.current = 0;
        drop(servers);
        self.links.close();
        self.todo.wake();
        true
    }

    fn locations(&self, cx: Cx<'_>, file: &Handle) -> Result<Vec<String>> {
        let (session, _) = self.gate.ready(cx.cancel, self.deadline())?;
        let mut compound = Compound::new();
        compound.put(file).attributes(Bitmap4::from(Attr::FsLocations));
        let how = Sending {
            auth: self.options.machine.encoded(),
            lane: Lane::Ordinary,
            is_cached: false,
            cancel: cx.cancel,
            deadline: self.deadline(),
            late: None,
        };
        let mut answer = self.exchange(&session, &compound, how).map_err(|_| crate::Error::Disconnected)?;
        answer.put()?;
        answer.attributes_as(|fattr| {
            let found = FsLocations4::decode(&mut holdfast_xdr::Reader::new(fattr.values))?;
            let servers = found.locations.iter().flat_map(|location| &location.servers);
            let names = servers.map(|server| String::from_utf8_lossy(server.name).into_owned());
            Ok(names.filter(|name| !name.is_empty()).collect())
        })
    }
}
