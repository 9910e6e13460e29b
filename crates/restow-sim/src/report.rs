//! How a run ended.

use crate::trace::Violation;

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The first violated invariant.
    pub violation: Option<Violation>,
    /// What happened, one line for each step.
    pub steps: Vec<String>,
    /// A digest of all steps.
    pub digest: u64,
    /// The simulated time in seconds.
    pub seconds: f64,
}

/// The report of a run that could not be carried out.
pub(crate) fn broken(what: String) -> Report {
    let violation = Some(Violation { invariant: "panic", what });
    Report { violation, steps: Vec::new(), digest: 0, seconds: 0.0 }
}
