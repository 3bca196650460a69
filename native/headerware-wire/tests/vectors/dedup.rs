//! The vectors of `spec/vectors/dedup.json`.

use headerware_wire::dedup::{HEADER, IdFrom, Identity, on_consume};
use headerware_wire::{Headers, NotMine, Record};

use crate::common::{borrowed, bytes, cases, hex, pairs, text, vectors};

#[test]
fn identities_both_ways() {
    for case in cases(&vectors("dedup"), "identities") {
        let source = hex(&case["source_hex"]).unwrap().try_into().unwrap();
        let identity = match hex(&case["digest_hex"]) {
            None => Identity::Sequence(source, case["sequence"].as_u64().unwrap()),
            Some(digest) => Identity::Digest(source, digest.try_into().unwrap()),
        };
        assert_eq!(Identity::parse(bytes(&case["wire"]).as_deref()), Ok(identity));
        let mut headers = Headers::new();
        identity.on_send(&mut headers).unwrap();
        assert_eq!(headers.value(0), Some(text(case, "wire").as_bytes()));
        assert_eq!(identity.on_send(&mut headers), Err(NotMine::Present));
    }
}

#[test]
fn derived() {
    for case in cases(&vectors("dedup"), "derived") {
        let options = &case["options"];
        let names = options["id_from"].as_array().unwrap().iter();
        let names = names.map(|name| name.as_str().unwrap().into()).collect();
        let topic = text(case, "topic");
        let has_key = options["id_from_key"] == true;
        let step = IdFrom::new(topic, options["producer"].as_str(), names, has_key).unwrap();
        let (headers, key) = (pairs(&case["headers"], bytes), bytes(&case["key"]));
        let record = Record { topic, key: key.as_deref(), ..Record::default() };
        let mut written = borrowed(&headers);
        step.identity(&record, &written).unwrap().on_send(&mut written).unwrap();
        assert_eq!(written.value(headers.len()), Some(text(case, "wire").as_bytes()), "{case}");
    }
}

#[test]
fn letters() {
    for case in cases(&vectors("dedup"), "letters") {
        let given = pairs(&case["headers"], bytes);
        let mut headers = borrowed(&given);
        let record = Record { topic: text(case, "topic"), ..Record::default() };
        let mut known_by = Vec::new();
        assert!(on_consume(&record, &mut headers, &mut known_by).unwrap().is_some());
        assert_eq!(Some(known_by), hex(&case["known_by_hex"]), "{case}");
        assert_eq!((headers.len(), headers.last(HEADER)), (given.len() - 1, None));
    }
}

#[test]
fn refused() {
    for case in cases(&vectors("dedup"), "refused") {
        assert!(Identity::parse(bytes(&case["wire"]).as_deref()).is_err(), "{case}");
    }
    // Version 2 of kind 2.
    let wire = b"AgIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";
    assert_eq!(Identity::parse(Some(wire)), Err(NotMine::Version));
}

#[test]
fn a_record_without_what_its_identity_is_made_of_is_not_mine() {
    let step = IdFrom::new("t", None, vec!["a".into()], true).unwrap();
    let record = Record { topic: "t", key: Some(b"k"), ..Record::default() };
    let mut headers = Headers::new();
    assert_eq!(step.identity(&record, &headers), Err(NotMine::Missing));
    headers.push(b"a", Some(b"1"));
    assert!(step.identity(&record, &headers).is_ok());
    assert_eq!(step.identity(&Record { key: Some(b""), ..record }, &headers), Err(NotMine::Missing));
    headers.push(b"a", None);
    assert_eq!(step.identity(&record, &headers), Err(NotMine::Missing));
}
