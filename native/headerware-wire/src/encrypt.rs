//! Encrypted values and keys, `hw.encrypt` ([spec/encrypt.md](../../../spec/encrypt.md)).
//!
//! Data keys come from outside: wrapping, unwrapping and key services are the caller's.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit as _};
use aes_siv::siv::Aes256Siv;
use ring::hmac::HMAC_SHA512;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::hashing::Hmac;
use crate::text::{Fields, decode, encode, put_long, put_short};
use crate::{Headers, NotMine, Outcome, Record};

pub const HEADER: &str = "hw.encrypt";

const DOMAIN: &[u8] = b"headerware/hw.encrypt/1";
const KEY_DOMAIN: &[u8] = b"headerware/hw.key/1";
const SUITE: u8 = 1;
const TAG_BYTES: usize = 16;
const SALT_BYTES: usize = 24;
const COMMITMENT_BYTES: usize = 32;
const MAX_NAMES: usize = 64;
/// How many data keys a reader keeps.
const MAX_KEYS: usize = 1024;

/// A salt, which is drawn for one record.
pub type Salt = [u8; SALT_BYTES];

/// Draw a salt for each record of a batch from the system's generator. Draw again after a fork.
pub fn draw_salts(count: usize, salts: &mut Vec<Salt>) -> Result<(), NotMine> {
    salts.clear();
    salts.resize(count, [0; SALT_BYTES]);
    getrandom::fill(salts.as_flattened_mut()).map_err(|_| {
        salts.clear(); // nobody uses a salt that was not drawn
        NotMine::Unsupported
    })
}

/// Headers that describe the plaintext, and are always bound.
fn is_always_bound(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 11] = [
        b"hw.compress",
        b"hw.id",
        b"hw.schema",
        b"avro.schema",
        b"avro.schema.key",
        b"content-type",
        b"Content-Type",
        b"key-content-type",
        b"Key-Content-Type",
        b"__key_schema_id",
        b"__value_schema_id",
    ];
    name.starts_with(b"ce_") || NAMES.contains(&name)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The id of the key-encryption key.
    pub key_id: String,
    /// The version of the key-encryption key; empty if its service has none.
    pub key_version: String,
    pub wrapped: Vec<u8>,
    pub cluster: String,
    pub topic: String,
    /// The id of the key that signs the record; empty if none is stated.
    pub signer: String,
    pub key_is_encrypted: bool,
    /// The names of bound headers, in ascending order.
    pub bound: Vec<String>,
}

impl Statement {
    /// Write the layout, up to the salt.
    pub fn write(&self) -> Result<Vec<u8>, NotMine> {
        let is_ascending = self.bound.is_sorted_by(|one, next| one < next);
        if self.key_id.is_empty() || self.wrapped.is_empty() || self.topic.contains('/') || !is_ascending {
            return Err(NotMine::Layout);
        }
        let mut layout = vec![1, SUITE];
        put_short(&mut layout, self.key_id.as_bytes())?;
        put_short(&mut layout, self.key_version.as_bytes())?;
        let size = u16::try_from(self.wrapped.len()).map_err(|_| NotMine::TooLarge)?;
        layout.extend_from_slice(&size.to_be_bytes());
        layout.extend_from_slice(&self.wrapped);
        for text in [&self.cluster, &self.topic, &self.signer] {
            put_short(&mut layout, text.as_bytes())?;
        }
        layout.push(self.key_is_encrypted.into());
        layout.push(u8::try_from(self.bound.len()).map_err(|_| NotMine::TooLarge)?);
        for name in &self.bound {
            put_short(&mut layout, name.as_bytes())?;
        }
        Ok(layout)
    }

    /// Read a statement; the bytes behind it are left over.
    fn read(fields: &mut Fields<'_>) -> Result<Self, NotMine> {
        if [fields.byte()?, fields.byte()?] != [1, SUITE] {
            return Err(NotMine::Version);
        }
        let mut statement =
            Self { key_id: fields.text()?.into(), key_version: fields.text()?.into(), ..Self::default() };
        let size = fields.u16()?;
        statement.wrapped = fields.take(size.into())?.into();
        for text in [&mut statement.cluster, &mut statement.topic, &mut statement.signer] {
            *text = fields.text()?.into();
        }
        statement.key_is_encrypted = match fields.byte()? {
            0 => false,
            1 => true,
            _ => return Err(NotMine::Layout),
        };
        for _ in 0..fields.byte()? {
            statement.bound.push(fields.text()?.into());
        }
        let is_ascending = statement.bound.is_sorted_by(|one, next| one < next);
        let is_whole = !statement.key_id.is_empty() && !statement.wrapped.is_empty();
        if !is_ascending || !is_whole || statement.topic.contains('/') {
            return Err(NotMine::Layout);
        }
        Ok(statement)
    }

    /// Read the statement of a record's header, for a caller that looks for its data key.
    pub fn of(header: &[u8]) -> Result<Self, NotMine> {
        let mut layout = Vec::new();
        decode(header, &mut layout)?;
        Self::read(&mut Fields(&layout))
    }
}

/// A data key with its statement, ready to derive the keys of records.
struct DataKey {
    statement: Vec<u8>,
    stated: Statement,
    /// HMAC under the key that HKDF extracts: each record's keys are one block of output.
    expand: Hmac,
}

impl DataKey {
    fn new(stated: Statement, data_key: &[u8; 32]) -> Result<Self, NotMine> {
        Ok(Self { statement: stated.write()?, stated, expand: extract(DOMAIN, data_key) })
    }

    /// Return the cipher of a record, and its key commitment.
    fn derive(&self, salt: &Salt) -> Result<(Aes256Gcm, [u8; COMMITMENT_BYTES]), NotMine> {
        let (key, commitment) = expand(&self.expand, &[&[SUITE], salt])?;
        let cipher = Aes256Gcm::new_from_slice(&*key).map_err(|_| NotMine::Key)?;
        Ok((cipher, *commitment))
    }

    /// Write the additional authenticated data.
    fn put_authenticated(
        &self, record: &Record<'_>, headers: &Headers<'_>, data: &mut Vec<u8>,
    ) -> Result<(), NotMine> {
        data.clear();
        data.extend_from_slice(DOMAIN);
        put_long(data, Some(&self.statement))?;
        data.push(record.value.is_none().into());
        put_long(data, record.key)?;
        let count_at = data.len();
        data.extend_from_slice(&[0; 4]);
        let mut count = 0_u32;
        for (name, value) in headers.iter() {
            let is_stated = self.stated.bound.iter().any(|bound| bound.as_bytes() == name);
            if is_stated || is_always_bound(name) {
                if std::str::from_utf8(name).is_err() {
                    return Err(NotMine::Name);
                }
                put_long(data, Some(name))?;
                put_long(data, value)?;
                count += 1;
            }
        }
        if let Some(place) = data.get_mut(count_at..count_at + 4) {
            place.copy_from_slice(&count.to_be_bytes());
        }
        Ok(())
    }
}

/// HKDF-Extract: return HMAC with the states after the pseudorandom key.
fn extract(domain: &[u8], secret: &[u8; 32]) -> Hmac {
    Hmac::new(HMAC_SHA512, Hmac::new(HMAC_SHA512, domain).of(&[secret]).as_ref())
}

type Halves = (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>);

/// HKDF-Expand to 64 bytes, as two halves.
fn expand(keyed: &Hmac, info: &[&[u8]; 2]) -> Result<Halves, NotMine> {
    let [first, second] = info;
    match keyed.of(&[first, second, &[1]]).as_ref().as_chunks().0 {
        [first, second] => Ok((Zeroizing::new(*first), Zeroizing::new(*second))),
        _ => Err(NotMine::Key),
    }
}

/// The writer's side of the step, for one data key and one topic.
pub struct Encryptor {
    key: DataKey,
    layout: Vec<u8>,
    authenticated: Vec<u8>,
}

impl Encryptor {
    /// Make the step of a data key, which the statement has in its wrapped form.
    pub fn new(statement: Statement, data_key: &[u8; 32]) -> Result<Self, NotMine> {
        if statement.bound.len() > MAX_NAMES {
            return Err(NotMine::TooLarge);
        }
        let key = DataKey::new(statement, data_key)?;
        Ok(Self { key, layout: Vec::new(), authenticated: Vec::new() })
    }

    /// Encrypt the value into `out`; a null value stays null, and only the headers change.
    ///
    /// The record's key is the key on the wire. A salt is used once.
    pub fn on_send(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, salt: &Salt, out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        headers.none(HEADER)?;
        if record.topic != self.key.stated.topic {
            return Err(NotMine::Origin);
        }
        let (cipher, commitment) = self.key.derive(salt)?;
        self.key.put_authenticated(record, headers, &mut self.authenticated)?;
        out.clear();
        out.extend_from_slice(record.value.unwrap_or_default());
        let tag = cipher
            .encrypt_inout_detached(&[0; 12].into(), &self.authenticated, out.as_mut_slice().into())
            .map_err(|_| NotMine::TooLarge)?;
        self.layout.clear();
        for part in [&self.key.statement[..], salt, &commitment] {
            self.layout.extend_from_slice(part);
        }
        let outcome = if record.value.is_some() {
            out.extend_from_slice(&tag);
            Outcome::Value
        } else {
            self.layout.extend_from_slice(&tag);
            Outcome::Headers
        };
        headers.push_written(HEADER, |written| encode(&self.layout, written));
        Ok(outcome)
    }
}

/// What a reader requires of a statement.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    /// The topic that is read, which the record must state. Other origins are not mine.
    pub topic: String,
    /// The reader's cluster, if it is known.
    pub cluster: Option<String>,
    pub bound: Vec<String>,
    /// Whether the record's key must be encrypted.
    pub key_is_encrypted: bool,
    /// Whether the reader verifies signatures on this topic.
    pub verifies: bool,
}

impl Requirements {
    /// Check what a statement says, except its signer.
    fn check(&self, stated: &Statement) -> Result<(), NotMine> {
        let is_own = |own: &String| stated.cluster.is_empty() || stated.cluster == *own;
        if stated.topic != self.topic || !self.cluster.as_ref().is_none_or(is_own) {
            return Err(NotMine::Origin);
        }
        let is_bound = |name: &String| is_always_bound(name.as_bytes()) || stated.bound.contains(name);
        if !self.bound.iter().all(is_bound) || self.key_is_encrypted && !stated.key_is_encrypted {
            return Err(NotMine::Missing);
        }
        Ok(())
    }

    /// Check the stated signer against the signer whose signature was verified.
    pub fn check_signer(&self, stated: &str, verified: Option<&str>) -> Result<(), NotMine> {
        if self.verifies && !stated.is_empty() && verified != Some(stated) {
            return Err(NotMine::Signer);
        }
        Ok(())
    }
}

/// The reader's side of the step, for one topic.
pub struct Decryptor {
    requirements: Requirements,
    keys: Vec<DataKey>,
    /// The key that fitted last, which most often fits again.
    latest: usize,
    layout: Vec<u8>,
    authenticated: Vec<u8>,
}

impl Decryptor {
    /// Make the step without data keys.
    pub fn new(requirements: Requirements) -> Self {
        let (keys, layout, authenticated) = Default::default();
        Self { requirements, keys, latest: 0, layout, authenticated }
    }

    /// Accept records of a statement, for which the key service gave this data key.
    pub fn add(&mut self, statement: Statement, data_key: &[u8; 32]) -> Result<(), NotMine> {
        self.requirements.check(&statement)?;
        let key = DataKey::new(statement, data_key)?;
        self.keys.retain(|known| known.statement != key.statement);
        if self.keys.len() >= MAX_KEYS {
            self.keys.remove(0);
        }
        self.keys.push(key);
        Ok(())
    }

    /// Decrypt the value into `out` and remove the header, if there is one.
    ///
    /// `signer` is the id of the key whose signature was verified. A record whose statement was not added is
    /// not mine, with the reason `Key`; the caller finds its data key, and adds it for later records.
    pub fn on_consume(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, signer: Option<&str>, out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        let Some(index) = headers.only(HEADER)? else { return Ok(Outcome::Unchanged) };
        if record.topic != self.requirements.topic {
            return Err(NotMine::Origin);
        }
        decode(headers.value(index).ok_or(NotMine::Missing)?, &mut self.layout)?;
        let in_header = if record.value.is_none() { TAG_BYTES } else { 0 };
        let size = self.layout.len().checked_sub(SALT_BYTES + COMMITMENT_BYTES + in_header);
        let (statement, rest) =
            size.and_then(|size| self.layout.split_at_checked(size)).ok_or(NotMine::Layout)?;
        let is_own = |key: &DataKey| key.statement == statement;
        if !self.keys.get(self.latest).is_some_and(is_own) {
            self.latest = self.keys.iter().position(is_own).ok_or(NotMine::Key)?;
        }
        let key = self.keys.get(self.latest).ok_or(NotMine::Key)?;
        self.requirements.check_signer(&key.stated.signer, signer)?;
        let mut fields = Fields(rest);
        let (cipher, commitment) = key.derive(&fields.array()?)?;
        let stated: [u8; COMMITMENT_BYTES] = fields.array()?;
        if !bool::from(commitment.ct_eq(&stated)) {
            return Err(NotMine::Forged);
        }
        let (ciphertext, tag) = match record.value {
            None => (&[][..], fields.array()?),
            Some(value) => value.split_last_chunk().map(|(text, tag)| (text, *tag)).ok_or(NotMine::Forged)?,
        };
        headers.remove(index);
        key.put_authenticated(record, headers, &mut self.authenticated)?;
        out.clear();
        out.extend_from_slice(ciphertext);
        let tag: [u8; TAG_BYTES] = tag;
        cipher
            .decrypt_inout_detached(
                &[0; 12].into(),
                &self.authenticated,
                out.as_mut_slice().into(),
                &tag.into(),
            )
            .map_err(|_| NotMine::Forged)?;
        Ok(if record.value.is_some() { Outcome::Value } else { Outcome::Headers })
    }

    /// Return the statement of the record that was decrypted last.
    pub fn stated(&self) -> Option<&Statement> {
        self.keys.get(self.latest).map(|key| &key.stated)
    }
}

/// Encryption of the keys of records in one topic, by AES-SIV.
pub struct RecordKeys {
    cipher: Aes256Siv,
    topic: Vec<u8>,
}

impl RecordKeys {
    /// Derive the topic's key from the secret.
    pub fn new(secret: &[u8; 32], topic: &str) -> Result<Self, NotMine> {
        let (first, second) = expand(&extract(KEY_DOMAIN, secret), &[topic.as_bytes(), &[]])?;
        let key = Zeroizing::new([*first, *second]);
        let cipher = Aes256Siv::new_from_slice(key.as_flattened()).map_err(|_| NotMine::Key)?;
        Ok(Self { cipher, topic: topic.into() })
    }

    /// Encrypt a key into `out`; an empty key stays empty, and a null key is not given here.
    pub fn encrypt(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<(), NotMine> {
        out.clear();
        if key.is_empty() {
            return Ok(());
        }
        out.extend_from_slice(&[0; TAG_BYTES]);
        out.extend_from_slice(key);
        let (tag, text) = out.split_first_chunk_mut::<TAG_BYTES>().ok_or(NotMine::Layout)?;
        let made = self.cipher.encrypt_inout_detached([KEY_DOMAIN, &self.topic], text.into());
        *tag = made.map_err(|_| NotMine::TooLarge)?.into();
        Ok(())
    }

    /// Decrypt a key into `out`.
    pub fn decrypt(&mut self, wire: &[u8], out: &mut Vec<u8>) -> Result<(), NotMine> {
        out.clear();
        if wire.is_empty() {
            return Ok(());
        }
        let (tag, text) = wire.split_first_chunk::<TAG_BYTES>().ok_or(NotMine::Forged)?;
        out.extend_from_slice(text);
        self.cipher
            .decrypt_inout_detached([KEY_DOMAIN, &self.topic], out.as_mut_slice().into(), &(*tag).into())
            .map_err(|_| {
                out.zeroize();
                NotMine::Forged
            })
    }
}
