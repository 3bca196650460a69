//! Expiry and delay, `hw.expires` and `hw.not-before` ([spec/expires.md](../../../spec/expires.md)).

use crate::text::decimal;
use crate::{Headers, NotMine, Outcome, Record};

/// The name of the header with the last moment at which a record is worth reading.
pub const EXPIRES: &str = "hw.expires";
/// The name of the header with the first moment at which a record may be read.
pub const NOT_BEFORE: &str = "hw.not-before";

const MAX_MS: i64 = 999_999_999_999_999;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    Deliver,
    Drop,
    /// It waits until this moment, in milliseconds since the epoch.
    Wait(i64),
}

/// Read a moment, in milliseconds since the epoch.
pub fn parse(value: Option<&[u8]>) -> Result<i64, NotMine> {
    let number = value.ok_or(NotMine::Missing).map(decimal)?;
    number.and_then(|number| i64::try_from(number).ok()).filter(|&ms| ms <= MAX_MS).ok_or(NotMine::Spelling)
}

pub fn write(moment_ms: i64, text: &mut Vec<u8>) -> Result<(), NotMine> {
    if !(0..=MAX_MS).contains(&moment_ms) {
        return Err(NotMine::Time);
    }
    text.extend_from_slice(moment_ms.to_string().as_bytes());
    Ok(())
}

fn moment(headers: &Headers<'_>, name: &str) -> Result<Option<i64>, NotMine> {
    headers.only(name)?.map(|index| parse(headers.value(index))).transpose()
}

/// Add a moment, unless there is one or the value is null.
fn add(
    name: &'static str, after_ms: Option<i64>, record: &Record<'_>, headers: &mut Headers<'_>, now_ms: i64,
) -> Result<Outcome, NotMine> {
    let given = moment(headers, name)?;
    let Some(after_ms) = after_ms.filter(|_| given.is_none() && record.value.is_some()) else {
        return Ok(Outcome::Unchanged);
    };
    let mut result = Ok(());
    headers.push_written(name, |text| result = write(now_ms.saturating_add(after_ms), text));
    result.map(|()| Outcome::Headers)
}

#[derive(Clone, Copy, Debug)]
pub struct Expire {
    /// How long after it was sent a record expires; `None` adds no header.
    pub after_ms: Option<i64>,
    /// The tolerance of the reader's clock.
    pub clock_skew_ms: i64,
}

impl Expire {
    pub fn on_send(
        &self, record: &Record<'_>, headers: &mut Headers<'_>, now_ms: i64,
    ) -> Result<Outcome, NotMine> {
        add(EXPIRES, self.after_ms, record, headers, now_ms)
    }

    /// Judge a record, or a complete message.
    pub fn on_consume(
        &self, record: &Record<'_>, headers: &Headers<'_>, now_ms: i64,
    ) -> Result<Judgement, NotMine> {
        let expires_ms = moment(headers, EXPIRES)?;
        let is_past = |moment_ms: i64| now_ms.saturating_sub(moment_ms) > self.clock_skew_ms;
        let is_expired = record.value.is_some() && expires_ms.is_some_and(is_past);
        Ok(if is_expired { Judgement::Drop } else { Judgement::Deliver })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// How long after it was sent a record may be read; `None` adds no header.
    pub after_ms: Option<i64>,
    /// How long a record may hold its partition; a moment that is further ahead is not mine.
    pub max_delay_ms: i64,
}

impl Delay {
    pub fn on_send(
        &self, record: &Record<'_>, headers: &mut Headers<'_>, now_ms: i64,
    ) -> Result<Outcome, NotMine> {
        add(NOT_BEFORE, self.after_ms, record, headers, now_ms)
    }

    /// Judge a record, or a complete message.
    pub fn on_consume(
        &self, record: &Record<'_>, headers: &Headers<'_>, now_ms: i64,
    ) -> Result<Judgement, NotMine> {
        let Some(moment_ms) = moment(headers, NOT_BEFORE)?.filter(|&moment_ms| moment_ms > now_ms) else {
            return Ok(Judgement::Deliver);
        };
        let start_ms = record.timestamp_ms.map_or(now_ms, |timestamp_ms| timestamp_ms.min(now_ms));
        if moment_ms.saturating_sub(start_ms) > self.max_delay_ms {
            return Err(NotMine::Time);
        }
        Ok(Judgement::Wait(moment_ms))
    }
}
