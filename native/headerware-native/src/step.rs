//! The steps of a run, made of what Python passes.

use std::sync::Arc;

use headerware_wire::compress::{Decompressor, Dictionary};
use headerware_wire::dedup::{self, IdFrom, Identity};
use headerware_wire::encrypt::{Decryptor, Requirements as Accepted, Statement};
use headerware_wire::expires::{Expire, Judgement};
use headerware_wire::header_ids::{Counts, Entry, Form, HeaderIds};
use headerware_wire::keys::{Algorithm, SigningKey, VerifyingKey};
use headerware_wire::signature::{Requirements, Signed, Signer, TrustedKey, Verifier};
use headerware_wire::trail::{Place, Trail};
use headerware_wire::{Headers, NotMine, Outcome, Record, slice};
use pyo3::Borrowed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use zeroize::Zeroizing;

use crate::compress::Compressing;
use crate::encrypt::Encrypting;

/// The bytes of a key, which are overwritten when they are dropped.
struct Material(Zeroizing<Vec<u8>>);

impl FromPyObject<'_, '_> for Material {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let bytes = object.cast::<PyBytes>()?;
        Ok(Self(Zeroizing::new(bytes.as_bytes().to_vec())))
    }
}

/// Id, version, algorithm, and the secret, the private half or the public half.
type Key = (String, u16, String, Material);

pub(crate) enum Step {
    Verify {
        verifier: Verifier,
        knows_cluster: bool,
        ids: Vec<Arc<str>>,
        latest: Option<Signed>,
        signed: Vec<Signed>,
    },
    Decompress {
        step: Decompressor,
        is_latest: bool,
        decompressed: usize,
    },
    TrailRead {
        trail: Trail,
        from: Place,
    },
    TrailSent {
        trail: Trail,
        into: Place,
    },
    Expire {
        step: Expire,
        is_latest: bool,
        written: usize,
    },
    /// Takes records that have not expired.
    Unexpired(Expire),
    /// Takes records of at most so many bytes.
    Fits(usize),
    /// Takes batches without slices.
    Unsliced {
        has_slice: bool,
    },
    Compress(Box<Compressing>),
    Encrypt(Encrypting),
    Sign(Signer),
    /// `signer` is the key that has signed all records, if another run has verified them.
    Decrypt {
        step: Decryptor,
        signer: Option<String>,
    },
    WriteIds(Ids),
    ReadIds(Ids),
    /// Writes identities of this producer, with the sequences of the batch.
    NumberIdentity([u8; 16]),
    DeriveIdentity(IdFrom),
    ReadIdentity(Identities),
}

/// The bytes by which records are remembered: of the latest record, and of those before it.
#[derive(Default)]
pub(crate) struct Identities {
    has_latest: bool,
    latest: Vec<u8>,
    all: Vec<u8>,
    /// Where each of them ends; nothing for a record without an identity.
    ends: Vec<Option<usize>>,
}

impl Identities {
    fn commit(&mut self) {
        let end = self.has_latest.then(|| {
            self.all.extend_from_slice(&self.latest);
            self.all.len()
        });
        self.ends.push(end);
    }

    fn listed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut start = 0;
        let identity = |end: &Option<usize>| {
            let own = self.all.get(start..(*end)?)?;
            start += own.len();
            Some(PyBytes::new(py, own))
        };
        PyList::new(py, self.ends.iter().map(identity).collect::<Vec<_>>())
    }
}

/// Header ids, and what was done with the latest record and with those before it.
pub(crate) struct Ids {
    step: HeaderIds,
    is_latest: bool,
    changed: usize,
    saved_bytes: i64,
    unknown_ids: usize,
}

impl Ids {
    fn note(&mut self, outcome: Outcome) -> Outcome {
        self.is_latest = outcome == Outcome::Headers;
        outcome
    }

    fn commit(&mut self) {
        if self.is_latest {
            let Counts { saved_bytes, unknown_ids } = self.step.counts();
            self.changed += 1;
            self.saved_bytes += saved_bytes;
            self.unknown_ids += unknown_ids;
        }
    }

    fn forget(&mut self) {
        (self.changed, self.saved_bytes, self.unknown_ids) = (0, 0, 0);
    }
}

impl Step {
    pub(crate) fn new(name: &str, topic: &str, arguments: &Bound<'_, PyTuple>) -> PyResult<Self> {
        match name {
            "verify" => verify(topic, arguments.extract()?),
            "decompress" => decompress(arguments.extract()?),
            "compress" => Compressing::new(arguments.extract()?).map(Box::new).map(Step::Compress),
            "encrypt" => encrypt(arguments.extract()?),
            "expire" | "unexpired" => {
                let (after_ms, clock_skew_ms): (Option<i64>, i64) = arguments.extract()?;
                let step = Expire { after_ms, clock_skew_ms };
                Ok(match name {
                    "expire" => Step::Expire { step, is_latest: false, written: 0 },
                    _ => Step::Unexpired(step),
                })
            }
            "fits" => Ok(Step::Fits(arguments.extract::<(usize,)>()?.0)),
            "unsliced" => Ok(Step::Unsliced { has_slice: false }),
            "write_ids" => Ok(Step::WriteIds(header_ids(arguments.extract()?))),
            "read_ids" => Ok(Step::ReadIds(header_ids(arguments.extract()?))),
            "number_identity" => Ok(Step::NumberIdentity(arguments.extract::<([u8; 16],)>()?.0)),
            "derive_identity" => {
                let (producer, names, has_key): (Option<String>, Vec<String>, bool) = arguments.extract()?;
                IdFrom::new(topic, producer.as_deref(), names, has_key).map(Step::DeriveIdentity)
            }
            "read_identity" => Ok(Step::ReadIdentity(Identities::default())),
            "sign" => sign(topic, arguments.extract()?),
            "decrypt" => decrypt(topic, arguments.extract()?),
            "trail_read" | "trail_sent" => {
                let (service, cluster, entries, bytes): (Option<String>, Option<String>, usize, usize) =
                    arguments.extract()?;
                let trail = Trail::new(service.as_deref(), entries, bytes);
                let place = Place::new(cluster.as_deref(), topic);
                trail.map(|trail| match name {
                    "trail_read" => Step::TrailRead { trail, from: place },
                    _ => Step::TrailSent { trail, into: place },
                })
            }
            _ => return Err(PyValueError::new_err(format!("there is no step {name:?}"))),
        }
        .map_err(|not_mine| PyValueError::new_err(not_mine.to_string()))
    }

    /// Do the step for a record.
    ///
    /// `numbers` are those of the batch, `index` is the record's place in it, and `verified` is the id of the
    /// key that has signed the record, if an earlier step has verified it.
    pub(crate) fn apply(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, out: &mut Vec<u8>, numbers: &[i64],
        index: usize, verified: Option<&str>,
    ) -> Result<Outcome, NotMine> {
        let now_ms = numbers.first().copied();
        match self {
            Step::Verify { verifier, knows_cluster, latest, .. } => {
                let now_ms = now_ms.ok_or(NotMine::Time)?;
                let signed = verifier.on_consume(record, headers, now_ms)?.ok_or(NotMine::Missing)?;
                if signed.is_bound && !*knows_cluster {
                    return Err(NotMine::Origin);
                }
                *latest = Some(signed);
                Ok(Outcome::Headers)
            }
            Step::Decompress { step, is_latest, .. } => {
                let outcome = step.on_consume(record, headers, out)?;
                *is_latest = outcome == Outcome::Value;
                Ok(outcome)
            }
            Step::TrailRead { trail, from } => trail.on_consume(headers, now_ms.ok_or(NotMine::Time)?, from),
            Step::TrailSent { trail, into } => trail.on_send(headers, now_ms.ok_or(NotMine::Time)?, into),
            Step::Decrypt { step, signer } => {
                match step.on_consume(record, headers, verified.or(signer.as_deref()), out)? {
                    Outcome::Unchanged => Err(NotMine::Missing),
                    outcome => Ok(outcome),
                }
            }
            Step::Expire { step, is_latest, .. } => {
                let outcome = step.on_send(record, headers, now_ms.ok_or(NotMine::Time)?)?;
                *is_latest = outcome == Outcome::Headers;
                Ok(outcome)
            }
            Step::Unexpired(step) => match step.on_consume(record, headers, now_ms.ok_or(NotMine::Time)?)? {
                Judgement::Deliver => Ok(Outcome::Unchanged),
                _ => Err(NotMine::Time),
            },
            Step::Fits(bytes) if size_of(record, headers) > *bytes => Err(NotMine::TooLarge),
            Step::Fits(_) => Ok(Outcome::Unchanged),
            Step::Unsliced { has_slice } => match headers.last(slice::HEADER) {
                None => Ok(Outcome::Unchanged),
                Some(_) => {
                    *has_slice = true;
                    Err(NotMine::Present)
                }
            },
            Step::Compress(step) => step.on_send(record, headers, out),
            Step::Encrypt(step) => step.on_send(record, headers, numbers, index, out),
            Step::WriteIds(ids) => ids.step.on_send(headers).map(|outcome| ids.note(outcome)),
            Step::ReadIds(ids) => ids.step.on_consume(headers).map(|outcome| ids.note(outcome)),
            Step::NumberIdentity(source) => {
                let sequence = numbers.get(index).ok_or(NotMine::Missing)?.cast_unsigned();
                Identity::Sequence(*source, sequence).on_send(headers)?;
                Ok(Outcome::Headers)
            }
            Step::DeriveIdentity(from) => {
                from.identity(record, headers)?.on_send(headers)?;
                Ok(Outcome::Headers)
            }
            Step::ReadIdentity(found) => {
                found.has_latest = dedup::on_consume(record, headers, &mut found.latest)?.is_some();
                Ok(if found.has_latest { Outcome::Headers } else { Outcome::Unchanged })
            }
            Step::Sign(signer) => {
                let sequence = numbers.get(1 + index).ok_or(NotMine::Missing)?;
                signer.on_send(record, headers, now_ms.ok_or(NotMine::Time)?, sequence.cast_unsigned())?;
                Ok(Outcome::Headers)
            }
        }
    }

    /// Return how many bytes the step would make of the record.
    pub(crate) fn made_bytes(&self, record: &Record<'_>, headers: &Headers<'_>) -> usize {
        match self {
            Step::Decompress { .. } => {
                Decompressor::stated_bytes(record, headers).try_into().unwrap_or(usize::MAX)
            }
            _ => 0,
        }
    }

    /// Return the id of the key that has signed the record, if this step has verified it.
    pub(crate) fn verified(&self) -> Option<Arc<str>> {
        match self {
            Step::Verify { ids, latest, .. } => ids.get(latest.as_ref()?.key).cloned(),
            _ => None,
        }
    }

    /// Return whether the batch is left as a whole.
    pub(crate) fn leaves_batch(&self) -> bool {
        matches!(self, Step::Unsliced { has_slice: true })
    }

    /// Note that all steps have taken the record.
    pub(crate) fn commit(&mut self) {
        match self {
            Step::Verify { latest, signed, .. } => signed.extend(latest.take()),
            Step::Decompress { is_latest, decompressed, .. } => *decompressed += usize::from(*is_latest),
            Step::Expire { is_latest, written, .. } => *written += usize::from(*is_latest),
            Step::Compress(step) => step.commit(),
            Step::Encrypt(step) => step.commit(),
            Step::WriteIds(ids) | Step::ReadIds(ids) => ids.commit(),
            Step::ReadIdentity(found) => found.commit(),
            _ => {}
        }
    }

    /// Return what Python has to know about the records that were taken, and forget it.
    pub(crate) fn facts<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facts = match self {
            Step::Verify { signed, .. } => {
                Signatures { signed: std::mem::take(signed) }.into_pyobject(py)?.into_any()
            }
            Step::Decompress { decompressed, .. } => decompressed.into_pyobject(py)?.into_any(),
            Step::Expire { written, .. } => written.into_pyobject(py)?.into_any(),
            Step::Compress(step) => step.counts().into_pyobject(py)?.into_any(),
            Step::Encrypt(step) => step.counts().into_pyobject(py)?.into_any(),
            Step::WriteIds(ids) => (ids.changed, ids.saved_bytes).into_pyobject(py)?.into_any(),
            Step::ReadIds(ids) => (ids.changed, ids.unknown_ids).into_pyobject(py)?.into_any(),
            Step::ReadIdentity(found) => found.listed(py)?.into_any(),
            _ => py.None().into_bound(py),
        };
        self.forget();
        Ok(facts)
    }

    pub(crate) fn forget(&mut self) {
        match self {
            Step::Verify { signed, .. } => signed.clear(),
            Step::Decompress { decompressed, .. } => *decompressed = 0,
            Step::Expire { written, .. } => *written = 0,
            Step::Unsliced { has_slice } => *has_slice = false,
            Step::Compress(step) => step.forget(),
            Step::Encrypt(step) => step.forget(),
            Step::WriteIds(ids) | Step::ReadIds(ids) => ids.forget(),
            Step::ReadIdentity(found) => {
                found.all.clear();
                found.ends.clear();
            }
            _ => {}
        }
    }
}

/// Return the bytes of a record; the lengths in a header's frame count as ten.
fn size_of(record: &Record<'_>, headers: &Headers<'_>) -> usize {
    let Some(value) = record.value else { return 0 }; // a null value is never split
    let sizes = headers.iter().map(|(name, value)| 10 + name.len() + value.map_or(0, <[u8]>::len));
    value.len() + record.key.map_or(0, <[u8]>::len) + sizes.sum::<usize>()
}

/// What was signed, for each record that was taken; many applications do not ask.
#[pyclass(module = "headerware_native", frozen)]
struct Signatures {
    signed: Vec<Signed>,
}

#[pymethods]
impl Signatures {
    /// Return columns: key and whether the cluster is stated in one number, time, producer, sequence.
    #[allow(clippy::type_complexity)] // it is said in words
    fn columns<'py>(&self, py: Python<'py>) -> (Vec<usize>, Vec<i64>, Vec<Bound<'py, PyBytes>>, Vec<u64>) {
        let signed = || self.signed.iter();
        let statements = signed().map(|signed| 2 * signed.key + usize::from(signed.is_bound)).collect();
        let times = signed().map(|signed| signed.time_ms).collect();
        let mut producers: Vec<Bound<'py, PyBytes>> = Vec::with_capacity(self.signed.len());
        for signed in signed() {
            match producers.last() {
                Some(before) if before.as_bytes() == signed.producer => producers.push(before.clone()),
                _ => producers.push(PyBytes::new(py, &signed.producer)),
            }
        }
        (statements, times, producers, signed().map(|signed| signed.sequence).collect())
    }
}

/// Cluster, the age that signatures may have, the tolerance for clocks, and the keys.
type Verifying = (Option<String>, Option<i64>, i64, Vec<Key>);

fn verify(topic: &str, arguments: Verifying) -> Result<Step, NotMine> {
    let (cluster, max_age_ms, clock_skew_ms, keys) = arguments;
    let knows_cluster = cluster.is_some();
    let keys = keys.into_iter().map(|(id, version, algorithm, material)| {
        let key = VerifyingKey::new(Algorithm::of(&algorithm)?, &material.0)?;
        Ok(TrustedKey { id, version, key, not_before_ms: None, not_after_ms: None })
    });
    let keys = keys.collect::<Result<Vec<_>, NotMine>>()?;
    let ids = keys.iter().map(|key| key.id.as_str().into()).collect();
    let requirements = Requirements { topic: topic.into(), cluster, max_age_ms, clock_skew_ms };
    let verifier = Verifier::new(keys, requirements);
    Ok(Step::Verify { verifier, knows_cluster, ids, latest: None, signed: Vec::new() })
}

/// The limit for decompressed values, and the dictionaries.
fn decompress((max_bytes, dictionaries): (usize, Vec<Vec<u8>>)) -> Result<Step, NotMine> {
    let mut step = Decompressor::new(max_bytes)?;
    for dictionary in &dictionaries {
        step.add(&Dictionary::new(dictionary)?)?;
    }
    Ok(Step::Decompress { step, is_latest: false, decompressed: 0 })
}

/// The statement as text, its data key, and whether null values pass.
type Encryption = (Vec<u8>, Material, bool);

fn encrypt((statement, secret, passes_nulls): Encryption) -> Result<Step, NotMine> {
    Encrypting::new(&statement, &secret.0, passes_nulls).map(Step::Encrypt)
}

/// Whether the form is packed, and ids with their names, and whether a writer sends the name as the id.
type Registry = (bool, Vec<(u32, String, bool)>);

fn header_ids((is_packed, entries): Registry) -> Ids {
    let form = if is_packed { Form::Packed } else { Form::Keys };
    let entries = entries.into_iter().map(|(id, name, is_written)| Entry { id, name, is_written });
    Ids { step: HeaderIds::new(form, entries), is_latest: false, changed: 0, saved_bytes: 0, unknown_ids: 0 }
}

/// Key, cluster, and the producer id.
type Signing = (Key, Option<String>, [u8; 8]);

fn sign(topic: &str, (key, cluster, producer): Signing) -> Result<Step, NotMine> {
    let (id, version, algorithm, private) = key;
    let key = SigningKey::new(Algorithm::of(&algorithm)?, &private.0)?;
    Signer::new(key, &id, version, cluster.as_deref(), topic, producer).map(Step::Sign)
}

/// Whether signatures are verified, the key that has signed all records, and statements with their data keys.
type Decrypting = (bool, Option<String>, Vec<(Vec<u8>, Material)>);

fn decrypt(topic: &str, arguments: Decrypting) -> Result<Step, NotMine> {
    let (verifies, signer, statements) = arguments;
    // Python has accepted the statements; those of other origins are left to it.
    let requirements = Accepted { topic: topic.into(), verifies, ..Default::default() };
    let mut step = Decryptor::new(requirements);
    for (text, secret) in statements {
        let secret = secret.0.as_slice().try_into().map_err(|_| NotMine::Key)?;
        let _ = Statement::of(&text).and_then(|statement| step.add(statement, secret));
    }
    Ok(Step::Decrypt { step, signer })
}
