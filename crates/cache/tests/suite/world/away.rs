//! A server that was away, and comes back to the first mount.

use holdfast_cache::*;

use super::{World, server};

impl World {
    /// The server is back, in this life of the mount or, when it `dies`, in the next; it may have forgotten what it has
    /// executed, when it `forgets`.
    pub fn come_back(&mut self, dies: bool, forgets: bool) {
        let now = self.now();
        if dies {
            self.keep(0);
            let settings = *self.clients[0].machine.settings_mut();
            let kept = self.kept.clone().unwrap();
            self.clients[0].machine = Machine::restore(&kept, settings, now).unwrap();
            self.clients[0].machine.follow();
            self.clients[0].kernel = Default::default();
        }
        self.check(0);
        self.alone = false;
        let executed = self.server.lanes.get(&0).map_or(0, |lane| lane.executed);
        self.server.restart();
        // What was on its way has not arrived, or nobody can say.
        let known = (!forgets).then_some(executed);
        self.clients[0].machine.resume(known, 0, now);
        if forgets {
            self.server.lanes.clear();
            self.sift(now);
        }
        let (at, commits) = self.clients[0].machine.uncommitted();
        let told: Vec<_> = commits.iter().map(|out| (out.object.clone(), self.server.commit(out))).collect();
        self.clients[0].machine.committed_there(&told, at, now);
        let claims = self.clients[0].machine.claims();
        let told: Vec<_> = claims.iter().map(|claim| self.server.reclaim(0, claim)).collect();
        let found = self.blocks_below(&told);
        let machine = &mut self.clients[0].machine;
        machine.merge(&told, found, now);
        machine.reclaimed(told, now);
        machine.hold(false);
        self.check(0);
        for _ in 0..4 {
            // What failed late is told, each once.
            let _ = self.run(0, |m, t, now| m.sync(t, now));
            self.check(0);
        }
    }

    /// The server does not know what it has executed.
    fn sift(&mut self, now: Now) {
        let doubts = self.clients[0].machine.doubts();
        let found = resolved(&doubts, |dir, doubt| {
            let name = &doubt.name;
            let dir = u64::from_be_bytes(dir.as_bytes().try_into().unwrap());
            let itself = || Some(dir).filter(|dir| self.server.fs.get(*dir).is_ok());
            let found = || self.server.fs.look(dir, name.as_bytes()).ok().flatten();
            let ino = if name.as_bytes().is_empty() { itself() } else { found() };
            Ok::<_, Errno>(ino.map(|ino| (server::handle(ino), self.server.attrs(ino).unwrap())))
        });
        let found = found.unwrap();
        self.clients[0].machine.settle_doubts(&doubts, &found, now);
        self.check(0);
    }
}
