//! Every operation by scripted compounds: arguments in, the whole reply out, over the in-memory file system with a
//! clock that the test moves. One module an operation, named as its file under `src/op`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod callback;
mod client;
mod world;

mod channel;
mod close;
mod commit_failure;
mod copy;
mod create_session;
mod current_stateid;
mod delegated_io;
mod delegation;
mod engine;
mod exchange_id;
mod filehandle;
mod getattr;
mod lock;
mod lock_waits;
mod lookup;
mod moved;
mod name;
mod notify;
mod open;
mod owner;
mod panic;
mod random;
mod read;
mod readdir;
mod recalls;
mod retry;
mod scene;
mod secinfo;
mod sequence;
mod setclientid;
mod space;
mod wanted;
mod write;
mod xattr;
