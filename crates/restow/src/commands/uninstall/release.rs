//! Releases migrations from an owner that is deleted, so that they are kept.

use kube::ResourceExt as _;
use restow_api::StorageVersionMigration;
use restow_migrate::client::Server;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::objects::{self, WriteMode};

/// How often migrations are read again after conflicts.
const TRIES: u32 = 20;

/// Removes an owner from all its migrations, because the garbage collector would delete them with it. Returns their number.
pub(crate) async fn release(server: &Server, owner: &str, keep: WriteMode) -> Result<usize, CliError> {
    let mut released = 0;
    for _ in 0..TRIES {
        let mut left = 0;
        for migration in objects::list_if_defined::<StorageVersionMigration>(server).await? {
            let Some(others) = without(&migration, owner) else { continue };
            let change = json!({"metadata": {"ownerReferences": others}});
            match objects::patch(server, &migration, change, keep).await? {
                Some(_) => released += 1,
                None => left += 1,
            }
        }
        if left == 0 {
            return Ok(released);
        }
    }
    Err(CliError::failed("others keep changing the migrations: they could not be released from their owner")
        .hint("run this again; otherwise they would be deleted together with their owner"))
}

/// The owner references of a migration without this owner; none if it is not among them.
fn without(migration: &StorageVersionMigration, owner: &str) -> Option<Vec<Value>> {
    let references = migration.owner_references();
    let others = references.iter().filter(|reference| reference.uid != owner);
    let others: Vec<Value> = others.filter_map(|reference| serde_json::to_value(reference).ok()).collect();
    (others.len() < references.len()).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_owner_is_removed() {
        let reference = |uid: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": uid, "uid": uid});
        for (owners, expected) in [
            (vec![], None),
            (vec!["b"], None),
            (vec!["a"], Some(vec![])),
            (vec!["b", "a", "c"], Some(vec!["b", "c"])),
        ] {
            let references: Vec<Value> = owners.iter().map(|uid| reference(uid)).collect();
            let migration: StorageVersionMigration = serde_json::from_value(json!({
                "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
                "metadata": {"name": "m", "ownerReferences": references},
                "spec": {"resource": {"version": "v1", "resource": "secrets"}},
            }))
            .unwrap();
            let expected = expected.map(|owners| owners.into_iter().map(reference).collect());
            assert_eq!(without(&migration, "a"), expected, "{owners:?}");
        }
    }
}
