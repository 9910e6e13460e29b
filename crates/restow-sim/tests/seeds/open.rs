//! Defects that seeds find and that are not mended yet. A row goes with its mending: what it explains fails then.

use restow_sim::plan::{Effect, Event, Fault, Op, Plan, Span};
use restow_sim::trace::Violation;

/// A defect that is known.
struct Open {
    what: &'static str,
    invariants: &'static [&'static str],
    /// Whether one of the faults of a plan brings it out.
    fault: fn(&Fault) -> bool,
}

const OPEN: &[Open] = &[
    Open {
        what: "a write that is denied with 404 or 409 counts as done",
        invariants: &["S1", "S2"],
        fault: |fault| {
            fault.op == Op::Write && matches!(fault.effect, Effect::Status(404 | 409) | Effect::Text(404))
        },
    },
    Open {
        what: "an object whose writes are denied with 401, 429, 503 or 504 is never named",
        invariants: &["L1"],
        fault: |fault| fault.op == Op::Write && fault.span == Span::Always,
    },
    Open {
        what: "a single 401 ends a run",
        invariants: &["L1"],
        fault: |fault| matches!(fault.effect, Effect::Status(401) | Effect::Text(401)),
    },
    Open {
        what: "a single 302 ends a run or quarantines an object",
        invariants: &["L1", "L2"],
        fault: |fault| matches!(fault.effect, Effect::Status(302) | Effect::Text(302)),
    },
    Open {
        what: "a 200 that is no list counts as an empty last page",
        invariants: &["S1", "S2"],
        fault: |fault| {
            fault.op == Op::List && matches!(fault.effect, Effect::Empty | Effect::Success | Effect::Foreign)
        },
    },
    Open {
        what: "list requests that fail for a time end a run",
        invariants: &["L1", "L2"],
        fault: |fault| fault.op == Op::List,
    },
];

/// The defect that explains what a plan, made as small as it can be, brings out.
pub(crate) fn explain(plan: &Plan, violation: &Violation) -> Option<&'static str> {
    let faults = || {
        plan.events.iter().filter_map(|event| match event {
            Event::Fault(fault) => Some(fault),
            Event::At(..) => None,
        })
    };
    let explains = |open: &&Open| {
        open.invariants.contains(&violation.invariant) && faults().any(|fault| (open.fault)(fault))
    };
    OPEN.iter().find(explains).map(|open| open.what)
}
