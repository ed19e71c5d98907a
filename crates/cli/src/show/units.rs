//! Quantities and times as people read them.

use cowork_policy::Bytes;
use std::time::{Duration, SystemTime};

/// Bytes in the largest unit that fits, with one decimal.
pub(crate) fn bytes(count: u64) -> String {
    format!("{:#}", Bytes::new(count))
}

/// A span in its two largest units.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes, rest) {
        (0, 0, 0, 0) => format!("{}ms", span.as_millis()),
        (0, 0, 0, 1..=9) => format!("{}.{}s", rest, span.subsec_millis() / 100),
        (0, 0, 0, _) => format!("{rest}s"),
        (0, 0, ..) => format!("{minutes}m{rest:02}s"),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// How long ago a moment was, roughly; the text itself if it is no moment.
pub(crate) fn age(time: &str) -> String {
    let Ok(then) = humantime::parse_rfc3339_weak(time) else { return time.to_owned() };
    let age = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    match age {
        0..60 => format!("{age}s"),
        60..3600 => format!("{}m", age / 60),
        3600..86_400 => format!("{}h", age / 3600),
        _ => format!("{}d", age / 86_400),
    }
}

/// A moment without fractions of a second.
pub(crate) fn moment(time: &str) -> String {
    let moment = humantime::parse_rfc3339_weak(time);
    moment.map_or_else(
        |_no_moment| time.to_owned(),
        |moment| humantime::format_rfc3339_seconds(moment).to_string(),
    )
}

/// Something and how many there are of it.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

#[cfg(test)]
mod tests {
    use super::{age, bytes, moment, span};
    use std::time::Duration;

    #[test]
    fn spans_have_two_units_at_most() {
        for (millis, text) in [
            (7, "7ms"),
            (1_500, "1.5s"),
            (12_345, "12s"),
            (61_000, "1m01s"),
            (3_660_000, "1h01m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn bytes_are_rounded() {
        assert_eq!(
            (bytes(0), bytes(1536), bytes(5 << 30)),
            ("0".into(), "1.5K".into(), "5G".into())
        );
    }

    #[test]
    fn what_is_no_moment_is_shown_as_it_is() {
        assert_eq!((age("soon"), moment("soon")), ("soon".to_owned(), "soon".to_owned()));
        assert_eq!(moment("2026-01-02T03:04:05.678Z"), "2026-01-02T03:04:05Z");
        assert!(age("2026-01-02T03:04:05.678Z").ends_with(['d', 'h', 'm', 's']));
    }
}
