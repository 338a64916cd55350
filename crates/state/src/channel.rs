//! Channel attributes of a session, and what we agree to.

use holdfast_base::limits::{
    BACK_CHANNEL_BYTES_MAX, BACK_CHANNEL_SLOTS_MAX, COMPOUND_OPS_MAX, RECORD_BYTES_MAX,
    SESSION_REPLY_BYTES_MIN, SESSION_REQUEST_BYTES_MIN, SESSION_SLOTS_MAX, SLOT_REPLY_BYTES_MAX,
};
use serde::{Deserialize, Serialize};

use crate::error::StateError;

/// Limits on one direction of a session (`channel_attrs4`, RFC 8881 section 18.36.1), without RDMA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelAttrs {
    /// Bytes of padding before payload; 0 here.
    pub header_pad_bytes: u32,
    /// Bytes of a request, RPC header included.
    pub request_bytes_max: u32,
    /// Bytes of a reply, RPC header included.
    pub reply_bytes_max: u32,
    /// Bytes of a reply that must be kept for retries.
    pub reply_kept_bytes_max: u32,
    /// Operations in a compound.
    pub ops_max: u32,
    /// Requests at once: slots.
    pub slots_max: u32,
}

impl ChannelAttrs {
    const FORE: Self = Self {
        header_pad_bytes: 0,
        request_bytes_max: RECORD_BYTES_MAX as u32,
        reply_bytes_max: RECORD_BYTES_MAX as u32,
        reply_kept_bytes_max: SLOT_REPLY_BYTES_MAX as u32,
        ops_max: COMPOUND_OPS_MAX as u32,
        slots_max: SESSION_SLOTS_MAX,
    };

    const BACK: Self = Self {
        header_pad_bytes: 0,
        request_bytes_max: BACK_CHANNEL_BYTES_MAX,
        // The client's replies are its own affair, and Linux before 6.18 does not mount when it is told less than it
        // offered, which is its page's size.
        reply_bytes_max: u32::MAX,
        reply_kept_bytes_max: 0,
        ops_max: 2,
        slots_max: BACK_CHANNEL_SLOTS_MAX,
    };

    /// Whether nothing is asked for at all: how clients without callbacks fill the fields in.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.request_bytes_max == 0 && self.reply_bytes_max == 0 && self.ops_max == 0 && self.slots_max == 0
    }

    /// What we agree to of the fore channel asked for.
    ///
    /// # Errors
    /// `TooSmall` when no SEQUENCE would fit.
    pub fn agree_fore(self) -> Result<Self, StateError> {
        let agreed = self.within(Self::FORE);
        // Nothing to do with a session of no slots or a compound of no operations.
        let usable = agreed.request_bytes_max >= SESSION_REQUEST_BYTES_MIN
            && agreed.reply_bytes_max >= SESSION_REPLY_BYTES_MIN
            && agreed.ops_max > 0
            && agreed.slots_max > 0;
        if usable { Ok(agreed) } else { Err(StateError::TooSmall) }
    }

    /// What we agree to of the back channel asked for. Callbacks carry CB_SEQUENCE and one operation.
    ///
    /// # Errors
    /// `TooSmall` when no callback would fit.
    pub fn agree_back(self) -> Result<Self, StateError> {
        let agreed = self.within(Self::BACK);
        let usable = agreed.request_bytes_max >= SESSION_REQUEST_BYTES_MIN
            && agreed.reply_bytes_max >= SESSION_REPLY_BYTES_MIN
            && agreed.ops_max >= 2
            && agreed.slots_max > 0;
        if usable { Ok(agreed) } else { Err(StateError::TooSmall) }
    }

    fn within(self, limit: Self) -> Self {
        Self {
            header_pad_bytes: 0,
            request_bytes_max: self.request_bytes_max.min(limit.request_bytes_max),
            reply_bytes_max: self.reply_bytes_max.min(limit.reply_bytes_max),
            reply_kept_bytes_max: self.reply_kept_bytes_max.min(limit.reply_kept_bytes_max),
            ops_max: self.ops_max.min(limit.ops_max),
            slots_max: self.slots_max.min(limit.slots_max),
        }
    }
}
