//! Kubernetes quantities (1Gi, 500m) and Go's durations (1h30m), as text or as numbers in a unit.
//!
//! Both are exact: they are counted in the smallest unit that they have, which is 10⁻⁹ of a quantity and a nanosecond.

use serde_json::{Number, Value};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Quantity,
    Duration,
}

const ONE: i128 = 1_000_000_000;
const QUANTITY_UNITS: [(&str, i128); 16] = [
    ("Ki", ONE << 10),
    ("Mi", ONE << 20),
    ("Gi", ONE << 30),
    ("Ti", ONE << 40),
    ("Pi", ONE << 50),
    ("Ei", ONE << 60),
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("k", ONE * 1_000),
    ("M", ONE * 1_000_000),
    ("G", ONE * 1_000_000_000),
    ("T", ONE * 1_000_000_000_000),
    ("P", ONE * 1_000_000_000_000_000),
    ("E", ONE * 1_000_000_000_000_000_000),
    ("", ONE),
];
const DURATION_UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", ONE),
    ("m", 60 * ONE),
    ("h", 3_600 * ONE),
    ("d", 86_400 * ONE),
];

/// A text is no quantity or duration, or a number is too large.
pub(super) struct OutOfRange;

impl Measure {
    /// The size of a unit. None if there is no such unit.
    pub(super) fn unit(self, name: &str) -> Option<i128> {
        let units: &[(&str, i128)] = match self {
            Self::Quantity => &QUANTITY_UNITS,
            Self::Duration => &DURATION_UNITS,
        };
        units.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
    }

    /// Reads a text, or a number in a unit.
    pub(super) fn read(self, value: &Value, unit: Option<&str>) -> Result<i128, OutOfRange> {
        let read = match (value, unit) {
            (Value::String(text), None) => match self {
                Self::Quantity => read_quantity(text),
                Self::Duration => read_duration(text),
            },
            // A quantity without a unit may also be written as a number.
            (Value::Number(number), None) if self == Self::Quantity => read_quantity(&number.to_string()),
            (Value::Number(number), Some(unit)) => {
                self.unit(unit).and_then(|unit| read_decimal(&number.to_string(), unit))
            }
            _ => None,
        };
        read.ok_or(OutOfRange)
    }

    /// Writes a text, or a number in a unit: rounded down if the field takes integers only. A quantity that was a number in a
    /// binary unit is written with one.
    pub(super) fn write(
        self,
        amount: i128,
        from: Option<&str>,
        unit: Option<&str>,
        integer: bool,
    ) -> Result<Value, OutOfRange> {
        let Some(unit) = unit else {
            return Ok(Value::String(match self {
                Self::Quantity => write_quantity(amount, from.is_some_and(|from| from.ends_with('i'))),
                Self::Duration => write_duration(amount),
            }));
        };
        let unit = self.unit(unit).ok_or(OutOfRange)?;
        if integer || amount % unit == 0 {
            return i64::try_from(amount.div_euclid(unit)).map(Value::from).map_err(|_| OutOfRange);
        }
        #[allow(clippy::cast_precision_loss)]
        Number::from_f64(amount as f64 / unit as f64).map(Value::Number).ok_or(OutOfRange)
    }
}

/// A decimal number times a unit. What is smaller than the smallest unit is rounded up, as Kubernetes does.
fn read_decimal(text: &str, unit: i128) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (negative, digits) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0
        || !(whole.bytes().chain(fraction.bytes())).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let number: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(places.unsigned_abs());
    let scaled = number.checked_mul(unit)?;
    let amount = match power {
        _ if number == 0 => 0,
        Some(power) if places >= 0 => scaled.checked_mul(power)?,
        Some(power) => scaled / power + i128::from(scaled % power != 0),
        None if places >= 0 => return None,
        None => 1,
    };
    Some(if negative { -amount } else { amount })
}

fn read_quantity(text: &str) -> Option<i128> {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (number, suffix) = text.split_at(end);
    // 12E is twelve exa, 12E3 is twelve thousand.
    if suffix.is_empty() {
        read_decimal(number, ONE)
    } else {
        read_decimal(number, Measure::Quantity.unit(suffix)?)
    }
}

/// With the largest unit of its kind that needs no fraction.
fn write_quantity(amount: i128, binary_first: bool) -> String {
    let fits = |(_, size): &&(&str, i128)| amount % size == 0 && amount != 0;
    let binary = QUANTITY_UNITS[..6].iter().rev().find(fits);
    let decimal = QUANTITY_UNITS[9..15].iter().rev().find(fits);
    let small = [("", ONE), ("m", 1_000_000), ("u", 1_000), ("n", 1)];
    let first = if binary_first { binary.or(decimal) } else { decimal.or(binary) };
    let (name, size) = first
        .copied()
        .unwrap_or_else(|| small.into_iter().find(|(_, size)| amount % size == 0).unwrap_or(("n", 1)));
    format!("{}{name}", amount / size)
}

fn read_duration(text: &str) -> Option<i128> {
    let (negative, mut rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let after = &rest[number..];
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        // Go has no days.
        let size = Measure::Duration.unit(&after[..unit]).filter(|_| &after[..unit] != "d")?;
        total = total.checked_add(read_decimal(&rest[..number], size)?)?;
        rest = &after[unit..];
    }
    (!text.is_empty() && text != "-").then_some(if negative { -total } else { total })
}

/// As Go writes durations: 1h30m0s, 1.5s, 20ms.
fn write_duration(amount: i128) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    let amount = amount.abs();
    if amount == 0 {
        return "0s".to_owned();
    }
    let small = [("ms", 1_000_000), ("µs", 1_000), ("ns", 1)];
    if amount < ONE {
        let (name, size) = small.into_iter().find(|(_, size)| amount >= *size).unwrap_or(("ns", 1));
        return format!("{sign}{}{name}", decimal(amount, size));
    }
    let (hours, minutes) = (amount / (3_600 * ONE), amount / (60 * ONE) % 60);
    let seconds = decimal(amount % (60 * ONE), ONE);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// A fraction without trailing zeros.
fn decimal(amount: i128, size: i128) -> String {
    let width = size.ilog10() as usize;
    let text = format!("{}.{:0width$}", amount / size, amount % size);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn convert(
        measure: Measure,
        value: Value,
        from: Option<&str>,
        to: Option<&str>,
        integer: bool,
    ) -> Option<Value> {
        measure.write(measure.read(&value, from).ok()?, from, to, integer).ok()
    }

    #[test]
    fn quantities_are_converted() {
        let cases = [
            (json!("1Gi"), None, Some("Mi"), true, Some(json!(1024))),
            (json!("1500m"), None, Some(""), false, Some(json!(1.5))),
            (json!("1500m"), None, Some(""), true, Some(json!(1))),
            (json!("0.5"), None, Some("m"), true, Some(json!(500))),
            (json!("2e3"), None, Some("k"), true, Some(json!(2))),
            (json!("2E"), None, Some("P"), true, Some(json!(2000))),
            (json!(3), None, Some("m"), true, Some(json!(3000))),
            (json!(512), Some("Mi"), None, true, Some(json!("512Mi"))),
            (json!(1024), Some("Mi"), None, true, Some(json!("1Gi"))),
            (json!(1000), Some("M"), None, true, Some(json!("1G"))),
            (json!(500), Some("Mi"), None, true, Some(json!("500Mi"))),
            (json!(250), Some("m"), None, true, Some(json!("250m"))),
            (json!(1.5), Some("Gi"), None, true, Some(json!("1536Mi"))),
            (json!(0), Some("Gi"), None, true, Some(json!("0"))),
            (json!(2), Some("Gi"), Some("Mi"), true, Some(json!(2048))),
            (json!("-1"), None, Some("m"), true, Some(json!(-1000))),
            (json!("1 Gi"), None, Some("Mi"), true, None),
            (json!("1gi"), None, Some("Mi"), true, None),
            (json!(""), None, Some("Mi"), true, None),
            (json!("."), None, Some("Mi"), true, None),
            (json!("1e99"), None, Some("Mi"), true, None),
            (json!("1e-99"), None, Some("n"), true, Some(json!(1))),
            (json!(true), None, Some("Mi"), true, None),
        ];
        for (value, from, to, integer, expected) in cases {
            assert_eq!(convert(Measure::Quantity, value.clone(), from, to, integer), expected, "{value}");
        }
    }

    #[test]
    fn durations_are_converted() {
        let cases = [
            (json!("1h30m"), None, Some("s"), true, Some(json!(5400))),
            (json!("1.5h"), None, Some("m"), true, Some(json!(90))),
            (json!("1m30s500ms"), None, Some("s"), true, Some(json!(90))),
            (json!("1m30s500ms"), None, Some("s"), false, Some(json!(90.5))),
            (json!("0"), None, Some("s"), true, Some(json!(0))),
            (json!("-2s"), None, Some("ms"), true, Some(json!(-2000))),
            (json!(5400), Some("s"), None, true, Some(json!("1h30m0s"))),
            (json!(1500), Some("ms"), None, true, Some(json!("1.5s"))),
            (json!(20), Some("ms"), None, true, Some(json!("20ms"))),
            (json!(1), Some("d"), None, true, Some(json!("24h0m0s"))),
            (json!(0), Some("s"), None, true, Some(json!("0s"))),
            (json!(2), Some("h"), Some("m"), true, Some(json!(120))),
            (json!("1d"), None, Some("s"), true, None),
            (json!("1"), None, Some("s"), true, None),
            (json!(""), None, Some("s"), true, None),
            (json!("-"), None, Some("s"), true, None),
            (json!("h"), None, Some("s"), true, None),
            (json!(3), None, Some("s"), true, None),
        ];
        for (value, from, to, integer, expected) in cases {
            assert_eq!(convert(Measure::Duration, value.clone(), from, to, integer), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(amount in -1_000_000_000_000_000_000_i64..1_000_000_000_000_000_000) {
            for measure in [Measure::Quantity, Measure::Duration] {
                let text = measure.write(i128::from(amount), None, None, true).ok().unwrap();
                prop_assert_eq!(measure.read(&text, None).ok(), Some(i128::from(amount)), "{}", text);
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "[-+0-9.eEihmsunµKMG]{0,12}|.*") {
            for measure in [Measure::Quantity, Measure::Duration] {
                let _ = measure.read(&Value::String(text.clone()), None);
            }
        }
    }
}
