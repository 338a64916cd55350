//! Every operation by scripted compounds: arguments in, the whole reply out, over the in-memory file system with a
//! clock that the test moves. One module an operation, named as its file under `src/op`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod client;
mod world;

mod close;
mod commit_failure;
mod create_session;
mod engine;
mod exchange_id;
mod filehandle;
mod lock;
mod open;
mod random;
mod retry;
mod sequence;
mod setclientid;
