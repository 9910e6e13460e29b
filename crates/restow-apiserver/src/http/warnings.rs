//! Warnings to clients, in `Warning` headers.

use std::collections::HashSet;

use http::HeaderValue;

use crate::http::status::golang::quote;

/// How many warnings are sent: some clients accept no more than 100 headers.
const MOST: usize = 50;
/// How many characters all warnings may have before each is truncated, as in kube-apiserver.
const LETTERS: usize = 4 * 1024;
/// The length of a truncated warning.
const CUT: usize = 256;

/// The `Warning` headers for these warnings, without duplicates and within limits.
pub(crate) fn headers(warnings: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let all: Vec<&str> =
        warnings.iter().map(String::as_str).filter(|text| !text.is_empty() && seen.insert(*text)).collect();
    let mut kept = fitting(&all);
    if kept.len() < all.len() {
        let room = MOST - 1;
        kept.truncate(room);
        kept.push(format!("{} more warnings are not shown", all.len() - kept.len()));
    }
    let header = |text: &String| HeaderValue::try_from(format!("299 - {}", quote(text)).into_bytes()).ok();
    kept.iter().filter_map(header).collect()
}

/// The first warnings, truncated if all together are too long.
fn fitting(all: &[&str]) -> Vec<String> {
    let letters: usize = all.iter().map(|text| text.chars().count()).sum();
    let cut = letters > LETTERS;
    let mut left = LETTERS;
    let mut kept = Vec::new();
    for text in all.iter().take(MOST) {
        let text: String = if cut { text.chars().take(CUT).collect() } else { (*text).to_owned() };
        kept.push(text);
        left = left.saturating_sub(kept.last().map_or(0, |text| text.chars().count()));
        if left == 0 {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(warnings: &[String]) -> Vec<String> {
        let text = |header: HeaderValue| String::from_utf8(header.as_bytes().to_vec()).unwrap();
        headers(warnings).into_iter().map(text).collect()
    }

    #[test]
    fn each_warning_is_sent_once() {
        let warnings = ["a", "b", "", "a", "ä\"\n"].map(str::to_owned);
        assert_eq!(texts(&warnings), [r#"299 - "a""#, r#"299 - "b""#, "299 - \"ä\\\"\\n\""]);
    }

    #[test]
    fn the_number_and_length_of_warnings_are_bounded() {
        for (count, length, expected) in
            [(0, 1, 0), (1, 10_000, 1), (50, 10, 50), (51, 10, 50), (1000, 10, 50), (50, 5000, 17)]
        {
            let warnings: Vec<String> = (0..count).map(|n| format!("{n:0length$}")).collect();
            let sent = texts(&warnings);
            assert_eq!(sent.len(), expected, "{count} of {length}");
            let letters: usize = sent.iter().map(|text| text.chars().count()).sum();
            assert!(letters < 8 * 1024, "{letters}");
            let left_out = count - sent.len().min(count);
            if left_out > 0 {
                assert_eq!(
                    sent[expected - 1],
                    format!("299 - \"{} more warnings are not shown\"", left_out + 1)
                );
            }
        }
    }
}
