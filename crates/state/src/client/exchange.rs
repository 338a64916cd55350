//! EXCHANGE_ID: the nine cases of RFC 8881 section 18.35.4.

use std::net::IpAddr;

use holdfast_base::limits::CLIENT_OWNER_BYTES_MAX;
use holdfast_base::{ClientId, Instant, Seqid};

use super::create_session::Side41;
use super::{ClientIncarnation, Identity, Side};
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::{Dialect, OwnerName, Principal, Verifier};

/// What Linux calls itself for a moment to be rid of its state here (`nfs4_init_boot_verifier`); what it has cached it keeps.
const LINUX_PURGES: Verifier = Verifier([0xff; 8]);

/// What a client wants of EXCHANGE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeIntent {
    /// To be known, or to find the record it has.
    Establish,
    /// To update its confirmed record (`EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`).
    Update,
}

/// The arguments of EXCHANGE_ID that decide.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`: up to [`CLIENT_OWNER_BYTES_MAX`] bytes.
    pub owner: &'a [u8],
    /// `co_verifier`: differs for each incarnation.
    pub verifier: Verifier,
    /// As whom the request came.
    pub principal: &'a Principal,
    /// From where: what one host has to itself, as far as the transport can tell.
    pub site: IpAddr,
    /// To establish or to update.
    pub intent: ExchangeIntent,
}

/// The answer to EXCHANGE_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangedId {
    /// The client's id.
    pub client: ClientId,
    /// The sequence number its next CREATE_SESSION is to carry.
    pub next_seqid: Seqid,
    /// Whether the record is confirmed (`EXCHGID4_FLAG_CONFIRMED_R`).
    pub is_confirmed: bool,
}

impl Engine {
    /// EXCHANGE_ID.
    ///
    /// # Errors
    /// `ClidInuse`, `NoEnt`, `NotSame`, `Perm` by the cases; `Inval` for a name that is too long; `Resource` at
    /// the limit of clients; `Delay` while a former client of that name still has a record that must go first.
    pub fn exchange_id(&mut self, request: &ExchangeId<'_>, now: Instant) -> Result<ExchangedId, StateError> {
        if request.owner.len() > CLIENT_OWNER_BYTES_MAX {
            return Err(StateError::Inval);
        }
        self.finish_leaving(Dialect::V41, request.owner, now)?;
        match request.intent {
            ExchangeIntent::Update => self.exchange_update(request),
            ExchangeIntent::Establish => self.exchange_establish(request, now),
        }
    }

    /// Cases 6 to 9.
    fn exchange_update(&self, request: &ExchangeId<'_>) -> Result<ExchangedId, StateError> {
        let records = self.clients.records(Dialect::V41, request.owner);
        // Case 7.
        let id = records.confirmed.ok_or(StateError::NoEnt)?;
        let client = self.clients.confirmed(id, Dialect::V41)?;
        if client.identity.verifier != request.verifier {
            // Case 8: whatever the principal.
            return Err(StateError::NotSame);
        }
        if client.identity.principal != *request.principal {
            // Case 9.
            return Err(StateError::Perm);
        }
        // Case 6.
        Ok(self.exchanged(id))
    }

    /// Cases 1 to 5.
    fn exchange_establish(
        &mut self,
        request: &ExchangeId<'_>,
        now: Instant,
    ) -> Result<ExchangedId, StateError> {
        let records = self.clients.records(Dialect::V41, request.owner);
        let confirmed =
            records.confirmed.and_then(|id| self.clients.by_id.get(&id).map(|client| (id, client)));
        if let Some((id, client)) = confirmed {
            let is_same_principal = client.identity.principal == *request.principal;
            if is_same_principal && client.identity.verifier == request.verifier {
                // Case 2. An unconfirmed record of another incarnation stays: it may yet confirm.
                if let Ok(client) = self.clients.get_mut(id) {
                    client.has_begun_anew = true;
                }
                return Ok(self.exchanged(id));
            }
            if !is_same_principal {
                // Case 3: a stranger under the same name gets it only when nothing depends on it.
                let holds_something = !client.states.is_empty() || self.caps.count_of(id) > 0;
                if holds_something && !self.is_lapsed(id, now) {
                    return Err(StateError::ClidInuse);
                }
                if !self.expire(&[id], now) {
                    return Err(StateError::Delay);
                }
            }
        }
        if let Some(old) = records.unconfirmed {
            // Case 4.
            self.remove_client(old, now);
        }
        // Cases 1 and 5: the confirmed record, if any, lives until CREATE_SESSION replaces it.
        let identity = Identity {
            name: OwnerName::new(request.owner),
            verifier: request.verifier,
            principal: request.principal.clone(),
        };
        let mut client = ClientIncarnation::new(identity, request.site, Side::V41(Side41::new()), now);
        let may_have_met =
            request.verifier == LINUX_PURGES || self.witness.may_have_met(request.owner, request.verifier);
        client.new_at = (!may_have_met).then_some(now);
        let id = self.take_in(client, now)?;
        Ok(self.exchanged(id))
    }

    fn exchanged(&self, id: ClientId) -> ExchangedId {
        let client = self.clients.by_id.get(&id);
        let next_seqid = match client.map(|client| &client.side) {
            Some(Side::V41(side)) => side.seqid.next(),
            _ => Seqid(0),
        };
        ExchangedId { client: id, next_seqid, is_confirmed: client.is_some_and(|client| client.is_confirmed) }
    }
}
