//! Whether kube-storage-version-migrator is still running. It marks resources as migrated without verifying, in the same
//! objects as restow.

/// The parts of a Deployment that show what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.replicas`.
    pub replicas: i64,
    /// The images of its containers.
    pub images: Vec<String>,
}

/// Part of the names of its images and namespaces, whoever builds them.
const NAMES: [&str; 2] = ["storage-version-migrat", "storage-migration"];

/// Whether a Deployment runs a part of kube-storage-version-migrator.
pub fn is_running(deployment: &Deployment) -> bool {
    let is_named = |text: &str| NAMES.iter().any(|name| text.contains(name));
    let is_part = || ["migrator", "trigger"].contains(&deployment.name.as_str());
    let image = |image: &String| is_named(image.rsplit('/').next().unwrap_or_default());
    deployment.replicas > 0
        && (deployment.images.iter().any(image) || is_named(&deployment.namespace) && is_part())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predecessor_is_recognized_by_image_or_namespace() {
        for (namespace, name, image, replicas, running) in [
            ("kube-system", "trigger", "registry.example/storage-version-migration-trigger:v0.0.5", 1, true),
            (
                "kube-system",
                "migrator",
                "registry.example/storage-version-migration-migrator@sha256:ab",
                1,
                true,
            ),
            ("tools", "svm", "registry.example/storage-version-migrate-migrator:1", 2, true),
            ("openshift-kube-storage-version-migrator", "migrator", "registry.example/x@sha256:ab", 1, true),
            ("kube-storage-migration", "trigger", "registry.example/x", 1, true),
            // Scaled down.
            ("kube-system", "trigger", "registry.example/storage-version-migration-trigger:v0.0.5", 0, false),
            // Somebody else's migrator.
            ("shop", "migrator", "registry.example/flyway:9", 1, false),
            ("kube-storage-migration", "proxy", "registry.example/proxy", 1, false),
            ("restow-system", "restow", "registry.example/restow:1", 2, false),
        ] {
            let deployment = Deployment {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                replicas,
                images: vec![image.to_owned()],
            };
            assert_eq!(is_running(&deployment), running, "{deployment:?}");
        }
    }
}
