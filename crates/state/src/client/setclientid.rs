//! Clients of 4.0: SETCLIENTID (five cases, RFC 7530 section 16.33.5), SETCLIENTID_CONFIRM (section 16.34.5) and
//! RENEW (section 16.28).

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::limits::{CALLBACK_BYTES_MAX, CLIENT_OWNER_BYTES_MAX};
use holdfast_base::{ClientId, Instant};

use super::{CallbackPath, ClientIncarnation, Identity, Side};
use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::{Dialect, OwnerName, Principal, Verifier};

/// Where and how a 4.0 client is called back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// RPC program.
    pub program: u32,
    /// `callback_ident`.
    pub ident: u32,
    /// Netid and universal address, in the edge's encoding; up to [`CALLBACK_BYTES_MAX`] bytes.
    #[serde(with = "crate::plain")]
    pub address: Arc<[u8]>,
}

/// What only a 4.0 record has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Side40 {
    confirm: Verifier,
    callback: Callback,
    /// An update of the callback of a confirmed record, itself to be confirmed.
    update: Option<(Verifier, Callback)>,
}

/// The arguments of SETCLIENTID.
#[derive(Clone, Debug)]
pub struct SetClientId<'a> {
    /// `client.id`: up to [`CLIENT_OWNER_BYTES_MAX`] bytes.
    pub name: &'a [u8],
    /// `client.verifier`.
    pub verifier: Verifier,
    /// As whom the request came.
    pub principal: &'a Principal,
    /// From where: what one host has to itself, as far as the transport can tell.
    pub site: IpAddr,
    /// The callback.
    pub callback: Callback,
}

impl Engine {
    /// SETCLIENTID: returns the id to confirm and the verifier to confirm it with.
    ///
    /// # Errors
    /// `ClidInuse`: another principal has a confirmed record of that name and holds state under a lease;
    /// `Inval` for a name or address that is too long; `Resource`; `Delay` while a former client of that name still has
    /// a record that must go first.
    pub fn setclientid(
        &mut self,
        request: &SetClientId<'_>,
        now: Instant,
    ) -> Result<(ClientId, Verifier), StateError> {
        if request.name.len() > CLIENT_OWNER_BYTES_MAX || request.callback.address.len() > CALLBACK_BYTES_MAX
        {
            return Err(StateError::Inval);
        }
        self.finish_leaving(Dialect::V40, request.name, now)?;
        let mut confirm = Verifier::default();
        self.entropy.fill(&mut confirm.0);
        let records = self.clients.records(Dialect::V40, request.name);
        if let Some(id) = records.confirmed {
            let client = self.clients.confirmed(id, Dialect::V40)?;
            if client.identity.principal != *request.principal {
                // The text knows no lapsed lease here; without this a name could never be had again.
                if !client.states.is_empty() && !self.is_lapsed(id, now) {
                    return Err(StateError::ClidInuse);
                }
                if !self.expire(&[id], now) {
                    return Err(StateError::Delay);
                }
            } else if client.identity.verifier == request.verifier {
                return self.update_callback(id, confirm, request, now);
            }
        }
        // Cases 2 to 5: an unconfirmed record of that name is replaced, a confirmed one waits.
        if let Some(old) = records.unconfirmed {
            self.remove_client(old, now);
        }
        let identity = Identity {
            name: OwnerName::new(request.name),
            verifier: request.verifier,
            principal: request.principal.clone(),
        };
        let side = Side40 { confirm, callback: request.callback.clone(), update: None };
        let id = self.take_in(ClientIncarnation::new(identity, request.site, Side::V40(side), now), now)?;
        Ok((id, confirm))
    }

    /// Case 1: same incarnation, so only its callback can have changed.
    fn update_callback(
        &mut self,
        id: ClientId,
        confirm: Verifier,
        request: &SetClientId<'_>,
        now: Instant,
    ) -> Result<(ClientId, Verifier), StateError> {
        let unconfirmed = self.clients.records(Dialect::V40, request.name).unconfirmed;
        if let Some(old) = unconfirmed {
            self.remove_client(old, now);
        }
        if let Side::V40(side) = &mut self.clients.get_mut(id)?.side {
            side.update = Some((confirm, request.callback.clone()));
        }
        Ok((id, confirm))
    }

    /// SETCLIENTID_CONFIRM. Confirming a new incarnation releases the former one; [`crate::Effect::PersistClient`]
    /// is due before the reply.
    ///
    /// # Errors
    /// `StaleClientid`, `ClidInuse`.
    pub fn setclientid_confirm(
        &mut self,
        id: ClientId,
        confirm: Verifier,
        principal: &Principal,
        now: Instant,
    ) -> Result<(), StateError> {
        let client = self.clients.by_id.get_mut(&id).filter(|client| !client.is_leaving);
        let client = client.ok_or(StateError::StaleClientid)?;
        let Side::V40(side) = &mut client.side else { return Err(StateError::StaleClientid) };
        let is_update = side.update.as_ref().is_some_and(|(verifier, _)| *verifier == confirm);
        // A retry of the confirmation of an update, or of the record itself, matches `confirm`.
        if !is_update && side.confirm != confirm {
            return Err(StateError::StaleClientid);
        }
        if client.identity.principal != *principal {
            return Err(StateError::ClidInuse);
        }
        if is_update && let Some((verifier, callback)) = side.update.take() {
            side.confirm = verifier;
            side.callback = callback;
            // Where to is new; whether it gets there is to be found out.
            client.callbacks = CallbackPath::Untried;
        }
        let was_confirmed = client.is_confirmed;
        client.renewed_at = now;
        self.want_locks_back(id);
        self.confirm_client(id, now)?;
        if was_confirmed && let Some(image) = self.client_image(id) {
            // Nothing new is to be stored, but it has come back, as who recovers does before he reclaims.
            self.effects.push(Effect::ClientReturned(image));
        }
        Ok(())
    }

    /// RENEW.
    ///
    /// # Errors
    /// `StaleClientid`: unknown to this run; `Expired`: its lease ran out.
    pub fn renew(&mut self, id: ClientId, now: Instant) -> Result<(), StateError> {
        self.live_client(id, Dialect::V40, now)
    }

    /// The confirmed callback of a 4.0 client.
    #[must_use]
    pub fn callback(&self, id: ClientId) -> Option<&Callback> {
        match &self.clients.confirmed(id, Dialect::V40).ok()?.side {
            Side::V40(side) => Some(&side.callback),
            Side::V41(_) => None,
        }
    }
}
