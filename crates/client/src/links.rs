//! The connections of a client: the first carries the back channel and other programs too, further ones carry calls.

use std::time::Instant;

use holdfast_base::SessionId;
use holdfast_rpc::link::{Cancel, Link, Stopped, Wakers};
use parking_lot::Mutex;

/// The connections.
#[derive(Debug)]
pub(crate) struct Links {
    places: Mutex<Vec<Place>>,
    changed: Wakers,
}

#[derive(Clone, Debug, Default)]
struct Place {
    link: Option<Link>,
    /// The session that it is bound to.
    bound: Option<SessionId>,
}

impl Place {
    fn alive(&self) -> Option<&Link> {
        self.link.as_ref().filter(|link| !link.is_broken())
    }
}

impl Links {
    pub(crate) fn new(connections: usize) -> Self {
        Self { places: Mutex::new(vec![Place::default(); connections.max(1)]), changed: Wakers::default() }
    }

    /// A living connection bound to this session, the `hint`-th where it can be had.
    pub(crate) fn get(&self, session: SessionId, hint: usize) -> Option<Link> {
        let places = self.places.lock();
        let n = places.len();
        (0..n)
            .map(|i| &places[(hint + i) % n])
            .find_map(|place| place.alive().filter(|_| place.bound == Some(session)).cloned())
    }

    /// Waits for one, or until `is_over`.
    pub(crate) fn wait(
        &self,
        (session, hint): (SessionId, usize),
        (cancel, deadline): (&Cancel, Option<Instant>),
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Link>, Stopped> {
        self.changed.wait(cancel, deadline, || {
            self.get(session, hint).map(Some).or_else(|| is_over().then_some(None))
        })
    }

    /// The first connection, bound or not.
    pub(crate) fn primary(&self) -> Option<Link> {
        self.places.lock()[0].alive().cloned()
    }

    /// Waits for the first connection to be bound to a session.
    pub(crate) fn wait_primary(
        &self,
        (cancel, deadline): (&Cancel, Option<Instant>),
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Link>, Stopped> {
        self.changed.wait(cancel, deadline, || {
            let places = self.places.lock();
            let bound = places[0].alive().filter(|_| places[0].bound.is_some()).cloned();
            bound.map(Some).or_else(|| is_over().then_some(None))
        })
    }

    /// Connections that are missing, or bound to another session.
    pub(crate) fn wanting(&self, session: SessionId) -> Vec<(usize, Option<Link>)> {
        let places = self.places.lock();
        let is_wanting = |place: &&Place| place.alive().is_none() || place.bound != Some(session);
        let found = places.iter().enumerate();
        found.filter(|(_, place)| is_wanting(place)).map(|(n, place)| (n, place.alive().cloned())).collect()
    }

    /// Puts a connection in its place.
    pub(crate) fn put(&self, n: usize, link: Link) {
        let mut places = self.places.lock();
        if let Some(old) = std::mem::replace(&mut places[n], Place { link: Some(link), bound: None }).link {
            old.close();
        }
        drop(places);
        self.changed.wake_all();
    }

    /// Notes the session that a connection is bound to.
    pub(crate) fn bind(&self, n: usize, session: SessionId) {
        self.places.lock()[n].bound = Some(session);
        self.changed.wake_all();
    }

    /// A connection counts as bound no more.
    pub(crate) fn unbind(&self, link: &Link) {
        for place in self.places.lock().iter_mut() {
            if place.link.as_ref().is_some_and(|own| own.is(link)) {
                place.bound = None;
            }
        }
    }

    /// Something changed that waiters may be looking at.
    pub(crate) fn wake(&self) {
        self.changed.wake_all();
    }

    /// Breaks all connections.
    pub(crate) fn close(&self) {
        let links: Vec<_> = self.places.lock().iter_mut().filter_map(|place| place.link.take()).collect();
        links.iter().for_each(Link::close);
        self.changed.wake_all();
    }
}
