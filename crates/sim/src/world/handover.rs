//! Planned restarts: the server's process becomes another one, and clients notice nothing but a moment of silence.

use holdfast_rpc::detached::Detached;

use super::{Life, LinkId, Noted, World};

impl World {
    /// Replaces the server's process, which takes so many milliseconds, if it may be now.
    pub fn replace_server(&self, ms: u64) {
        let may_be = self.with_life(Life::may_be_handed_over).unwrap_or_default();
        if !may_be || !self.is_awake() {
            return self.tell(|| "server: no planned restart now".into());
        }
        if !self.hold() {
            return;
        }
        // Whoever waits for an answer to a call of the server's own waits in the process that ends.
        self.calls_out.borrow_mut().clear();
        let is_replaced = self.hand_over();
        if let Err(error) = &is_replaced {
            // What is half done there may not be handed over, and it is left as it was.
            self.oracles.violated(format!("the server cannot be handed over: {error:#}"));
        }
        self.freeze(ms);
        self.collect();
    }

    /// Has everything that was begun come to its end, and takes what it says. Returns whether the server is there still,
    /// and at rest.
    fn hold(&self) -> bool {
        let mut is_quiet = false;
        self.serve(|life, _| {
            let links = self.links.borrow();
            let sides: Vec<_> = links.values().filter_map(|link| link.side.as_ref()).collect();
            is_quiet = life.hold(&self.machine, &sides);
        });
        if self.is_up() {
            // All replies leave before the connections do.
            self.collect();
        }
        if !self.is_up() {
            return false;
        }
        if !is_quiet {
            self.tell(|| "server: too busy for a planned restart".into());
            self.serve(|life, _| life.release());
        }
        is_quiet
    }

    fn hand_over(&self) -> anyhow::Result<()> {
        let (mut handed, mut lost) = (Vec::new(), Vec::new());
        for (id, link) in self.links.borrow().iter() {
            let Some(side) = &link.side else { continue };
            match side.hand_over() {
                Some(connection) => handed.push((*id, connection)),
                None => lost.push(side.connection().id()),
            }
        }
        let frozen = self.with_life(|life| life.freeze(lost)).transpose()?;
        let Some(frozen) = frozen else { return Ok(()) };
        self.machine.journal_goes_on()?;
        let next = Life::go_on(frozen)?;
        let old_sides: Vec<Detached> =
            self.links.borrow_mut().values_mut().filter_map(|link| link.side.take()).collect();
        let Some(last) = self.life.borrow_mut().replace(next) else { return Ok(()) };
        if last.retire(old_sides) {
            self.left_over.set(self.left_over.get() + 1);
        }
        self.handovers.set(self.handovers.get() + 1);
        let number = self.handovers();
        self.note(Noted::Replaced, &number.to_be_bytes());
        self.tell(|| format!("server: replaced by another process of its own, {} connections", handed.len()));
        let (ids, connections): (Vec<LinkId>, Vec<_>) = handed.into_iter().unzip();
        let mut sides = Vec::new();
        self.serve(|life, _| sides = life.adopt(connections.into_iter()));
        for (id, side) in ids.into_iter().zip(sides) {
            if let Some(link) = self.links.borrow_mut().get_mut(&id) {
                link.side = Some(side);
            }
        }
        Ok(())
    }
}
