//! The vectors of `spec/vectors/header-ids.json`.

use headerware_wire::Outcome;
use headerware_wire::header_ids::{Entry, Form, HeaderIds};

use crate::common::{borrowed, cases, hex, owned, pairs, vectors};

fn step(form: Form) -> HeaderIds {
    let vectors = vectors("header-ids");
    let entry = |(id, name): (&String, &serde_json::Value)| Entry {
        id: id.parse::<std::net::Ipv4Addr>().unwrap().into(),
        name: name.as_str().unwrap().into(),
        is_written: true,
    };
    HeaderIds::new(form, vectors["names"].as_object().unwrap().iter().map(entry))
}

#[test]
fn cases_both_ways() {
    for (form, field) in [(Form::Keys, "keys"), (Form::Packed, "packed")] {
        let mut step = step(form);
        for case in cases(&vectors("header-ids"), "cases") {
            let (plain, wire) = (pairs(&case["headers"], hex), pairs(&case[field], hex));
            let mut headers = borrowed(&plain);
            let outcome = step.on_send(&mut headers).unwrap();
            assert_eq!(owned(&headers), wire, "{} {field}", case["name"]);
            assert_eq!(outcome == Outcome::Unchanged, plain == wire);
            step.on_consume(&mut headers).unwrap();
            assert_eq!(owned(&headers), plain, "{} {field}", case["name"]);
        }
    }
}

#[test]
fn read() {
    for case in cases(&vectors("header-ids"), "read") {
        let wire = pairs(&case["wire"], hex);
        let mut headers = borrowed(&wire);
        step(Form::Packed).on_consume(&mut headers).unwrap();
        assert_eq!(owned(&headers), pairs(&case["headers"], hex), "{}", case["name"]);
    }
}

#[test]
fn refused() {
    for case in cases(&vectors("header-ids"), "refused") {
        let wire = pairs(&case["wire"], hex);
        assert!(step(Form::Packed).on_consume(&mut borrowed(&wire)).is_err(), "{}", case["name"]);
    }
}

#[test]
fn a_key_with_many_digits_is_a_plain_name() {
    let mut headers = headerware_wire::Headers::new();
    headers.push(b"~BAAAAAAAAAAAAAAAAB", None);
    step(Form::Keys).on_consume(&mut headers).unwrap();
    assert_eq!(headers.name(0), Some(&b"~BAAAAAAAAAAAAAAAAB"[..]));
}

#[test]
fn a_writer_refuses_the_name_of_the_block() {
    let headers = vec![(b"hw.ids".to_vec(), None)];
    assert!(step(Form::Keys).on_send(&mut borrowed(&headers)).is_err());
}

#[test]
fn a_record_with_more_headers_than_a_block_may_have_uses_compact_keys() {
    let plain = vec![(b"hw.trail".to_vec(), None); 10_001];
    let mut headers = borrowed(&plain);
    step(Form::Packed).on_send(&mut headers).unwrap();
    assert!(headers.iter().all(|header| header == (b"~B", None)));
    step(Form::Packed).on_consume(&mut headers).unwrap();
    assert_eq!(owned(&headers), plain);
}

#[test]
fn a_name_stays_plain_if_it_is_retired_or_its_id_is_longer() {
    let entry = |id, name: &str, is_written| Entry { id, name: name.into(), is_written };
    let entries = [entry(1 << 24, "ab", true), entry(2, "retired", false)];
    for form in [Form::Keys, Form::Packed] {
        let mut step = HeaderIds::new(form, entries.clone());
        let mut headers: headerware_wire::Headers<'_> =
            [(&b"ab"[..], None), (b"retired", None)].into_iter().collect();
        assert_eq!(step.on_send(&mut headers), Ok(Outcome::Unchanged));
        headers.push(b"~C", None);
        step.on_consume(&mut headers).unwrap();
        assert_eq!(headers.name(2), Some(&b"retired"[..]));
    }
}
