//! Slices of large messages, `hw.slice` ([spec/slice.md](../../../spec/slice.md)). Reassembly is the caller's.

use crate::text::{Fields, decode_array, encode};
use crate::{Headers, NotMine};

pub const HEADER: &str = "hw.slice";

const MAX_COUNT: u32 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub message_id: [u8; 16],
    /// The slice's number in the message, from 0.
    pub index: u32,
    pub count: u32,
    /// The length of the message's value.
    pub total_bytes: u64,
    /// The length of each slice's value except the last.
    pub slice_bytes: u32,
}

impl Slice {
    pub fn parse(value: Option<&[u8]>) -> Result<Self, NotMine> {
        let layout: [u8; 37] = decode_array(value.ok_or(NotMine::Missing)?)?;
        let mut fields = Fields(&layout);
        if fields.byte()? != 1 {
            return Err(NotMine::Version);
        }
        let slice = Self {
            message_id: fields.array()?,
            index: u32::from_be_bytes(fields.array()?),
            count: u32::from_be_bytes(fields.array()?),
            total_bytes: u64::from_be_bytes(fields.array()?),
            slice_bytes: u32::from_be_bytes(fields.array()?),
        };
        slice.check().map(|()| slice)
    }

    pub fn write(&self, text: &mut Vec<u8>) -> Result<(), NotMine> {
        self.check()?;
        let mut layout = [1; 37];
        let parts: [&[u8]; 5] = [
            &self.message_id,
            &self.index.to_be_bytes(),
            &self.count.to_be_bytes(),
            &self.total_bytes.to_be_bytes(),
            &self.slice_bytes.to_be_bytes(),
        ];
        let bytes = parts.into_iter().flatten();
        layout.iter_mut().skip(1).zip(bytes).for_each(|(place, &byte)| *place = byte);
        encode(&layout, text);
        Ok(())
    }

    /// Return the length of this slice's value.
    pub fn value_bytes(&self) -> u64 {
        let before = u64::from(self.index) * u64::from(self.slice_bytes);
        self.total_bytes.saturating_sub(before).min(self.slice_bytes.into())
    }

    /// Cut a value into slices, in the order in which they are sent.
    pub fn cut(
        message_id: [u8; 16], value: &[u8], slice_bytes: u32,
    ) -> Result<impl ExactSizeIterator<Item = (Self, &[u8])>, NotMine> {
        let size = usize::try_from(slice_bytes).map_err(|_| NotMine::TooLarge)?;
        if value.is_empty() || size == 0 {
            return Err(NotMine::Missing);
        }
        let count = u32::try_from(value.len().div_ceil(size)).map_err(|_| NotMine::TooLarge)?;
        if count > MAX_COUNT {
            return Err(NotMine::TooLarge);
        }
        let first = Self { message_id, index: 0, count, total_bytes: value.len() as u64, slice_bytes };
        Ok(value.chunks(size).zip(0..count).map(move |(part, index)| (Self { index, ..first }, part)))
    }

    fn check(&self) -> Result<(), NotMine> {
        let fits = self.total_bytes > 0
            && self.slice_bytes > 0
            && self.count <= MAX_COUNT
            && self.index < self.count
            && u64::from(self.count) == self.total_bytes.div_ceil(self.slice_bytes.into());
        if fits { Ok(()) } else { Err(NotMine::Layout) }
    }
}

/// Read the header of a slice and compare it with the slice's value; `None` is a record that is no slice.
pub fn on_consume(
    value: Option<&[u8]>, headers: &mut Headers<'_>, max_message_bytes: u64,
) -> Result<Option<Slice>, NotMine> {
    let Some(index) = headers.only(HEADER)? else { return Ok(None) };
    let slice = Slice::parse(headers.value(index))?;
    if slice.total_bytes > max_message_bytes {
        return Err(NotMine::TooLarge);
    }
    if value.is_none_or(|value| value.len() as u64 != slice.value_bytes()) {
        return Err(NotMine::Layout);
    }
    headers.remove(index);
    Ok(Some(slice))
}
