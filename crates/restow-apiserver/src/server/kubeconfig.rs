//! The kubeconfig of the server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The values of a kubeconfig.
#[derive(Clone, Debug)]
pub(crate) struct Kubeconfig<'a> {
    /// The address, such as `https://127.0.0.1:6443`.
    pub server: &'a str,
    /// The authority's certificate.
    pub authority_pem: &'a str,
    /// The user's name.
    pub user: &'a str,
    /// The user's token.
    pub token: &'a str,
}

impl Kubeconfig<'_> {
    /// The kubeconfig as YAML, with every value quoted.
    pub(crate) fn text(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (server, user, token) = (quoted(self.server), quoted(self.user), quoted(self.token));
        let authority = BASE64_STANDARD.encode(self.authority_pem);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: restow\n\
             clusters:\n- name: restow\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
             users:\n- name: {user}\n  user:\n    token: {token}\n\
             contexts:\n- name: restow\n  context:\n    cluster: restow\n    user: {user}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig as Read;

    use super::*;

    #[test]
    fn kube_reads_the_kubeconfig() {
        let kubeconfig = Kubeconfig {
            server: "https://[::1]:6443",
            authority_pem: "-----BEGIN CERTIFICATE-----",
            user: "restow:admin",
            token: "a\"b: c",
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.text()).unwrap();
        let read = Read::read_from(&path).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("restow"));
        let cluster = read.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6443"));
        let authority = BASE64_STANDARD.decode(cluster.certificate_authority_data.unwrap()).unwrap();
        assert_eq!(authority, b"-----BEGIN CERTIFICATE-----");
        let context = read.contexts[0].context.clone().unwrap();
        assert_eq!((context.cluster.as_str(), context.user.as_deref()), ("restow", Some("restow:admin")));
        assert_eq!(read.auth_infos[0].name, "restow:admin");
    }
}
