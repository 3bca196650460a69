//! The columns of a batch: borrowed from Python's objects while a batch is taken, and made anew at the end.
//!
//! Each level holds what the next one borrows from: rows of headers, their pairs, their names and values, and
//! the bytes of these. So nothing is copied, and no reference is counted except one for each entry of a column.

use std::ops::Range;

use headerware_wire::Headers;
use pyo3::Borrowed;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

pub(crate) struct Columns<'py> {
    values: Vec<Bound<'py, PyAny>>,
    keys: Vec<Bound<'py, PyAny>>,
    rows: Vec<Bound<'py, PyAny>>,
}

/// The headers of all records, one behind the other.
pub(crate) type Pairs<'a, 'py> = Vec<Borrowed<'a, 'py, PyAny>>;
/// The name and the value of each header.
pub(crate) type Cells<'a, 'py> = Vec<(Borrowed<'a, 'py, PyAny>, Borrowed<'a, 'py, PyAny>)>;
/// The bytes of a header's name and value; nothing if they have other types than text and bytes.
pub(crate) type Header<'a> = Option<(&'a [u8], Option<&'a [u8]>)>;

pub(crate) struct Input<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [Header<'a>],
    /// Where the headers are among the headers of all records.
    pub(crate) range: Range<usize>,
    /// Whether the key and the value are bytes or null.
    pub(crate) is_plain: bool,
}

impl Input<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len)
    }
}

/// Where records go that were processed, in order.
pub(crate) trait Output {
    /// Add a record: whether it was taken and then whether its value is new, its headers, and its new value.
    fn push(
        &mut self, input: &Input<'_>, taken: Option<bool>, headers: &Headers<'_>, value: &[u8],
    ) -> PyResult<()>;

    /// Return whether this thread holds the lock of Python.
    fn is_attached(&self) -> bool;

    /// Do some work while other threads of Python run.
    fn detach<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T;
}

impl<'py> Columns<'py> {
    pub(crate) fn new(
        values: &Bound<'py, PyList>, keys: &Bound<'py, PyList>, rows: &Bound<'py, PyList>,
    ) -> Self {
        let held = |column: &Bound<'py, PyList>| column.iter().collect::<Vec<_>>();
        Self { values: held(values), keys: held(keys), rows: held(rows) }
    }

    pub(crate) fn pairs(&self) -> PyResult<(Pairs<'_, 'py>, Vec<Range<usize>>)> {
        let (mut pairs, mut ranges) = (Vec::new(), Vec::with_capacity(self.rows.len()));
        for row in &self.rows {
            let row = row.cast::<PyTuple>()?;
            let start = pairs.len();
            for at in 0..row.len() {
                pairs.push(row.get_borrowed_item(at)?);
            }
            ranges.push(start..pairs.len());
        }
        Ok((pairs, ranges))
    }

    pub(crate) fn inputs<'a>(
        &'a self, headers: &'a [Header<'a>], ranges: Vec<Range<usize>>,
    ) -> Vec<Input<'a>> {
        let columns = self.keys.iter().zip(&self.values).zip(ranges);
        let inputs = columns.map(|((key, value), range)| {
            let (key, value) = (bytes_of(key), bytes_of(value));
            let is_plain = key.is_some() && value.is_some();
            let headers = headers.get(range.clone()).unwrap_or_default();
            Input { key: key.flatten(), value: value.flatten(), headers, range, is_plain }
        });
        inputs.collect()
    }
}

pub(crate) fn cells<'a, 'py>(pairs: &'a Pairs<'_, 'py>) -> PyResult<Cells<'a, 'py>> {
    let cell = |pair: &'a Borrowed<'_, 'py, PyAny>| {
        let pair: &'a Bound<'py, PyTuple> = (**pair).cast()?;
        Ok((pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?))
    };
    pairs.iter().map(cell).collect()
}

pub(crate) fn headers<'a>(cells: &'a Cells<'_, '_>) -> Vec<Header<'a>> {
    let header = |(name, value): &'a (Borrowed<'_, '_, PyAny>, Borrowed<'_, '_, PyAny>)| {
        let name = (**name).cast::<PyString>().ok()?.to_str().ok()?;
        Some((name.as_bytes(), bytes_of(value)?))
    };
    cells.iter().map(header).collect()
}

/// Return the bytes of an object, or null; nothing if it is neither.
fn bytes_of<'a>(object: &'a Bound<'_, PyAny>) -> Option<Option<&'a [u8]>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Some(Some(bytes.as_bytes())),
        Err(_) => object.is_none().then_some(None),
    }
}

/// The new columns.
pub(crate) struct Rows<'a, 'py> {
    py: Python<'py>,
    columns: &'a Columns<'py>,
    pairs: &'a Pairs<'a, 'py>,
    values: Vec<Bound<'py, PyAny>>,
    rows: Vec<Bound<'py, PyAny>>,
    not_taken: Vec<usize>,
    has_new_values: bool,
    row: Vec<Bound<'py, PyAny>>,
    /// The latest new header of each name: many records get the same.
    made: Vec<Made<'py>>,
}

struct Made<'py> {
    name: Vec<u8>,
    text: Bound<'py, PyString>,
    latest: Option<(Option<Bound<'py, PyBytes>>, Bound<'py, PyAny>)>,
}

/// How many names are remembered; a sender may write any number.
const MOST_MADE: usize = 64;

impl<'a, 'py> Rows<'a, 'py> {
    pub(crate) fn new(py: Python<'py>, columns: &'a Columns<'py>, pairs: &'a Pairs<'a, 'py>) -> Self {
        let (values, rows) = (Vec::with_capacity(columns.rows.len()), Vec::with_capacity(columns.rows.len()));
        Self {
            py,
            columns,
            pairs,
            values,
            rows,
            not_taken: Vec::new(),
            has_new_values: false,
            row: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Return the headers; those that came in are the same objects.
    fn row(&mut self, input: &Input<'_>, headers: &Headers<'_>) -> PyResult<Bound<'py, PyTuple>> {
        let mut row = std::mem::take(&mut self.row);
        let mut from = 0;
        for (name, value) in headers.iter() {
            let mut later = input.headers.iter().enumerate().skip(from);
            let found = later.find(|(_, header)| header.is_some_and(|header| is_same((name, value), header)));
            let pair = found.and_then(|(at, _)| Some((at, self.pairs.get(input.range.start + at)?)));
            if let Some((at, pair)) = pair {
                row.push((**pair).clone());
                from = at + 1;
            } else {
                row.push(self.made(name, value)?);
            }
        }
        let made = PyTuple::new(self.py, row.drain(..));
        self.row = row;
        made
    }

    fn made(&mut self, name: &[u8], value: Option<&[u8]>) -> PyResult<Bound<'py, PyAny>> {
        let at = match self.made.iter().position(|made| made.name == name) {
            Some(at) => at,
            None => {
                let name_text = String::from_utf8_lossy(name);
                if self.made.len() == MOST_MADE {
                    let value = value.map(|value| PyBytes::new(self.py, value));
                    return pair(&PyString::new(self.py, &name_text), value.as_ref());
                }
                let text = PyString::intern(self.py, &name_text);
                self.made.push(Made { name: name.into(), text, latest: None });
                self.made.len() - 1
            }
        };
        let made = self.made.get_mut(at).ok_or_else(|| PyIndexError::new_err("no such header"))?;
        let is_same = |latest: &Option<Bound<'_, PyBytes>>| latest.as_ref().map(|own| own.as_bytes()) == value;
        if let Some((_, pair)) = made.latest.as_ref().filter(|(latest, _)| is_same(latest)) {
            return Ok(pair.clone());
        }
        let value = value.map(|value| PyBytes::new(self.py, value));
        let pair = pair(&made.text, value.as_ref())?;
        Ok(made.latest.insert((value, pair)).1.clone())
    }

    /// Return the indices of the records not taken, the values or None if all are as before, and the headers.
    #[allow(clippy::type_complexity)] // it is said in words
    pub(crate) fn finish(self) -> PyResult<(Vec<usize>, Option<Bound<'py, PyList>>, Bound<'py, PyList>)> {
        let values = if self.has_new_values { Some(PyList::new(self.py, self.values)?) } else { None };
        Ok((self.not_taken, values, PyList::new(self.py, self.rows)?))
    }
}

impl Output for Rows<'_, '_> {
    fn push(
        &mut self, input: &Input<'_>, taken: Option<bool>, headers: &Headers<'_>, value: &[u8],
    ) -> PyResult<()> {
        let at = self.rows.len();
        let mut row = self.columns.rows.get(at).cloned();
        if taken.is_none() {
            self.not_taken.push(at);
        } else {
            row = Some(self.row(input, headers)?.into_any());
        }
        self.rows.extend(row);
        if taken == Some(true) {
            self.has_new_values = true;
            self.values.push(PyBytes::new(self.py, value).into_any());
        } else {
            self.values.extend(self.columns.values.get(at).cloned());
        }
        Ok(())
    }

    fn is_attached(&self) -> bool {
        true
    }

    fn detach<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.py.detach(work)
    }
}

fn pair<'py>(
    name: &Bound<'py, PyString>, value: Option<&Bound<'py, PyBytes>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = name.py();
    Ok(PyTuple::new(py, [name.as_any(), &value.into_pyobject(py)?])?.into_any())
}

/// Return whether two headers are the same bytes in memory.
fn is_same(one: (&[u8], Option<&[u8]>), other: (&[u8], Option<&[u8]>)) -> bool {
    let same = |one: &[u8], other: &[u8]| one.as_ptr() == other.as_ptr() && one.len() == other.len();
    same(one.0, other.0)
        && match (one.1, other.1) {
            (Some(one), Some(other)) => same(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
}
