//! What of an object was lost after it had been said to be done, and who has heard of it: the rule of Linux's `errseq_t`.
//! Each open hears of a loss once, at its `fsync`; a new one of what nobody has heard of. That one has heard does not keep it
//! from another, and who only reads takes nothing from who has written.

use crate::errno::Errno;

/// Losses of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// The first since somebody last heard of one.
    last: Option<Errno>,
    count: u64,
    is_heard: bool,
    /// That data was lost stands among the conflicts.
    is_listed: bool,
}

/// How far one open has heard of its object's losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    through: u64,
    /// What was lost before the open is for `fsync` alone to tell: a `close` would tell it of others' data.
    before: u64,
}

impl Losses {
    pub(crate) fn note(&mut self, errno: Errno) {
        if self.unheard().is_none() {
            *self = Self { last: Some(errno), count: self.count + 1, is_heard: false, ..*self };
        }
    }

    /// Whether a loss of data has still to be listed, which it is by that.
    pub(crate) const fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// What nobody has heard of.
    pub(crate) fn unheard(&self) -> Option<Errno> {
        self.last.filter(|_| !self.is_heard)
    }

    /// Where a new open begins.
    pub(crate) fn opened(&self) -> Heard {
        let through = if self.unheard().is_some() { self.count - 1 } else { self.count };
        Heard { through, before: self.count }
    }

    /// Tells an open what it has not heard of.
    pub(crate) fn tell(&mut self, heard: &mut Heard) -> Option<Errno> {
        let errno = self.last.filter(|_| heard.through < self.count)?;
        heard.through = self.count;
        self.is_heard = true;
        Some(errno)
    }

    /// Tells those who have no open of it.
    pub(crate) fn tell_nobody(&mut self) -> Option<Errno> {
        let errno = self.unheard()?;
        self.is_heard = true;
        Some(errno)
    }

    /// What a `close` says: it may be that of one descriptor of several, whose result nobody looks at, so that it does
    /// not count as heard.
    pub(crate) fn at_close(&self, heard: Heard) -> Option<Errno> {
        self.last.filter(|_| heard.through.max(heard.before) < self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_hears_once_and_a_new_one_what_nobody_has_heard() {
        let mut losses = Losses::default();
        let [mut one, mut other] = [losses.opened(), losses.opened()];
        losses.note(Errno::ENOSPC);
        losses.note(Errno::EIO);
        let mut late = losses.opened();
        assert_eq!(losses.at_close(late), None, "it was before it");
        assert_eq!([losses.at_close(one), losses.at_close(one)], [Some(Errno::ENOSPC); 2]);
        assert_eq!([losses.tell(&mut one), losses.tell(&mut one)], [Some(Errno::ENOSPC), None]);
        assert_eq!(losses.at_close(one), None);
        assert_eq!([losses.tell(&mut late), losses.tell(&mut other)], [Some(Errno::ENOSPC); 2]);
        let mut later = losses.opened();
        assert_eq!(losses.tell(&mut later), None, "others have heard of it");
        losses.note(Errno::EIO);
        assert_eq!([losses.tell(&mut later), losses.tell(&mut one)], [Some(Errno::EIO); 2]);
        assert_eq!(losses.unheard(), None);
    }

    #[test]
    fn a_loss_of_data_is_listed_once_whatever_else_is_lost() {
        let mut losses = Losses::default();
        losses.note(Errno::EEXIST);
        assert_eq!([losses.list(), losses.list()], [true, false]);
        assert_eq!(losses.tell_nobody(), Some(Errno::EEXIST));
        losses.note(Errno::ENOSPC);
        assert!(!losses.list(), "it stands there already");
    }
}
