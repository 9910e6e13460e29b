//! Ages, formatted as in kubectl.

use jiff::Timestamp;
use serde_json::Value;

/// The time since then, as kubectl shows ages: `5s`, `3m12s`, `4d`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, 'd', hours % 24, 'h'),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

/// The time since a time that stands in an object.
pub(crate) fn age_of(then: Option<&Value>, now: Timestamp) -> String {
    let then = then.and_then(Value::as_str).and_then(|text| text.parse().ok());
    then.map_or_else(|| "<unknown>".to_owned(), |then| age(then, now))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (30_000, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
            (63_244_800, "2y2d"),
            (300_000_000, "9y"),
        ];
        let now: Timestamp = "2040-01-01T00:00:00Z".parse().unwrap();
        for (seconds, shown) in cases {
            assert_eq!(age(now - SignedDuration::from_secs(seconds), now), shown);
        }
    }
}
