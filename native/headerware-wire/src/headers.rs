//! The headers of a record: names and values in order, with repetitions; values may be null.
//!
//! Names and values are borrowed from the batch, or lie in one buffer that is reused for the next record.

use smallvec::SmallVec;

use crate::NotMine;

/// Bytes of the batch, or a place in the buffer of the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Written { start: usize, end: usize },
}

impl<'a> Bytes<'a> {
    /// Return a part of these bytes; nothing if they are shorter.
    pub(crate) fn part(self, from: usize, to: usize) -> Self {
        match self {
            Bytes::Borrowed(bytes) => Bytes::Borrowed(bytes.get(from..to).unwrap_or_default()),
            Bytes::Written { start, end } => {
                Bytes::Written { start: (start + from).min(end), end: (start + to).min(end) }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) name: Bytes<'a>,
    pub(crate) value: Option<Bytes<'a>>,
}

pub(crate) type Items<'a> = SmallVec<[Item<'a>; 8]>;

/// The headers of one record at a time. `clear` makes room for the next record without giving up memory.
#[derive(Clone, Debug, Default)]
pub struct Headers<'a> {
    pub(crate) items: Items<'a>,
    written: Vec<u8>,
}

impl<'a> Headers<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.written.clear();
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Append a header that the batch holds.
    pub fn push(&mut self, name: &'a [u8], value: Option<&'a [u8]>) {
        self.items.push(Item { name: Bytes::Borrowed(name), value: value.map(Bytes::Borrowed) });
    }

    /// Append a header whose value is written into the buffer of the headers.
    pub fn push_written(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let value = Some(self.write(write));
        let name = Bytes::Borrowed(name.as_bytes());
        self.items.push(Item { name, value });
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> + ExactSizeIterator {
        self.items.iter().map(|item| {
            let value = item.value.map(|value| self.bytes(value));
            (self.bytes(item.name), value)
        })
    }

    pub fn name(&self, index: usize) -> Option<&[u8]> {
        self.items.get(index).map(|item| self.bytes(item.name))
    }

    /// Return the value at an index; `None` if it is null, or if there is no such header.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.items.get(index)?.value.map(|value| self.bytes(value))
    }

    /// Return the index of the last header of a name, compared byte for byte.
    pub fn last(&self, name: &str) -> Option<usize> {
        self.items.iter().rposition(|item| self.bytes(item.name) == name.as_bytes())
    }

    /// Return the index of the only header of a name; more than one is not mine.
    pub fn only(&self, name: &str) -> Result<Option<usize>, NotMine> {
        let last = self.last(name);
        match last.map(|last| self.items.get(..last)) {
            Some(Some(earlier)) if self.has(earlier, name) => Err(NotMine::Repeated),
            _ => Ok(last),
        }
    }

    /// Return an error if there is a header of a name.
    pub(crate) fn none(&self, name: &str) -> Result<(), NotMine> {
        if self.has(&self.items, name) {
            return Err(NotMine::Present);
        }
        Ok(())
    }

    pub fn remove(&mut self, index: usize) {
        if index < self.items.len() {
            self.items.remove(index);
        }
    }

    /// Append bytes to the buffer, and return where they are.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes<'a> {
        let start = self.written.len();
        write(&mut self.written);
        let end = self.written.len();
        Bytes::Written { start, end }
    }

    pub(crate) fn bytes(&self, bytes: Bytes<'a>) -> &[u8] {
        match bytes {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Written { start, end } => self.written.get(start..end).unwrap_or_default(),
        }
    }

    fn has(&self, items: &[Item<'a>], name: &str) -> bool {
        let name = name.as_bytes();
        items.iter().any(|item| self.bytes(item.name) == name)
    }
}

impl<'a> FromIterator<(&'a [u8], Option<&'a [u8]>)> for Headers<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>>(pairs: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in pairs {
            headers.push(name, value);
        }
        headers
    }
}
