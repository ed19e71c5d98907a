//! Amounts per time, as people write them.

use super::RuleError;
use crate::{Bytes, Span};

/// Reads bytes per time, e.g. `200M/1h`.
pub(super) fn upload(text: &str) -> Result<(u64, u32), RuleError> {
    let malformed = || RuleError::Quota { key: "upload", text: text.into(), example: "200M/1h" };
    let (amount, time) = text.split_once('/').ok_or_else(malformed)?;
    let amount: Bytes = amount.trim().parse().map_err(|_no_size| malformed())?;
    let seconds = seconds(time).ok_or_else(malformed)?;
    if amount.get() == 0 {
        Err(RuleError::Zero { key: "upload" })
    } else {
        Ok((amount.get(), seconds))
    }
}

/// Reads requests per time, e.g. `120/1m`.
pub(super) fn requests(text: &str) -> Result<(u64, u32), RuleError> {
    let malformed = || RuleError::Quota { key: "requests", text: text.into(), example: "120/1m" };
    let (amount, time) = text.split_once('/').ok_or_else(malformed)?;
    let amount = amount.trim();
    let digits = !amount.is_empty() && amount.bytes().all(|byte| byte.is_ascii_digit());
    let amount: Option<u64> = digits.then(|| amount.parse().ok()).flatten();
    let (amount, seconds) = (amount.ok_or_else(malformed)?, seconds(time).ok_or_else(malformed)?);
    if amount == 0 { Err(RuleError::Zero { key: "requests" }) } else { Ok((amount, seconds)) }
}

/// Reads a time of whole seconds: `1h`, `90s`, or a unit alone.
fn seconds(text: &str) -> Option<u32> {
    let alone = match text.trim() {
        "s" | "sec" | "second" => "1s",
        "m" | "min" | "minute" => "1m",
        "h" | "hour" => "1h",
        "d" | "day" => "1d",
        other => other,
    };
    let span = alone.parse::<Span>().ok()?.duration();
    let seconds = u32::try_from(span.as_secs()).ok()?;
    (seconds != 0 && span.subsec_millis() == 0).then_some(seconds)
}
