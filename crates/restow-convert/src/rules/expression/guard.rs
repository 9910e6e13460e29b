//! What an expression may do, decided before it is used.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::operators::{
    ADD, CONDITIONAL, DIVIDE, EQUALS, GREATER, GREATER_EQUALS, IN, INDEX, LESS, LESS_EQUALS, LOGICAL_AND,
    LOGICAL_NOT, LOGICAL_OR, MODULO, MULTIPLY, NEGATE, NOT_EQUALS, NOT_STRICTLY_FALSE, SUBSTRACT,
};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, SelectExpr,
};

use super::functions::{ALLOWED, LISTS, PATTERNS, STEP};
use super::visible::Visible;
use crate::rules::path::Path;
use crate::schema::Schema;

const OPERATORS: [&str; 18] = [
    ADD,
    CONDITIONAL,
    DIVIDE,
    EQUALS,
    GREATER,
    GREATER_EQUALS,
    IN,
    INDEX,
    LESS,
    LESS_EQUALS,
    LOGICAL_AND,
    LOGICAL_NOT,
    LOGICAL_OR,
    MODULO,
    MULTIPLY,
    NOT_EQUALS,
    NOT_STRICTLY_FALSE,
    SUBSTRACT,
];

/// What is known of a value.
#[derive(Clone)]
enum Known<'a> {
    /// A part of the object, above or at a field that the expression can see.
    Part(Vec<String>),
    /// Something inside such a field.
    Below(Schema<'a>),
    /// A list, of whose elements nothing is known.
    List,
    Nothing,
}

/// Whether an expression may be used.
///
/// # Errors
/// What it must not do.
pub(super) fn check(expression: &IdedExpr, visible: Visible<'_>) -> Result<(), String> {
    let mut checker = Checker { visible, scope: vec![("self".to_owned(), Known::Part(Vec::new()))] };
    checker.check(expression).map(|_| ())
}

struct Checker<'a> {
    visible: Visible<'a>,
    scope: Vec<(String, Known<'a>)>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, expression: &IdedExpr) -> Result<Known<'a>, String> {
        match &expression.expr {
            Expr::Literal(_) => Ok(Known::Nothing),
            Expr::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name);
                known
                    .map(|(_, known)| known.clone())
                    .ok_or_else(|| format!("there is no {name}; the object is called self"))
            }
            Expr::Select(select) => self.check_select(select),
            Expr::List(list) => {
                list.elements.iter().try_for_each(|element| self.check(element).map(|_| ()))?;
                Ok(Known::List)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(no_structs()) };
                    self.check(&entry.key)?;
                    self.check(&entry.value)?;
                }
                Ok(Known::Nothing)
            }
            Expr::Call(call) => self.check_call(call),
            Expr::Comprehension(loops) => self.check_loop(loops),
            Expr::Struct(_) => Err(no_structs()),
            Expr::Unspecified => Err("a part of it is empty".to_owned()),
        }
    }

    fn check_select(&mut self, select: &SelectExpr) -> Result<Known<'a>, String> {
        let known = match self.check(&select.operand)? {
            Known::Part(mut fields) => {
                fields.push(select.field.clone());
                return self.part(fields);
            }
            Known::Below(schema) => Known::Below(schema.field(&select.field)),
            Known::List | Known::Nothing => Known::Nothing,
        };
        Ok(if select.test { Known::Nothing } else { known })
    }

    /// Only the fields of the rule can be seen: another one would always be missing.
    fn part(&self, fields: Vec<String>) -> Result<Known<'a>, String> {
        let path = Path::new(fields);
        if self.visible.paths.iter().any(|visible| visible.covers(&path)) {
            let schema = self.visible.schema.at(path.fields());
            return Ok(Known::Below(schema));
        }
        if self.visible.paths.iter().any(|visible| path.covers(visible)) {
            return Ok(Known::Part(path.fields().to_vec()));
        }
        Err(format!("it reads self.{path}, but the rule is not about that field of the other version"))
    }

    fn check_call(&mut self, call: &CallExpr) -> Result<Known<'a>, String> {
        let name = call.func_name.as_str();
        if OPERATORS.contains(&name) {
            return self.check_operator(call);
        }
        if name == NEGATE {
            return Err("it negates a value, which overflows unnoticed; write 0 - value".to_owned());
        }
        // base64.encode is called on a name that is no variable.
        let qualified = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(prefix)) => {
                Some(format!("{prefix}.{name}")).filter(|name| ALLOWED.contains(&name.as_str()))
            }
            _ => None,
        };
        if qualified.is_none() && !ALLOWED.contains(&name) {
            return Err(format!("there is no function {name}; there are {}", ALLOWED.join(", ")));
        }
        if let Some(target) = call.target.as_deref().filter(|_| qualified.is_none()) {
            self.check(target)?;
        }
        call.args.iter().try_for_each(|arg| self.check(arg).map(|_| ()))?;
        let pattern = call.args.last().map(|arg| &arg.expr);
        if PATTERNS.contains(&name) && !matches!(pattern, Some(Expr::Literal(LiteralValue::String(_)))) {
            return Err(format!("the pattern of {name} must be written in the expression"));
        }
        Ok(if LISTS.contains(&name) { Known::List } else { Known::Nothing })
    }

    fn check_operator(&mut self, call: &CallExpr) -> Result<Known<'a>, String> {
        let known = call.args.iter().map(|arg| self.check(arg)).collect::<Result<Vec<_>, _>>()?;
        Ok(match (call.func_name.as_str(), &known[..]) {
            (INDEX, [Known::Below(schema), _]) if schema.is_list() => Known::Below(schema.items()),
            (INDEX, [Known::Below(schema), _]) => match call.args.get(1).map(|arg| &arg.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => Known::Below(schema.field(name.inner())),
                _ => Known::Nothing,
            },
            (INDEX, [Known::Part(fields), _]) => match call.args.get(1).map(|arg| &arg.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => {
                    let name = name.inner().to_string();
                    return self.part(fields.iter().cloned().chain([name]).collect());
                }
                _ => Known::Nothing,
            },
            (ADD, [one, other]) if one.is_list() || other.is_list() => Known::List,
            (CONDITIONAL, [_, one, other]) if one.is_list() && other.is_list() => Known::List,
            _ => Known::Nothing,
        })
    }

    fn check_loop(&mut self, loops: &ComprehensionExpr) -> Result<Known<'a>, String> {
        let range = self.check(&loops.iter_range)?;
        if !range.is_list() || loops.iter_var2.is_some() {
            return Err(
                "it iterates over something that may be a map, whose order changes; only lists are allowed"
                    .to_owned(),
            );
        }
        let element = match range {
            Known::Below(schema) => Known::Below(schema.items()),
            _ => Known::Nothing,
        };
        let result = self.check(&loops.accu_init)?;
        let outer = self.scope.len();
        self.scope.push((loops.iter_var.clone(), element));
        self.scope.push((loops.accu_var.clone(), result.clone()));
        for inner in [&loops.loop_cond, &loops.loop_step, &loops.result] {
            self.check(inner)?;
        }
        self.scope.truncate(outer);
        Ok(result)
    }
}

impl Known<'_> {
    fn is_list(&self) -> bool {
        match self {
            Self::List => true,
            Self::Below(schema) => schema.is_list(),
            Self::Part(_) | Self::Nothing => false,
        }
    }
}

fn no_structs() -> String {
    "it makes a message, which objects do not have; write a map".to_owned()
}

/// Lets every iteration pay for what it can touch: the element, what was collected so far, and every other name in it.
pub(super) fn meter(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| meter(target));
            call.args.iter_mut().for_each(meter);
        }
        Expr::Select(select) => meter(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(meter),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    meter(&mut entry.key);
                    meter(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(loops) => {
            let mut names = Vec::new();
            collect_names(&loops.loop_cond, &mut names);
            collect_names(&loops.loop_step, &mut names);
            for part in [
                &mut loops.iter_range,
                &mut loops.accu_init,
                &mut loops.loop_cond,
                &mut loops.loop_step,
                &mut loops.result,
            ] {
                meter(part);
            }
            let ident = |name: &String| IdedExpr { id: 0, expr: Expr::Ident(name.clone()) };
            let touched =
                IdedExpr { id: 0, expr: Expr::List(ListExpr::new(names.iter().map(ident).collect())) };
            let count = CallExpr { func_name: STEP.to_owned(), target: None, args: vec![touched] };
            let count = IdedExpr { id: 0, expr: Expr::Call(count) };
            let step = std::mem::take(&mut loops.loop_step);
            // The other branch is never taken: counting gives true, or an error that ends the loop.
            let args = vec![count, step, ident(&loops.accu_var)];
            let counted = CallExpr { func_name: CONDITIONAL.to_owned(), target: None, args };
            loops.loop_step = IdedExpr { id: 0, expr: Expr::Call(counted) };
        }
        Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// The names that an expression uses, as often as it does, without those that its own loops introduce.
fn collect_names(expression: &IdedExpr, names: &mut Vec<String>) {
    match &expression.expr {
        Expr::Ident(name) => names.push(name.clone()),
        Expr::Call(call) => {
            let is_namespace = |target: &IdedExpr| match &target.expr {
                Expr::Ident(prefix) => ALLOWED.contains(&format!("{prefix}.{}", call.func_name).as_str()),
                _ => false,
            };
            if let Some(target) = call.target.as_deref().filter(|target| !is_namespace(target)) {
                collect_names(target, names);
            }
            call.args.iter().for_each(|arg| collect_names(arg, names));
        }
        Expr::Select(select) => collect_names(&select.operand, names),
        Expr::List(list) => list.elements.iter().for_each(|element| collect_names(element, names)),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    collect_names(&entry.key, names);
                    collect_names(&entry.value, names);
                }
            }
        }
        Expr::Comprehension(loops) => {
            collect_names(&loops.iter_range, names);
            let mut inner = Vec::new();
            for part in [&loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result] {
                collect_names(part, &mut inner);
            }
            names.extend(inner.into_iter().filter(|name| *name != loops.iter_var && *name != loops.accu_var));
        }
        Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}
