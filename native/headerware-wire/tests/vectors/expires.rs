//! The vectors of `spec/vectors/expires.json`.

use headerware_wire::expires::{Delay, EXPIRES, Expire, Judgement, NOT_BEFORE, parse, write};
use headerware_wire::{Headers, NotMine, Outcome, Record};
use serde_json::Value;

use crate::common::{bytes, cases, number, vectors};

fn headers<'v>(case: &'v Value, name: &'static str) -> Headers<'v> {
    let pair = |value: &'v Value| (name.as_bytes(), value.as_str().map(str::as_bytes));
    case["headers"].as_array().unwrap().iter().map(pair).collect()
}

fn outcome(found: Result<Judgement, NotMine>) -> &'static str {
    match found {
        Ok(Judgement::Deliver) => "delivered",
        Ok(Judgement::Drop) => "dropped",
        Ok(Judgement::Wait(_)) => "waits",
        Err(NotMine::Time) => "refused",
        Err(_) => "malformed",
    }
}

#[test]
fn moments_both_ways() {
    for case in cases(&vectors("expires"), "moments") {
        let (ms, wire) = (number(case, "ms"), bytes(&case["wire"]));
        assert_eq!(parse(wire.as_deref()), Ok(ms));
        let mut text = Vec::new();
        write(ms, &mut text).unwrap();
        assert_eq!(Some(text), wire);
    }
    assert!(write(-1, &mut Vec::new()).is_err() && write(1_000_000_000_000_000, &mut Vec::new()).is_err());
}

#[test]
fn refused() {
    for case in cases(&vectors("expires"), "refused") {
        assert!(parse(bytes(&case["wire"]).as_deref()).is_err(), "{case}");
    }
}

#[test]
fn expired() {
    for case in cases(&vectors("expires"), "expired") {
        let step = Expire { after_ms: None, clock_skew_ms: number(case, "clock_skew_ms") };
        let value = (case["tombstone"] == false).then_some(&b"x"[..]);
        let record = Record { value, ..Record::default() };
        let found = step.on_consume(&record, &headers(case, EXPIRES), number(case, "now_ms"));
        assert_eq!(outcome(found), case["outcome"], "{case}");
    }
}

#[test]
fn delayed() {
    for case in cases(&vectors("expires"), "delayed") {
        let step = Delay { after_ms: None, max_delay_ms: number(case, "max_delay_ms") };
        let record = Record { timestamp_ms: case["timestamp_ms"].as_i64(), ..Record::default() };
        let found = step.on_consume(&record, &headers(case, NOT_BEFORE), number(case, "now_ms"));
        assert_eq!(outcome(found), case["outcome"], "{case}");
    }
}

#[test]
fn a_moment_is_added_unless_there_is_one_or_the_value_is_null() {
    let step = Expire { after_ms: Some(5), clock_skew_ms: 0 };
    let mut headers = Headers::new();
    assert_eq!(step.on_send(&Record::default(), &mut headers, 10), Ok(Outcome::Unchanged));
    let record = Record { value: Some(b""), ..Record::default() };
    assert_eq!(step.on_send(&record, &mut headers, 10), Ok(Outcome::Headers));
    assert_eq!(step.on_send(&record, &mut headers, 20), Ok(Outcome::Unchanged));
    assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"hw.expires"[..], Some(&b"15"[..]))]);
}
