//! Records that were changed at will, given to every reader: none panics or allocates by a size that is only
//! stated. With FUZZ_MINUTES set, as `make fuzz` does, it goes on so long and prints its figures.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

#[path = "vectors/common.rs"]
#[allow(dead_code, reason = "the vectors need more of it")]
mod common;

use std::alloc::System;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headerware_wire::compress::{Codec, Compressor, Decompressor, Dictionary};
use headerware_wire::dedup::{self, IdFrom, Identity};
use headerware_wire::encrypt::{self, Decryptor, Encryptor, RecordKeys, Statement};
use headerware_wire::expires::{self, Delay, Expire};
use headerware_wire::header_ids::{Entry, Form, HeaderIds};
use headerware_wire::keys::{Algorithm, SigningKey, VerifyingKey};
use headerware_wire::signature::{self, BatchSigner, Signer, TrustedKey, Verifier};
use headerware_wire::slice::{self, Slice};
use headerware_wire::trail::{self, Place, Trail};
use headerware_wire::{Headers, NotMine, Outcome, Record};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::common::{Pairs, borrowed, bytes, hex, owned, vectors};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SECRET: [u8; 32] = *b"0123456789abcdef0123456789abcdef";
/// The limit for decompressed values.
const LIMIT: usize = 64 << 10;
/// What a reader may allocate: so much, and so much for each byte of the record.
const FREE_BYTES: usize = 64 << 10;
const BYTES_PER_BYTE: usize = 256;
/// The most bytes that a change makes of a part.
const MAX_BYTES: usize = 16 << 10;
const NAMES: [&str; 10] = [
    "hw.trail",
    "hw.compress",
    "hw.encrypt",
    "hw.sig",
    "hw.ids",
    "hw.slice",
    "hw.expires",
    "hw.not-before",
    "hw.id",
    "__connect.errors.topic",
];
const NUMBERS: [u64; 9] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

#[derive(Clone, Debug, Default)]
struct Wire {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Pairs,
}

impl Wire {
    fn record(&self) -> Record<'_> {
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        Record { topic: "t", key, value, timestamp_ms: Some(0) }
    }

    fn len(&self) -> usize {
        let len = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + len(value)).sum();
        len(&self.key) + len(&self.value) + headers
    }
}

fn dictionaries() -> Vec<Dictionary> {
    let vectors = vectors("compress");
    let known = vectors["dictionaries"]["known"].as_array().unwrap().iter().take(2); // the last one is damaged
    known.map(|known| Dictionary::new(&hex(&known["hex"]).unwrap()).unwrap()).collect()
}

fn statement() -> Statement {
    let bound = vec!["a".into(), "b".into()];
    Statement { key_id: "kek".into(), wrapped: vec![1; 40], topic: "t".into(), bound, ..Statement::default() }
}

fn header_ids(form: Form) -> HeaderIds {
    let entry = |(name, id): (&&str, u32)| Entry { id, name: (*name).into(), is_written: true };
    HeaderIds::new(form, NAMES.iter().filter(|name| **name != "hw.ids").zip(1..).map(entry))
}

fn signer(algorithm: Algorithm) -> Signer {
    let key = SigningKey::new(algorithm, &SECRET).unwrap();
    Signer::new(key, algorithm.name(), 1, None, "t", [7; 8]).unwrap()
}

/// Everything that reads.
struct Readers {
    trail: Trail,
    place: Place,
    decompressor: Decompressor,
    verifier: Verifier,
    decryptor: Decryptor,
    keys: RecordKeys,
    ids: [HeaderIds; 2],
    identity: IdFrom,
}

impl Readers {
    fn new() -> Self {
        let mut decompressor = Decompressor::new(LIMIT).unwrap();
        dictionaries().iter().for_each(|dictionary| decompressor.add(dictionary).unwrap());
        let public = ed25519_dalek::SigningKey::from_bytes(&SECRET).verifying_key();
        let halves = [(Algorithm::HmacSha256, &SECRET), (Algorithm::Ed25519, public.as_bytes())];
        let trusted = halves.map(|(algorithm, half)| TrustedKey {
            id: algorithm.name().into(),
            version: 1,
            key: VerifyingKey::new(algorithm, half).unwrap(),
            not_before_ms: None,
            not_after_ms: None,
        });
        let topic = String::from("t");
        let requirements = signature::Requirements {
            topic: topic.clone(),
            cluster: None,
            max_age_ms: None,
            clock_skew_ms: 0,
        };
        let mut decryptor = Decryptor::new(encrypt::Requirements { topic, ..Default::default() });
        decryptor.add(statement(), &SECRET).unwrap();
        Self {
            trail: Trail::new(Some("s"), 32, 4096).unwrap(),
            place: Place::new(None, "t"),
            decompressor,
            verifier: Verifier::new(trusted.into(), requirements),
            decryptor,
            keys: RecordKeys::new(&SECRET, "t").unwrap(),
            ids: [header_ids(Form::Keys), header_ids(Form::Packed)],
            identity: IdFrom::new("t", None, vec!["a".into()], true).unwrap(),
        }
    }
}

/// What becomes of a record, whatever its type.
type Read = Result<(), NotMine>;
type Parser = fn(&mut Readers, &[u8], &mut Vec<u8>) -> Read;
type Reader = for<'r> fn(&mut Readers, &Record<'r>, &mut Headers<'r>, &mut Vec<u8>) -> Read;

/// The readers of records.
const READERS: [(&str, Reader); 15] = [
    ("trail, read", |all, _, headers, _| all.trail.on_consume(headers, 1, &all.place).map(drop)),
    ("trail, sent", |all, _, headers, _| all.trail.on_send(headers, 1, &all.place).map(drop)),
    ("compress", |all, record, headers, out| all.decompressor.on_consume(record, headers, out).map(drop)),
    ("compress, stated", |_, record, headers, _| {
        assert!(Decompressor::stated_bytes(record, headers) <= 1 << 40);
        Ok(())
    }),
    ("sign", |all, record, headers, _| all.verifier.on_consume(record, headers, 1).map(drop)),
    ("encrypt", |all, record, headers, out| all.decryptor.on_consume(record, headers, None, out).map(drop)),
    ("ids, keys", |all, _, headers, _| all.ids[0].on_consume(headers).map(drop)),
    ("ids, packed", |all, _, headers, _| all.ids[1].on_consume(headers).map(drop)),
    ("ids, sent", |all, _, headers, _| all.ids[1].on_send(headers).map(drop)),
    ("slice", |_, record, headers, _| slice::on_consume(record.value, headers, 1 << 20).map(drop)),
    ("dedup", |_, record, headers, out| dedup::on_consume(record, headers, out).map(drop)),
    ("dedup, computed", |all, record, headers, _| all.identity.identity(record, headers).map(drop)),
    ("expire", |_, record, headers, _| {
        Expire { after_ms: None, clock_skew_ms: 1 }.on_consume(record, headers, 1).map(drop)
    }),
    ("delay", |_, record, headers, _| {
        Delay { after_ms: None, max_delay_ms: 1 }.on_consume(record, headers, 1).map(drop)
    }),
    ("headers", |_, _, headers, _| {
        for name in NAMES {
            if let Some(index) = headers.only(name)? {
                assert_eq!(headers.name(index), Some(name.as_bytes()));
                headers.remove(index);
            }
        }
        Ok(())
    }),
];

/// The readers of one value.
const PARSERS: [(&str, Parser); 8] = [
    ("a trail", |_, bytes, _| trail::parse(Some(bytes)).map(drop)),
    ("a trail that goes on", |_, bytes, out| trail::append(bytes, b",at=1;by=x", 2, 2646, out)),
    ("an identity", |_, bytes, _| Identity::parse(Some(bytes)).map(drop)),
    ("a slice", |_, bytes, _| Slice::parse(Some(bytes)).map(drop)),
    ("a moment", |_, bytes, _| expires::parse(Some(bytes)).map(drop)),
    ("a statement", |_, bytes, _| Statement::of(bytes).map(drop)),
    ("a record's key", |all, bytes, out| all.keys.decrypt(bytes, out)),
    ("a dictionary", |_, bytes, _| Decompressor::new(1)?.add(&Dictionary::new(bytes)?)),
];

/// Records as they are written by each step alone, by several, and by the vectors.
fn seeds() -> Vec<Wire> {
    let mut seeds = vec![Wire::default()];
    for codec in codecs() {
        for value in [b"plain ".repeat(300), vec![0; LIMIT], vec![0; 2 * LIMIT]] {
            seeds.extend(sent(value, codec.clone()));
        }
    }
    for (file, name) in
        [("trail", "hw.trail"), ("slice", "hw.slice"), ("dedup", "hw.id"), ("expires", "hw.expires")]
    {
        let mut texts = Vec::new();
        gather(&vectors(file), "wire", &mut texts);
        assert!(!texts.is_empty());
        seeds.extend(texts.into_iter().map(|text| Wire {
            key: Some(b"key".into()),
            value: Some(vec![1; 3]),
            headers: vec![(name.into(), Some(text)), (b"__connect.errors.topic".into(), Some(b"t".into()))],
        }));
    }
    let compressed = vectors("compress");
    for list in [&compressed, &compressed["dictionaries"]]
        .into_iter()
        .flat_map(|all| [&all["cases"], &all["refused"]])
    {
        seeds.extend(list.as_array().unwrap().iter().map(|case| Wire {
            value: hex(&case["wire_hex"]),
            headers: vec![(b"hw.compress".into(), bytes(&case["header"]))],
            ..Wire::default()
        }));
    }
    seeds.extend(dictionaries_as_values());
    seeds.retain(|seed| seed.len() <= MAX_BYTES);
    seeds
}

fn codecs() -> Vec<Codec> {
    let with_dictionaries = dictionaries().into_iter().map(|dictionary| Codec::Zstd(3, Some(dictionary)));
    [Codec::Zstd(1, None), Codec::Gzip(6)].into_iter().chain(with_dictionaries).collect()
}

fn dictionaries_as_values() -> impl Iterator<Item = Wire> {
    let vectors = vectors("compress");
    let known = vectors["dictionaries"]["known"].as_array().unwrap().clone();
    known.into_iter().map(|known| Wire { value: hex(&known["hex"]), ..Wire::default() })
}

/// Return the record after each step of a chain, and with other signatures.
fn sent(value: Vec<u8>, codec: Codec) -> Vec<Wire> {
    let headers = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"~c".to_vec(), None)];
    let mut stages = vec![Wire { key: Some(b"key".into()), value: Some(value), headers }];
    let mut step = |make: &mut dyn FnMut(&Record<'_>, &mut Headers<'_>, &mut Vec<u8>) -> Outcome| {
        let before = stages.last().unwrap().clone();
        let (mut headers, mut out) = (borrowed(&before.headers), Vec::new());
        let is_new = make(&before.record(), &mut headers, &mut out) == Outcome::Value;
        let value = if is_new { Some(out) } else { before.value.clone() };
        stages.push(Wire { key: before.key.clone(), value, headers: owned(&headers) });
    };
    let mut trail = Trail::new(Some("s"), 32, 4096).unwrap();
    step(&mut |_, headers, _| trail.on_consume(headers, 1, &Place::new(None, "t")).unwrap());
    let mut compressor = Compressor::new(codec, 1.0).unwrap();
    step(&mut |record, headers, out| compressor.on_send(record, headers, out).unwrap());
    let mut encryptor = Encryptor::new(statement(), &SECRET).unwrap();
    step(&mut |record, headers, out| encryptor.on_send(record, headers, &[9; 24], out).unwrap());
    step(&mut |record, headers, _| {
        signer(Algorithm::HmacSha256).on_send(record, headers, 1, 2).unwrap();
        Outcome::Headers
    });
    step(&mut |_, headers, _| header_ids(Form::Packed).on_send(headers).unwrap());
    let plain = stages[0].clone();
    let mut batch = BatchSigner::new(signer(Algorithm::Ed25519));
    (0..5).for_each(|sequence| batch.add(&plain.record(), &borrowed(&plain.headers), 1, sequence).unwrap());
    batch.finish().unwrap();
    for index in 0..5 {
        let mut headers = borrowed(&plain.headers);
        batch.write(index, &mut headers).unwrap();
        stages.push(Wire { headers: owned(&headers), ..plain.clone() });
    }
    let trailed = stages[1].headers.clone();
    let mut headers = borrowed(&trailed);
    header_ids(Form::Keys).on_send(&mut headers).unwrap();
    stages.push(Wire { headers: owned(&headers), ..plain });
    stages
}

/// Collect the texts of a field, wherever they are.
fn gather(vectors: &Value, field: &str, texts: &mut Vec<Vec<u8>>) {
    match vectors {
        Value::Array(items) => items.iter().for_each(|item| gather(item, field, texts)),
        Value::Object(items) => {
            texts.extend(items.get(field).and_then(bytes));
            items.values().for_each(|item| gather(item, field, texts));
        }
        _ => {}
    }
}

/// A change: what is done, to which part, where in it, and with which bytes.
type Change = (u8, u8, u16, Vec<u8>);

fn change(wire: &mut Wire, (kind, part, at, with): &Change) {
    let (kind, part, at) = (usize::from(*kind), usize::from(*part), usize::from(*at));
    let count = wire.headers.len();
    match (kind % 16, part % (count + 2)) {
        (0, _) => {
            wire.headers.insert(at % (count + 1), (NAMES[part % NAMES.len()].into(), Some(with.clone())))
        }
        (1, place) if place < count => wire.headers.insert(at % (count + 1), wire.headers[place].clone()),
        (2, place) if place < count => drop(wire.headers.remove(place)),
        (3, place) if place < count => wire.headers.swap(place, at % count),
        (4, place) if place < count => change_bytes(&mut wire.headers[place].0, kind / 16, at, with),
        (5, place) if place < count => wire.headers[place].1 = None,
        (_, place) if place < count => {
            let value = wire.headers[place].1.get_or_insert_default();
            // Most layouts are base64: half of the changes are made to the bytes that the text stands for.
            match STANDARD.decode(&*value) {
                Ok(mut layout) if kind & 1 == 0 => {
                    change_bytes(&mut layout, kind / 16, at, with);
                    *value = STANDARD.encode(layout).into();
                }
                _ => change_bytes(value, kind / 16, at, with),
            }
        }
        (0..2, place) => *(if place == count { &mut wire.key } else { &mut wire.value }) = None,
        (_, place) if place == count => change_bytes(wire.key.get_or_insert_default(), kind / 16, at, with),
        _ => change_bytes(wire.value.get_or_insert_default(), kind / 16, at, with),
    }
}

fn change_bytes(bytes: &mut Vec<u8>, kind: usize, at: usize, with: &[u8]) {
    let from = at % (bytes.len() + 1);
    let to = bytes.len().min(from + with.len());
    let draw = usize::from(with.first().copied().unwrap_or_default());
    match kind % 9 {
        0 => bytes.truncate(from),
        1 => drop(bytes.drain(..from)),
        2 => drop(bytes.splice(from..from, with.iter().copied())),
        3 => drop(bytes.splice(from..to, with.iter().copied())),
        4 => bytes.clone_from(&with.to_vec()),
        5 => {
            let part = bytes[from..to].repeat(1 + draw * draw);
            bytes.splice(to..to, part).for_each(drop);
        }
        6 => drop(bytes.drain(from..to)),
        7 => {
            let number = NUMBERS[draw % NUMBERS.len()].to_be_bytes();
            let number = &number[8 - (1 << (draw / 16 % 4))..];
            let number: Vec<u8> =
                if draw & 1 == 0 { number.into() } else { number.iter().rev().copied().collect() };
            let to = bytes.len().min(from + number.len());
            bytes.splice(from..to, number).for_each(drop);
        }
        _ => bytes.iter_mut().skip(from).take(1).for_each(|byte| *byte ^= 1 << (draw % 8)),
    }
    bytes.truncate(MAX_BYTES);
}

fn read_all(all: &mut Readers, wire: &Wire, accepted: &mut [u64]) {
    let mut within = |name: &str, index: usize, read: &mut dyn FnMut(&mut Readers) -> Read| {
        let region = Region::new(MEMORY);
        let found = read(all);
        let allocated = region.change().bytes_allocated;
        // Room for a value without a stated size is doubled up to the limit.
        let value = if name == "compress" { 2 * LIMIT } else { 0 };
        assert!(
            allocated <= FREE_BYTES + BYTES_PER_BYTE * wire.len() + value,
            "{name} allocated {allocated} bytes for {} bytes",
            wire.len()
        );
        accepted[index] += u64::from(found.is_ok());
    };
    for (index, (name, read)) in READERS.iter().enumerate() {
        let mut headers = borrowed(&wire.headers);
        within(name, index, &mut |all| read(all, &wire.record(), &mut headers, &mut Vec::new()));
    }
    let values = wire.headers.iter().filter_map(|(_, value)| value.as_deref());
    for bytes in values.chain(wire.value.as_deref()) {
        for (index, (name, parse)) in PARSERS.iter().enumerate() {
            within(name, READERS.len() + index, &mut |all| parse(all, bytes, &mut Vec::new()));
        }
    }
}

// It is the only test here, because all threads allocate.
#[test]
fn no_record_makes_a_reader_panic_or_allocate_what_is_only_stated() {
    let minutes: f64 = std::env::var("FUZZ_MINUTES").map_or(0.0, |minutes| minutes.parse().unwrap());
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let (seeds, mut all) = (seeds(), Readers::new());
    let (mut accepted, mut records) = ([0; READERS.len() + PARSERS.len()], 0);
    for seed in &seeds {
        read_all(&mut all, seed, &mut accepted);
    }
    let names = READERS.iter().map(|(name, _)| *name).chain(PARSERS.iter().map(|(name, _)| *name));
    for (name, accepted) in names.clone().zip(accepted) {
        assert!(accepted > 0, "{name} accepts no seed");
    }
    let state = std::cell::RefCell::new((&mut all, &mut accepted, &mut records));
    let changes = prop::collection::vec(
        (any::<u8>(), any::<u8>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..24)),
        0..5,
    );
    let strategy = (any::<prop::sample::Index>(), changes);
    loop {
        let tried = TestRunner::new(Config { failure_persistence: None, ..Config::default() }).run(
            &strategy,
            |(index, changes)| {
                let mut wire = index.get(&seeds).clone();
                changes.iter().for_each(|each| change(&mut wire, each));
                let (all, accepted, records) = &mut *state.borrow_mut();
                **records += 1;
                read_all(all, &wire, &mut accepted[..]);
                Ok(())
            },
        );
        tried.unwrap();
        if Instant::now() >= until {
            break;
        }
    }
    if minutes > 0.0 {
        println!("{records} records; accepted by:");
        names.zip(accepted).for_each(|(name, accepted)| println!("{accepted:>9} {name}"));
    }
}
