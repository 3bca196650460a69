//! Which values a sender compresses, as `headerware/interceptors/compress.py` decides it.

use headerware_wire::compress::{Codec, Compressor, Dictionary, HEADER};
use headerware_wire::{Headers, NotMine, Outcome, Record};
use pyo3::prelude::*;

/// Why a value stays as it is. The numbers are the indices of the reasons in Python.
#[derive(Clone, Copy)]
enum Left {
    Empty,
    Small,
    Encoded,
    ContentType,
    Format,
    Incompressible,
}

const REASONS: usize = Left::Incompressible as usize + 1;

/// The bytes that identify a format, each with its index in the value.
type Marks = Vec<(usize, Vec<u8>)>;
/// A content type, and the dictionary for it, as its bytes or its index; both may be missing.
type Writer<Dictionary> = (Option<Vec<u8>>, Option<Dictionary>);

#[derive(FromPyObject)]
pub(crate) struct Arguments {
    level: i32,
    /// The share of its size to which a value must shrink.
    share: f64,
    min_bytes: usize,
    /// The same for values without a dictionary, if others may have one.
    min_plain_bytes: usize,
    formats: Vec<Marks>,
    /// The content types that are known, and whether they are skipped.
    skips: Vec<(Vec<u8>, bool)>,
    /// The dictionaries that are known; nothing if there are no dictionaries at all.
    writers: Option<Vec<Writer<Vec<u8>>>>,
}

pub(crate) struct Compressing {
    min_bytes: usize,
    min_plain_bytes: usize,
    formats: Vec<Marks>,
    /// Whether a format begins with a byte, which rules out most other values.
    begins: [bool; 256],
    skips: Vec<(Vec<u8>, bool)>,
    writers: Option<Vec<Writer<usize>>>,
    plain: Compressor,
    dictionaries: Vec<Compressor>,
    latest: Option<Counted>,
    counts: Counts,
}

enum Counted {
    Left(Left),
    Compressed { bytes_in: usize, bytes_out: usize, has_dictionary: bool },
}

/// The values that were left, by reason; those that were compressed, their bytes before and after, and those
/// that were compressed with a dictionary.
pub(crate) type Counts = ([usize; REASONS], usize, usize, usize, usize);

impl Compressing {
    pub(crate) fn new(arguments: Arguments) -> Result<Self, NotMine> {
        let Arguments { level, share, min_bytes, min_plain_bytes, formats, skips, writers } = arguments;
        let mut begins = [false; 256];
        for (_, mark) in formats.iter().flat_map(|marks| marks.first()) {
            let first = mark.first().and_then(|first| begins.get_mut(usize::from(*first)));
            *first.ok_or(NotMine::Layout)? = true;
        }
        let (mut dictionaries, mut ids) = (Vec::new(), Vec::new());
        let mut writer = |(content_type, dictionary): Writer<Vec<u8>>| {
            let Some(dictionary) = dictionary else { return Ok((content_type, None)) };
            let dictionary = Dictionary::new(&dictionary)?;
            let id = dictionary.id();
            let index = ids.iter().position(|known| *known == id).unwrap_or(ids.len());
            if index == ids.len() {
                ids.push(id);
                dictionaries.push(Compressor::new(Codec::Zstd(level, Some(dictionary)), share)?);
            }
            Ok((content_type, Some(index)))
        };
        let writers = writers.map(|writers| writers.into_iter().map(&mut writer).collect());
        let writers = writers.transpose()?;
        let plain = Compressor::new(Codec::Zstd(level, None), share)?;
        let (latest, counts) = Default::default();
        Ok(Self {
            min_bytes,
            min_plain_bytes,
            formats,
            begins,
            skips,
            writers,
            plain,
            dictionaries,
            latest,
            counts,
        })
    }

    pub(crate) fn on_send(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        let value = record.value.unwrap_or_default();
        let dictionary = match self.dictionary(value, headers)? {
            Ok(dictionary) => dictionary,
            Err(left) => {
                self.latest = Some(Counted::Left(left));
                return Ok(Outcome::Unchanged);
            }
        };
        let compressor = match dictionary {
            None => &mut self.plain,
            Some(index) => self.dictionaries.get_mut(index).ok_or(NotMine::Dictionary)?,
        };
        let outcome = compressor.on_send(record, headers, out)?;
        self.latest = Some(match outcome {
            Outcome::Value => Counted::Compressed {
                bytes_in: value.len(),
                bytes_out: out.len(),
                has_dictionary: dictionary.is_some(),
            },
            _ => Counted::Left(Left::Incompressible),
        });
        Ok(outcome)
    }

    /// Return the index of the dictionary to compress a value with, if any, or why the value stays as it is.
    fn dictionary(
        &self, value: &[u8], headers: &Headers<'_>,
    ) -> Result<Result<Option<usize>, Left>, NotMine> {
        let Some(&first) = value.first() else { return Ok(Err(Left::Empty)) };
        if value.len() < self.min_bytes {
            return Ok(Err(Left::Small));
        }
        let mut content_type = None;
        for (name, content) in headers.iter() {
            match name {
                name if name == HEADER.as_bytes() => return Ok(Err(Left::Encoded)),
                b"content-type" | b"Content-Type" => content_type = content,
                _ => {}
            }
        }
        if let Some(content_type) = content_type {
            // Python decides about each content type once.
            let known = self.skips.iter().find(|(known, _)| known == content_type);
            if known.ok_or(NotMine::Unsupported)?.1 {
                return Ok(Err(Left::ContentType));
            }
        }
        let has = |(at, mark): &(usize, Vec<u8>)| value.get(*at..).is_some_and(|rest| rest.starts_with(mark));
        let begins = self.begins.get(usize::from(first)) == Some(&true);
        if begins && self.formats.iter().any(|marks| marks.iter().all(has)) {
            return Ok(Err(Left::Format));
        }
        let Some(writers) = &self.writers else { return Ok(Ok(None)) };
        let known = writers.iter().find(|(known, _)| known.as_deref() == content_type);
        let dictionary = known.ok_or(NotMine::Dictionary)?.1;
        if dictionary.is_none() && value.len() < self.min_plain_bytes {
            return Ok(Err(Left::Small));
        }
        Ok(Ok(dictionary))
    }

    /// Count the latest record, which all steps have taken.
    pub(crate) fn commit(&mut self) {
        let (left, compressed, bytes_in, bytes_out, with_dictionary) = &mut self.counts;
        match self.latest.take() {
            Some(Counted::Left(reason)) => {
                if let Some(count) = left.get_mut(reason as usize) {
                    *count += 1;
                }
            }
            Some(Counted::Compressed { bytes_in: size, bytes_out: smaller, has_dictionary }) => {
                *compressed += 1;
                *bytes_in += size;
                *bytes_out += smaller;
                *with_dictionary += usize::from(has_dictionary);
            }
            None => {}
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn forget(&mut self) {
        self.counts = Counts::default();
    }
}
