//! Compressed values, `hw.compress` ([spec/compress.md](../../../spec/compress.md)).

use std::sync::Arc;

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use zstd_safe::{CCtx, CParameter, DCtx, DDict};

use crate::hashing::sha256;
use crate::text::{Fields, decode_array, encode};
use crate::{Headers, NotMine, Outcome, Record};

pub const HEADER: &str = "hw.compress";
/// The limit for decompressed values unless a reader has another one.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

const ZSTD: &[u8] = b"zstd";
const GZIP: &[u8] = b"gzip";
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
const MAX_DICTIONARY_BYTES: usize = 262_144;
const MAX_WINDOW: u64 = 8 << 20;
const MAX_RATIO: u64 = 32_768;
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// A trained dictionary ([spec/dictionaries.md](../../../spec/dictionaries.md)). A copy shares the bytes.
#[derive(Clone, Debug)]
pub struct Dictionary {
    id: [u8; 16],
    number: u32,
    bytes: Arc<[u8]>,
}

impl Dictionary {
    /// Check the bytes of a dictionary.
    pub fn new(bytes: &[u8]) -> Result<Self, NotMine> {
        let mut fields = Fields(bytes);
        if bytes.len() > MAX_DICTIONARY_BYTES || fields.array()? != DICTIONARY_MAGIC {
            return Err(NotMine::Dictionary);
        }
        let number = u32::from_le_bytes(fields.array()?);
        match sha256(&[bytes]).first_chunk() {
            Some(&id) if number != 0 => Ok(Self { id, number, bytes: bytes.into() }),
            _ => Err(NotMine::Dictionary),
        }
    }

    /// Return the id: the first 16 bytes of the SHA-256 of all bytes.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }
}

#[derive(Clone, Debug)]
pub enum Codec {
    /// zstd at a level, with or without a dictionary.
    Zstd(i32, Option<Dictionary>),
    /// gzip at a level from 0 to 9.
    Gzip(u32),
}

enum Encoder {
    /// With its dictionary, if it has one.
    Zstd(CCtx<'static>),
    Gzip(Box<Compress>),
}

/// The writer's side of the step.
pub struct Compressor {
    encoder: Encoder,
    header: Vec<u8>,
    share: f64,
}

impl Compressor {
    /// Make the step; a value stays as it is if it would not shrink to this share of its size, header included.
    pub fn new(codec: Codec, share: f64) -> Result<Self, NotMine> {
        let mut header = Vec::new();
        let encoder = match codec {
            Codec::Zstd(level, dictionary) => {
                let mut context = CCtx::try_create().ok_or(NotMine::Unsupported)?;
                context
                    .set_parameter(CParameter::CompressionLevel(level))
                    .map_err(|_| NotMine::Unsupported)?;
                match dictionary {
                    None => header.extend_from_slice(ZSTD),
                    Some(dictionary) => {
                        encode(&[&[1], &dictionary.id[..]].concat(), &mut header);
                        context.load_dictionary(&dictionary.bytes).map_err(|_| NotMine::Dictionary)?;
                        // The first frame digests the dictionary, and shows whether zstd can use it.
                        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(0));
                        context.compress2(&mut frame, b"").map_err(|_| NotMine::Dictionary)?;
                    }
                }
                Encoder::Zstd(context)
            }
            Codec::Gzip(level) if level <= 9 => {
                header.extend_from_slice(GZIP);
                Encoder::Gzip(Box::new(Compress::new(Compression::new(level), false)))
            }
            Codec::Gzip(_) => return Err(NotMine::Unsupported),
        };
        Ok(Self { encoder, header, share })
    }

    /// Compress the value into `out`, if that pays; null and empty values stay as they are.
    pub fn on_send(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        headers.none(HEADER)?;
        let value = match record.value {
            Some(value) if !value.is_empty() => value,
            _ => return Ok(Outcome::Unchanged),
        };
        out.clear();
        match &mut self.encoder {
            Encoder::Zstd(context) => {
                reserve(out, zstd_safe::compress_bound(value.len()))?;
                context.compress2(out, value).map_err(|_| NotMine::Unsupported)?;
            }
            Encoder::Gzip(encoder) => gzip(encoder, value, out)?,
        }
        // A header has two lengths of a byte.
        let size = out.len() + HEADER.len() + self.header.len() + 2;
        if size as f64 > value.len() as f64 * self.share {
            return Ok(Outcome::Unchanged);
        }
        headers.push_written(HEADER, |written| written.extend_from_slice(&self.header));
        Ok(Outcome::Value)
    }
}

fn gzip(encoder: &mut Compress, value: &[u8], out: &mut Vec<u8>) -> Result<(), NotMine> {
    let size = u32::try_from(value.len()).map_err(|_| NotMine::TooLarge)?;
    let mut crc = Crc::new();
    crc.update(value);
    encoder.reset();
    // Stored blocks take five bytes for each 64 KiB; the rest is a margin.
    reserve(out, GZIP_HEAD.len() + value.len() + value.len() / 1000 + 1024)?;
    out.extend_from_slice(&GZIP_HEAD);
    match encoder.compress_vec(value, out, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => {}
        _ => return Err(NotMine::Unsupported),
    }
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    Ok(())
}

/// The reader's side of the step.
pub struct Decompressor {
    zstd: DCtx<'static>,
    gzip: Box<Decompress>,
    dictionaries: Vec<([u8; 16], u32, DDict<'static>)>,
    max_bytes: usize,
}

impl Decompressor {
    /// Make the step with the limit for decompressed values.
    pub fn new(max_bytes: usize) -> Result<Self, NotMine> {
        Ok(Self {
            zstd: DCtx::try_create().ok_or(NotMine::Unsupported)?,
            gzip: Box::new(Decompress::new(false)),
            dictionaries: Vec::new(),
            max_bytes,
        })
    }

    /// Accept values that were written with a dictionary.
    pub fn add(&mut self, dictionary: &Dictionary) -> Result<(), NotMine> {
        let prepared = DDict::try_create(&dictionary.bytes).ok_or(NotMine::Dictionary)?;
        self.dictionaries.retain(|(id, ..)| *id != dictionary.id);
        self.dictionaries.push((dictionary.id, dictionary.number, prepared));
        Ok(())
    }

    /// Decompress the value into `out`, if there is the header.
    pub fn on_consume(
        &mut self, record: &Record<'_>, headers: &mut Headers<'_>, out: &mut Vec<u8>,
    ) -> Result<Outcome, NotMine> {
        let Some(index) = headers.only(HEADER)? else { return Ok(Outcome::Unchanged) };
        let codec = headers.value(index).ok_or(NotMine::Missing)?;
        let value = record.value.ok_or(NotMine::Missing)?;
        out.clear();
        match codec {
            ZSTD => self.decompress_zstd(value, None, out)?,
            GZIP => self.decompress_gzip(value, out)?,
            text => {
                let layout: [u8; 17] = decode_array(text)?;
                let [version, id @ ..] = layout;
                if version != 1 {
                    return Err(NotMine::Version);
                }
                self.decompress_zstd(value, Some(id), out)?;
            }
        }
        headers.remove(index);
        Ok(Outcome::Value)
    }

    /// Return the size to which a value would be decompressed by what it states, or else the largest possible.
    pub fn stated_bytes(record: &Record<'_>, headers: &Headers<'_>) -> u64 {
        let codec = headers.last(HEADER).and_then(|index| headers.value(index));
        match (codec, record.value) {
            (Some(GZIP), Some(member)) => {
                member.last_chunk().map_or(0, |&size| u32::from_le_bytes(size).into())
            }
            (Some(_), Some(frame)) => {
                let most = most_bytes(frame);
                FrameHead::read(frame).map_or(0, |head| head.size.unwrap_or(most).min(most))
            }
            _ => 0,
        }
    }

    fn decompress_zstd(
        &mut self, frame: &[u8], dictionary: Option<[u8; 16]>, out: &mut Vec<u8>,
    ) -> Result<(), NotMine> {
        let head = FrameHead::read(frame)?;
        let known = match dictionary {
            None => None,
            Some(wanted) => {
                Some(self.dictionaries.iter().find(|(id, ..)| *id == wanted).ok_or(NotMine::Dictionary)?)
            }
        };
        if head.dictionary != known.map_or(0, |(_, number, _)| *number) {
            return Err(NotMine::Dictionary);
        }
        if head.window > MAX_WINDOW && head.size.is_none_or(|size| head.window > size) {
            return Err(NotMine::TooLarge);
        }
        // Exactly one frame: a library decompresses several, and skips frames that have nothing to say.
        if zstd_safe::find_frame_compressed_size(frame) != Ok(frame.len()) {
            return Err(NotMine::Corrupt);
        }
        let (mut room, most) = match head.size {
            Some(size) if size > most_bytes(frame) => return Err(NotMine::TooLarge),
            Some(size) => {
                let size = usize::try_from(size).map_err(|_| NotMine::TooLarge)?;
                (size, size)
            }
            None => (frame.len().saturating_mul(8).max(4096), self.max_bytes),
        };
        if head.size.is_some() && most > self.max_bytes {
            return Err(NotMine::TooLarge);
        }
        loop {
            room = room.min(most);
            reserve(out, room)?;
            let result = match known {
                None => self.zstd.decompress(out, frame),
                Some((.., prepared)) => self.zstd.decompress_using_ddict(out, frame, prepared),
            };
            match result {
                Ok(_) if out.len() > self.max_bytes => return Err(NotMine::TooLarge),
                Ok(_) => return Ok(()),
                // A frame that states no size is decompressed again, into twice the room.
                Err(code) if code == DESTINATION_IS_TOO_SMALL => {
                    let had = out.capacity();
                    out.clear();
                    if had >= most {
                        return Err(NotMine::TooLarge);
                    }
                    room = had.saturating_mul(2);
                }
                Err(_) => return Err(NotMine::Corrupt),
            }
        }
    }

    fn decompress_gzip(&mut self, member: &[u8], out: &mut Vec<u8>) -> Result<(), NotMine> {
        let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, body @ ..] = member else {
            return Err(NotMine::Corrupt);
        };
        if *flags != 0 {
            return Err(NotMine::Corrupt);
        }
        let (body, tail) = body.split_last_chunk::<8>().ok_or(NotMine::Corrupt)?;
        let mut tail = Fields(tail);
        let (sum, size) = (u32::from_le_bytes(tail.array()?), u32::from_le_bytes(tail.array()?));
        let size = usize::try_from(size).map_err(|_| NotMine::TooLarge)?;
        // A bit of a member stands for 258 bytes at most.
        if size > self.max_bytes || size / 2064 > body.len() {
            return Err(NotMine::TooLarge);
        }
        reserve(out, size.max(1))?;
        self.gzip.reset(false);
        let end = self.gzip.decompress_vec(body, out, FlushDecompress::Finish);
        let mut crc = Crc::new();
        crc.update(out);
        let is_all = self.gzip.total_in() == body.len() as u64;
        match end {
            Ok(Status::StreamEnd) if is_all && out.len() == size && crc.sum() == sum => Ok(()),
            _ => Err(NotMine::Corrupt),
        }
    }
}

/// Return the largest size to which zstd can decompress so many bytes.
fn most_bytes(frame: &[u8]) -> u64 {
    u64::try_from(frame.len()).map_or(u64::MAX, |size| size.saturating_mul(MAX_RATIO))
}

/// Make room for a value. Its size may be stated by whoever sent it, so the process has to outlive a lack of
/// memory.
fn reserve(out: &mut Vec<u8>, size: usize) -> Result<(), NotMine> {
    out.try_reserve_exact(size).map_err(|_| NotMine::TooLarge)
}

/// `ZSTD_error_dstSize_tooSmall`, as zstd returns it.
const DESTINATION_IS_TOO_SMALL: usize = 0_usize.wrapping_sub(70);

/// What a zstd frame states about itself (RFC 8878, section 3.1.1.1).
struct FrameHead {
    window: u64,
    dictionary: u32,
    size: Option<u64>,
}

impl FrameHead {
    fn read(frame: &[u8]) -> Result<Self, NotMine> {
        let mut fields = Fields(frame);
        let mut number = |size: usize| -> Result<u64, NotMine> {
            let little = fields.take(size).map_err(|_| NotMine::Corrupt)?;
            Ok(little.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        };
        if number(4)? != u64::from(u32::from_le_bytes(ZSTD_MAGIC)) {
            return Err(NotMine::Corrupt);
        }
        let descriptor = number(1)?;
        let is_single = descriptor & 0x20 != 0;
        let mut window = 0;
        if !is_single {
            let byte = number(1)?;
            let base = 1_u64 << (10 + (byte >> 3));
            window = base + base / 8 * (byte & 7);
        }
        let dictionary = number(match descriptor & 3 {
            3 => 4,
            size => size as usize,
        })?;
        let size = match descriptor >> 6 {
            0 if is_single => Some(number(1)?),
            0 => None,
            1 => Some(number(2)? + 256),
            2 => Some(number(4)?),
            _ => Some(number(8)?),
        };
        if let (true, Some(size)) = (is_single, size) {
            window = size;
        }
        let dictionary = u32::try_from(dictionary).map_err(|_| NotMine::Corrupt)?;
        Ok(Self { window, dictionary, size })
    }
}
