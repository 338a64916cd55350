//! The client against servers: the `holdfast` binary (`HOLDFAST_BIN`, or the newest build), and with
//! `HOLDFAST_LAB_TARGET=ganesha` NFS-Ganesha where the rules are the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod suite;
