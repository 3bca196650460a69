//! The vectors of `spec/`, both ways, and what they do not have.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod compress;
mod dedup;
mod encrypt;
mod expires;
mod header_ids;
mod properties;
mod signature;
mod slice;
mod trail;
