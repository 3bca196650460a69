//! The vectors of `spec/vectors/slice.json`.

use headerware_wire::slice::{HEADER, Slice, on_consume};
use headerware_wire::{Headers, NotMine};
use serde_json::Value;

use crate::common::{bytes, cases, hex, number, text, vectors};

fn message_id(case: &Value) -> [u8; 16] {
    hex(&case["message_id"]).unwrap().try_into().unwrap()
}

#[test]
fn cases_both_ways() {
    for case in cases(&vectors("slice"), "cases") {
        let slice = Slice {
            message_id: message_id(case),
            index: number(case, "index") as u32,
            count: number(case, "count") as u32,
            total_bytes: number(case, "total_bytes") as u64,
            slice_bytes: number(case, "slice_bytes") as u32,
        };
        assert_eq!(Slice::parse(bytes(&case["wire"]).as_deref()), Ok(slice));
        assert_eq!(slice.value_bytes(), number(case, "payload_bytes") as u64);
        let mut written = Vec::new();
        slice.write(&mut written).unwrap();
        assert_eq!(written, text(case, "wire").as_bytes());
    }
}

#[test]
fn messages_both_ways() {
    for case in cases(&vectors("slice"), "messages") {
        let value = hex(&case["value_hex"]).unwrap();
        let cut = Slice::cut(message_id(case), &value, number(case, "slice_bytes") as u32).unwrap();
        let slices = case["slices"].as_array().unwrap();
        assert_eq!(cut.len(), slices.len());
        for ((slice, part), expected) in cut.zip(slices) {
            let mut written = Vec::new();
            slice.write(&mut written).unwrap();
            assert_eq!(written, text(expected, "wire").as_bytes());
            assert_eq!(Some(part.to_vec()), hex(&expected["value_hex"]));
            let read = |part, max_bytes| {
                let mut headers = Headers::new();
                headers.push(HEADER.as_bytes(), Some(&written));
                on_consume(part, &mut headers, max_bytes)
            };
            assert_eq!(read(Some(part), value.len() as u64), Ok(Some(slice)));
            assert_eq!(read(Some(part), value.len() as u64 - 1), Err(NotMine::TooLarge));
            assert_eq!(read(part.split_last().map(|(_, cut)| cut), u64::MAX), Err(NotMine::Layout));
            assert_eq!(read(None, u64::MAX), Err(NotMine::Layout));
        }
    }
}

#[test]
fn refused() {
    for case in cases(&vectors("slice"), "refused") {
        assert!(Slice::parse(bytes(&case["wire"]).as_deref()).is_err(), "{case}");
    }
}

#[test]
fn a_value_is_cut_into_at_most_100_000_slices() {
    let value = vec![0; 100_001];
    assert_eq!(Slice::cut([0; 16], &value, 1).err(), Some(NotMine::TooLarge));
    assert_eq!(Slice::cut([0; 16], &value[1..], 1).unwrap().len(), 100_000);
    assert!(Slice::cut([0; 16], b"", 1).is_err() && Slice::cut([0; 16], b"x", 0).is_err());
}
