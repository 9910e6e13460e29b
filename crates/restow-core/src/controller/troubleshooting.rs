//! Where docs/TROUBLESHOOTING.md says what to do about a reason that a condition or an Event gives.

/// The reasons that have a section there.
const REASONS: [&str; 22] = [
    "AnotherController",
    "BackendNotServed",
    "DelegateFailed",
    "DelegateNameTaken",
    "DelegateRefused",
    "Disagreement",
    "EncryptionUnseen",
    "Forbidden",
    "ForeignState",
    "ListRefused",
    "NotMigratable",
    "NotPruned",
    "NotServed",
    "Quarantined",
    "Restless",
    "StaleHeartbeat",
    "StorageVersionChanged",
    "Superseded",
    "Unauthorized",
    "Unverified",
    "WaitingForAgreement",
    "WaitingForServer",
];

/// A message with the place where its reason is explained, if there is one.
pub fn explained(reason: &str, message: &str) -> String {
    if !REASONS.contains(&reason) {
        return message.to_owned();
    }
    format!("{message} (docs/TROUBLESHOOTING.md#{})", reason.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_section_and_every_section_a_reason() {
        let page = include_str!("../../../../docs/TROUBLESHOOTING.md");
        let mut sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        sections.sort_unstable();
        assert_eq!(sections, REASONS);
        assert_eq!(explained("Started", "now"), "now");
        assert_eq!(explained("Restless", "no end"), "no end (docs/TROUBLESHOOTING.md#restless)");
    }
}
