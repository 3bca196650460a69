//! Any record comes back from a chain as it was sent, and no bytes make a reader panic.

use headerware_wire::compress::{Codec, Compressor, Decompressor};
use headerware_wire::encrypt::{self, Decryptor, Encryptor, Statement};
use headerware_wire::expires::{self, Delay, Expire};
use headerware_wire::header_ids::{Entry, Form, HeaderIds};
use headerware_wire::keys::{Algorithm, SigningKey, VerifyingKey};
use headerware_wire::signature::{self, Signer, TrustedKey, Verifier};
use headerware_wire::trail::{self, Place, Trail};
use headerware_wire::{Headers, NotMine, Outcome, Record, dedup, slice};
use proptest::prelude::*;

use crate::common::{Pairs, borrowed, owned};

const SECRET: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Pairs,
}

/// The steps `trail`, `compress`, `encrypt`, `sign` and `header_ids`, on both sides.
struct Chain {
    trail: Trail,
    place: Place,
    compressor: Compressor,
    decompressor: Decompressor,
    encryptor: Encryptor,
    decryptor: Decryptor,
    signer: Signer,
    verifier: Verifier,
    ids: HeaderIds,
}

impl Chain {
    fn new() -> Self {
        let (topic, wrapped) = (String::from("t"), vec![1, 2, 3]);
        let statement =
            Statement { key_id: "kek".into(), wrapped, topic: topic.clone(), ..Statement::default() };
        let mut decryptor =
            Decryptor::new(encrypt::Requirements { topic: topic.clone(), ..Default::default() });
        decryptor.add(statement.clone(), &SECRET).unwrap();
        let private = SigningKey::new(Algorithm::HmacSha256, &SECRET).unwrap();
        let key = TrustedKey {
            id: "k".into(),
            version: 1,
            key: VerifyingKey::new(Algorithm::HmacSha256, &SECRET).unwrap(),
            not_before_ms: None,
            not_after_ms: None,
        };
        let requirements =
            signature::Requirements { topic, cluster: None, max_age_ms: None, clock_skew_ms: 0 };
        let entry = |(name, id): (&str, u32)| Entry { id, name: name.into(), is_written: true };
        let names = ["hw.trail", "hw.compress", "hw.encrypt", "hw.slice", "hw.sig"];
        Self {
            trail: Trail::new(Some("s"), 32, 4096).unwrap(),
            place: Place::new(None, "t"),
            compressor: Compressor::new(Codec::Zstd(1, None), 1.0).unwrap(),
            decompressor: Decompressor::new(1 << 20).unwrap(),
            encryptor: Encryptor::new(statement, &SECRET).unwrap(),
            decryptor,
            signer: Signer::new(private, "k", 1, None, "t", [7; 8]).unwrap(),
            verifier: Verifier::new(vec![key], requirements),
            ids: HeaderIds::new(Form::Packed, names.into_iter().zip(1..).map(entry)),
        }
    }

    fn send(&mut self, plain: &Owned) -> Result<Owned, NotMine> {
        let mut headers = borrowed(&plain.headers);
        let mut record = Record { topic: "t", ..Record::default() };
        (record.key, record.value) = (plain.key.as_deref(), plain.value.as_deref());
        let (mut compressed, mut encrypted) = (Vec::new(), Vec::new());
        self.trail.on_send(&mut headers, 5, &self.place)?;
        if self.compressor.on_send(&record, &mut headers, &mut compressed)? == Outcome::Value {
            record.value = Some(&compressed);
        }
        if self.encryptor.on_send(&record, &mut headers, &[9; 24], &mut encrypted)? == Outcome::Value {
            record.value = Some(&encrypted);
        }
        self.signer.on_send(&record, &mut headers, 5, 6)?;
        self.ids.on_send(&mut headers)?;
        let value = record.value.map(<[u8]>::to_vec);
        Ok(Owned { key: plain.key.clone(), value, headers: owned(&headers) })
    }

    fn read(&mut self, wire: &Owned) -> Result<Owned, NotMine> {
        let mut headers = borrowed(&wire.headers);
        let mut record = Record { topic: "t", ..Record::default() };
        (record.key, record.value) = (wire.key.as_deref(), wire.value.as_deref());
        let (mut decrypted, mut decompressed) = (Vec::new(), Vec::new());
        self.ids.on_consume(&mut headers)?;
        self.verifier.on_consume(&record, &mut headers, 5)?.ok_or(NotMine::Missing)?;
        if self.decryptor.on_consume(&record, &mut headers, None, &mut decrypted)? == Outcome::Value {
            record.value = Some(&decrypted);
        }
        if self.decompressor.on_consume(&record, &mut headers, &mut decompressed)? == Outcome::Value {
            record.value = Some(&decompressed);
        }
        let value = record.value.map(<[u8]>::to_vec);
        Ok(Owned { key: wire.key.clone(), value, headers: owned(&headers) })
    }
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![short, prop::collection::vec(0_u8..3, 0..most * 4)]
}

fn records() -> impl Strategy<Value = Owned> {
    let name = "[a-z~ü.]{0,8}".prop_map(String::into_bytes);
    let headers = prop::collection::vec((name, prop::option::of(bytes(40))), 0..6);
    (prop::option::of(bytes(40)), prop::option::of(bytes(400)), headers)
        .prop_map(|(key, value, headers)| Owned { key, value, headers })
}

/// A change of bytes: cut them, change one, or put one in.
fn change(bytes: &mut Vec<u8>, (kind, at, byte): (u8, usize, u8)) {
    let at = at % (bytes.len() + 1);
    match (kind % 3, bytes.get_mut(at)) {
        (0, _) => bytes.truncate(at),
        (1, Some(changed)) => *changed = changed.wrapping_add(byte.max(1)),
        _ => bytes.insert(at, byte),
    }
}

proptest! {
    #[test]
    fn a_record_comes_back_as_it_was_sent(record in records()) {
        let mut chain = Chain::new();
        let wire = chain.send(&record).unwrap();
        let mut found = chain.read(&wire).unwrap();
        let trail = found.headers.pop().unwrap();
        prop_assert_eq!(trail, (b"hw.trail".to_vec(), Some(b"1,at=5;by=s;into=?/t".to_vec())));
        prop_assert_eq!(found, record);
    }

    #[test]
    fn a_changed_record_is_never_accepted_as_another(
        record in records(), part in any::<usize>(), how in any::<(u8, usize, u8)>(),
    ) {
        let mut chain = Chain::new();
        let sent = chain.send(&record).unwrap();
        let before = chain.read(&sent).unwrap();
        let mut wire = sent;
        let place = part % (wire.headers.len() * 2 + 2);
        match (place / 2, place % 2) {
            (0, 0) => wire.key.iter_mut().for_each(|key| change(key, how)),
            (0, _) => wire.value.iter_mut().for_each(|value| change(value, how)),
            (index, 0) => change(&mut wire.headers[index - 1].0, how),
            (index, _) => wire.headers[index - 1].1.iter_mut().for_each(|value| change(value, how)),
        }
        if let Ok(found) = chain.read(&wire) {
            prop_assert_eq!(found, before);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        value in bytes(300), text in "[A-Za-z0-9+/=,;:%~!1-9]{0,80}", is_text in any::<bool>(),
        (prefix, how) in (0..8_usize, any::<(u8, usize, u8)>()),
    ) {
        let prefixes: [&[u8]; 8] = [
            b"", b"1", b"1,at=1;by=", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\0", b"AQ", b"1\"$ab", b"15",
        ];
        let mut given = [prefixes[prefix], if is_text { text.as_bytes() } else { &value }].concat();
        change(&mut given, how);
        let plain = &given[..];
        let given = Some(plain);
        let mut out = Vec::new();
        let _ = trail::parse(given);
        let _ = trail::append(plain, b",at=1;by=x", 2, 2646, &mut out);
        let _ = (dedup::Identity::parse(given), slice::Slice::parse(given));
        let _ = (expires::parse(given), Statement::of(plain));
        let mut chain = Chain::new();
        let names = ["hw.ids", "hw.sig", "hw.encrypt", "hw.compress", "hw.trail", "hw.id", "hw.slice", "hw.expires"];
        for name in names {
            for header in [given, Some(b"zstd"), Some(b"gzip")] {
                let record = Record { topic: "t", value: given, ..Record::default() };
                let make = || -> Headers<'_> { [(name.as_bytes(), header), (plain, None)].into_iter().collect() };
                let _ = chain.ids.on_consume(&mut make());
                let _ = chain.ids.on_send(&mut make());
                let _ = chain.verifier.on_consume(&record, &mut make(), 0);
                let _ = chain.decryptor.on_consume(&record, &mut make(), None, &mut out);
                let _ = chain.decompressor.on_consume(&record, &mut make(), &mut out);
                let _ = chain.trail.on_consume(&mut make(), 1, &chain.place);
                let _ = dedup::on_consume(&record, &mut make(), &mut out);
                let _ = slice::on_consume(given, &mut make(), 1 << 20);
                let _ = Expire { after_ms: Some(1), clock_skew_ms: 0 }.on_consume(&record, &make(), 1);
                let _ = Delay { after_ms: None, max_delay_ms: 1 }.on_consume(&record, &make(), 1);
            }
        }
    }
}

#[test]
fn steps_may_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Chain>();
    is_send::<(encrypt::RecordKeys, dedup::IdFrom, signature::BatchSigner, Headers<'_>)>();
}
