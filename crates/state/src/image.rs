//! Client records and sessions as plain data: what is kept so that a session, with its replies, outlives the server
//! (CSR4_PERSIST, RFC 8881 section 2.10.6.5).

use std::net::{IpAddr, Ipv4Addr};

use holdfast_base::limits::{CLIENTS_MAX, SESSIONS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, Instant, Seqid};

use crate::client::{ClientIncarnation, CreatedSession, Identity, Records, Side};
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::{Dialect, OwnerName, Principal, Verifier};
use crate::session::{Session, SessionImage};

/// A confirmed client record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientImage {
    /// Its id.
    pub id: ClientId,
    /// Its dialect.
    pub dialect: Dialect,
    /// Its name.
    pub name: OwnerName,
    /// Its incarnation.
    pub verifier: Verifier,
    /// As whom it came.
    pub principal: Principal,
    /// 4.1: the sequence number of its last CREATE_SESSION; 4.0: 0.
    pub create_seqid: Seqid,
    /// 4.1: the result of it.
    pub created: Option<CreatedSession>,
}

/// All clients of 4.1 and later, and their sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Confirmed clients, by id.
    pub clients: Vec<ClientImage>,
    /// Their sessions, by name.
    pub sessions: Vec<SessionImage>,
}

impl Engine {
    /// A confirmed client as plain data. After each CREATE_SESSION of a persistent session the edge keeps this and
    /// `sessions().image()` before it replies.
    #[must_use]
    pub fn client_image(&self, id: ClientId) -> Option<ClientImage> {
        let client = self.clients.by_id.get(&id).filter(|client| client.is_confirmed)?;
        let (create_seqid, created) = match &client.side {
            Side::V40(_) => (Seqid(0), None),
            Side::V41(side) => (side.seqid, side.reply.ok()),
        };
        let Identity { name, verifier, principal } = client.identity.clone();
        Some(ClientImage { id, dialect: client.dialect(), name, verifier, principal, create_seqid, created })
    }

    /// All of it, for a planned hand-over or for tests; a crash leaves what the edge kept step by step.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut ids: Vec<_> = self.clients.by_id.keys().copied().collect();
        ids.sort_unstable();
        let images = ids.into_iter().filter_map(|id| self.client_image(id));
        let clients = images.filter(|image| image.dialect == Dialect::V41).collect();
        let mut names: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        names.sort_unstable_by_key(|id| id.0);
        let sessions = names.into_iter().filter_map(|id| self.sessions.image(id)).collect();
        Snapshot { clients, sessions }
    }

    /// Takes in clients and sessions of an earlier run. Their opens and locks are gone, so their sessions say that
    /// reclaim is needed until RECLAIM_COMPLETE; their leases begin now. A session without its client, a client
    /// of 4.0 (which has nothing that outlives a restart), or one already here is left out; their number is
    /// returned.
    pub fn restore(&mut self, snapshot: &Snapshot, now: Instant) -> usize {
        let clients =
            snapshot.clients.iter().filter(|image| self.restore_client(image, now).is_err()).count();
        let sessions =
            snapshot.sessions.iter().filter(|image| self.restore_session(image, now).is_err()).count();
        clients + sessions
    }

    fn restore_client(&mut self, image: &ClientImage, now: Instant) -> Result<(), StateError> {
        let records = self.clients.records(Dialect::V41, image.name.as_bytes());
        let is_known = self.clients.by_id.contains_key(&image.id) || records != Records::default();
        if is_known || image.dialect != Dialect::V41 || self.clients.by_id.len() >= CLIENTS_MAX {
            return Err(StateError::Inval);
        }
        let side = crate::client::restored_side(image);
        let identity = Identity {
            name: image.name.clone(),
            verifier: image.verifier,
            principal: image.principal.clone(),
        };
        // Where it came from was not kept: it is none of its host's share.
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut client = ClientIncarnation::new(identity, nowhere, side, now);
        client.is_confirmed = true;
        let records = Records { confirmed: Some(image.id), unconfirmed: None };
        self.clients.by_name[Dialect::V41 as usize].insert(image.name.clone(), records);
        self.clients.sites.add(nowhere);
        self.clients.by_id.insert(image.id, client);
        self.clients.never_issue(image.id);
        Ok(())
    }

    fn restore_session(&mut self, image: &SessionImage, now: Instant) -> Result<(), StateError> {
        let is_fit = self.sessions.get(image.id).is_none() && !image.slots.is_empty();
        let client = self.clients.get_mut(image.client)?;
        if !is_fit || client.sessions.len() >= SESSIONS_PER_CLIENT_MAX {
            return Err(StateError::Inval);
        }
        client.sessions.push(image.id);
        let mut session = Session::new(image, now);
        session.is_reclaim_needed = client.is_reclaim_done() == Some(false);
        session.is_restart_unheard = session.is_reclaim_needed;
        session.is_of_former_life = true;
        self.sessions.insert(image.id, session);
        Ok(())
    }
}
