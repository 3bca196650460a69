//! The vectors of `spec/vectors/encrypt.json`, without those of encrypted fields.

use headerware_wire::encrypt::{
    Decryptor, Encryptor, HEADER, RecordKeys, Requirements, Statement, draw_salts,
};
use headerware_wire::{Headers, NotMine, Outcome, Record};
use serde_json::Value;

use crate::common::{Pairs, borrowed, cases, hex, owned, pairs, text, vectors};

fn statement(case: &Value) -> Statement {
    Statement {
        key_id: text(case, "key_id").into(),
        key_version: text(case, "key_version").into(),
        wrapped: hex(&case["wrapped_hex"]).unwrap(),
        cluster: text(case, "cluster").into(),
        topic: text(case, "topic").into(),
        signer: text(case, "signer").into(),
        key_is_encrypted: case["key_is_encrypted"] == 1,
        bound: case["bound"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().into()).collect(),
    }
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    hex(value).unwrap().try_into().unwrap()
}

/// Read a record as it arrives, from the topic and with the data key of the statement that it has.
fn read(case: &Value, headers: &Pairs, value: Option<&[u8]>) -> Result<(Outcome, Pairs, Vec<u8>), NotMine> {
    let mut headers = borrowed(headers);
    let key = hex(&case["key_hex"]);
    let header = headers.last(HEADER).and_then(|index| headers.value(index)).unwrap();
    let statement = Statement::of(header)?;
    let topic = &*statement.topic.clone();
    let mut decryptor = Decryptor::new(Requirements { topic: topic.into(), ..Requirements::default() });
    decryptor.add(statement, &array(&case["data_key_hex"]))?;
    let record = Record { topic, key: key.as_deref(), value, timestamp_ms: None };
    let mut out = Vec::new();
    let outcome = decryptor.on_consume(&record, &mut headers, None, &mut out)?;
    Ok((outcome, owned(&headers), out))
}

#[test]
fn cases_both_ways() {
    for case in cases(&vectors("encrypt"), "cases") {
        let statement = statement(case);
        let mut encryptor = Encryptor::new(statement.clone(), &array(&case["data_key_hex"])).unwrap();
        let [key, value, wire] = ["key_hex", "value_hex", "wire_value_hex"].map(|field| hex(&case[field]));
        let plain = pairs(&case["headers"], hex);
        let mut headers = borrowed(&plain);
        let record = Record {
            topic: &statement.topic,
            key: key.as_deref(),
            value: value.as_deref(),
            timestamp_ms: None,
        };
        let mut out = Vec::new();
        let outcome = encryptor.on_send(&record, &mut headers, &array(&case["salt_hex"]), &mut out).unwrap();
        let expected = if value.is_some() { Outcome::Value } else { Outcome::Headers };
        assert_eq!(outcome, expected);
        assert_eq!(headers.value(headers.len() - 1), Some(text(case, "wire").as_bytes()), "{}", case["name"]);
        assert_eq!(out, wire.clone().unwrap_or_default());
        assert_eq!(Statement::of(text(case, "wire").as_bytes()), Ok(statement.clone()));
        let found = read(case, &owned(&headers), wire.as_deref());
        assert_eq!(
            found,
            Ok((expected, plain.clone(), value.clone().unwrap_or_default())),
            "{}",
            case["name"]
        );
    }
}

#[test]
fn refused() {
    for case in cases(&vectors("encrypt"), "refused") {
        let mut headers = pairs(&case["headers"], hex);
        let wire = case["wire"].as_str().map(|text| text.as_bytes().to_vec());
        headers.push((HEADER.into(), wire));
        let found = read(case, &headers, hex(&case["wire_value_hex"]).as_deref());
        let does_not_fit = text(case, "because").ends_with("does not fit");
        assert_eq!(found.unwrap_err() == NotMine::Forged, does_not_fit, "{}", case["name"]);
    }
}

#[test]
fn keys_of_records_both_ways() {
    for case in cases(&vectors("encrypt"), "record_keys") {
        let mut keys = RecordKeys::new(&array(&case["secret_hex"]), text(case, "topic")).unwrap();
        let [key, mut wire] = ["key_hex", "wire_hex"].map(|field| hex(&case[field]).unwrap());
        let mut out = Vec::new();
        keys.encrypt(&key, &mut out).unwrap();
        assert_eq!(out, wire);
        keys.decrypt(&wire, &mut out).unwrap();
        assert_eq!(out, key);
        wire[0] ^= 1;
        assert_eq!(keys.decrypt(&wire, &mut out), Err(NotMine::Forged));
        assert!(out.is_empty());
        assert_eq!((keys.encrypt(b"", &mut out), keys.decrypt(b"", &mut out)), (Ok(()), Ok(())));
    }
}

#[test]
fn signers() {
    for case in cases(&vectors("encrypt"), "signers") {
        let verifies = case["reader_verifies"] == true;
        let requirements = Requirements { verifies, ..Requirements::default() };
        let found = requirements.check_signer(text(case, "stated"), case["verified"].as_str());
        assert_eq!(found.is_err(), case["refused"] == true, "{case}");
    }
}

#[test]
fn what_a_reader_requires_is_checked_before_a_key_is_used() {
    let stated = Statement {
        key_id: "k".into(),
        wrapped: vec![1],
        cluster: "eu".into(),
        topic: "t".into(),
        ..Statement::default()
    };
    let own = Requirements { topic: "t".into(), cluster: Some("eu".into()), ..Requirements::default() };
    let add = |requirements: Requirements| Decryptor::new(requirements).add(stated.clone(), &[1; 32]);
    assert_eq!(add(own.clone()), Ok(()));
    assert_eq!(add(Requirements { cluster: None, ..own.clone() }), Ok(()));
    assert_eq!(add(Requirements { bound: vec!["hw.id".into(), "ce_id".into()], ..own.clone() }), Ok(()));
    assert_eq!(add(Requirements { topic: "u".into(), ..own.clone() }), Err(NotMine::Origin));
    assert_eq!(add(Requirements { cluster: Some("us".into()), ..own.clone() }), Err(NotMine::Origin));
    assert_eq!(add(Requirements { bound: vec!["tenant".into()], ..own.clone() }), Err(NotMine::Missing));
    assert_eq!(add(Requirements { key_is_encrypted: true, ..own.clone() }), Err(NotMine::Missing));
}

#[test]
fn a_record_of_a_statement_that_was_not_added_is_not_mine() {
    let vectors = vectors("encrypt");
    let case = &cases(&vectors, "cases")[0];
    let mut decryptor = Decryptor::new(Requirements { topic: "orders".into(), ..Requirements::default() });
    let mut headers = Headers::new();
    headers.push(HEADER.as_bytes(), Some(text(case, "wire").as_bytes()));
    let record = Record { topic: "orders", value: Some(b"x"), ..Record::default() };
    assert_eq!(decryptor.on_consume(&record, &mut headers, None, &mut Vec::new()), Err(NotMine::Key));
}

#[test]
fn a_record_that_states_another_topic_or_signer_is_not_mine() {
    let vectors = vectors("encrypt");
    let case = cases(&vectors, "cases").iter().find(|case| case["signer"] == "audit").unwrap();
    let requirements = Requirements { topic: "orders".into(), verifies: true, ..Requirements::default() };
    let mut decryptor = Decryptor::new(requirements);
    decryptor.add(statement(case), &array(&case["data_key_hex"])).unwrap();
    let [key, value] = ["key_hex", "wire_value_hex"].map(|field| hex(&case[field]));
    let mut read = |topic, signer| {
        let (mut headers, mut out) = (Headers::new(), Vec::new());
        headers.push(HEADER.as_bytes(), Some(text(case, "wire").as_bytes()));
        let record = Record { topic, key: key.as_deref(), value: value.as_deref(), timestamp_ms: None };
        decryptor.on_consume(&record, &mut headers, signer, &mut out)
    };
    assert_eq!(read("orders", Some("audit")), Ok(Outcome::Value));
    assert_eq!(read("orders", Some("other")), Err(NotMine::Signer));
    assert_eq!(read("orders", None), Err(NotMine::Signer));
    assert_eq!(read("payments", Some("audit")), Err(NotMine::Origin));
}

#[test]
fn salts_differ() {
    let mut salts = Vec::new();
    draw_salts(1000, &mut salts).unwrap();
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), 1000);
}
