//! The functions that expressions may call, and the budget of an evaluation.

use std::cell::Cell;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::Value;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, ResolveResult};

use super::value::size_of;

/// Counts an iteration. No name in an expression begins so.
pub(super) const STEP: &str = "@step";
/// The functions that may be called. Missing are those whose cost is not proportional to their input (`lists.range`,
/// `distinct`, `sets`), that overflow unnoticed (`sum`), that make what JSON cannot express, and that depend on the time.
pub(super) const ALLOWED: [&str; 40] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "double",
    "int",
    "uint",
    "min",
    "max",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "reverse",
    "slice",
    "sort",
    "flatten",
    "first",
    "last",
    "isSorted",
    "find",
    "findAll",
    "math.ceil",
    "math.floor",
    "math.round",
    "math.trunc",
    "math.abs",
    "math.sign",
    "math.least",
    "math.greatest",
    "base64.encode",
    "base64.decode",
];
/// Those of them that return a list, whatever they are called on.
pub(super) const LISTS: [&str; 5] = ["split", "slice", "sort", "flatten", "findAll"];
/// Those whose argument is a regular expression.
pub(super) const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

/// What the iterations of one evaluation may touch: elements, and bytes of text.
const BUDGET: usize = 10_000_000;
/// The longest text that a function may make.
const MAX_TEXT: usize = 1024 * 1024;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static CONTEXT: Context<'static> = context();
}

/// Evaluates an expression. Its value, or the error.
pub(super) fn evaluate(expression: &IdedExpr, input: Value) -> Result<Value, String> {
    LEFT.set(BUDGET);
    let result = CONTEXT.with(|functions| {
        let mut scope = functions.new_inner_scope();
        scope.add_variable_from_value("self", input);
        Value::resolve(expression, &scope)
    });
    // An operator may have swallowed the error.
    if LEFT.get() == 0 {
        return Err("it takes too many steps".to_owned());
    }
    result.map_err(|error| describe(&error))
}

fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "remainder of a division by zero".to_owned(),
        ExecutionError::NoSuchKey(key) => format!("there is no {key}; has() tells whether there is"),
        ExecutionError::NoSuchOverload => {
            "an operator or function does not take values of these types".to_owned()
        }
        other => {
            let mut text = other.to_string();
            if let Some((end, _)) = text.char_indices().nth(200) {
                text.truncate(end);
                text.push('…');
            }
            text
        }
    }
}

fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(STEP, step);
    // These two can make a text that is longer than the product of their arguments.
    context.add_function("replace", replace);
    context.add_function("join", join);
    context
}

/// Takes what an iteration touches from the budget.
fn step(touched: Value) -> ResolveResult {
    let left = LEFT.get().saturating_sub(size_of(&touched) + 1);
    LEFT.set(left);
    if left == 0 { Err(failure("iteration", "it takes too many steps")) } else { Ok(Value::Bool(true)) }
}

fn failure(function: &str, message: &str) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn replace(This(text): This<Arc<String>>, Arguments(args): Arguments) -> ResolveResult {
    let (old, new, limit) = match &args[..] {
        [Value::String(old), Value::String(new)] => (old, new, usize::MAX),
        [Value::String(old), Value::String(new), Value::Int(limit)] => {
            (old, new, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Err(failure("replace", "it takes two strings, and a count if you like")),
    };
    let count = text.matches(old.as_str()).take(limit).count();
    if text.len().saturating_add(count.saturating_mul(new.len())) > MAX_TEXT {
        return Err(failure("replace", "the text is too long"));
    }
    Ok(Value::String(Arc::new(text.replacen(old.as_str(), new, limit))))
}

fn join(This(list): This<Arc<Vec<Value>>>, Arguments(args): Arguments) -> ResolveResult {
    let separator = match &args[..] {
        [] => "",
        [Value::String(separator)] => separator.as_str(),
        _ => return Err(failure("join", "the separator must be a string")),
    };
    let texts: Option<Vec<&str>> = list
        .iter()
        .map(|item| match item {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let texts = texts.ok_or_else(|| failure("join", "the elements must be strings"))?;
    let length: usize = texts.iter().map(|text| text.len().saturating_add(separator.len())).sum();
    if length > MAX_TEXT {
        return Err(failure("join", "the text is too long"));
    }
    Ok(Value::String(Arc::new(texts.join(separator))))
}
