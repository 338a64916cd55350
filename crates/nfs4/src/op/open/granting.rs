//! An open between its reservation and its grant: taken back unless it is granted, also when a backend panics.

use std::sync::Arc;

use holdfast_state::{Backing, OpenId, OpenRequest, OpenTicket, StateId};

use crate::cx::Cx;
use crate::error::OpResult;
use crate::service::Service;

/// A reservation that ends with this, unless it is granted.
pub(super) struct Granting {
    service: Arc<Service>,
    /// Gone once granted.
    ticket: Option<OpenTicket>,
    pub(super) backing: Backing,
    /// Whether a 4.0 client must OPEN_CONFIRM.
    pub(super) is_confirm_needed: bool,
}

impl Granting {
    /// Reserves the share.
    pub(super) fn begin(cx: &Cx<'_>, request: &OpenRequest<'_>) -> OpResult<Self> {
        let opened = cx.state(|engine, now| Ok(engine.open(request, now)?))?;
        Ok(Self {
            service: Arc::clone(cx.service()),
            ticket: Some(opened.ticket),
            backing: opened.backing,
            is_confirm_needed: opened.is_confirm_needed,
        })
    }

    /// Gives it the descriptor it needs.
    pub(super) fn attach(&self, id: OpenId, access: holdfast_state::Access) -> OpResult<()> {
        let Some(ticket) = &self.ticket else { return Ok(()) };
        self.service.state(|engine, _| Ok(engine.attach(ticket, id, access)?))
    }

    /// Grants it.
    pub(super) fn grant(mut self) -> OpResult<StateId> {
        let ticket = self.ticket.take().ok_or(holdfast_state::StateError::BadStateid)?;
        self.service.state(|engine, _| Ok(engine.open_commit(ticket)?))
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // Taking back persists nothing, so it cannot fail.
            let _ = self.service.state(|engine, now| {
                engine.open_undo(ticket, now);
                Ok(())
            });
        }
    }
}
