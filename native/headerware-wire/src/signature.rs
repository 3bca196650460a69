//! Signatures, `hw.sig` ([spec/signature.md](../../../spec/signature.md)): of single records and of batches.

use std::ops::Range;

use crate::hashing::{Hash, sha256};
use crate::keys::{Algorithm, SigningKey, VerifyingKey};
use crate::text::{Fields, decode, encode, length, put_long, put_short};
use crate::{Headers, NotMine, Record};

pub const HEADER: &str = "hw.sig";

const SINGLE: u8 = 1;
const BATCH: u8 = 2;
const MAX_BATCH: usize = 65_535;

/// Write what both versions begin with: the domain, and the algorithm's name.
fn put_domain(message: &mut Vec<u8>, version: u8, algorithm: Algorithm) -> Result<(), NotMine> {
    message.clear();
    message.extend_from_slice(b"headerware/hw.sig/");
    message.push(b'0' + version);
    put_long(message, Some(algorithm.name().as_bytes()))
}

/// Write the bytes that cover a record, with the headers in front of the signature.
fn put_record<'h>(
    message: &mut Vec<u8>, layout: &[u8], record: &Record<'_>,
    covered: impl ExactSizeIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
) -> Result<(), NotMine> {
    put_long(message, Some(layout))?;
    message.extend_from_slice(&length(record.key)?);
    message.extend_from_slice(&length(record.value)?);
    message.extend_from_slice(&u32::try_from(covered.len()).map_err(|_| NotMine::TooLarge)?.to_be_bytes());
    message.extend_from_slice(record.key.unwrap_or_default());
    message.extend_from_slice(record.value.unwrap_or_default());
    for (name, value) in covered {
        if name.contains(&0) || std::str::from_utf8(name).is_err() {
            return Err(NotMine::Name);
        }
        put_long(message, Some(name))?;
        put_long(message, value)?;
    }
    Ok(())
}

fn hash_leaf(message: &[u8]) -> Hash {
    sha256(&[&[0], message])
}

fn hash_node(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// Write the bytes that the signature of a batch covers.
fn put_root(
    message: &mut Vec<u8>, algorithm: Algorithm, head: &[u8], count: u16, root: &Hash,
) -> Result<(), NotMine> {
    put_domain(message, BATCH, algorithm)?;
    put_long(message, Some(head))?;
    message.extend_from_slice(&count.to_be_bytes());
    message.extend_from_slice(root);
    Ok(())
}

/// A writer that signs records of one topic.
pub struct Signer {
    key: SigningKey,
    topic: String,
    /// The layout from the version up to the topic.
    head: Vec<u8>,
    producer: [u8; 8],
    layout: Vec<u8>,
    message: Vec<u8>,
}

impl Signer {
    /// Make a signer; `producer` is drawn at random for each session, and again after a fork.
    pub fn new(
        key: SigningKey, key_id: &str, key_version: u16, cluster: Option<&str>, topic: &str,
        producer: [u8; 8],
    ) -> Result<Self, NotMine> {
        if key_id.is_empty() || key_version == 0 {
            return Err(NotMine::Key);
        }
        let mut head = vec![SINGLE];
        put_short(&mut head, key_id.as_bytes())?;
        head.extend_from_slice(&key_version.to_be_bytes());
        put_short(&mut head, cluster.unwrap_or_default().as_bytes())?;
        put_short(&mut head, topic.as_bytes())?;
        Ok(Self { key, topic: topic.into(), head, producer, layout: Vec::new(), message: Vec::new() })
    }

    /// Sign a record. A sequence is used once.
    pub fn on_send(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, time_ms: i64, sequence: u64,
    ) -> Result<(), NotMine> {
        self.put_message(SINGLE, record, headers, time_ms, sequence)?;
        self.key.sign(&self.message, &mut self.layout)?;
        headers.push_written(HEADER, |written| encode(&self.layout, written));
        Ok(())
    }

    /// Write the layout up to the sequence, and the message.
    fn put_message(
        &mut self, version: u8, record: &Record<'_>, headers: &Headers<'_>, time_ms: i64, sequence: u64,
    ) -> Result<(), NotMine> {
        headers.none(HEADER)?;
        if record.topic != self.topic {
            return Err(NotMine::Origin);
        }
        self.set_version(version);
        self.layout.clear();
        self.layout.extend_from_slice(&self.head);
        self.layout.extend_from_slice(&time_ms.to_be_bytes());
        self.layout.extend_from_slice(&self.producer);
        self.layout.extend_from_slice(&sequence.to_be_bytes());
        put_domain(&mut self.message, version, self.key.algorithm())?;
        put_record(&mut self.message, &self.layout, record, headers.iter())
    }

    fn set_version(&mut self, version: u8) {
        if let Some(first) = self.head.first_mut() {
            *first = version;
        }
    }
}

/// A writer that signs records together: `add` each record, then `finish`, then `write` each header.
pub struct BatchSigner {
    signer: Signer,
    /// The layout of each record up to the sequence, one behind the other.
    layouts: Vec<u8>,
    tree: Tree,
    signature: Vec<u8>,
}

impl BatchSigner {
    /// Sign batches as a signer would sign single records.
    pub fn new(signer: Signer) -> Self {
        Self { signer, layouts: Vec::new(), tree: Tree::default(), signature: Vec::new() }
    }

    /// Forget the records of the last batch.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.tree.hashes.clear();
        self.signature.clear();
    }

    pub fn len(&self) -> usize {
        self.layouts.len() / self.layout_bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// Add a record, whose index is the number of records before it.
    pub fn add(
        &mut self, record: &Record<'_>, headers: &Headers<'_>, time_ms: i64, sequence: u64,
    ) -> Result<(), NotMine> {
        if self.len() == MAX_BATCH || !self.signature.is_empty() {
            return Err(NotMine::TooLarge);
        }
        self.signer.put_message(BATCH, record, headers, time_ms, sequence)?;
        self.layouts.extend_from_slice(&self.signer.layout);
        self.tree.hashes.push(hash_leaf(&self.signer.message));
        Ok(())
    }

    /// Sign the batch, which has two records or more.
    pub fn finish(&mut self) -> Result<(), NotMine> {
        let count = u16::try_from(self.len()).map_err(|_| NotMine::TooLarge)?;
        if count < 2 || !self.signature.is_empty() {
            return Err(NotMine::Layout);
        }
        let root = self.tree.grow(count.into()).ok_or(NotMine::Layout)?;
        let signer = &mut self.signer;
        signer.set_version(BATCH);
        put_root(&mut signer.message, signer.key.algorithm(), &signer.head, count, &root)?;
        signer.key.sign(&signer.message, &mut self.signature)
    }

    /// Write the header of the record at an index.
    pub fn write(&mut self, index: u16, headers: &mut Headers<'_>) -> Result<(), NotMine> {
        let start = usize::from(index) * self.layout_bytes();
        let own = self.layouts.get(start..start + self.layout_bytes()).ok_or(NotMine::Layout)?;
        let count = u16::try_from(self.len()).map_err(|_| NotMine::TooLarge)?;
        let layout = &mut self.signer.layout;
        layout.clear();
        layout.extend_from_slice(own);
        layout.extend_from_slice(&index.to_be_bytes());
        layout.extend_from_slice(&count.to_be_bytes());
        self.tree.put_path(index.into(), count.into(), layout);
        layout.extend_from_slice(&self.signature);
        headers.push_written(HEADER, |written| encode(layout, written));
        Ok(())
    }

    fn layout_bytes(&self) -> usize {
        self.signer.head.len() + 24
    }
}

/// The Merkle tree of RFC 9162, section 2.1: its leaves, then each level above, up to the root.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    hashes: Vec<Hash>,
}

impl Tree {
    /// Make the tree over leaves that are not hashed yet, and return its root.
    pub fn of<L: AsRef<[u8]>>(leaves: &[L]) -> Option<(Self, Hash)> {
        let mut tree = Self { hashes: leaves.iter().map(|leaf| hash_leaf(leaf.as_ref())).collect() };
        let root = tree.grow(leaves.len())?;
        Some((tree, root))
    }

    /// Add the levels above the leaves. The last node of an odd level goes up as it is.
    fn grow(&mut self, leaves: usize) -> Option<Hash> {
        let (mut start, mut size) = (0, leaves);
        while size > 1 {
            for at in (start..start + size).step_by(2) {
                let left = *self.hashes.get(at)?;
                let is_alone = at + 1 == start + size;
                let node = if is_alone { left } else { hash_node(&left, self.hashes.get(at + 1)?) };
                self.hashes.push(node);
            }
            (start, size) = (start + size, size.div_ceil(2));
        }
        self.hashes.get(start).copied()
    }

    /// Append the path from a leaf to the root.
    pub fn put_path(&self, index: usize, leaves: usize, path: &mut Vec<u8>) {
        let (mut start, mut size, mut index) = (0, leaves, index);
        while size > 1 {
            let sibling = index ^ 1;
            if sibling < size {
                path.extend_from_slice(self.hashes.get(start + sibling).map_or(&[], |hash| &hash[..]));
            }
            (start, size, index) = (start + size, size.div_ceil(2), index / 2);
        }
    }
}

/// Return how many hashes the path of a leaf has.
fn path_length(index: u16, count: u16) -> Result<usize, NotMine> {
    if count < 2 || index >= count {
        return Err(NotMine::Layout);
    }
    let shared = 16 - (index ^ (count - 1)).leading_zeros();
    Ok((shared + index.checked_shr(shared).unwrap_or(0).count_ones()) as usize)
}

/// Return the root to which a path leads from a leaf (RFC 9162, section 2.1.3.2).
fn root_of(mut hash: Hash, index: u16, count: u16, path: &[u8]) -> Hash {
    let (mut index, mut last) = (index, count - 1);
    for sibling in path.as_chunks().0 {
        if index & 1 == 1 || index == last {
            hash = hash_node(sibling, &hash);
            while index & 1 == 0 && index != 0 {
                (index, last) = (index >> 1, last >> 1);
            }
        } else {
            hash = hash_node(&hash, sibling);
        }
        (index, last) = (index >> 1, last >> 1);
    }
    hash
}

/// A key that may vouch for the topic of a verifier.
pub struct TrustedKey {
    pub id: String,
    pub version: u16,
    pub key: VerifyingKey,
    /// The first moment at which the key may sign.
    pub not_before_ms: Option<i64>,
    /// The last moment at which the key may sign.
    pub not_after_ms: Option<i64>,
}

/// What a verifier requires besides a signature that fits.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// The topic that is read, which the record must state. Other origins are not mine.
    pub topic: String,
    /// The reader's cluster, if it is known.
    pub cluster: Option<String>,
    /// The age that a signature may have.
    pub max_age_ms: Option<i64>,
    /// The tolerance for differences between clocks.
    pub clock_skew_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The index of the key among the trusted keys.
    pub key: usize,
    /// Whether the record states its cluster.
    pub is_bound: bool,
    /// The time of signing in milliseconds since the epoch.
    pub time_ms: i64,
    pub producer: [u8; 8],
    pub sequence: u64,
}

/// A reader that verifies records of one topic.
///
/// A caller with a replay window keeps the sequences itself. Keys that are revoked are not given, so that
/// their records are not mine.
pub struct Verifier {
    keys: Vec<TrustedKey>,
    requirements: Requirements,
    layout: Vec<u8>,
    message: Vec<u8>,
    /// The signed bytes and the signatures of the batches that were verified last.
    roots: Vec<Vec<u8>>,
    next_root: usize,
}

/// How many roots of batches a verifier remembers.
const ROOTS: usize = 16;

/// A layout, as the places of its parts.
struct Statement {
    version: u8,
    key: usize,
    is_bound: bool,
    head: Range<usize>,
    signed: Range<usize>,
    time_ms: i64,
    producer: [u8; 8],
    sequence: u64,
}

impl Verifier {
    /// Make a verifier with the keys that it trusts for the topic.
    pub fn new(keys: Vec<TrustedKey>, requirements: Requirements) -> Self {
        let (layout, message, roots) = Default::default();
        Self { keys, requirements, layout, message, roots, next_root: 0 }
    }

    pub fn keys(&self) -> &[TrustedKey] {
        &self.keys
    }

    /// Verify a record and remove its signature; `None` is a record without a signature.
    pub fn on_consume(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, now_ms: i64,
    ) -> Result<Option<Signed>, NotMine> {
        let Some(index) = headers.only(HEADER)? else { return Ok(None) };
        if index + 1 != headers.len() {
            return Err(NotMine::Uncovered);
        }
        if record.topic != self.requirements.topic {
            return Err(NotMine::Origin);
        }
        decode(headers.value(index).ok_or(NotMine::Missing)?, &mut self.layout)?;
        let stated = self.statement()?;
        let key = self.keys.get(stated.key).ok_or(NotMine::Key)?;
        check_times(key, &self.requirements, stated.time_ms, now_ms)?;
        let signed = self.layout.get(stated.signed.clone()).ok_or(NotMine::Layout)?;
        put_domain(&mut self.message, stated.version, key.key.algorithm())?;
        put_record(&mut self.message, signed, record, headers.iter().take(index))?;
        if stated.version == SINGLE {
            let signature = self.layout.get(stated.signed.end..).ok_or(NotMine::Layout)?;
            key.key.verify(&self.message, signature)?;
        } else {
            self.verify_batch(&stated)?;
        }
        headers.remove(index);
        let Statement { key, is_bound, time_ms, producer, sequence, .. } = stated;
        Ok(Some(Signed { key, is_bound, time_ms, producer, sequence }))
    }

    /// Read the layout up to the sequence, and find its key.
    fn statement(&self) -> Result<Statement, NotMine> {
        let mut fields = Fields(&self.layout);
        let version = fields.byte()?;
        if version != SINGLE && version != BATCH {
            return Err(NotMine::Version);
        }
        let (id, key_version) = (fields.text()?, fields.u16()?);
        let (cluster, topic) = (fields.text()?, fields.text()?);
        let head = 0..self.layout.len() - fields.0.len();
        let time_ms = i64::from_be_bytes(fields.array()?);
        let producer = fields.array()?;
        let sequence = u64::from_be_bytes(fields.array()?);
        let signed = 0..self.layout.len() - fields.0.len();
        let is_own = |own: &String| cluster.is_empty() || cluster == own;
        if topic != self.requirements.topic || !self.requirements.cluster.as_ref().is_none_or(is_own) {
            return Err(NotMine::Origin);
        }
        let is_stated = |key: &TrustedKey| key.version == key_version && key.id == id;
        let key = self.keys.iter().position(is_stated).ok_or(NotMine::Key)?;
        let is_bound = !cluster.is_empty();
        Ok(Statement { version, key, is_bound, head, signed, time_ms, producer, sequence })
    }

    /// Hash the message to its leaf and on to the root, and verify the root unless its signature is remembered.
    fn verify_batch(&mut self, stated: &Statement) -> Result<(), NotMine> {
        let key = self.keys.get(stated.key).ok_or(NotMine::Key)?;
        let mut fields = Fields(self.layout.get(stated.signed.end..).ok_or(NotMine::Layout)?);
        let (index, count) = (fields.u16()?, fields.u16()?);
        let path = fields.take(path_length(index, count)? * size_of::<Hash>())?;
        let signature = fields.0;
        let root = root_of(hash_leaf(&self.message), index, count, path);
        let head = self.layout.get(stated.head.clone()).ok_or(NotMine::Layout)?;
        put_root(&mut self.message, key.key.algorithm(), head, count, &root)?;
        // The message names the key, so that equal bytes are signed by the same key.
        let is_signed = |root: &Vec<u8>| {
            root.split_at_checked(self.message.len()) == Some((&self.message[..], signature))
        };
        if self.roots.iter().any(is_signed) {
            return Ok(());
        }
        key.key.verify(&self.message, signature)?;
        let verified = [&self.message[..], signature].concat();
        match self.roots.get_mut(self.next_root) {
            Some(oldest) => *oldest = verified,
            None => self.roots.push(verified),
        }
        self.next_root = (self.next_root + 1) % ROOTS;
        Ok(())
    }
}

fn check_times(
    key: &TrustedKey, requirements: &Requirements, signed_ms: i64, now_ms: i64,
) -> Result<(), NotMine> {
    let latest_ms = now_ms.saturating_add(requirements.clock_skew_ms);
    let is_too_early = |first: i64| signed_ms < first || latest_ms < first;
    let is_bad_age = |max_age: i64| signed_ms < now_ms.saturating_sub(max_age) || signed_ms > latest_ms;
    if key.not_before_ms.is_some_and(is_too_early)
        || key.not_after_ms.is_some_and(|last| signed_ms > last)
        || requirements.max_age_ms.is_some_and(is_bad_age)
    {
        return Err(NotMine::Time);
    }
    Ok(())
}
