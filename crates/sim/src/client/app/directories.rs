//! Other clients' directories, looked at under a delegation: nobody changes their entries meanwhile.

use holdfast_wire::nfs4::*;

use super::{IN_DIRECTORY, Process, directory_name, root};
use crate::client::v4::Acted;
use crate::wire::Ops;

const NO_TIME: NfsTime4 = NfsTime4 { seconds: 0, nseconds: 0 };

impl Process {
    /// Asks for a delegation of a directory that another client changes.
    pub(super) async fn watch_directory(&self) {
        let client = &self.client;
        // All but the one that lies, which has none.
        let hosts = client.world.hosts() - 1;
        let host = (client.host + 1 + self.below(hosts as u64 - 1) as usize) % hosts;
        self.doing(format!("asks for a delegation of directory {host}"));
        let life = client.world.lives();
        let name = directory_name(host);
        client.world.oracles.reclaims(|reclaims| {
            reclaims.asks((client.host, client.starts));
            Ok(())
        });
        let ask = GetDirDelegation4Args {
            signal_deleg_avail: false,
            notification_types: Bitmap4::EMPTY,
            child_attr_delay: NO_TIME,
            dir_attr_delay: NO_TIME,
            child_attributes: Bitmap4::EMPTY,
            dir_attributes: Bitmap4::EMPTY,
        };
        let acted = client
            .act(|| {
                let [put, lookup] = root();
                let enter = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
                Some(Ops::new(&[put, lookup, enter, ArgOp::GetFh, ArgOp::GetDirDelegation(ask)]))
            })
            .await;
        let Some(Acted { mut reply, .. }) = acted else { return };
        let Some(()) = reply.skip(&IN_DIRECTORY) else { return };
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).map(|ok| ok.object.to_vec());
        let status = reply.status;
        match reply.next::<GetDirDelegation4Ok>(OpNum4::GetDirDelegation).zip(handle) {
            // One of the server's former life stands for nothing.
            Some((GetDirDelegation4Ok::Granted(granted), handle)) if client.is_of(life) => {
                client.directory_delegated(host, handle, granted.stateid);
            }
            Some(_) => {}
            None => client.world.tell(|| format!("{}: GET_DIR_DELEGATION: {status:?}", self.who)),
        }
    }
}
