//! The vectors of `spec/vectors/signature.json` and `signature-batch.json`.

use headerware_wire::keys::{Algorithm, SigningKey, VerifyingKey};
use headerware_wire::signature::{
    BatchSigner, HEADER, Requirements, Signed, Signer, Tree, TrustedKey, Verifier,
};
use headerware_wire::{NotMine, Record};
use serde_json::Value;

use crate::common::{Pairs, borrowed, cases, hex, number, owned, pairs, text, vectors};

/// What the complete implementation accepts and this crate leaves to it.
const LEFT_ALONE: [(&str, NotMine); 12] = [
    ("header added behind, of another name", NotMine::Uncovered),
    ("revoked key, below the offset", NotMine::Key),
    ("mirrored from a permitted origin", NotMine::Origin),
    ("mirrored, the same topic of a permitted cluster", NotMine::Origin),
    ("rsa-pss", NotMine::Key),
    ("header added behind, the first compact key behind Headerware's block", NotMine::Uncovered),
    ("header added behind, a compact key of four digits", NotMine::Uncovered),
    ("header added behind, a name that is escaped", NotMine::Uncovered),
    ("header added behind, a name that begins with a tilde and is no key", NotMine::Uncovered),
    ("header added behind, the first id behind Headerware's block in its dotted form", NotMine::Uncovered),
    ("header added behind, no dotted form", NotMine::Uncovered),
    ("header added behind, three numbers", NotMine::Uncovered),
];

fn key_half<'v>(key: &'v Value, half: &str) -> &'v Value {
    if key["algorithm"] == "hmac-sha256" { &key["secret_hex"] } else { &key[half] }
}

fn trusted(key: &Value) -> Option<TrustedKey> {
    let algorithm = Algorithm::of(text(key, "algorithm")).ok()?;
    let is_revoked = key["status"] == "revoked";
    (!is_revoked).then(|| TrustedKey {
        id: text(key, "id").into(),
        version: number(key, "version") as u16,
        key: VerifyingKey::new(algorithm, &hex(key_half(key, "public_hex")).unwrap()).unwrap(),
        not_before_ms: None,
        not_after_ms: None,
    })
}

fn verifier(topic: &str, cluster: &str) -> Verifier {
    let keys = cases(&vectors("signature"), "keys").iter().filter_map(trusted).collect();
    let cluster = (!cluster.is_empty()).then(|| cluster.to_owned());
    let requirements = Requirements { topic: topic.into(), cluster, max_age_ms: None, clock_skew_ms: 0 };
    Verifier::new(keys, requirements)
}

fn signer(case: &Value) -> Signer {
    let keys = vectors("signature");
    let id = text(case, "key_id");
    let is_own = |key: &&Value| key["id"] == id && key["version"] == case["key_version"];
    let key = cases(&keys, "keys").iter().find(is_own).unwrap();
    let private = hex(key_half(key, "private_hex")).unwrap();
    let private = SigningKey::new(Algorithm::of(text(case, "algorithm")).unwrap(), &private).unwrap();
    let cluster = Some(text(case, "cluster")).filter(|cluster| !cluster.is_empty());
    let producer = hex(&case["producer_hex"]).unwrap().try_into().unwrap();
    Signer::new(private, id, number(case, "key_version") as u16, cluster, text(case, "topic"), producer)
        .unwrap()
}

struct Case {
    topic: String,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Pairs,
}

impl Case {
    fn new(case: &Value, topic: &str) -> Self {
        let [key, value] = ["key_hex", "value_hex"].map(|field| hex(&case[field]));
        Self { topic: topic.into(), key, value, headers: pairs(&case["headers"], hex) }
    }

    fn record(&self) -> Record<'_> {
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        Record { topic: &self.topic, key, value, timestamp_ms: None }
    }

    /// Verify the record; return the headers that are left.
    fn verify(&self, verifier: &mut Verifier) -> Result<(Option<Signed>, Pairs), NotMine> {
        let mut headers = borrowed(&self.headers);
        let signed = verifier.on_consume(&self.record(), &mut headers, 1_760_000_000_000)?;
        Ok((signed, owned(&headers)))
    }
}

#[test]
fn cases_both_ways() {
    for case in cases(&vectors("signature"), "cases") {
        let mut record = Case::new(case, text(case, "topic"));
        let mut headers = borrowed(&record.headers);
        let sequence = case["sequence"].as_u64().unwrap();
        signer(case).on_send(&record.record(), &mut headers, number(case, "signed_at_ms"), sequence).unwrap();
        let wire = owned(&headers);
        drop(headers);
        assert_eq!(
            wire.last().unwrap().1.as_deref(),
            Some(text(case, "wire").as_bytes()),
            "{}",
            case["name"]
        );
        let signed = std::mem::replace(&mut record.headers, wire);
        let mut verifier = verifier(&record.topic, text(case, "cluster"));
        let (found, left) = record.verify(&mut verifier).unwrap();
        let found = found.unwrap();
        assert_eq!(left, signed);
        assert_eq!(verifier.keys()[found.key].id, text(case, "key_id"));
        assert_eq!((found.time_ms, found.sequence), (number(case, "signed_at_ms"), sequence));
        assert_eq!(found.producer[..], hex(&case["producer_hex"]).unwrap());
    }
}

#[test]
fn accepted() {
    let mut left_alone = 0;
    for file in ["signature", "signature-batch"] {
        for case in cases(&vectors(file), "accepted") {
            let record = Case::new(case, text(case, "topic"));
            let found =
                record.verify(&mut verifier(&record.topic, case["own_cluster"].as_str().unwrap_or_default()));
            let name = text(case, "name");
            if let Some((_, why)) = LEFT_ALONE.iter().find(|(left, _)| *left == name) {
                assert_eq!(found, Err(*why), "{name}");
                left_alone += 1;
                continue;
            }
            let (signed, left) = found.expect(name);
            assert!(signed.is_some());
            assert_eq!(left, record.headers[..record.headers.len() - 1], "{name}");
        }
    }
    assert_eq!(left_alone, LEFT_ALONE.len() + 1); // one name is in both files
}

#[test]
fn refused() {
    for file in ["signature", "signature-batch"] {
        let vectors = vectors(file);
        for case in cases(&vectors, "refused") {
            let record = Case::new(case, text(case, "topic"));
            let mut fresh = verifier(&record.topic, case["own_cluster"].as_str().unwrap_or_default());
            // A batch is also refused by a reader that knows the roots of the accepted ones.
            let mut warm = verifier(&record.topic, case["own_cluster"].as_str().unwrap_or_default());
            for known in cases(&vectors, "accepted") {
                let _ = Case::new(known, text(known, "topic")).verify(&mut warm);
            }
            for verifier in [&mut fresh, &mut warm] {
                match record.verify(verifier) {
                    Err(_) => {}
                    Ok((signed, _)) => assert!(signed.is_none() && case["name"] == "no signature", "{case}"),
                }
            }
        }
    }
}

#[test]
fn trees() {
    for case in cases(&vectors("signature-batch"), "trees") {
        let leaves: Vec<_> =
            case["leaves_hex"].as_array().unwrap().iter().map(|leaf| hex(leaf).unwrap()).collect();
        let (tree, root) = Tree::of(&leaves).unwrap();
        assert_eq!(Some(root.to_vec()), hex(&case["root_hex"]));
        for (index, expected) in case["paths_hex"].as_array().unwrap().iter().enumerate() {
            let mut path = Vec::new();
            tree.put_path(index, leaves.len(), &mut path);
            assert_eq!(Some(path), hex(expected), "{case}");
        }
    }
}

#[test]
fn batches_both_ways() {
    for case in cases(&vectors("signature-batch"), "batches") {
        let mut batch = BatchSigner::new(signer(case));
        let topic = text(case, "topic");
        let mut verifier = verifier(topic, text(case, "cluster"));
        let records = case["records"].as_array().unwrap();
        for _ in 0..2 {
            batch.clear();
            for record in records {
                let own = Case::new(record, topic);
                let sequence = record["sequence"].as_u64().unwrap();
                batch
                    .add(&own.record(), &borrowed(&own.headers), number(case, "signed_at_ms"), sequence)
                    .unwrap();
            }
            batch.finish().unwrap();
            for (index, record) in records.iter().enumerate() {
                let mut own = Case::new(record, topic);
                let mut headers = borrowed(&own.headers);
                batch.write(index as u16, &mut headers).unwrap();
                assert_eq!(headers.value(headers.len() - 1), Some(text(record, "wire").as_bytes()));
                let wire = owned(&headers);
                drop(headers);
                own.headers = wire;
                let (signed, _) = own.verify(&mut verifier).unwrap();
                assert_eq!(signed.unwrap().sequence, record["sequence"].as_u64().unwrap());
            }
        }
    }
}

#[test]
fn every_leaf_of_every_size_is_verified() {
    let keys = vectors("signature-batch");
    let case = &cases(&keys, "batches")[0];
    let mut batch = BatchSigner::new(signer(case));
    let mut verifier = verifier("orders", "prod-1");
    let record = Record { topic: "orders", ..Record::default() };
    for count in 2..=20 {
        batch.clear();
        for sequence in 0..count {
            batch.add(&record, &Default::default(), 0, sequence.into()).unwrap();
        }
        batch.finish().unwrap();
        for index in 0..count {
            let mut headers = Default::default();
            batch.write(index, &mut headers).unwrap();
            let signed = verifier.on_consume(&record, &mut headers, 0).unwrap().unwrap();
            assert_eq!(signed.sequence, u64::from(index));
        }
    }
}

#[test]
fn keys_that_are_placeholders_or_of_small_order_are_refused() {
    assert!(SigningKey::new(Algorithm::HmacSha256, &[7; 32]).is_err());
    assert!(SigningKey::new(Algorithm::HmacSha256, &(0..31).collect::<Vec<_>>()).is_err());
    assert!(SigningKey::new(Algorithm::EcdsaP256, &[255; 32]).is_err());
    let point = |digits: &str| VerifyingKey::new(Algorithm::Ed25519, &hex(&digits.into()).unwrap()).err();
    for small in [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000080",
    ] {
        assert_eq!(point(small), Some(NotMine::Key), "{small}");
    }
}

#[test]
fn times_are_within_the_limits_of_key_and_reader() {
    let vectors = vectors("signature");
    let case =
        cases(&vectors, "cases").iter().find(|case| case["name"] == "ed25519: a plain record").unwrap();
    let mut record = Case::new(case, "orders");
    record.headers.push((HEADER.into(), Some(text(case, "wire").as_bytes().to_vec())));
    let signed = number(case, "signed_at_ms");
    let check = |not_before_ms, not_after_ms, max_age_ms, now_ms| {
        let key = cases(&vectors, "keys").iter().find(|key| key["id"] == "audit").unwrap();
        let key = TrustedKey { not_before_ms, not_after_ms, ..trusted(key).unwrap() };
        let requirements =
            Requirements { topic: "orders".into(), cluster: None, max_age_ms, clock_skew_ms: 1000 };
        let mut headers = borrowed(&record.headers);
        Verifier::new(vec![key], requirements).on_consume(&record.record(), &mut headers, now_ms).is_ok()
    };
    assert!(check(Some(signed), Some(signed), Some(5000), signed));
    let elsewhere = Record { topic: "payments", ..record.record() };
    let mut headers = borrowed(&record.headers);
    let found = verifier("orders", "prod-1").on_consume(&elsewhere, &mut headers, signed);
    assert_eq!(found, Err(NotMine::Origin));
    assert!(
        check(Some(signed), None, None, signed - 1000) && !check(Some(signed), None, None, signed - 1001)
    );
    assert!(!check(Some(signed + 1), None, None, signed + 1) && !check(None, Some(signed - 1), None, signed));
    assert!(check(None, None, Some(5000), signed + 5000) && !check(None, None, Some(5000), signed + 5001));
    assert!(check(None, None, Some(5000), signed - 1000) && !check(None, None, Some(5000), signed - 1001));
}
