//! Single values as text: counts, durations, JSON and YAML.

use serde::Serialize;

/// As JSON.
pub(crate) fn json(document: &impl Serialize) -> String {
    serde_json::to_string_pretty(document).map(|text| text + "\n").unwrap_or_default()
}

/// As YAML.
pub(crate) fn yaml(document: &impl Serialize) -> String {
    // Through JSON, so that both have the same numbers and field names.
    let value = serde_json::to_value(document).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_default()
}

/// A count with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of things: "1 object", "2 objects".
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// A duration as text.
pub(crate) fn time(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [(0, "0 objects"), (1, "1 object"), (1000, "1,000 objects")] {
            assert_eq!(counted(number, "object"), text);
        }
        for (seconds, text) in [(0.25, "0.2s"), (42.0, "42s"), (125.0, "2m05s"), (7260.0, "2h01m")] {
            assert_eq!(time(Duration::from_secs_f64(seconds)), text);
        }
    }
}
