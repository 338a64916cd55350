//! The caps program as clients meet it, record by record.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod appends;
mod batches;
mod capabilities;
mod forced;
mod groups;
mod handed_on;
mod hostile;
mod hung;
mod lists;
mod lost;
mod made_before;
mod nameless;
mod pool;
mod power;
mod promised;
mod reserve;
mod restart;
mod times;
mod world;
