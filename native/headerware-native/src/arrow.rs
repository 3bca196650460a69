//! The columns of a batch as Arrow arrays: read where they lie, and made anew without any object of Python.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::NullBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{Array, ArrayRef, BinaryArray, GenericByteArray, ListArray, StructArray};
use arrow_buffer::{ArrowNativeType, Buffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field};
use headerware_wire::Headers;
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::PyArray;

use crate::columns::{Header, Input, Output};

/// The bytes or nulls of an array.
type Cells<'a> = Vec<Option<&'a [u8]>>;

/// The arrays of a batch.
pub(crate) struct Arrays {
    values: ArrayRef,
    keys: ArrayRef,
    headers: ArrayRef,
}

impl Arrays {
    pub(crate) fn new(
        values: &Bound<'_, PyAny>, keys: &Bound<'_, PyAny>, headers: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let array = |object: &Bound<'_, PyAny>| Ok::<_, PyErr>(object.extract::<PyArray>()?.into_inner().0);
        Ok(Self { values: array(values)?, keys: array(keys)?, headers: array(headers)? })
    }

    /// Return all headers, and for each record where its own are; nothing if the types are others.
    pub(crate) fn headers(&self) -> Option<(Vec<Header<'_>>, Vec<Range<usize>>)> {
        let lists = self.headers.as_list_opt::<i32>()?;
        let pairs = lists.values().as_struct_opt()?;
        let [names, values] = pairs.columns() else { return None };
        let (names, values) = (cells(names)?, cells(values)?);
        let headers = names.into_iter().zip(values).enumerate().map(|(at, (name, value))| {
            let name = name.filter(|name| pairs.is_valid(at) && std::str::from_utf8(name).is_ok())?;
            Some((name, value))
        });
        let ends = lists.value_offsets().iter().zip(lists.value_offsets().iter().skip(1));
        let ranges = ends.enumerate().map(|(at, (start, end))| match lists.is_valid(at) {
            true => start.as_usize()..end.as_usize(),
            false => 0..0,
        });
        Some((headers.collect(), ranges.collect()))
    }

    /// Return the records; nothing if their columns have other types or lengths.
    pub(crate) fn inputs<'a>(
        &'a self, headers: &'a [Header<'a>], ranges: Vec<Range<usize>>,
    ) -> Option<Vec<Input<'a>>> {
        let (keys, values) = (cells(&self.keys)?, cells(&self.values)?);
        if keys.len() != ranges.len() || values.len() != ranges.len() {
            return None;
        }
        let columns = keys.into_iter().zip(values).zip(ranges);
        let input = |((key, value), range): (_, Range<usize>)| {
            let headers = headers.get(range.clone()).unwrap_or_default();
            Input { key, value, headers, range, is_plain: true }
        };
        Some(columns.map(input).collect())
    }
}

/// Return the bytes of an array of bytes or text; nothing if it has another type.
fn cells(array: &dyn Array) -> Option<Cells<'_>> {
    match array.data_type() {
        DataType::Binary => Some(cells_of(array.as_binary::<i32>())),
        DataType::LargeBinary => Some(cells_of(array.as_binary::<i64>())),
        DataType::Utf8 => Some(cells_of(array.as_string::<i32>())),
        DataType::LargeUtf8 => Some(cells_of(array.as_string::<i64>())),
        _ => None,
    }
}

/// Return the bytes as they lie: text from elsewhere may be other than UTF-8.
fn cells_of<T: ByteArrayType>(array: &GenericByteArray<T>) -> Cells<'_> {
    let (bytes, offsets) = (array.value_data(), array.value_offsets());
    let ends = offsets.iter().zip(offsets.iter().skip(1)).enumerate();
    let cell = |(at, (start, end)): (usize, (&T::Offset, &T::Offset))| {
        let found = bytes.get(start.as_usize()..end.as_usize());
        found.filter(|_| array.is_valid(at))
    };
    ends.map(cell).collect()
}

/// An array of bytes in the making.
struct Bytes {
    bytes: Vec<u8>,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Bytes {
    fn new() -> Self {
        Self { bytes: Vec::new(), ends: vec![0], nulls: NullBufferBuilder::new(0) }
    }

    fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Append bytes; a lack of memory is an error of the batch.
    fn push(&mut self, cell: Option<&[u8]>) -> PyResult<()> {
        let bytes = cell.unwrap_or_default();
        self.bytes.try_reserve(bytes.len()).map_err(|_| PyMemoryError::new_err("a column of a batch"))?;
        self.bytes.extend_from_slice(bytes);
        self.ends.push(end(self.bytes.len())?);
        self.nulls.append(cell.is_some());
        Ok(())
    }

    fn finish<T: ByteArrayType<Offset = i32>>(mut self) -> Result<GenericByteArray<T>, ArrowError> {
        let offsets = OffsetBuffer::new(self.ends.into());
        GenericByteArray::try_new(offsets, Buffer::from_vec(self.bytes), self.nulls.finish())
    }
}

fn end(length: usize) -> PyResult<i32> {
    length.try_into().map_err(|_| PyOverflowError::new_err("a column of a batch has more than 2 GiB"))
}

/// The new arrays.
pub(crate) struct ArrowRows<'a> {
    inputs: &'a [Input<'a>],
    /// Made from the first new value on; without one, all values are as before.
    values: Option<Bytes>,
    names: Bytes,
    contents: Bytes,
    ends: Vec<i32>,
    not_taken: Vec<usize>,
}

impl<'a> ArrowRows<'a> {
    pub(crate) fn new(inputs: &'a [Input<'a>]) -> Self {
        let (names, contents) = (Bytes::new(), Bytes::new());
        Self { inputs, values: None, names, contents, ends: vec![0], not_taken: Vec::new() }
    }

    /// Return the indices of the records not taken, the values or None if all are as before, and the headers.
    pub(crate) fn finish(self) -> Result<(Vec<usize>, Option<BinaryArray>, ListArray), ArrowError> {
        let names: GenericByteArray<Utf8Type> = self.names.finish()?;
        let contents: GenericByteArray<BinaryType> = self.contents.finish()?;
        // As pyarrow makes them.
        let fields = [("key", names.data_type()), ("value", contents.data_type())];
        let fields = fields.map(|(name, kind)| Field::new(name, kind.clone(), true));
        let pairs =
            StructArray::try_new(fields.to_vec().into(), vec![Arc::new(names), Arc::new(contents)], None)?;
        let field = Arc::new(Field::new("item", pairs.data_type().clone(), true));
        let headers = ListArray::try_new(field, OffsetBuffer::new(self.ends.into()), Arc::new(pairs), None)?;
        Ok((self.not_taken, self.values.map(Bytes::finish).transpose()?, headers))
    }
}

impl Output for ArrowRows<'_> {
    fn push(
        &mut self, input: &Input<'_>, taken: Option<bool>, headers: &Headers<'_>, value: &[u8],
    ) -> PyResult<()> {
        let at = self.ends.len() - 1;
        match taken {
            None => self.not_taken.push(at),
            Some(_) => {
                for (name, content) in headers.iter() {
                    self.names.push(Some(name))?;
                    self.contents.push(content)?;
                }
            }
        }
        self.ends.push(end(self.names.len())?);
        let is_new = taken == Some(true);
        if is_new && self.values.is_none() {
            let mut values = Bytes::new();
            self.inputs.iter().take(at).try_for_each(|before| values.push(before.value))?;
            self.values = Some(values);
        }
        match &mut self.values {
            Some(values) => values.push(if is_new { Some(value) } else { input.value }),
            None => Ok(()),
        }
    }

    fn is_attached(&self) -> bool {
        false
    }

    fn detach<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        work()
    }
}

/// Return an array as pyarrow has it.
pub(crate) fn to_pyarrow<'py>(py: Python<'py>, array: impl Array + 'static) -> PyResult<Bound<'py, PyAny>> {
    py.import("pyarrow")?.call_method1("array", (PyArray::from_array_ref(Arc::new(array)),))
}

/// Return an error of Arrow's as one of Python's.
pub(crate) fn failed(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
