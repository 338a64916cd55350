//! CB_RECALL_ANY: the server is short of memory, and the client chooses what it can do without (RFC 8881 section 20.6).

use std::rc::Rc;

use holdfast_wire::nfs4::*;

use super::{Client4, Delegation, FILES};

/// What a mask of kinds counts a delegation as.
const fn kind_of(file: usize, held: &Delegation) -> u32 {
    match (file < FILES, held.is_write) {
        (false, _) => RCA4_TYPE_MASK_DIR_DLG,
        (true, true) => RCA4_TYPE_MASK_WDATA_DLG,
        (true, false) => RCA4_TYPE_MASK_RDATA_DLG,
    }
}

impl Client4 {
    /// Gives back what it has more than it may keep, some of it, or nothing: some clients need all that they have.
    pub(crate) fn give_back_some(self: &Rc<Self>, asked: &CbRecallAny4Args) {
        let mut meant: Vec<usize> = {
            let held = self.delegations.borrow();
            let meant = held.iter().filter(|(file, held)| asked.type_mask.contains(kind_of(**file, held)));
            meant.map(|(file, _)| *file).collect()
        };
        let more = meant.len().saturating_sub(asked.objects_to_keep as usize) as u64;
        let mood = self.rng.borrow_mut().below(10);
        let given = match mood {
            0..7 => more,
            7..9 => self.rng.borrow_mut().below(more + 1),
            _ => 0,
        };
        self.world.tell(|| {
            let (name, keep) = (self.name(), asked.objects_to_keep);
            format!("{name}: is to keep {keep} of {} delegations, gives back {given}", meant.len())
        });
        for _ in 0..given {
            let n = self.rng.borrow_mut().below(meant.len() as u64) as usize;
            let ms = self.rng.borrow_mut().below(2_000);
            let held = self.delegations.borrow_mut().remove_entry(&meant.swap_remove(n));
            held.into_iter().for_each(|held| self.give_back(held, ms));
        }
    }
}
