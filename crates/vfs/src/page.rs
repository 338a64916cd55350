//! Parts of listings that are kept as a protocol wrote them, for as long as they would be written the same again.

use holdfast_base::Cookie;

use crate::listing::ListEnd;

/// Which part of a listing, and in what form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKey {
    /// After which position it begins.
    pub from: Cookie,
    /// Everything else that the writer's bytes depend on, besides directory and entries: protocol, attributes, room.
    /// Never the caller: pages are everybody's who may list the directory.
    pub form: [u64; 4],
}

/// Entries as they were written.
#[derive(Debug)]
pub struct Page {
    /// What was written.
    pub bytes: Box<[u8]>,
    /// How many entries.
    pub entries: usize,
    /// Whether there are more behind them.
    pub end: ListEnd,
}

/// Something that has to stay as it is: a counter of the backend's, and where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which counter.
    pub place: u32,
    /// What it showed before the look.
    pub count: u64,
}

/// What a listing rests on: gathered while it is made, so that it can be told later whether it still holds.
#[derive(Debug, Default)]
pub struct Grounds {
    marks: Vec<Mark>,
    is_refused: bool,
}

impl Grounds {
    /// Notes something that must stay as it is.
    pub fn rest_on(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    /// Something in the listing may change without being noticed: it is not to be given again.
    pub const fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// All marks; `None` when the listing is not to be given again.
    #[must_use]
    pub fn into_marks(self) -> Option<Vec<Mark>> {
        (!self.is_refused).then_some(self.marks)
    }

    /// Whether it is not to be given again.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }
}
