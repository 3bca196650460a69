//! Header ids: compact keys and the packed block, `hw.ids` ([spec/header-ids.md](../../../spec/header-ids.md)).

use std::collections::HashMap;

use crate::headers::{Bytes, Item, Items};
use crate::text::decimal;
use crate::{Headers, NotMine, Outcome};

/// The name of the header with the packed block.
pub const HEADER: &str = "hw.ids";

const VERSION: u8 = b'1';
const MAX_PACKED: usize = 10_000;
/// What a block takes at least: its name, the version, and two lengths.
const BLOCK_BYTES: i64 = 9;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each header for itself, under a compact key.
    Keys,
    /// All headers that have ids, in one block.
    Packed,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// The id, from 1 on.
    pub id: u32,
    pub name: String,
    /// Whether a writer sends the name as the id: not if the entry is retired, or the name is left plain.
    pub is_written: bool,
}

/// Both sides of the step.
#[derive(Clone, Debug)]
pub struct HeaderIds {
    form: Form,
    ids: HashMap<Box<[u8]>, u32>,
    names: HashMap<u32, Box<[u8]>>,
    block: Vec<u8>,
    name: Vec<u8>,
    counts: Counts,
}

/// What a step did with the latest record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many bytes smaller its headers became.
    pub saved_bytes: i64,
    /// How many of its ids have no name.
    pub unknown_ids: usize,
}

impl HeaderIds {
    /// Make the step with the entries of the registry.
    pub fn new(form: Form, entries: impl IntoIterator<Item = Entry>) -> Self {
        let (mut ids, mut names) = (HashMap::new(), HashMap::new());
        for Entry { id, name, is_written } in entries.into_iter().filter(|entry| entry.id != 0) {
            let name: Box<[u8]> = name.into_bytes().into();
            if is_written {
                ids.insert(name.clone(), id);
            }
            names.insert(id, name);
        }
        Self { form, ids, names, block: Vec::new(), name: Vec::new(), counts: Counts::default() }
    }

    /// Return what the step did with the latest record that it has not refused.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Write names as ids.
    pub fn on_send(&mut self, headers: &mut Headers<'_>) -> Result<Outcome, NotMine> {
        let is_packed = self.form == Form::Packed && headers.len() <= MAX_PACKED;
        let mut wire = Items::new();
        let mut start = None; // the index of the block in the record
        let mut placed = 0; // the number of plain headers before the latest header of the block
        let mut is_changed = false;
        let mut saved = 0;
        self.block.clear();
        self.block.push(VERSION);
        for index in 0..headers.len() {
            let Some(&item) = headers.items.get(index) else { break };
            let name = headers.bytes(item.name);
            if name == HEADER.as_bytes() {
                return Err(NotMine::Name);
            }
            let id = self.id_of(name);
            if let Some(id) = id.filter(|&id| is_packed && number_size(id) <= name.len()) {
                saved += difference(name.len() + 1, number_size(id));
                if start.is_none() {
                    start = Some(wire.len());
                    saved -= BLOCK_BYTES;
                } else if wire.len() > placed {
                    put_number(0, &mut self.block);
                    put_number(as_number(wire.len() - placed)?, &mut self.block);
                    saved -= 2;
                }
                placed = wire.len();
                put_number(id, &mut self.block);
                match headers.value(index) {
                    None => put_number(0, &mut self.block),
                    Some(value) => {
                        put_number(as_number(value.len() + 1)?, &mut self.block);
                        self.block.extend_from_slice(value);
                    }
                }
                continue;
            }
            self.name.clear();
            match id {
                Some(id) if !is_packed && key_size(id) <= name.len() => put_key(id, &mut self.name),
                _ if name.starts_with(b"~") => {
                    self.name.push(b'~');
                    self.name.extend_from_slice(name);
                }
                _ => {
                    wire.push(item);
                    continue;
                }
            }
            saved += difference(name.len(), self.name.len());
            let name = headers.write(|written| written.extend_from_slice(&self.name));
            wire.push(Item { name, ..item });
            is_changed = true;
        }
        if let Some(start) = start {
            let value = Some(headers.write(|written| written.extend_from_slice(&self.block)));
            wire.insert(start, Item { name: Bytes::Borrowed(HEADER.as_bytes()), value });
            is_changed = true;
        }
        self.counts = Counts { saved_bytes: saved, unknown_ids: 0 };
        if !is_changed {
            return Ok(Outcome::Unchanged);
        }
        headers.items = wire;
        Ok(Outcome::Headers)
    }

    /// Read ids as names.
    pub fn on_consume(&mut self, headers: &mut Headers<'_>) -> Result<Outcome, NotMine> {
        self.counts = Counts::default();
        let block = headers.only(HEADER)?;
        if block.is_none() && !headers.iter().any(|(name, _)| name.starts_with(b"~")) {
            return Ok(Outcome::Unchanged);
        }
        let wire = std::mem::take(&mut headers.items);
        let mut read = Items::new();
        let mut is_changed = block.is_some();
        let (before, behind) = wire.split_at(block.unwrap_or(wire.len()));
        for &item in before {
            let plain = self.read_plain(item, headers)?;
            is_changed |= plain.name != item.name;
            read.push(plain);
        }
        if let Some((packed, mut plain)) = behind.split_first() {
            let packed = packed.value.ok_or(NotMine::Missing)?;
            let mut bytes = std::mem::take(&mut self.block);
            bytes.clear();
            bytes.extend_from_slice(headers.bytes(packed));
            let mut block = Block::new(&bytes)?;
            while let Some(entry) = block.next()? {
                match entry {
                    Packed::Header { id, value } => {
                        let name = self.name_of(id, headers)?;
                        read.push(Item { name, value: value.map(|(from, to)| packed.part(from, to)) });
                    }
                    Packed::Mark(count) => {
                        let (here, later) = plain.split_at_checked(count).ok_or(NotMine::Layout)?;
                        for &item in here {
                            read.push(self.read_plain(item, headers)?);
                        }
                        plain = later;
                    }
                }
            }
            for &item in plain {
                read.push(self.read_plain(item, headers)?);
            }
            self.block = bytes;
        }
        headers.items = read;
        Ok(if is_changed { Outcome::Headers } else { Outcome::Unchanged })
    }

    /// Return the id that a name is written as.
    fn id_of(&self, name: &[u8]) -> Option<u32> {
        let unnamed = || dotted(name).filter(|id| *id != 0 && !self.names.contains_key(id));
        self.ids.get(name).copied().or_else(unnamed)
    }

    /// Write the name of an id into the headers: the registry's, or else its dotted form.
    fn name_of<'a>(&mut self, id: u32, headers: &mut Headers<'a>) -> Result<Bytes<'a>, NotMine> {
        let name = self.names.get(&id);
        self.counts.unknown_ids += usize::from(name.is_none());
        if name.is_some_and(|name| **name == *HEADER.as_bytes()) {
            return Err(NotMine::Name);
        }
        Ok(headers.write(|written| match name {
            Some(name) => written.extend_from_slice(name),
            None => written.extend_from_slice(std::net::Ipv4Addr::from(id).to_string().as_bytes()),
        }))
    }

    /// Read a header that is not in the block.
    fn read_plain<'a>(&mut self, item: Item<'a>, headers: &mut Headers<'a>) -> Result<Item<'a>, NotMine> {
        let name = headers.bytes(item.name);
        let name = match name {
            [b'~', b'~', ..] => item.name.part(1, name.len()),
            [b'~', digits @ ..] => match id_of_key(digits) {
                Some(id) => self.name_of(id, headers)?,
                None => item.name,
            },
            _ => item.name,
        };
        Ok(Item { name, ..item })
    }
}

fn difference(before: usize, after: usize) -> i64 {
    before as i64 - after as i64
}

fn as_number(size: usize) -> Result<u32, NotMine> {
    u32::try_from(size).map_err(|_| NotMine::TooLarge)
}

/// Read the dotted form of an id: four numbers from 0 to 255, without leading zeros.
fn dotted(name: &[u8]) -> Option<u32> {
    if !name.first()?.is_ascii_digit() {
        return None;
    }
    let mut numbers = name.split(|&byte| byte == b'.').map(|part| u8::try_from(decimal(part)?).ok());
    let mut next = || numbers.next()?;
    let id = [next()?, next()?, next()?, next()?];
    numbers.next().is_none().then_some(u32::from_be_bytes(id))
}

fn key_size(id: u32) -> usize {
    1 + (32 - id.leading_zeros()).div_ceil(6) as usize
}

fn put_key(id: u32, name: &mut Vec<u8>) {
    name.push(b'~');
    for place in (0..key_size(id) - 1).rev() {
        let digit = DIGITS.get((id >> (6 * place)) as usize & 63);
        name.extend(digit);
    }
}

/// Read the digits of a compact key; `None` if they are none, or too large a number.
fn id_of_key(digits: &[u8]) -> Option<u32> {
    if !matches!(digits, [first, ..] if *first != b'A') || digits.len() > 6 {
        return None;
    }
    let mut id = 0_u64;
    for digit in digits {
        let digit = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        id = id << 6 | u64::from(digit);
    }
    u32::try_from(id).ok()
}

/// Return how many characters a number takes.
fn number_size(mut number: u32) -> usize {
    let mut size = 1;
    while number >= 30 {
        number = (number - 30) / 64;
        size += 1;
    }
    size
}

fn put_number(mut number: u32, block: &mut Vec<u8>) {
    while number >= 30 {
        number -= 30;
        block.push(b'?' + (number % 64) as u8);
        number /= 64;
    }
    block.push(b'!' + number as u8);
}

enum Packed {
    /// A header, and where its value is in the block.
    Header { id: u32, value: Option<(usize, usize)> },
    /// How many of the next plain headers belong here.
    Mark(usize),
}

struct Block<'b> {
    bytes: &'b [u8],
    at: usize,
    headers: usize,
    is_mark: bool,
}

impl<'b> Block<'b> {
    fn new(bytes: &'b [u8]) -> Result<Self, NotMine> {
        match bytes {
            [VERSION] | [] => Err(NotMine::Layout),
            // The first item cannot be a mark.
            [VERSION, ..] => Ok(Self { bytes, at: 1, headers: 0, is_mark: true }),
            _ => Err(NotMine::Version),
        }
    }

    fn next(&mut self) -> Result<Option<Packed>, NotMine> {
        if self.at == self.bytes.len() {
            return if self.is_mark { Err(NotMine::Layout) } else { Ok(None) };
        }
        let (id, size) = (self.number()?, self.number()?);
        if id == 0 {
            if self.is_mark || size == 0 {
                return Err(NotMine::Layout);
            }
            self.is_mark = true;
            return usize::try_from(size).map(|count| Some(Packed::Mark(count))).map_err(|_| NotMine::Layout);
        }
        self.is_mark = false;
        self.headers += 1;
        if self.headers > MAX_PACKED {
            return Err(NotMine::TooLarge);
        }
        let Some(size) = size.checked_sub(1) else { return Ok(Some(Packed::Header { id, value: None })) };
        let size = usize::try_from(size).map_err(|_| NotMine::Layout)?;
        if size > self.bytes.len() - self.at {
            return Err(NotMine::Layout);
        }
        let from = self.at;
        self.at += size;
        Ok(Some(Packed::Header { id, value: Some((from, self.at)) }))
    }

    fn number(&mut self) -> Result<u32, NotMine> {
        let (mut number, mut factor) = (0, 1_u64);
        for _ in 0..6 {
            let character = *self.bytes.get(self.at).ok_or(NotMine::Layout)?;
            self.at += 1;
            match character {
                b'!'..=b'>' => {
                    number += u64::from(character - b'!') * factor;
                    return u32::try_from(number).map_err(|_| NotMine::Layout);
                }
                b'?'..=b'~' => number += (u64::from(character - b'?') + 30) * factor,
                _ => return Err(NotMine::Layout),
            }
            factor *= 64;
        }
        Err(NotMine::Layout)
    }
}
