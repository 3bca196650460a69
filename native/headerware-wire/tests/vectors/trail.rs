//! The vectors of `spec/vectors/trail.json`.

use crate::common::{bytes, cases, hex, number, text, vectors};
use headerware_wire::trail::{Entry, Place, Trail, append, parse, write};
use headerware_wire::{Headers, NotMine, Outcome};
use serde_json::Value;

fn entry(case: &Value) -> Entry {
    let known = |field: &str| case[field].as_str().map(str::to_owned);
    Entry {
        at_ms: number(case, "when_ms"),
        by: known("by_whom"),
        from: (known("read_from_cluster"), known("read_from_topic")),
        into: (known("produced_into_cluster"), known("produced_into_topic")),
    }
}

#[test]
fn cases_both_ways() {
    for case in cases(&vectors("trail"), "cases") {
        let left = case["left_out"].as_u64().unwrap();
        let entries: Vec<_> = case["entries"].as_array().unwrap().iter().map(entry).collect();
        let wire = text(case, "wire");
        assert_eq!(parse(Some(wire.as_bytes())), Ok((left, entries.clone())), "{case}");
        let mut written = Vec::new();
        write(left, &entries, &mut written);
        assert_eq!(String::from_utf8(written).unwrap(), wire);
    }
}

#[test]
fn refused() {
    for case in cases(&vectors("trail"), "refused") {
        let wire = bytes(&case["wire"]).or_else(|| hex(&case["wire_hex"]));
        assert!(parse(wire.as_deref()).is_err(), "{case}");
    }
}

#[test]
fn appended() {
    for case in cases(&vectors("trail"), "appended") {
        let [max_entries, max_bytes] = ["max_entries", "max_bytes"].map(|field| number(case, field) as usize);
        let mut after = Vec::new();
        let [before, entry] = ["before", "entry"].map(|field| text(case, field).as_bytes());
        append(before, entry, max_entries, max_bytes, &mut after).unwrap();
        assert_eq!(String::from_utf8(after).unwrap(), text(case, "after"), "{case}");
    }
}

#[test]
fn completed() {
    for case in cases(&vectors("trail"), "completed") {
        let mut headers = Headers::new();
        headers.push(b"hw.trail", Some(text(case, "before").as_bytes()));
        headers.push(b"other", None);
        let place = Place::new(case["produced_into_cluster"].as_str(), text(case, "produced_into_topic"));
        let mut trail = Trail::new(Some("mirror"), 32, 4096).unwrap();
        assert_eq!(trail.on_send(&mut headers, 7, &place), Ok(Outcome::Headers));
        let found: Vec<_> = headers.iter().collect();
        assert_eq!(found, [(&b"other"[..], None), (b"hw.trail", Some(text(case, "after").as_bytes()))]);
    }
}

#[test]
fn a_record_without_a_trail_begins_one() {
    let mut trail = Trail::new(Some("shop"), 32, 4096).unwrap();
    let mut headers = Headers::new();
    trail.on_send(&mut headers, 5, &Place::new(None, "orders")).unwrap();
    trail.on_consume(&mut headers, -6, &Place::new(Some("eu"), "orders")).unwrap();
    let expected = b"1,at=5;by=shop;into=?/orders,at=-6;by=shop;from=eu/orders";
    assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"hw.trail"[..], Some(&expected[..]))]);
}

#[test]
fn a_text_is_cut_after_the_last_character_that_fits() {
    let mut trail = Trail::new(Some(&"ü".repeat(50)), 32, 4096).unwrap();
    let mut headers = Headers::new();
    trail.on_send(&mut headers, 5, &Place::new(None, "t")).unwrap();
    let expected = format!("1,at=5;by={};into=?/t", "%C3%BC".repeat(42));
    assert_eq!(headers.value(0), Some(expected.as_bytes()));
}

#[test]
fn unusual_trails_are_left_alone() {
    let mut trail = Trail::new(None, 2, 2646).unwrap();
    let place = Place::new(None, "t");
    let long = [b"1,at=1;by=".to_vec(), vec![b'x'; 2640]].concat();
    for value in [None, Some(&b"2"[..]), Some(b""), Some(b"1x"), Some("1,ü".as_bytes()), Some(&long)] {
        let mut headers = Headers::new();
        headers.push(b"hw.trail", value);
        assert!(trail.on_consume(&mut headers, 1, &place).is_err(), "{value:?}");
    }
    let mut twice: Headers<'_> = [(&b"hw.trail"[..], Some(&b"1"[..])); 2].into_iter().collect();
    assert_eq!(trail.on_consume(&mut twice, 1, &place), Err(NotMine::Repeated));
}
