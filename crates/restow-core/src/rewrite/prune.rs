//! Whether `status.storedVersions` of a CRD may be reduced to the storage version.

use crate::resource::inventory::Crd;
use crate::rewrite::progress::{Phase, Progress};

/// Why `storedVersions` is not reduced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run did not end verified.
    #[error("the migration was not verified")]
    Unverified,
    /// Some objects were quarantined.
    #[error("quarantined: {}", crate::rewrite::progress::objects(*.0))]
    Quarantined(u64),
    /// The resource has no CRD.
    #[error("the migration was not of a custom resource")]
    Unwatched,
    /// The CRD was deleted and created again.
    #[error("the definition was deleted and created again during the migration")]
    Replaced,
    /// The spec of the CRD was changed during the run.
    #[error("the definition was changed during the migration (generation {before}, now {now})")]
    Changed {
        /// The generation in the verifying pass.
        before: String,
        /// The generation now.
        now: i64,
    },
    /// The storage version is not the one that was migrated to.
    #[error("the storage version is {now} now, the migration was for {migrated}")]
    Moved {
        /// The version that was migrated to.
        migrated: String,
        /// The version now.
        now: String,
    },
}

/// Decides by comparing the CRD in the verifying pass with the CRD now: the new `storedVersions`, or `None` if there is
/// nothing to remove.
pub fn prune(progress: &Progress, now: &Crd) -> Result<Option<Vec<String>>, Refusal> {
    if progress.counts.quarantined + progress.verify.quarantined > 0 {
        return Err(Refusal::Quarantined(progress.counts.quarantined.max(progress.verify.quarantined)));
    }
    if !progress.verified || progress.phase != Phase::Done {
        return Err(Refusal::Unverified);
    }
    let before = progress.definition.as_deref().and_then(|definition| definition.split_once('/'));
    let Some((uid, generation)) = before else { return Err(Refusal::Unwatched) };
    if uid != now.uid {
        return Err(Refusal::Replaced);
    }
    if now.storage_version != progress.storage_version {
        return Err(Refusal::Moved {
            migrated: progress.storage_version.clone(),
            now: now.storage_version.clone(),
        });
    }
    if generation != now.generation.to_string() {
        return Err(Refusal::Changed { before: generation.to_owned(), now: now.generation });
    }
    let pruned = vec![now.storage_version.clone()];
    Ok((now.stored_versions != pruned).then_some(pruned))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::resource::name::GroupResource;
    use crate::rewrite::progress::Counts;

    fn crd(uid: &str, generation: i64, storage: &str, stored: &[&str]) -> Crd {
        Crd {
            name: GroupResource::parse("widgets.example.com"),
            resource_version: "5".to_owned(),
            uid: uid.to_owned(),
            generation,
            storage_version: storage.to_owned(),
            versions: vec![],
            stored_versions: stored.iter().map(|version| (*version).to_owned()).collect(),
            changed: None,
            webhook: false,
            converting: false,
        }
    }

    fn progress(verified: bool, quarantined: u64) -> Progress {
        let resource = GroupResource::parse("widgets.example.com");
        Progress {
            phase: Phase::Done,
            counts: Counts { quarantined, ..Counts::default() },
            verified,
            definition: Some("u/3".to_owned()),
            ..Progress::new(resource, "v2", "x", Timestamp::default())
        }
    }

    #[test]
    fn every_condition_for_pruning_is_checked() {
        let before = crd("u", 3, "v2", &["v1", "v2"]);
        let ok = progress(true, 0);
        let done = Progress { phase: Phase::Verifying, ..ok.clone() };
        let unwatched = Progress { definition: None, ..ok.clone() };
        for (what, progress, now, expected) in [
            ("all is well", &ok, crd("u", 3, "v2", &["v1", "v2"]), Ok(Some(vec!["v2".to_owned()]))),
            ("nothing to cut", &ok, crd("u", 3, "v2", &["v2"]), Ok(None)),
            ("not verified", &progress(false, 0), before.clone(), Err(Refusal::Unverified)),
            ("not ended", &done, before.clone(), Err(Refusal::Unverified)),
            ("objects left", &progress(true, 2), before.clone(), Err(Refusal::Quarantined(2))),
            ("not watched", &unwatched, before.clone(), Err(Refusal::Unwatched)),
            ("made again", &ok, crd("other", 3, "v2", &["v2"]), Err(Refusal::Replaced)),
            (
                "spec changed",
                &ok,
                crd("u", 4, "v2", &["v1", "v2"]),
                Err(Refusal::Changed { before: "3".to_owned(), now: 4 }),
            ),
            (
                "another storage version",
                &ok,
                crd("u", 4, "v3", &["v1", "v2", "v3"]),
                Err(Refusal::Moved { migrated: "v2".to_owned(), now: "v3".to_owned() }),
            ),
        ] {
            assert_eq!(prune(progress, &now), expected, "{what}");
        }
    }
}
