//! Changes that their callers gave up: whether they are done, and when, is not known for a while.

use crate::ask::{Ask, Question};
use crate::machine::Machine;
use crate::tell::Forget;

impl Machine {
    /// A change that is being asked for was given up, and may yet be done. What it touches stays uncertain until
    /// [`absorb`](Self::absorb) takes in an error for it, which is due once it cannot be done any more. The kernel is to ask from
    /// now on as well: of an extended attribute, or of data that the server has put elsewhere or made zeros, it drops nothing by
    /// itself, for it takes the change to have failed.
    pub fn given_up(&mut self, ask: &Ask) {
        let touched = ask.question.touched();
        for (handle, _) in &touched.objects {
            let Some(id) = self.handles.get(handle).copied() else { continue };
            if self.nodes.get_mut(&id).is_some_and(|node| std::mem::take(&mut node.told_attrs)) {
                self.invalidate(Forget::Attrs(id));
            }
        }
        if let Question::Allocate { object, .. } | Question::Copy { to: object, .. } = &ask.question
            && let Some(id) = self.handles.get(object).copied()
        {
            self.invalidate(Forget::Data(id));
        }
        for (dir, name) in &touched.names {
            if let Some(dir) = self.handles.get(dir).copied() {
                self.forget_entry(true, dir, name);
            }
        }
    }
}
