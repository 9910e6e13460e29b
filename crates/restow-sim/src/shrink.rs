//! Shrinks a failing plan.

use crate::plan::Plan;
use crate::report::Report;
use crate::run::run;

/// Returns the smallest plan that was found to violate the same invariant, and its report.
///
/// It removes events one by one, then users and objects. Each smaller plan replays exactly too.
pub fn shrink(plan: &Plan, report: Report) -> (Plan, Report) {
    let Some(invariant) = report.violation.as_ref().map(|violation| violation.invariant) else {
        return (plan.clone(), report);
    };
    let (mut plan, mut report) = (plan.clone(), report);
    let fails = |smaller: &Plan| {
        let report = run(smaller);
        report.violation.as_ref().is_some_and(|other| other.invariant == invariant).then_some(report)
    };
    loop {
        let mut smaller: Vec<Plan> = Vec::new();
        // Without a rotation the keys would differ until the end, and no run could finish.
        for at in (0..plan.events.len()).filter(|at| !plan.events[*at].is_rotation()) {
            let mut without = plan.clone();
            without.events.remove(at);
            smaller.push(without);
        }
        if plan.users > 0 {
            smaller.push(Plan { users: 0, ..plan.clone() });
        }
        if plan.objects > 2 {
            smaller.push(Plan { objects: plan.objects / 2, ..plan.clone() });
        }
        let Some((found, ends)) =
            smaller.into_iter().find_map(|plan| fails(&plan).map(|report| (plan, report)))
        else {
            return (plan, report);
        };
        (plan, report) = (found, ends);
    }
}
