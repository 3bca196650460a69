//! The vectors of `spec/vectors/compress.json`.

use headerware_wire::compress::{Codec, Compressor, Decompressor, Dictionary, HEADER};
use headerware_wire::{Headers, NotMine, Outcome, Record};
use serde_json::Value;

use crate::common::{bytes, cases, hex, text, vectors};

/// The limit of the vectors.
const LIMIT: usize = 65_536;

fn known(vectors: &Value) -> Vec<Dictionary> {
    let dictionary = |known: &Value| {
        let dictionary = Dictionary::new(&hex(&known["hex"]).unwrap()).unwrap();
        assert_eq!(hex(&known["id"]).unwrap(), dictionary.id());
        dictionary
    };
    cases(&vectors["dictionaries"], "known").iter().map(dictionary).collect()
}

fn reader(vectors: &Value) -> Decompressor {
    let mut reader = Decompressor::new(LIMIT).unwrap();
    let added: Vec<_> = known(vectors).iter().map(|dictionary| reader.add(dictionary)).collect();
    assert_eq!(added, [Ok(()), Ok(()), Err(NotMine::Dictionary)]); // the last one is damaged
    reader
}

fn read(reader: &mut Decompressor, header: Option<&[u8]>, value: Option<&[u8]>) -> Result<Vec<u8>, NotMine> {
    let mut headers = Headers::new();
    headers.push(HEADER.as_bytes(), header);
    let mut out = Vec::new();
    let record = Record { value, ..Record::default() };
    match reader.on_consume(&record, &mut headers, &mut out)? {
        Outcome::Value if headers.is_empty() => Ok(out),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn cases_are_read() {
    let vectors = vectors("compress");
    let mut reader = reader(&vectors);
    for case in cases(&vectors, "cases").iter().chain(cases(&vectors["dictionaries"], "cases")) {
        let wire = hex(&case["wire_hex"]);
        let found = read(&mut reader, Some(text(case, "header").as_bytes()), wire.as_deref());
        assert_eq!(found, Ok(hex(&case["plain_hex"]).unwrap()), "{}", case["name"]);
    }
}

#[test]
fn cases_are_written() {
    let vectors = vectors("compress");
    let mut reader = reader(&vectors);
    let dictionaries = known(&vectors);
    let mut written = 0;
    for case in cases(&vectors, "cases").iter().chain(cases(&vectors["dictionaries"], "cases")) {
        let codec = match case["codec"].as_str() {
            Some("gzip") => Codec::Gzip(6),
            Some(_) => Codec::Zstd(3, None),
            None => {
                let id = hex(&case["dictionary"]).unwrap();
                Codec::Zstd(3, dictionaries.iter().find(|known| id == known.id()).cloned())
            }
        };
        let plain = hex(&case["plain_hex"]).unwrap();
        let mut writer = Compressor::new(codec, 1.0).unwrap();
        let (mut headers, mut out) = (Headers::new(), Vec::new());
        let record = Record { value: Some(&plain), ..Record::default() };
        if writer.on_send(&record, &mut headers, &mut out) == Ok(Outcome::Value) {
            assert_eq!(headers.value(0), bytes(&case["header"]).as_deref(), "{}", case["name"]);
            assert_eq!(read(&mut reader, headers.value(0), Some(&out)), Ok(plain));
            written += 1;
        }
    }
    assert!(written > 8, "only {written} cases were worth a header");
}

#[test]
fn refused() {
    let vectors = vectors("compress");
    let mut reader = reader(&vectors);
    for case in cases(&vectors, "refused").iter().chain(cases(&vectors["dictionaries"], "refused")) {
        let [header, wire] = [bytes(&case["header"]), hex(&case["wire_hex"])];
        let found = read(&mut reader, header.as_deref(), wire.as_deref());
        assert!(found.is_err(), "{case}");
        assert_eq!(
            read(&mut reader, Some(b"zstd"), Some(&hex(&"28b52ffd2001090000ff".into()).unwrap())),
            Ok(vec![255])
        );
    }
}

#[test]
fn rows_of_dictionaries() {
    let vectors = vectors("dictionaries");
    let dictionary = |case: &Value| {
        let id = text(case, "key").strip_prefix("dictionary/")?.to_owned();
        Some((id, hex(&case["value_hex"])?))
    };
    for (id, bytes) in cases(&vectors, "rows").iter().filter_map(dictionary) {
        assert_eq!(Dictionary::new(&bytes).unwrap().id().map(|byte| format!("{byte:02x}")).concat(), id);
    }
    for (id, bytes) in cases(&vectors, "refused").iter().filter_map(dictionary) {
        let found =
            Dictionary::new(&bytes).map(|known| known.id().map(|byte| format!("{byte:02x}")).concat());
        assert_ne!(found, Ok(id));
    }
}

#[test]
fn what_is_not_worth_it_stays() {
    let mut writer = Compressor::new(Codec::Zstd(3, None), 0.5).unwrap();
    let (mut headers, mut out) = (Headers::new(), Vec::new());
    for value in [None, Some(&b""[..]), Some(&[b'a'; 40]), Some(&(0..200).collect::<Vec<_>>())] {
        let record = Record { value, ..Record::default() };
        assert_eq!(writer.on_send(&record, &mut headers, &mut out), Ok(Outcome::Unchanged));
        assert!(headers.is_empty());
    }
    let record = Record { value: Some(&[b'a'; 100]), ..Record::default() };
    assert_eq!(writer.on_send(&record, &mut headers, &mut out), Ok(Outcome::Value));
    assert_eq!(writer.on_send(&record, &mut headers, &mut out), Err(NotMine::Present));
}

#[test]
fn a_value_is_compressed_if_it_shrinks_to_the_share_of_its_size() {
    let record = Record { value: Some(&[b'a'; 1000]), ..Record::default() };
    let mut out = Vec::new();
    let outcome = |share: f64, out: &mut Vec<u8>| {
        Compressor::new(Codec::Zstd(3, None), share).unwrap().on_send(&record, &mut Headers::new(), out)
    };
    assert_eq!(outcome(1.0, &mut out), Ok(Outcome::Value));
    let share = (out.len() + 17) as f64 / 1000.0; // the header takes 17 bytes
    assert_eq!(outcome(share, &mut out), Ok(Outcome::Value));
    assert_eq!(outcome(share - 0.0001, &mut out), Ok(Outcome::Unchanged));
}

#[test]
fn a_damaged_dictionary_makes_no_writer() {
    let vectors = vectors("compress");
    let made = known(&vectors).into_iter().map(|known| Compressor::new(Codec::Zstd(3, Some(known)), 1.0));
    let failed: Vec<_> = made.map(|made| made.err()).collect();
    assert_eq!(failed, [None, None, Some(NotMine::Dictionary)]);
}

#[test]
fn a_frame_that_states_more_than_it_can_hold_is_refused_before_memory_is_allocated() {
    let mut reader = Decompressor::new(1 << 30).unwrap();
    for stated in [32_768 * 13, 32_768 * 13 + 1, 1 << 29] {
        // One block of 13 bytes in all, with what it states as four bytes.
        let frame =
            [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &u32::to_le_bytes(stated), &[0x0b, 0, 0, 7]].concat();
        let expected = if stated == 32_768 * 13 { NotMine::Corrupt } else { NotMine::TooLarge };
        assert_eq!(read(&mut reader, Some(b"zstd"), Some(&frame)), Err(expected));
    }
}

#[test]
fn a_frame_without_a_size_is_read_up_to_the_limit() {
    use std::io::Write;
    let plain = vec![7; LIMIT];
    // Blocks of 16 KiB that are one byte, repeated.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for last in [0, 0, 0, 1] {
        frame.write_all(&(((16_384_u32) << 3) | 2 | last).to_le_bytes()[..3]).unwrap();
        frame.push(7);
    }
    let mut reader = Decompressor::new(LIMIT).unwrap();
    assert_eq!(read(&mut reader, Some(b"zstd"), Some(&frame)), Ok(plain));
    let mut reader = Decompressor::new(LIMIT - 1).unwrap();
    assert_eq!(read(&mut reader, Some(b"zstd"), Some(&frame)), Err(NotMine::TooLarge));
}
