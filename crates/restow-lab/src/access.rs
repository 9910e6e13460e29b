//! Users of the cluster: tokens, kubeconfig files and clients.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use kube::Config;

/// The users of a cluster, their tokens, the CA of the lab and the CA that verifies the servers.
#[derive(Debug)]
pub(crate) struct Access {
    users: Vec<User>,
    authority: Authority,
    servers: Authority,
}

/// The certificate of a CA.
#[derive(Clone, Debug)]
struct Authority {
    der: Vec<u8>,
    pem: String,
}

#[derive(Debug)]
struct User {
    name: String,
    groups: Vec<String>,
    token: String,
}

impl Access {
    /// Generates a token for each user and writes `tokens.csv` into `dir`.
    pub(crate) fn new(dir: &Path, users: &[(String, Vec<String>)], ca: (Vec<u8>, String)) -> Result<Self> {
        let users = users
            .iter()
            .map(|(name, groups)| {
                Ok(User { name: name.clone(), groups: groups.clone(), token: random_token()? })
            })
            .collect::<Result<Vec<_>>>()?;
        let lines: String = users
            .iter()
            .map(|User { name, groups, token }| format!("{token},{name},{name},\"{}\"\n", groups.join(",")))
            .collect();
        fs::write(dir.join("tokens.csv"), lines).context("writing the tokens")?;
        let authority = Authority { der: ca.0, pem: ca.1 };
        Ok(Self { users, servers: authority.clone(), authority })
    }

    /// Verifies the servers with another CA than that of the lab.
    pub(crate) fn trust(&mut self, pem: &str) -> Result<()> {
        let lines = pem.lines().filter(|line| !line.starts_with("-----"));
        let der = BASE64_STANDARD.decode(lines.collect::<String>()).context("reading a certificate")?;
        self.servers = Authority { der, pem: pem.to_owned() };
        Ok(())
    }

    /// The names of the users.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|user| user.name.as_str())
    }

    /// The CA bundle of the lab for an APIService or a webhook.
    pub(crate) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority.pem)
    }

    fn token(&self, name: &str) -> Result<&str> {
        let user = self.users.iter().find(|user| user.name == name);
        Ok(&user.with_context(|| format!("the cluster has no user {name}"))?.token)
    }

    /// The configuration of a client, without a proxy from the environment and without retries, which would hide answers.
    pub(crate) fn config(&self, url: &str, user: &str) -> Result<Config> {
        let mut config = Config::new(url.parse().context("reading the server's address")?);
        config.root_cert = Some(vec![self.servers.der.clone()]);
        config.auth_info.token = Some(self.token(user)?.to_owned().into());
        config.default_retry = false;
        Ok(config)
    }

    /// The text of a kubeconfig; for a plain `http` address it has neither CA nor token.
    pub(crate) fn kubeconfig(&self, url: &str, user: &str) -> Result<String> {
        let token = self.token(user)?;
        let ca = BASE64_STANDARD.encode(&self.servers.pem);
        let (ca, token) = if url.starts_with("https:") {
            (format!("\n    certificate-authority-data: {ca}"), format!("\n    token: {token}"))
        } else {
            (String::new(), " {}".to_owned())
        };
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
             clusters:\n- name: lab\n  cluster:\n    server: {url}{ca}\n\
             users:\n- name: {user}\n  user:{token}\n\
             contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: {user}\n"
        ))
    }
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("making a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
