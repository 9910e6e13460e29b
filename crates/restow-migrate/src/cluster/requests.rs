//! Requests for one version of a resource, as the metrics of all API servers count them; and who serves it.

use std::collections::BTreeMap;

use restow_core::agreement;
use restow_core::controller::retirement::RequestCounts;
use restow_core::resource::name::{GroupResource, GroupVersion};

use super::discovery;
use super::handle::{Cluster, Trust};
use crate::client::{RequestError, Server};

impl Cluster {
    /// The request counters of every API server, by its name.
    ///
    /// # Errors
    /// Says why they are not known: some server could not be asked, or may not be.
    pub async fn request_counts(
        &self,
        resource: &GroupResource,
        version: &str,
    ) -> Result<BTreeMap<String, RequestCounts>, String> {
        let mut all = BTreeMap::new();
        for (name, server) in self.every_server().await? {
            let mut counts = RequestCounts::default();
            let each = |line: &str| counts.read(line, &resource.group, version, &resource.resource);
            let read = server.lines("/metrics", each).await;
            read.map_err(|error| format!("the metrics of {name} cannot be read: {error}"))?;
            all.insert(name, counts);
        }
        Ok(all)
    }

    /// The API servers that serve a version, or that could not be asked; each with the reason.
    pub async fn still_serving(
        &self,
        resource: &GroupResource,
        version: &GroupVersion,
    ) -> Result<Vec<String>, String> {
        let mut serving = Vec::new();
        for (name, server) in self.every_server().await? {
            match serves(&server, resource, version).await {
                Ok(false) => {}
                Ok(true) => serving.push(format!("{name} still serves {version}")),
                Err(error) => serving.push(format!("{name} did not answer: {error}")),
            }
        }
        Ok(serving)
    }

    /// Every API server. Behind a load balancer that is sampled, they cannot be asked one by one.
    async fn every_server(&self) -> Result<Vec<(String, Server)>, String> {
        if let Trust::Sampled(_) = self.trust {
            return Err("the API servers are behind one address and cannot be asked one by one".to_owned());
        }
        let members = match self.trust {
            Trust::Single => Ok(Vec::new()),
            _ => self.members().await.map_err(|error| error.to_string())?.into_result(),
        };
        let peers = self.peers(&members);
        if !peers.is_empty() {
            let each = |(name, peer): (String, Result<Server, String>)| match peer {
                Ok(server) => Ok((name, server)),
                Err(why) => Err(format!("{name} cannot be asked: {why}")),
            };
            return peers.into_iter().map(each).collect();
        }
        let live = members.map(|members| agreement::member::live(&members, restow_clock::now()).len());
        match (&self.trust, live) {
            (Trust::Single, _) | (_, Ok(1)) => Ok(vec![(self.server.name().to_owned(), self.server.clone())]),
            (_, Ok(_)) => Err("no API server has a valid identity Lease".to_owned()),
            (_, Err(why)) => Err(format!("it is not known which API servers there are: {why}")),
        }
    }
}

async fn serves(
    server: &Server,
    resource: &GroupResource,
    version: &GroupVersion,
) -> Result<bool, RequestError> {
    let served = discovery::document_if_listed(server, version).await?;
    Ok(served.is_some_and(|served| served.iter().any(|one| one.name == resource.resource)))
}
