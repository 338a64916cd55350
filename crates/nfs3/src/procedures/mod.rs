//! The procedures, one family a file: what each means, and nothing of what all repeat.

pub(crate) mod attributes;
pub(crate) mod create;
pub(crate) mod io;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod volume;
