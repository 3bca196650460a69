//! The headers of Headerware on the wire, as the pages of `spec/` say. Nothing here knows Python, Kafka or Arrow.
//!
//! Each step is a struct that is made once, of its options and keys. Its methods take one record at a time:
//! a [`Record`], its [`Headers`], and where the value changes a buffer for the new value. A step answers with
//! what it did, or with [`NotMine`].
//!
//! `NotMine` means that the caller does this record again, from its original, with the complete implementation.
//! It is the answer to all that is unusual or wrong. Headers and buffers are then in no particular state, but
//! nothing that a step keeps for later records has changed.
//!
//! No method panics, whatever the bytes are. None allocates memory for a size that a value of so many bytes
//! cannot have; if memory is short for a possible size, the record is not mine.

#![forbid(unsafe_code)]

pub mod compress;
pub mod dedup;
pub mod encrypt;
pub mod expires;
pub mod header_ids;
pub mod headers;
pub mod keys;
pub mod signature;
pub mod slice;
pub mod trail;

mod hashing;
mod text;

pub use headers::Headers;

/// A record as a step sees it, without its headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'r> {
    /// The topic that the record is sent to or was read from.
    pub topic: &'r str,
    /// The key, or `None` if it is null.
    pub key: Option<&'r [u8]>,
    /// The value, or `None` if it is null.
    pub value: Option<&'r [u8]>,
    /// The timestamp in milliseconds since the epoch, if there is one.
    pub timestamp_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Unchanged,
    /// The headers changed; the value stays as it is.
    Headers,
    /// The headers changed, and the new value is in the buffer.
    Value,
}

/// Why a step leaves a record to the complete implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotMine {
    /// A header that a record has once is there more than once.
    Repeated,
    /// A header that the step writes is already there.
    Present,
    /// A header, key or value that must be there is missing, null or empty.
    Missing,
    /// A text is not in its one spelling.
    Spelling,
    /// The layout has another version or suite.
    Version,
    /// The layout is cut, has bytes left over, or breaks one of its rules.
    Layout,
    TooLarge,
    /// A codec, an algorithm or an option that this crate does not carry.
    Unsupported,
    /// The key is not among the given keys, or may not be used as one.
    Key,
    /// The dictionary is not among the given dictionaries, is damaged, or is not the one that the frame names.
    Dictionary,
    /// The record is stated to be of another topic or cluster.
    Origin,
    /// The record is signed by another key than it states, or by none.
    Signer,
    /// A header follows the signature, so that the signature does not cover it.
    Uncovered,
    /// A header's name has a zero byte, is not UTF-8, or is reserved.
    Name,
    /// A stated time is outside of what the reader accepts.
    Time,
    /// A signature, a key commitment or a tag does not fit.
    Forged,
    /// The compressed value is cut, corrupt, or followed by other bytes.
    Corrupt,
}

impl std::fmt::Display for NotMine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "left to the complete implementation: {self:?}")
    }
}

impl std::error::Error for NotMine {}

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
