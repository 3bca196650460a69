//! Nanoseconds per record of the steps, on this machine: `cargo run --release --example bench`.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a benchmark may fail")]

use std::hint::black_box;
use std::time::Instant;

use headerware_wire::compress::{Codec, Compressor, Decompressor, Dictionary};
use headerware_wire::encrypt::{Decryptor, Encryptor, Requirements, Statement, draw_salts};
use headerware_wire::header_ids::{Entry, Form, HeaderIds};
use headerware_wire::keys::{Algorithm, SigningKey, VerifyingKey};
use headerware_wire::signature::{self, BatchSigner, Signer, TrustedKey, Verifier};
use headerware_wire::trail::{Place, Trail};
use headerware_wire::{Headers, Record};

const RECORDS: usize = 20_000;
const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// Print the best of five runs over a batch of records.
fn measure(name: &str, records: usize, mut step: impl FnMut(usize)) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        (0..records).for_each(&mut step);
        best = best.min(start.elapsed().as_nanos() as f64 / records as f64);
    }
    println!("{name:<44} {best:>9.0} ns");
}

/// Return headers as a service sends them, borrowed from the batch.
fn refill(headers: &mut Headers<'_>) {
    headers.clear();
    headers.push(b"content-type", Some(b"application/json"));
    headers.push(b"traceparent", Some(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    headers.push(b"tenant", Some(b"blue"));
}

fn signer(algorithm: Algorithm, private: &[u8]) -> Signer {
    let key = SigningKey::new(algorithm, private).unwrap();
    Signer::new(key, "orders", 1, Some("prod-1"), "orders", [7; 8]).unwrap()
}

fn verifier(algorithm: Algorithm, public: &[u8]) -> Verifier {
    let key = VerifyingKey::new(algorithm, public).unwrap();
    let id = "orders".into();
    let key = TrustedKey { id, version: 1, key, not_before_ms: None, not_after_ms: None };
    let (topic, cluster) = ("orders".into(), Some("prod-1".into()));
    Verifier::new(vec![key], signature::Requirements { topic, cluster, max_age_ms: None, clock_skew_ms: 0 })
}

fn signatures(record: &Record<'_>) {
    let ed25519 = ed25519_dalek::SigningKey::from_bytes(SECRET).verifying_key();
    let p256 = p256::ecdsa::SigningKey::from_slice(SECRET).unwrap();
    let point = p256.verifying_key().to_sec1_point(false);
    let keys: [(Algorithm, &[u8], usize); 3] = [
        (Algorithm::HmacSha256, SECRET, RECORDS),
        (Algorithm::Ed25519, ed25519.as_bytes(), 2_000),
        (Algorithm::EcdsaP256, point.as_bytes(), 1_000),
    ];
    for (algorithm, public, records) in keys {
        let (name, mut headers) = (algorithm.name(), Headers::new());
        let mut signer = signer(algorithm, SECRET);
        measure(&format!("sign, {name}"), records, |sequence| {
            refill(&mut headers);
            signer.on_send(record, &mut headers, 1, sequence as u64).unwrap();
        });
        let text = headers.value(3).unwrap().to_vec();
        let mut verifier = verifier(algorithm, public);
        let mut headers = Headers::new();
        measure(&format!("verify, {name}"), records, |_| {
            refill(&mut headers);
            headers.push(b"hw.sig", Some(&text));
            black_box(verifier.on_consume(record, &mut headers, 1)).unwrap();
        });
    }
    let mut batch = BatchSigner::new(signer(Algorithm::Ed25519, SECRET));
    let mut headers = Headers::new();
    let mut texts = Vec::new();
    measure("sign batches of 500, ed25519, per batch", 20, |_| {
        batch.clear();
        texts.clear();
        refill(&mut headers);
        (0..500).for_each(|sequence| batch.add(record, &headers, 1, sequence).unwrap());
        batch.finish().unwrap();
        for index in 0..500 {
            let mut headers = Headers::new();
            batch.write(index, &mut headers).unwrap();
            texts.push(headers.value(0).unwrap().to_vec());
        }
    });
    let mut verifier = verifier(Algorithm::Ed25519, ed25519.as_bytes());
    let mut headers = Headers::new();
    measure("verify from batches of 500, ed25519", RECORDS, |index| {
        refill(&mut headers);
        headers.push(b"hw.sig", texts.get(index % 500).map(|text| &text[..]));
        black_box(verifier.on_consume(record, &mut headers, 1)).unwrap();
    });
}

fn trails() {
    let mut trail = Trail::new(Some("orders"), 32, 4096).unwrap();
    let place = Place::new(Some("prod-1"), "orders");
    let mut headers = Headers::new();
    measure("trail, a new one", RECORDS, |_| {
        refill(&mut headers);
        trail.on_send(&mut headers, 1_767_225_600_000, &place).unwrap();
    });
    let text = [&b"1"[..], &b",at=1767225600000;by=shop;into=eu/orders".repeat(4)].concat();
    let mut headers = Headers::new();
    measure("trail, one more entry", RECORDS, |_| {
        refill(&mut headers);
        headers.push(b"hw.trail", Some(&text));
        trail.on_consume(&mut headers, 1_767_225_600_000, &place).unwrap();
    });
}

fn compression(record: &Record<'_>) {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/compress.json");
    let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(vectors).unwrap()).unwrap();
    let hex = |value: &serde_json::Value| -> Vec<u8> {
        let digits = value.as_str().unwrap().as_bytes().chunks(2).map(std::str::from_utf8);
        digits.map(|byte| u8::from_str_radix(byte.unwrap(), 16).unwrap()).collect()
    };
    let known = &vectors["dictionaries"];
    let dictionary = Dictionary::new(&hex(&known["known"][0]["hex"])).unwrap();
    let airport = hex(&known["cases"][0]["plain_hex"]);
    let airport = Record { value: Some(&airport), ..*record };
    let codecs = [
        ("zstd", Codec::Zstd(3, None), record),
        ("zstd, a dictionary, 138 bytes", Codec::Zstd(3, Some(dictionary.clone())), &airport),
        ("gzip", Codec::Gzip(6), record),
    ];
    for (name, codec, record) in codecs {
        let (mut headers, mut out, mut plain) = (Headers::new(), Vec::new(), Vec::new());
        let mut writer = Compressor::new(codec, 1.0).unwrap();
        measure(&format!("compress, {name}"), RECORDS, |_| {
            refill(&mut headers);
            writer.on_send(record, &mut headers, &mut out).unwrap();
        });
        let header = headers.value(3).unwrap().to_vec();
        let mut reader = Decompressor::new(1 << 20).unwrap();
        reader.add(&dictionary).unwrap();
        let mut headers = Headers::new();
        measure(&format!("decompress, {name}"), RECORDS, |_| {
            refill(&mut headers);
            headers.push(b"hw.compress", Some(&header));
            let wire = Record { value: Some(&out), ..*record };
            reader.on_consume(&wire, &mut headers, &mut plain).unwrap();
        });
    }
}

fn encryption(record: &Record<'_>) {
    let statement = Statement {
        key_id: "orders".into(),
        wrapped: vec![1; 61],
        cluster: "prod-1".into(),
        topic: "orders".into(),
        ..Statement::default()
    };
    let mut salts = Vec::new();
    measure("draw salts, per 1,000", 20, |_| draw_salts(1_000, &mut salts).unwrap());
    let (mut headers, mut out, mut plain) = (Headers::new(), Vec::new(), Vec::new());
    let mut writer = Encryptor::new(statement.clone(), SECRET).unwrap();
    measure("encrypt, AES-256-GCM", RECORDS, |index| {
        refill(&mut headers);
        writer.on_send(record, &mut headers, &salts[index % 1_000], &mut out).unwrap();
    });
    let header = headers.value(3).unwrap().to_vec();
    let (topic, cluster) = ("orders".into(), Some("prod-1".into()));
    let mut reader = Decryptor::new(Requirements { topic, cluster, ..Requirements::default() });
    reader.add(statement, SECRET).unwrap();
    let mut headers = Headers::new();
    measure("decrypt, AES-256-GCM", RECORDS, |_| {
        refill(&mut headers);
        headers.push(b"hw.encrypt", Some(&header));
        let wire = Record { value: Some(&out), ..*record };
        reader.on_consume(&wire, &mut headers, None, &mut plain).unwrap();
    });
}

fn ids() {
    let names = ["hw.trail", "hw.compress", "hw.encrypt", "tenant"];
    let entry = |(name, id): (&str, u32)| Entry { id, name: name.into(), is_written: true };
    for form in [Form::Keys, Form::Packed] {
        let mut step = HeaderIds::new(form, names.into_iter().zip(1..).map(entry));
        let mut headers = Headers::new();
        measure(&format!("write and read ids, {form:?}"), RECORDS, |_| {
            refill(&mut headers);
            names.iter().for_each(|name| headers.push(name.as_bytes(), Some(b"value")));
            step.on_send(&mut headers).unwrap();
            step.on_consume(&mut headers).unwrap();
        });
    }
}

fn main() {
    let value = br#"{"id": 1042, "customer": "Ada", "lines": [{"sku": "A-1", "count": 2}]}, "#.repeat(5);
    let value = value.get(..300).unwrap_or_default();
    let record = Record { topic: "orders", key: Some(b"k-1042"), value: Some(value), timestamp_ms: None };
    println!("records of 300 bytes with 3 headers, unless a line says otherwise");
    signatures(&record);
    trails();
    compression(&record);
    encryption(&record);
    ids();
}
