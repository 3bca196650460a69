//! Base64 in its one spelling (RFC 4648, section 4), and reading of big-endian layouts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::NotMine;

/// Replace `layout` by the bytes that a text stands for.
pub(crate) fn decode(text: &[u8], layout: &mut Vec<u8>) -> Result<(), NotMine> {
    layout.clear();
    STANDARD.decode_vec(text, layout).map_err(|_| NotMine::Spelling)
}

/// Return the bytes of a text that stands for exactly N bytes.
pub(crate) fn decode_array<const N: usize>(text: &[u8]) -> Result<[u8; N], NotMine> {
    // A decoder wants room for whole groups of three bytes; no fixed layout of ours is longer.
    let mut room = [0; 64];
    if text.len() > 64 {
        return Err(NotMine::Layout);
    }
    let size = STANDARD.decode_slice(text, &mut room).map_err(|_| NotMine::Spelling)?;
    room.get(..size).and_then(|layout| layout.try_into().ok()).ok_or(NotMine::Layout)
}

/// Append the text of a layout.
pub(crate) fn encode(layout: &[u8], text: &mut Vec<u8>) {
    let start = text.len();
    let size = layout.len().div_ceil(3) * 4;
    text.resize(start + size, 0);
    if let Some(room) = text.get_mut(start..) {
        // The room is exactly what the text needs.
        let _ = STANDARD.encode_slice(layout, room);
    }
}

/// A reader of a layout: each method takes bytes from the front.
pub(crate) struct Fields<'l>(pub(crate) &'l [u8]);

impl<'l> Fields<'l> {
    pub(crate) fn take(&mut self, size: usize) -> Result<&'l [u8], NotMine> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(NotMine::Layout)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], NotMine> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(NotMine::Layout)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, NotMine> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, NotMine> {
        self.array().map(u16::from_be_bytes)
    }

    /// Bytes behind a length of one byte.
    pub(crate) fn short(&mut self) -> Result<&'l [u8], NotMine> {
        let size = self.byte()?;
        self.take(size.into())
    }

    /// Bytes behind a length of one byte, which are UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'l str, NotMine> {
        std::str::from_utf8(self.short()?).map_err(|_| NotMine::Layout)
    }
}

/// Append bytes behind a length of one byte.
pub(crate) fn put_short(layout: &mut Vec<u8>, bytes: &[u8]) -> Result<(), NotMine> {
    layout.push(u8::try_from(bytes.len()).map_err(|_| NotMine::TooLarge)?);
    layout.extend_from_slice(bytes);
    Ok(())
}

/// The length of four bytes that means null.
pub(crate) const NULL: [u8; 4] = [0xff; 4];

/// Return a length as four bytes; `ffffffff` is null.
pub(crate) fn length(bytes: Option<&[u8]>) -> Result<[u8; 4], NotMine> {
    match bytes {
        None => Ok(NULL),
        Some(bytes) => match u32::try_from(bytes.len()) {
            Ok(size) if size < u32::MAX => Ok(size.to_be_bytes()),
            _ => Err(NotMine::TooLarge),
        },
    }
}

/// Append bytes, or null, behind a length of four bytes.
pub(crate) fn put_long(layout: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<(), NotMine> {
    layout.extend_from_slice(&length(bytes)?);
    layout.extend_from_slice(bytes.unwrap_or_default());
    Ok(())
}

/// Read a decimal number without sign and leading zeros, of at most 18 digits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    match digits {
        [] => None,
        [b'0', _, ..] => None,
        _ if digits.len() > 18 => None,
        _ => digits.iter().try_fold(0, |number: u64, &digit| {
            digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
        }),
    }
}
