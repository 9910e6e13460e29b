//! Converts single values: other types, other scales.

use serde_json::{Number, Value};

use super::document::ScalarType;

/// The value in another type. None if that type has no such value.
pub(super) fn to_type(value: &Value, wanted: ScalarType) -> Option<Value> {
    match (wanted, value) {
        (ScalarType::String, Value::String(_))
        | (ScalarType::Number, Value::Number(_))
        | (ScalarType::Boolean, Value::Bool(_)) => Some(value.clone()),
        (ScalarType::String, Value::Number(number)) => Some(number.to_string().into()),
        (ScalarType::String, Value::Bool(flag)) => Some(flag.to_string().into()),
        (ScalarType::Integer, Value::Number(number)) => whole(number),
        (ScalarType::Integer, Value::String(text)) => text.parse::<i64>().ok().map(Value::from),
        (ScalarType::Integer | ScalarType::Number, Value::Bool(flag)) => Some(i64::from(*flag).into()),
        (ScalarType::Number, Value::String(text)) => {
            let whole = text.parse::<i64>().ok().map(Number::from);
            whole.or_else(|| Number::from_f64(text.parse().ok()?)).map(Value::Number)
        }
        (ScalarType::Boolean, Value::String(text)) => text.parse::<bool>().ok().map(Value::from),
        (ScalarType::Boolean, Value::Number(number)) => Some((number.as_f64()? != 0.0).into()),
        (_, Value::Null | Value::Array(_) | Value::Object(_)) => None,
    }
}

/// The whole part of a number.
fn whole(number: &Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone().into());
    }
    from_float(number.as_f64()?.floor())
}

/// A float without a fraction as an integer, if one is large enough to hold it.
fn from_float(float: f64) -> Option<Value> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation)]
    (-LIMIT..LIMIT).contains(&float).then(|| Value::from(float as i64))
}

/// A number times or divided by a factor.
#[derive(Clone, Copy)]
pub(super) enum Scaling {
    Times(f64),
    DividedBy(f64),
}

/// The scaled number, rounded down if the field takes integers only. None if it is no number, or too large.
pub(super) fn scale(value: &Value, scaling: Scaling, integer: bool) -> Option<Value> {
    let Value::Number(number) = value else { return None };
    if let Some(exact) = scale_exactly(number, scaling, integer) {
        return Some(exact);
    }
    let float = number.as_f64()?;
    let scaled = match scaling {
        Scaling::Times(factor) => float * factor,
        Scaling::DividedBy(factor) => float / factor,
    };
    if integer { from_float(scaled.floor()) } else { Number::from_f64(scaled).map(Value::Number) }
}

/// Scales the decimal digits, as 0.29 times 100 is 29 and not 28.999999999999996. None if the result is no integer and
/// need not be one, or if there are too many digits.
fn scale_exactly(number: &Number, scaling: Scaling, integer: bool) -> Option<Value> {
    let (Scaling::Times(factor) | Scaling::DividedBy(factor)) = scaling;
    let (number, number_power) = digits(&number.to_string())?;
    let (factor, factor_power) = digits(&factor.to_string())?;
    let (above, below, power) = match scaling {
        Scaling::Times(_) => (number.checked_mul(factor)?, 1, number_power + factor_power),
        Scaling::DividedBy(_) => (number, factor, number_power - factor_power),
    };
    let tens = 10_i128.checked_pow(power.unsigned_abs())?;
    let (above, below) =
        if power >= 0 { (above.checked_mul(tens)?, below) } else { (above, below.checked_mul(tens)?) };
    let (above, below) = if below < 0 { (-above, -below) } else { (above, below) };
    let exact = below != 0 && (integer || above % below == 0);
    exact.then(|| i64::try_from(above.div_euclid(below)).ok()).flatten().map(Value::from)
}

/// The digits of a number, and the power of ten that they are times of.
fn digits(text: &str) -> Option<(i128, i32)> {
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    let power: i32 = power.parse().ok()?;
    Some((digits, power.checked_sub(i32::try_from(fraction.len()).ok()?)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_converted_to_other_types() {
        use ScalarType::{Boolean, Integer, Number, String};
        let cases = [
            (json!("a"), String, Some(json!("a"))),
            (json!(7), String, Some(json!("7"))),
            (json!(1.5), String, Some(json!("1.5"))),
            (json!(true), String, Some(json!("true"))),
            (json!("080"), Integer, Some(json!(80))),
            (json!("-3"), Integer, Some(json!(-3))),
            (json!("1.5"), Integer, None),
            (json!("x"), Integer, None),
            (json!(1.9), Integer, Some(json!(1))),
            (json!(-1.5), Integer, Some(json!(-2))),
            (json!(1e300), Integer, None),
            (json!(u64::MAX), Integer, Some(json!(u64::MAX))),
            (json!(true), Integer, Some(json!(1))),
            (json!("12"), Number, Some(json!(12))),
            (json!("1e3"), Number, Some(json!(1000.0))),
            (json!("inf"), Number, None),
            (json!("true"), Boolean, Some(json!(true))),
            (json!("yes"), Boolean, None),
            (json!(0), Boolean, Some(json!(false))),
            (json!(0.5), Boolean, Some(json!(true))),
            (json!(null), String, None),
            (json!([]), String, None),
            (json!({}), Boolean, None),
        ];
        for (value, wanted, expected) in cases {
            assert_eq!(to_type(&value, wanted), expected, "{value} as {wanted:?}");
        }
    }

    #[test]
    fn numbers_are_scaled_exactly_where_they_can_be() {
        use Scaling::{DividedBy, Times};
        let cases = [
            (json!(3), Times(1000.0), true, Some(json!(3000))),
            (json!(9_007_199_254_740_993_i64), Times(3.0), false, Some(json!(27_021_597_764_222_979_i64))),
            (json!(1500), DividedBy(1000.0), true, Some(json!(1))),
            (json!(-1500), DividedBy(1000.0), true, Some(json!(-2))),
            (json!(1500), DividedBy(1000.0), false, Some(json!(1.5))),
            (json!(2000), DividedBy(1000.0), false, Some(json!(2))),
            (json!(1), Times(0.5), false, Some(json!(0.5))),
            (json!(0.29), Times(100.0), true, Some(json!(29))),
            (json!(0.57), Times(100.0), false, Some(json!(57))),
            (json!(-0.295), Times(100.0), true, Some(json!(-30))),
            (json!(3), Times(0.5), true, Some(json!(1))),
            (json!(i64::MAX), Times(2.0), true, None),
            (json!(1), DividedBy(0.0), true, None),
            (json!(1), DividedBy(0.0), false, None),
            (json!("1"), Times(2.0), true, None),
        ];
        for (value, scaling, integer, expected) in cases {
            assert_eq!(scale(&value, scaling, integer), expected, "{value}");
        }
    }
}
