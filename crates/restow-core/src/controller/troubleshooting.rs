//! Where docs/TROUBLESHOOTING.md explains what to do about the reason of a condition or Event.

use restow_api::Reason;

/// The reasons that have a section in docs/TROUBLESHOOTING.md.
const REASONS: [Reason; 32] = [
    Reason::AnotherController,
    Reason::BackendNotServed,
    Reason::ConversionRefused,
    Reason::ConvertingInPlace,
    Reason::DefinitionChanged,
    Reason::DefinitionManaged,
    Reason::DefinitionMissing,
    Reason::DelegateFailed,
    Reason::DelegateNameTaken,
    Reason::DelegateRefused,
    Reason::Disagreement,
    Reason::EncryptionUnseen,
    Reason::FieldsLost,
    Reason::Forbidden,
    Reason::ForeignState,
    Reason::InvalidSpec,
    Reason::ListRefused,
    Reason::NotMigratable,
    Reason::NotPruned,
    Reason::NotServed,
    Reason::Quarantined,
    Reason::Restless,
    Reason::StaleHeartbeat,
    Reason::StorageVersionChanged,
    Reason::Superseded,
    Reason::Unauthorized,
    Reason::UnknownVersion,
    Reason::Unverified,
    Reason::VersionNotServed,
    Reason::WaitingForAgreement,
    Reason::WaitingForServer,
    Reason::WebhookUnavailable,
];

/// Appends to a message where its reason is explained, if it is.
pub fn explained(reason: Reason, message: &str) -> String {
    if !REASONS.contains(&reason) {
        return message.to_owned();
    }
    format!("{message} (docs/TROUBLESHOOTING.md#{})", reason.as_str().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_section_and_every_section_a_reason() {
        let page = include_str!("../../../../docs/TROUBLESHOOTING.md");
        let mut sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        sections.sort_unstable();
        assert_eq!(sections, REASONS.map(Reason::as_str));
        assert_eq!(explained(Reason::Started, "now"), "now");
        assert_eq!(explained(Reason::Restless, "no end"), "no end (docs/TROUBLESHOOTING.md#restless)");
    }
}
