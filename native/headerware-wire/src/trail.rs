//! The paper trail, `hw.trail` ([spec/trail.md](../../../spec/trail.md)).
//!
//! ```text
//! 1;left=7,at=1767225600000;by=shop;into=eu/orders,at=1767225601500;by=mirror;from=eu/orders
//! ```

use crate::text::decimal;
use crate::{Headers, NotMine, Outcome};

pub const HEADER: &str = "hw.trail";

const MAX_BYTES: usize = 65_535;
const MAX_LEFT: u64 = 65_535;
const MAX_TEXT: usize = 255;

/// A cluster and a topic as they are written in entries.
#[derive(Clone, Debug)]
pub struct Place(Vec<u8>);

impl Place {
    /// Write a place; a cluster that is not known is `None`.
    pub fn new(cluster: Option<&str>, topic: &str) -> Self {
        let mut place = Vec::new();
        match cluster {
            None => place.push(b'?'),
            Some(cluster) => escape(cluster, false, &mut place),
        }
        place.push(b'/');
        escape(topic, false, &mut place);
        Self(place)
    }
}

#[derive(Clone, Debug)]
pub struct Trail {
    by: Vec<u8>,
    max_entries: usize,
    max_bytes: usize,
    entry: Vec<u8>,
    value: Vec<u8>,
}

impl Trail {
    /// Make the step of a service, which may be unknown, with the writer's limits for entries and for bytes.
    pub fn new(service: Option<&str>, max_entries: usize, max_bytes: usize) -> Result<Self, NotMine> {
        if max_entries < 2 || !(2_646..=MAX_BYTES).contains(&max_bytes) {
            return Err(NotMine::Unsupported);
        }
        let mut by = Vec::new();
        if let Some(service) = service {
            by.extend_from_slice(b";by=");
            escape(service, true, &mut by);
        }
        Ok(Self { by, max_entries, max_bytes, entry: Vec::new(), value: Vec::new() })
    }

    /// Complete the latest entry, or add one, with the place that the record is sent to.
    pub fn on_send(
        &mut self, headers: &mut Headers<'_>, at_ms: i64, into: &Place,
    ) -> Result<Outcome, NotMine> {
        self.entry.clear();
        let is_completed =
            headers.last(HEADER).and_then(|last| headers.value(last)).is_some_and(is_completable);
        if is_completed {
            self.entry.extend_from_slice(b";into=");
            self.entry.extend_from_slice(&into.0);
        } else {
            self.write_entry(at_ms, b";into=", into);
        }
        self.append(headers)
    }

    /// Add an entry with the place that the record was read from.
    pub fn on_consume(
        &mut self, headers: &mut Headers<'_>, at_ms: i64, from: &Place,
    ) -> Result<Outcome, NotMine> {
        self.entry.clear();
        self.write_entry(at_ms, b";from=", from);
        self.append(headers)
    }

    fn write_entry(&mut self, at_ms: i64, word: &[u8], place: &Place) {
        use std::io::Write;
        let _ = write!(self.entry, ",at={at_ms}"); // a Vec accepts all bytes
        self.entry.extend_from_slice(&self.by);
        self.entry.extend_from_slice(word);
        self.entry.extend_from_slice(&place.0);
    }

    fn append(&mut self, headers: &mut Headers<'_>) -> Result<Outcome, NotMine> {
        let before = match headers.only(HEADER)? {
            None => &b"1"[..],
            Some(index) => headers.value(index).ok_or(NotMine::Missing)?,
        };
        append(before, &self.entry, self.max_entries, self.max_bytes, &mut self.value)?;
        if let Some(index) = headers.last(HEADER) {
            headers.remove(index);
        }
        headers.push_written(HEADER, |written| written.extend_from_slice(&self.value));
        Ok(Outcome::Headers)
    }
}

/// Write a trail with something behind it: an entry, or the end of the latest entry.
///
/// Entries are dropped from the second on, as few as necessary, if the result is above a limit.
pub fn append(
    before: &[u8], behind: &[u8], max_entries: usize, max_bytes: usize, trail: &mut Vec<u8>,
) -> Result<(), NotMine> {
    let is_trail = matches!(before, [b'1'] | [b'1', b',' | b';', ..]);
    if !is_trail || before.len() > MAX_BYTES || !before.is_ascii() {
        return Err(NotMine::Layout);
    }
    trail.clear();
    trail.extend_from_slice(before);
    trail.extend_from_slice(behind);
    let entries = trail.iter().filter(|&&byte| byte == b',').count();
    if trail.windows(4).filter(|&word| word == b",at=").count() != entries {
        return Err(NotMine::Layout);
    }
    if entries <= max_entries && trail.len() <= max_bytes {
        return Ok(());
    }
    shorten(trail, entries, max_entries, max_bytes)
}

fn shorten(trail: &mut Vec<u8>, entries: usize, max_entries: usize, max_bytes: usize) -> Result<(), NotMine> {
    let first = comma(trail, 0).ok_or(NotMine::Layout)?;
    let mut left = left_of(trail.get(..first).unwrap_or_default())?;
    let second = comma(trail, first + 1).ok_or(NotMine::TooLarge)?;
    let mut kept = second;
    let mut size = usize::MAX;
    let mut head = Vec::new();
    for remaining in (1..entries).rev() {
        // `remaining` entries behind the first begin at `kept`.
        if remaining < max_entries {
            head.clear();
            write_head(left, &mut head);
            size = head.len() + (second - first) + (trail.len() - kept);
            if size <= max_bytes {
                break;
            }
        }
        match comma(trail, kept + 1) {
            Some(next) if remaining > 1 => kept = next,
            _ => break,
        }
        left = (left + 1).min(MAX_LEFT);
    }
    if size > max_bytes {
        return Err(NotMine::TooLarge);
    }
    trail.drain(second..kept);
    trail.splice(..first, head);
    Ok(())
}

fn comma(trail: &[u8], from: usize) -> Option<usize> {
    let at = trail.get(from..)?.iter().position(|&byte| byte == b',')?;
    Some(from + at)
}

fn left_of(head: &[u8]) -> Result<u64, NotMine> {
    match head.strip_prefix(b"1").ok_or(NotMine::Version)? {
        [] => Ok(0),
        rest => rest
            .strip_prefix(b";left=")
            .and_then(decimal)
            .filter(|left| (1..=MAX_LEFT).contains(left))
            .ok_or(NotMine::Layout),
    }
}

fn write_head(left: u64, head: &mut Vec<u8>) {
    head.push(b'1');
    if left > 0 {
        head.extend_from_slice(format!(";left={left}").as_bytes());
    }
}

/// Return whether the latest entry says where the record was read, and not yet where it was sent.
fn is_completable(trail: &[u8]) -> bool {
    let latest = trail.iter().rposition(|&byte| byte == b',');
    let latest = latest.and_then(|at| trail.get(at..)).unwrap_or_default();
    contains(latest, b";from=") && !contains(latest, b";into=")
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:@#+".contains(&byte)
}

/// Append a text, percent-encoded, cut after the last complete character that fits.
fn escape(text: &str, may_have_slash: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
    let start = out.len();
    for character in text.chars() {
        let complete = out.len();
        for &byte in character.encode_utf8(&mut [0; 4]).as_bytes() {
            if is_plain(byte) || may_have_slash && byte == b'/' {
                out.push(byte);
            } else {
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
            }
        }
        if out.len() - start > MAX_TEXT {
            out.truncate(complete);
            return;
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// When it was written, in milliseconds since the epoch.
    pub at_ms: i64,
    pub by: Option<String>,
    /// The cluster and the topic that the record was read from; each may be unknown.
    pub from: (Option<String>, Option<String>),
    /// The cluster and the topic that the record was sent to; each may be unknown.
    pub into: (Option<String>, Option<String>),
}

/// Read a trail: how many entries were dropped behind the first one, and the entries.
pub fn parse(value: Option<&[u8]>) -> Result<(u64, Vec<Entry>), NotMine> {
    let value = value.ok_or(NotMine::Missing)?;
    if value.len() > MAX_BYTES {
        return Err(NotMine::TooLarge);
    }
    let mut parts = value.split(|&byte| byte == b',');
    let left = left_of(parts.next().unwrap_or_default())?;
    let entries = parts.map(parse_entry).collect::<Result<_, _>>()?;
    Ok((left, entries))
}

fn parse_entry(entry: &[u8]) -> Result<Entry, NotMine> {
    let mut words = entry.split(|&byte| byte == b';').peekable();
    let mut next = |word: &[u8]| {
        words.next_if(|part| part.starts_with(word)).map(|part| part.get(word.len()..).unwrap_or_default())
    };
    let at = next(b"at=").ok_or(NotMine::Layout)?;
    let mut parsed = Entry { at_ms: parse_time(at)?, ..Entry::default() };
    if let Some(by) = next(b"by=") {
        parsed.by = Some(unescape(by, true)?);
    }
    if let Some(from) = next(b"from=") {
        parsed.from = parse_place(from)?;
    }
    if let Some(into) = next(b"into=") {
        parsed.into = parse_place(into)?;
    }
    match words.next() {
        None => Ok(parsed),
        Some(_) => Err(NotMine::Layout),
    }
}

fn parse_time(text: &[u8]) -> Result<i64, NotMine> {
    let text = std::str::from_utf8(text).map_err(|_| NotMine::Layout)?;
    let time: i64 = text.parse().map_err(|_| NotMine::Layout)?;
    // The only spelling is the one that we would write.
    if time.to_string() == text { Ok(time) } else { Err(NotMine::Layout) }
}

fn parse_place(place: &[u8]) -> Result<(Option<String>, Option<String>), NotMine> {
    let slash = place.iter().position(|&byte| byte == b'/').ok_or(NotMine::Layout)?;
    let (cluster, topic) = place.split_at_checked(slash).ok_or(NotMine::Layout)?;
    let known = |text: &[u8]| match text {
        b"?" => Ok(None),
        _ => unescape(text, false).map(Some),
    };
    match (known(cluster)?, known(topic.get(1..).unwrap_or_default())?) {
        (None, None) => Err(NotMine::Layout),
        place => Ok(place),
    }
}

/// Read a hexadecimal digit.
fn digit(character: u8) -> Result<u8, NotMine> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'A'..=b'F' => Ok(character - b'A' + 10),
        _ => Err(NotMine::Layout),
    }
}

fn unescape(text: &[u8], may_have_slash: bool) -> Result<String, NotMine> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match (byte, behind) {
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                digit(*high)? << 4 | digit(*low)?
            }
            _ => byte,
        });
    }
    let decoded = String::from_utf8(bytes).map_err(|_| NotMine::Layout)?;
    // The only spelling is the one that we would write, and it is never cut.
    let mut again = Vec::with_capacity(text.len());
    escape(&decoded, may_have_slash, &mut again);
    if again == text { Ok(decoded) } else { Err(NotMine::Layout) }
}

pub fn write(left: u64, entries: &[Entry], trail: &mut Vec<u8>) {
    use std::io::Write;
    write_head(left.min(MAX_LEFT), trail);
    for entry in entries {
        let _ = write!(trail, ",at={}", entry.at_ms);
        if let Some(by) = &entry.by {
            trail.extend_from_slice(b";by=");
            escape(by, true, trail);
        }
        for (word, place) in [(b";from=", &entry.from), (b";into=", &entry.into)] {
            let known = |text: &Option<String>, trail: &mut Vec<u8>| match text {
                None => trail.push(b'?'),
                Some(text) => escape(text, false, trail),
            };
            if *place != (None, None) {
                trail.extend_from_slice(word);
                known(&place.0, trail);
                trail.push(b'/');
                known(&place.1, trail);
            }
        }
    }
}
