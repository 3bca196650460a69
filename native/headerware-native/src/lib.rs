//! Neighbouring steps of a chain over whole batches, for `headerware/core/native.py`.
//!
//! A [`Run`] takes the columns of a batch and returns new ones, and the records that it leaves to the Python
//! code, by index. It has no configuration and no state of its own: Python passes what the steps are made of.

mod arrow;
mod columns;
mod compress;
mod encrypt;
mod step;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use headerware_wire::{Headers, NotMine, Outcome, Record};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::arrow::{Arrays, ArrowRows, failed, to_pyarrow};
use crate::columns::{Columns, Input, Output, Rows, cells, headers as headers_of};
use crate::step::Step;

/// How many records are processed before their new objects are made.
const PIECE: usize = 64;
/// Other threads of Python run meanwhile if the records of a piece have so many bytes,
const DETACHED_BYTES: usize = 16 << 10;
/// or from the record on with which they would be decompressed to more than this.
const MADE_BYTES: usize = 256 << 10;
/// A piece ends when its new values have so many bytes.
const PIECE_BYTES: usize = 1 << 20;
/// The size of the largest buffers that are kept for the next batch.
const LARGEST_KEPT: usize = PIECE_BYTES / 4;

/// Neighbouring steps of one direction and one topic. One thread uses it at a time; others are sent away.
#[pyclass(module = "headerware_native")]
struct Run {
    topic: String,
    steps: Vec<Step>,
    /// One for each step, or none if nobody asks for them.
    measures: Vec<Measure>,
    buffers: Vec<Vec<u8>>,
    spare: Vec<u8>,
}

/// What a step has done with a batch: the time, and the bytes of the records that the run has taken.
#[derive(Clone, Default)]
struct Measure {
    nanoseconds: u128,
    bytes_in: usize,
    bytes_out: usize,
    /// The bytes of the latest record, before and after the step.
    latest: (usize, usize),
}

/// A record on its way.
struct Slot<'a> {
    headers: Headers<'a>,
    value: Vec<u8>,
    /// Whether the record was taken, and then whether its value is new.
    taken: Option<bool>,
}

/// Indices not taken, values or None if all are as before, headers, and for each step its facts and measures.
type Taken<'py, Column> = (Vec<usize>, Option<Column>, Column, Vec<Bound<'py, PyAny>>, Vec<Measured>);

/// Nanoseconds, and bytes before and after a step.
type Measured = (u128, usize, usize);

#[pymethods]
impl Run {
    /// Make the steps, in the order in which records pass them; each is a name and its arguments.
    ///
    /// Each step is measured if `measured` is true.
    #[new]
    #[pyo3(signature = (topic, steps, *, measured))]
    fn new(topic: String, steps: Vec<(String, Bound<'_, PyTuple>)>, measured: bool) -> PyResult<Self> {
        let steps = steps.iter().map(|(name, arguments)| Step::new(name, &topic, arguments));
        let steps = steps.collect::<PyResult<Vec<_>>>()?;
        let measures = if measured { vec![Measure::default(); steps.len()] } else { Vec::new() };
        Ok(Self { topic, steps, measures, buffers: Vec::new(), spare: Vec::new() })
    }

    /// Take a batch through the steps; None if another thread uses the run.
    ///
    /// `numbers` has for each step the numbers of this batch, such as the time.
    fn take<'py>(
        slf: &Bound<'py, Self>, values: &Bound<'py, PyList>, keys: &Bound<'py, PyList>,
        headers: &Bound<'py, PyList>, numbers: Vec<Vec<i64>>,
    ) -> PyResult<Option<Taken<'py, Bound<'py, PyList>>>> {
        Self::guarded(slf, &numbers, |run| {
            let columns = Columns::new(values, keys, headers);
            let (pairs, ranges) = columns.pairs()?;
            let cells = cells(&pairs)?;
            let read = headers_of(&cells);
            let inputs = columns.inputs(&read, ranges);
            let mut rows = Rows::new(slf.py(), &columns, &pairs);
            let (not_taken, values, headers) = match run.process_all(&inputs, &numbers, &mut rows)? {
                true => rows.finish()?,
                false => ((0..inputs.len()).collect(), None, headers.clone()),
            };
            Ok(Some((not_taken, values, headers, run.facts(slf.py())?, run.measured())))
        })
    }

    /// Take a batch of Arrow arrays as `take` does; None also if they have other types than it knows.
    fn take_arrow<'py>(
        slf: &Bound<'py, Self>, values: &Bound<'py, PyAny>, keys: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>, numbers: Vec<Vec<i64>>,
    ) -> PyResult<Option<Taken<'py, Bound<'py, PyAny>>>> {
        Self::guarded(slf, &numbers, |run| {
            let py = slf.py();
            let arrays = Arrays::new(values, keys, headers)?;
            let work = || {
                let Some((read, ranges)) = arrays.headers() else { return Ok(None) };
                let Some(inputs) = arrays.inputs(&read, ranges) else { return Ok(None) };
                let mut rows = ArrowRows::new(&inputs);
                match run.process_all(&inputs, &numbers, &mut rows)? {
                    true => rows.finish().map(|made| Some(Ok(made))).map_err(failed),
                    false => Ok(Some(Err(inputs.len()))),
                }
            };
            let (not_taken, values, headers) = match py.detach(work)? {
                None => return Ok(None),
                Some(Err(count)) => ((0..count).collect(), None, headers.clone()),
                Some(Ok((not_taken, values, headers))) => {
                    let values = values.map(|values| to_pyarrow(py, values)).transpose()?;
                    (not_taken, values, to_pyarrow(py, headers)?)
                }
            };
            Ok(Some((not_taken, values, headers, run.facts(py)?, run.measured())))
        })
    }
}

impl Run {
    /// Take a batch, unless another thread uses the run. A step that panics is an error of the batch.
    fn guarded<T>(
        slf: &Bound<'_, Self>, numbers: &[Vec<i64>], take: impl FnOnce(&mut Self) -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let Ok(mut run) = slf.try_borrow_mut() else { return Ok(None) };
        if run.steps.len() != numbers.len() {
            return Err(PyValueError::new_err(format!(
                "expected the numbers of {} steps, found those of {}",
                run.steps.len(),
                numbers.len()
            )));
        }
        // A step that panicked may be in any state, so the run is made anew. pyo3 panics if memory is short.
        catch_unwind(AssertUnwindSafe(|| take(&mut run)))
            .unwrap_or_else(|_| Err(PyRuntimeError::new_err("a step failed")))
    }

    /// Take all records of a batch through the steps, a piece at a time. False if a step leaves all of them.
    fn process_all<'a>(
        &mut self, inputs: &[Input<'a>], numbers: &[Vec<i64>], output: &mut impl Output,
    ) -> PyResult<bool> {
        let mut slots: Vec<Slot<'_>> = Vec::new();
        self.steps.iter_mut().for_each(Step::forget); // a batch that failed may have left facts
        self.measures.fill(Measure::default());
        for value in self.buffers.drain(..) {
            slots.push(Slot { headers: Headers::new(), value, taken: None });
        }
        slots.resize_with(PIECE, || Slot { headers: Headers::new(), value: Vec::new(), taken: None });
        let mut rest = inputs;
        while !rest.is_empty() {
            let piece = rest.get(..PIECE).unwrap_or(rest);
            let bytes: usize = piece.iter().map(Input::bytes).sum();
            let at = inputs.len() - rest.len();
            let mut done = 0;
            if output.is_attached() && bytes < DETACHED_BYTES {
                done = self.process(piece, &mut slots, numbers, at, MADE_BYTES);
            }
            if let (Some(piece @ [_, ..]), Some(slots)) = (piece.get(done..), slots.get_mut(done..)) {
                done += output.detach(|| self.process(piece, slots, numbers, at + done, usize::MAX));
            }
            for (input, slot) in piece.iter().zip(&slots).take(done) {
                output.push(input, slot.taken, &slot.headers, &slot.value)?;
            }
            rest = rest.get(done..).unwrap_or_default();
            if self.steps.iter().any(Step::leaves_batch) {
                self.steps.iter_mut().for_each(Step::forget);
                return Ok(false);
            }
        }
        self.buffers = slots.into_iter().map(|slot| slot.value).collect();
        self.buffers.retain(|buffer| buffer.capacity() <= LARGEST_KEPT);
        if self.spare.capacity() > LARGEST_KEPT {
            self.spare = Vec::new();
        }
        Ok(true)
    }

    /// Return what Python has to know about the records that were taken, for each step.
    fn facts<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.steps.iter_mut().map(|step| step.facts(py)).collect()
    }

    fn measured(&self) -> Vec<Measured> {
        let measured = |measure: &Measure| (measure.nanoseconds, measure.bytes_in, measure.bytes_out);
        self.measures.iter().map(measured).collect()
    }

    /// Take records through the steps, and return how many; `first` is the index of the first in the batch.
    ///
    /// It ends before a record with which values would be decompressed to more than `most` bytes.
    fn process<'a>(
        &mut self, inputs: &[Input<'a>], slots: &mut [Slot<'a>], numbers: &[Vec<i64>], first: usize,
        most: usize,
    ) -> usize {
        let (mut bytes, mut done, mut room) = (0, 0, most);
        for (input, slot) in inputs.iter().zip(slots) {
            slot.taken = match self.process_one(input, slot, numbers, first + done, &mut room) {
                Ok(is_new) => Some(is_new),
                Err(Left::ToPython) => None,
                Err(Left::NoRoom) => break,
            };
            done += 1;
            if slot.taken == Some(true) {
                bytes += slot.value.len();
            }
            if bytes >= PIECE_BYTES {
                break;
            }
        }
        done
    }

    /// Take a record through the steps, and return whether its value is new.
    fn process_one<'a>(
        &mut self, input: &Input<'a>, slot: &mut Slot<'a>, numbers: &[Vec<i64>], index: usize,
        room: &mut usize,
    ) -> Result<bool, Left> {
        if !input.is_plain {
            return Err(Left::ToPython);
        }
        slot.headers.clear();
        for header in input.headers {
            let (name, value) = (*header).ok_or(Left::ToPython)?;
            slot.headers.push(name, value);
        }
        let (mut is_new, mut verified) = (false, None::<Arc<str>>);
        let mut measures = self.measures.iter_mut();
        let mut before =
            (measures.len() > 0).then(|| (Instant::now(), bytes_of(input.key, input.value, &slot.headers)));
        for (step, numbers) in self.steps.iter_mut().zip(numbers) {
            let value = if is_new { Some(&slot.value[..]) } else { input.value };
            let record = Record { topic: &self.topic, key: input.key, value, timestamp_ms: None };
            *room = room.checked_sub(step.made_bytes(&record, &slot.headers)).ok_or(Left::NoRoom)?;
            let by = verified.as_deref();
            let outcome = step.apply(&record, &mut slot.headers, &mut self.spare, numbers, index, by)?;
            match outcome {
                Outcome::Value => {
                    std::mem::swap(&mut slot.value, &mut self.spare);
                    slot.value.shrink_to(LARGEST_KEPT); // compression has had room for the worst case
                    is_new = true;
                }
                Outcome::Headers | Outcome::Unchanged => {}
            }
            verified = step.verified().or(verified);
            if let (Some(measure), Some((began, bytes_in))) = (measures.next(), before) {
                let value = if is_new { Some(&slot.value[..]) } else { input.value };
                let bytes_out = match outcome {
                    Outcome::Unchanged => bytes_in,
                    _ => bytes_of(input.key, value, &slot.headers),
                };
                let ended = Instant::now();
                measure.nanoseconds += (ended - began).as_nanos();
                measure.latest = (bytes_in, bytes_out);
                before = Some((ended, bytes_out));
            }
        }
        self.steps.iter_mut().for_each(Step::commit);
        for measure in &mut self.measures {
            measure.bytes_in += measure.latest.0;
            measure.bytes_out += measure.latest.1;
        }
        Ok(is_new)
    }
}

/// Return the bytes of a record as Python counts them: a name's length is that of its text.
fn bytes_of(key: Option<&[u8]>, value: Option<&[u8]>, headers: &Headers<'_>) -> usize {
    let text = |name: &[u8]| name.iter().filter(|byte| (**byte).cast_signed() >= -0x40).count();
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = headers.iter().map(|(name, value)| text(name) + length(value));
    length(key) + length(value) + headers.sum::<usize>()
}

/// Why a record was not processed.
enum Left {
    ToPython,
    NoRoom,
}

impl From<NotMine> for Left {
    fn from(_: NotMine) -> Self {
        Self::ToPython
    }
}

#[pymodule]
fn headerware_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Run>()
}
