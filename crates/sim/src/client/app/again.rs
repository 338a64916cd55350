//! Coming back to files: read, closed, opened and read again, of what was kept where OPEN finds it good; or merely looked at.

use holdfast_wire::nfs4::*;

use super::{BLOCKS, FILES, IN_DIRECTORY, Process, SHARED, file_name, root};
use crate::client::delegations::{look, seen_in};
use crate::client::v4::{Acted, Open};
use crate::oracle::data::Mark;
use crate::oracle::looks::Look;
use crate::wire::Ops;

impl Process {
    pub(super) async fn comes_back(&self) {
        let all = if self.client.world.is_peaceful { FILES } else { SHARED };
        let file = self.below(all as u64) as usize;
        if self.percent(25) {
            return self.look_at(file).await;
        }
        for _ in 0..2 {
            let Some((id, open)) = self.open(file, 1, 0).await else { return };
            for block in 0..BLOCKS {
                if !open.is_lost.get() {
                    self.read_block(&open, block).await;
                }
            }
            self.close(&open).await;
            self.client.opens.borrow_mut().remove(&id);
            let ms = self.below(2_000);
            self.client.world.exec.sleep(ms).await;
        }
    }

    /// Asks for a file's attributes without opening it: its holder may be asked for them.
    async fn look_at(&self, file: usize) {
        self.doing(format!("looks at file {file}"));
        let (world, name) = (&self.client.world, file_name(file));
        let acted = self
            .client
            .act(|| {
                let [put, lookup] = root();
                let file = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
                Some(Ops::new(&[put, lookup, file, look()]))
            })
            .await;
        let Some(Acted { mut reply, sent, .. }) = acted else { return };
        if reply.skip(&IN_DIRECTORY).is_some()
            && let Some((change, size)) = seen_in(&mut reply)
        {
            world.tell(|| format!("{}: sees change {change}, {size} bytes", self.who));
            world.oracles.looked(file, (Look { change, size }, false), (sent, world.now()));
        }
    }

    /// An OPEN that was sent then found the file so.
    pub(super) fn finds(&self, file: usize, look: Look, sent: u64) {
        let world = &self.client.world;
        world.oracles.looked(file, (look, true), (sent, world.now()));
        if self.client.kept.borrow_mut().opened(file, look.change, sent) {
            world.tell(|| {
                format!("{}: finds good what it kept of file {file}, change {}", self.who, look.change)
            });
        }
    }

    /// A block that need not be asked for. Who takes a lock wants to see what others wrote under theirs
    /// (RFC 8881 section 10.3.2).
    pub(super) fn kept(&self, open: &Open, block: u64) -> Option<(Mark, u64)> {
        let may_be = self.client.world.keeps && open.locks.borrow().held.is_empty();
        self.client.kept.borrow().block(open.file, block).filter(|_| may_be)
    }
}
