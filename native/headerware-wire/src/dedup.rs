//! The identity of a record, `hw.id` ([spec/dedup.md](../../../spec/dedup.md)). Memories of identities are the
//! caller's.

use ring::digest::{Context, SHA256};
use smallvec::SmallVec;

use crate::text::{Fields, decode_array, encode, length};
use crate::{Headers, NotMine, Record};

pub const HEADER: &str = "hw.id";

const SEQUENCE: u8 = 1;
const DIGEST: u8 = 2;
const SEQUENCE_CHARACTERS: usize = 36;
const WORDS: [&[u8]; 3] = [b"topic", b"partition", b"offset"];

/// An identity: its source, and what distinguishes it from others of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    Sequence([u8; 16], u64),
    Digest([u8; 16], [u8; 16]),
}

impl Identity {
    pub fn parse(value: Option<&[u8]>) -> Result<Self, NotMine> {
        let text = value.ok_or(NotMine::Missing)?;
        let is_sequence = text.len() == SEQUENCE_CHARACTERS;
        let mut layout = [0; 34];
        if is_sequence {
            layout.iter_mut().zip(decode_array::<26>(text)?).for_each(|(place, byte)| *place = byte);
        } else {
            layout = decode_array(text)?;
        }
        let mut fields = Fields(&layout);
        match (fields.byte()?, fields.byte()?) {
            (1, SEQUENCE) if is_sequence => {
                Ok(Self::Sequence(fields.array()?, u64::from_be_bytes(fields.array()?)))
            }
            (1, DIGEST) if !is_sequence => Ok(Self::Digest(fields.array()?, fields.array()?)),
            _ => Err(NotMine::Version),
        }
    }

    pub fn put_layout(&self, layout: &mut impl Extend<u8>) {
        match self {
            Self::Sequence(producer, sequence) => {
                layout.extend([1, SEQUENCE]);
                layout.extend(*producer);
                layout.extend(sequence.to_be_bytes());
            }
            Self::Digest(scope, digest) => {
                layout.extend([1, DIGEST]);
                layout.extend(*scope);
                layout.extend(*digest);
            }
        }
    }

    pub fn on_send(&self, headers: &mut Headers<'_>) -> Result<(), NotMine> {
        headers.none(HEADER)?;
        let mut layout = SmallVec::<[u8; 36]>::new();
        self.put_layout(&mut layout);
        headers.push_written(HEADER, |written| encode(&layout, written));
        Ok(())
    }
}

/// The first 16 bytes of SHA-256 over a domain and parts behind their lengths.
struct PartsDigest(Context);

impl PartsDigest {
    fn new(domain: &[u8]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(domain);
        Self(context)
    }

    fn put(&mut self, part: &[u8]) -> Result<(), NotMine> {
        self.0.update(&length(Some(part))?);
        self.0.update(part);
        Ok(())
    }

    fn finish(self) -> Result<[u8; 16], NotMine> {
        self.0.finish().as_ref().first_chunk().copied().ok_or(NotMine::Layout)
    }
}

/// A writer of identities that are computed from records of one topic.
#[derive(Clone, Debug)]
pub struct IdFrom {
    topic: String,
    scope: [u8; 16],
    names: Vec<String>,
    has_key: bool,
}

impl IdFrom {
    /// Compute identities of the headers with these names, and of the key if it `has_key`.
    pub fn new(
        topic: &str, producer: Option<&str>, names: Vec<String>, has_key: bool,
    ) -> Result<Self, NotMine> {
        let mut scope = PartsDigest::new(b"hw.id scope\0");
        scope.put(producer.unwrap_or_default().as_bytes())?;
        scope.put(topic.as_bytes())?;
        Ok(Self { topic: topic.into(), scope: scope.finish()?, names, has_key })
    }

    pub fn identity(&self, record: &Record<'_>, headers: &Headers<'_>) -> Result<Identity, NotMine> {
        if record.topic != self.topic {
            return Err(NotMine::Origin);
        }
        let given = |value: Option<&'_ [u8]>| value.is_some_and(|value| !value.is_empty());
        let mut digest = PartsDigest::new(b"hw.id content\0");
        for name in &self.names {
            let value = headers.last(name).and_then(|index| headers.value(index));
            if !given(value) {
                return Err(NotMine::Missing);
            }
            digest.put(name.as_bytes())?;
            digest.put(value.unwrap_or_default())?;
        }
        if self.has_key {
            if !given(record.key) {
                return Err(NotMine::Missing);
            }
            digest.put(record.key.unwrap_or_default())?;
        }
        Ok(Identity::Digest(self.scope, digest.finish()?))
    }
}

/// Remove the header and write into `known_by` the bytes by which a reader remembers the record.
///
/// Return `None` if the record has no identity. A dead letter is known by other bytes than the record that was
/// refused.
pub fn on_consume(
    record: &Record<'_>, headers: &mut Headers<'_>, known_by: &mut Vec<u8>,
) -> Result<Option<Identity>, NotMine> {
    let Some(index) = headers.only(HEADER)? else { return Ok(None) };
    let identity = Identity::parse(headers.value(index))?;
    known_by.clear();
    identity.put_layout(known_by);
    let is_reason = |(name, _): (&[u8], _)| {
        let begins: [&[u8]; 4] =
            [b"__connect.errors.", b"kafka_dlt-", b"__dlq.errors.", b"headerware.dead_letter."];
        begins.iter().any(|begin| name.starts_with(begin))
    };
    if headers.iter().skip(index + 1).any(is_reason) {
        let mut letter = PartsDigest::new(b"hw.id letter\0");
        letter.put(record.topic.as_bytes())?;
        for (name, value) in headers.iter().skip(index + 1).filter(|(name, _)| is_origin(name)) {
            letter.put(name)?;
            letter.put(value.unwrap_or_default())?;
        }
        known_by.extend_from_slice(&letter.finish()?);
    }
    headers.remove(index);
    Ok(Some(identity))
}

/// Return whether a dead letter's header says where its record was.
fn is_origin(name: &[u8]) -> bool {
    let begins: [&[u8]; 4] =
        [b"__connect.errors.", b"__dlq.errors.", b"headerware.dead_letter.", b"kafka_dlt-original-"];
    begins.iter().any(|begin| name.strip_prefix(*begin).is_some_and(|word| WORDS.contains(&word)))
}
