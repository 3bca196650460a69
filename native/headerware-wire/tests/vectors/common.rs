//! What the tests of all formats share: the vectors of `spec/`, and headers made of them.

use headerware_wire::Headers;
use serde_json::Value;

/// Read a file of vectors.
pub fn vectors(name: &str) -> Value {
    let path = format!("{}/../../spec/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(&path).expect(&path)).expect(&path)
}

/// Return the cases of a list in a file; an empty list would test nothing.
pub fn cases<'v>(vectors: &'v Value, list: &str) -> &'v [Value] {
    let cases = vectors[list].as_array().expect(list);
    assert!(!cases.is_empty(), "{list} is empty");
    cases
}

pub fn text<'v>(case: &'v Value, field: &str) -> &'v str {
    case[field].as_str().unwrap_or_else(|| panic!("{field} of {case}"))
}

pub fn number(case: &Value, field: &str) -> i64 {
    case[field].as_i64().unwrap_or_else(|| panic!("{field} of {case}"))
}

/// Return bytes that are in hex, or `None` if they are null.
pub fn hex(value: &Value) -> Option<Vec<u8>> {
    let digits = value.as_str()?;
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect(digits);
    Some((0..digits.len()).step_by(2).map(byte).collect())
}

/// Return a header's value that is a text in the vectors.
pub fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| text.as_bytes().to_vec())
}

/// Headers that own their bytes.
pub type Pairs = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Return the pairs of a case; `read` decodes their values.
pub fn pairs(list: &Value, read: fn(&Value) -> Option<Vec<u8>>) -> Pairs {
    let pair = |pair: &Value| (pair[0].as_str().expect("a name").as_bytes().to_vec(), read(&pair[1]));
    list.as_array().expect("headers").iter().map(pair).collect()
}

pub fn borrowed(pairs: &Pairs) -> Headers<'_> {
    pairs.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect()
}

pub fn owned(headers: &Headers<'_>) -> Pairs {
    headers.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect()
}
