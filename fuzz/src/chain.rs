//! One client's session of NFSv4.1 as a sender keeps it.

/// A session and where its slots stand.
pub(crate) struct Session {
    pub(crate) id: [u8; 16],
    pub(crate) client: [u8; 8],
    slots: [u32; 4],
    /// The last request on each slot, to be sent again.
    last: [Option<Vec<u8>>; 4],
}

impl Session {
    pub(crate) const fn new(id: [u8; 16], client: [u8; 8]) -> Self {
        Self { id, client, slots: [0; 4], last: [const { None }; 4] }
    }

    /// SEQUENCE on a slot, the next in order when `off` is 0.
    pub(crate) fn sequence(&self, slot: usize, off: u32, is_cached: bool) -> Vec<u8> {
        let slot = slot % self.slots.len();
        let mut op = 53_u32.to_be_bytes().to_vec();
        op.extend(self.id);
        op.extend(self.slots[slot].wrapping_add(1).wrapping_add(off).to_be_bytes());
        op.extend((slot as u32).to_be_bytes());
        op.extend(3_u32.to_be_bytes());
        op.extend(u32::from(is_cached).to_be_bytes());
        op
    }

    /// The server took the request.
    pub(crate) fn taken(&mut self, slot: usize, request: Vec<u8>) {
        let slot = slot % self.slots.len();
        self.slots[slot] = self.slots[slot].wrapping_add(1);
        self.last[slot] = Some(request);
    }

    pub(crate) fn last(&self, slot: usize) -> Option<&Vec<u8>> {
        self.last[slot % self.last.len()].as_ref()
    }
}
