//! Hashes and keyed hashes, by `ring`: it is fast also on processors without instructions for SHA-256.

use std::hint::black_box;

use ring::digest::{Context, SHA256};
use ring::hmac::{self, Algorithm, Key, Tag};

pub(crate) type Hash = [u8; 32];

/// Return the SHA-256 of some parts, one behind the other.
pub(crate) fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().first_chunk().copied().unwrap_or_default()
}

/// HMAC with the states after its key, so that the key is hashed once. They are overwritten when it is dropped.
pub(crate) struct Hmac(Box<Key>);

impl Hmac {
    pub(crate) fn new(algorithm: Algorithm, key: &[u8]) -> Self {
        Self(Box::new(Key::new(algorithm, key)))
    }

    /// Return the HMAC of some parts, one behind the other. Nobody overwrites it, nor what is on the stack.
    pub(crate) fn of(&self, parts: &[&[u8]]) -> Tag {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Return whether this is the HMAC of a message, in a time that does not depend on where it differs.
    pub(crate) fn verify(&self, message: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.0, message, tag).is_ok()
    }
}

impl Drop for Hmac {
    fn drop(&mut self) {
        *self.0 = Key::new(self.0.algorithm(), &[]);
        black_box(&self.0); // or the compiler leaves out what nobody reads
    }
}
