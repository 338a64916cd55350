//! Reading and writing blocks, and committing what was written unstable.

use std::cell::Cell;

use holdfast_base::Offset;
use holdfast_wire::nfs4::*;

use super::{BLOCK, BLOCKS, Process};
use crate::client::delegations::{look, seen_in};
use crate::client::v4::{Acted, Open};
use crate::oracle::data::Mark;
use crate::oracle::looks::Look;
use crate::wire::Ops;

impl Process {
    fn stateid(open: &Open) -> Stateid4 {
        open.locks.borrow().stateid.unwrap_or_else(|| open.stateid.get())
    }

    pub(super) async fn read(&self, open: &Open) {
        self.read_block(open, self.below(BLOCKS)).await;
    }

    pub(super) async fn read_block(&self, open: &Open, block: u64) {
        self.doing(format!("reads block {block} of file {}", open.file));
        let world = &self.client.world;
        if let Some(mark) = self.client.cached(open.file, block) {
            world.tell(|| format!("{}: finds {mark} in its cache", self.who));
            return world
                .oracles
                .data(|data| data.read((open.file, block), mark, (world.now(), world.now())));
        }
        if let Some((mark, opened)) = self.kept(open, block) {
            world.tell(|| format!("{}: has kept {mark}", self.who));
            let since = (opened, world.now());
            return world.oracles.data(|data| data.read_kept((open.file, block), mark, since));
        }
        let (begun, kept) =
            (self.client.read_begins(open.file), self.client.kept.borrow().read_begins(open.file));
        let acted = self
            .client
            .act(|| {
                let read = Read4Args {
                    stateid: Self::stateid(open),
                    offset: Offset(block * BLOCK),
                    count: BLOCK as u32,
                };
                let handle = open.handle.borrow();
                let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                (!open.is_lost.get()).then(|| Ops::new(&[put, look(), ArgOp::Read(read), look()]))
            })
            .await;
        let Some(Acted { mut reply, sent, .. }) = acted else { return };
        if reply.status != NfsStat4::Ok {
            return self.refused(open, "READ", reply.status);
        }
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        let before = seen_in(&mut reply);
        let Some(ok) = reply.next::<Read4Ok<'_>>(OpNum4::Read) else { return };
        let mark = Mark::from_be_bytes(*ok.data.first_chunk().unwrap_or(&[0; 8]));
        let asked = (sent, world.now());
        world.oracles.data(|data| data.read((open.file, block), mark, asked));
        self.client.read_ends(open.file, block, mark, begun);
        self.client.kept.borrow_mut().read_ends(open.file, (block, mark), kept);
        if let Some((change, size)) = before {
            let look = Look { change, size };
            world.oracles.looked(open.file, (look, true), asked);
            if seen_in(&mut reply) == before {
                world.oracles.read_within(open.file, look, (block, mark), asked.0);
            }
        }
    }

    pub(super) async fn write(&self, open: &Open) {
        let block = self.below(BLOCKS);
        self.marks.set(self.marks.get() + 1);
        let client = &self.client;
        let mark = (client.host as u64 + 1) * 1_000_000 + client.starts * 100_000 + self.number * 10_000;
        let stable = if self.percent(50) { StableHow4::Unstable } else { StableHow4::FileSync };
        self.write_mark(open, (block, mark + self.marks.get()), stable).await;
    }

    async fn write_mark(&self, open: &Open, (block, mark): (u64, Mark), stable: StableHow4) {
        self.doing(format!("writes {mark} to block {block} of file {}, {stable:?}", open.file));
        let (world, place) = (&self.client.world, (open.file, block));
        world.oracles.data(|data| {
            data.sent(place, mark, world.now());
            Ok(())
        });
        let data = mark.to_be_bytes();
        let begun = self.client.write_begins(open.file, block);
        self.client.kept.borrow_mut().wrote(open.file);
        let is_anew = Cell::new(false);
        let acted = self
            .client
            .act(|| {
                if is_anew.replace(true) {
                    world.oracles.data(|data| {
                        data.asked_anew(place, mark);
                        Ok(())
                    });
                }
                let write = Write4Args {
                    stateid: Self::stateid(open),
                    offset: Offset(block * BLOCK),
                    stable,
                    data: &data,
                };
                let handle = open.handle.borrow();
                let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Write(write)]))
            })
            .await;
        let is_refused = acted.as_ref().is_some_and(|acted| acted.reply.status != NfsStat4::Ok);
        // It may have been done all the same, and a holder answers for the size.
        let end = if is_refused { self.size(open).await.unwrap_or(0) } else { (block + 1) * BLOCK };
        self.client.write_ends(open.file, begun, end);
        self.client.kept.borrow_mut().wrote(open.file);
        let Some(Acted { mut reply, is_excused, .. }) = acted else { return };
        if reply.status != NfsStat4::Ok {
            return self.refused(open, "WRITE", reply.status);
        }
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        let Some(ok) = reply.next::<Write4Ok>(OpNum4::Write) else { return };
        let is_stable = ok.committed != StableHow4::Unstable;
        if !is_stable {
            self.uncommitted.borrow_mut().push((block, mark, ok.writeverf));
        }
        world.oracles.data(|data| {
            data.answered(place, mark, world.now(), (is_stable, !is_excused));
            Ok(())
        });
    }

    /// The size of a file, as the server has it.
    async fn size(&self, open: &Open) -> Option<u64> {
        let make = || {
            let handle = open.handle.borrow();
            let put = ArgOp::PutFh(PutFh4Args { object: &handle });
            (!open.is_lost.get()).then(|| Ops::new(&[put, look()]))
        };
        let mut reply = self.client.act(make).await?.reply;
        reply.skip(&[OpNum4::PutFh])?;
        seen_in(&mut reply).map(|(_, size)| size)
    }

    /// Commits what was written unstable, and writes again what may have been lost.
    pub(super) async fn commit(&self, open: &Open) {
        for _ in 0..8 {
            let waiting = std::mem::take(&mut *self.uncommitted.borrow_mut());
            if waiting.is_empty() || open.is_lost.get() {
                return;
            }
            self.doing(format!("commits file {}", open.file));
            let acted = self
                .client
                .act(|| {
                    let handle = open.handle.borrow();
                    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                    let commit = ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 });
                    (!open.is_lost.get()).then(|| Ops::new(&[put, commit]))
                })
                .await;
            let Some(Acted { mut reply, .. }) = acted else { return };
            let verifier = reply
                .skip(&[OpNum4::PutFh])
                .and_then(|()| reply.next::<Commit4Ok>(OpNum4::Commit))
                .map(|ok| ok.writeverf);
            if verifier.is_none() {
                self.refused(open, "COMMIT", reply.status);
            }
            let world = &self.client.world;
            for (block, mark, written) in waiting {
                if verifier == Some(written) {
                    world.oracles.data(|data| {
                        data.committed((open.file, block), mark, world.now());
                        Ok(())
                    });
                } else {
                    self.write_mark(open, (block, mark), StableHow4::FileSync).await;
                }
            }
        }
    }
}
