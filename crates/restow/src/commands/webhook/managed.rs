//! A webhook that makes its own certificates and registers itself in CRDs.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use restow_lease::{Election, Stop, election};
use restow_webhook::certificates::rotation::{Lifetimes, Wanted};
use restow_webhook::certificates::{CertificateKeeper, CertificateSettings, ServingCertificate, SharedTrust};
use restow_webhook::registration::{Endpoint, Registrar, RegistrationSettings, RulesGates};
use restow_webhook::rules::RulesFollower;
use tokio_util::sync::CancellationToken;

use crate::args::period;
use crate::commands::controller::own_namespace;

/// The path of reviews; group and kind of a CRD follow it.
const PATH: &str = "/convert";

/// Where API servers call the webhook, and where its certificates are kept.
#[derive(Args)]
pub(crate) struct Managed {
    /// The Service that API servers call: restow makes its certificates, and registers it in CRDs
    #[arg(long, value_name = "NAME", help_heading = "Certificates and registration",
          conflicts_with_all = ["url", "rules", "tls_cert_file"])]
    service: Option<String>,
    /// The port of that Service
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 443,
        help_heading = "Certificates and registration",
        conflicts_with_all = ["url", "tls_cert_file"]
    )]
    port: u16,
    /// The URL that API servers call, instead of a Service
    #[arg(long, value_name = "URL", value_parser = endpoint, help_heading = "Certificates and registration",
          conflicts_with_all = ["rules", "tls_cert_file"])]
    url: Option<Endpoint>,
    /// The namespace of the Service, the Secret and a Lease [default: the pod's own, or restow-system]
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Certificates and registration",
        conflicts_with = "tls_cert_file"
    )]
    namespace: Option<String>,
    /// The Secret with the certificates, which all replicas share; one without restow's label is only read
    #[arg(
        long,
        value_name = "NAME",
        default_value = "restow-webhook-certificates",
        help_heading = "Certificates and registration",
        conflicts_with = "tls_cert_file"
    )]
    certificate_secret: String,
    /// How long every CRD must have trusted a certificate authority before it signs
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "5m", hide = true)]
    settle: Duration,
    /// How long a serving certificate is valid
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "720h", hide = true)]
    certificate_lifetime: Duration,
    /// How far the clock of an API server may be behind
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "1h", hide = true)]
    clock_skew: Duration,
    /// How often certificates and CRDs are checked
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10s", hide = true)]
    check_interval: Duration,
}

/// Parses a URL. One without a path means the path of reviews.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::url(text).map_err(|error| error.to_string())?;
    if endpoint.path() != "/" {
        return Ok(endpoint);
    }
    Endpoint::url(&format!("{}{PATH}", text.trim_end_matches('/'))).map_err(|error| error.to_string())
}

impl Managed {
    fn namespace(&self) -> String {
        self.namespace.clone().unwrap_or_else(own_namespace)
    }

    /// Where API servers call the webhook; none if it serves a certificate from files.
    fn endpoint(&self) -> Option<Endpoint> {
        let service = self.service.as_ref().map(|name| Endpoint::Service {
            namespace: self.namespace(),
            name: name.clone(),
            port: self.port,
            path: PATH.to_owned(),
        });
        service.or_else(|| self.url.clone())
    }

    fn certificates(&self, endpoint: &Endpoint) -> CertificateSettings {
        let lifetimes = Lifetimes {
            settle: self.settle,
            leaf: self.certificate_lifetime,
            skew: self.clock_skew,
            ..Lifetimes::default()
        };
        CertificateSettings {
            namespace: self.namespace(),
            secret: self.certificate_secret.clone(),
            foreign: false,
            wanted: Wanted { names: endpoint.names(), lifetimes },
            check_every: self.check_interval,
        }
    }

    /// Prepares certificates and registration; none if the certificate is from files.
    pub(super) fn keeping(
        &self,
        client: &kube::Client,
        follower: &Arc<RulesFollower>,
        crds: &[String],
        replica: &str,
    ) -> Option<Keeping> {
        let endpoint = self.endpoint()?;
        let certificates = self.certificates(&endpoint);
        let trust = Arc::<SharedTrust>::default();
        let keeper = CertificateKeeper::new(client.clone(), certificates.clone(), Arc::clone(&trust));
        let settings = RegistrationSettings {
            endpoint,
            certificates,
            crds: (!crds.is_empty()).then(|| crds.to_vec()),
            check_every: self.check_interval,
            instance: replica.to_owned(),
        };
        let gates = RulesGates::new(Arc::clone(follower));
        let registrar = Registrar::new(client.clone(), settings, gates, trust);
        let election = Election {
            client: client.clone(),
            namespace: self.namespace(),
            // Those who share certificates share the Lease, and nobody else does.
            name: self.certificate_secret.clone(),
            identity: election::identity(),
            duration: Duration::from_secs(15),
            renew_every: Duration::from_secs(5),
        };
        Some(Keeping { keeper, registrar, election })
    }
}

/// Keeps certificates, and registers the webhook.
pub(super) struct Keeping {
    keeper: CertificateKeeper,
    registrar: Registrar<RulesGates>,
    election: Election,
}

impl Keeping {
    /// The certificate for the server.
    pub(super) fn serving(&self) -> Arc<ServingCertificate> {
        self.keeper.serving()
    }

    /// Keeps certificates until the server has ended. One replica at a time registers, until it is told to stop.
    pub(super) async fn run(&self, stop: &CancellationToken, ended: &CancellationToken) {
        let until_ended = Stop::from(ended.clone());
        let register = self.election.lead(stop, |within| async move { self.registrar.run(&within).await });
        tokio::join!(self.keeper.run(&until_ended), register);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_registration_are_refused_without_one() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            _webhook: crate::commands::webhook::Webhook,
        }
        let files = ["webhook", "--tls-cert-file=c", "--tls-private-key-file=k"];
        for (given, good) in [
            (&["--port=9443"][..], false),
            (&["--namespace=x"], false),
            (&["--certificate-secret=x"], false),
            (&[], true),
        ] {
            let typed = <Typed as clap::Parser>::try_parse_from(files.iter().chain(given));
            assert_eq!(typed.is_ok(), good, "{given:?}");
        }
        let service = ["webhook", "--service=s", "--port=9443", "--namespace=n", "--certificate-secret=x"];
        assert!(<Typed as clap::Parser>::try_parse_from(service).is_ok());
        let url = ["webhook", "--url=https://example.com", "--port=9443"];
        assert!(<Typed as clap::Parser>::try_parse_from(url).is_err(), "a URL has its own port");
    }

    #[test]
    fn a_url_without_a_path_means_the_path_of_reviews() {
        for (url, path) in [
            ("https://webhook.example.com", "/convert"),
            ("https://127.0.0.1:9443/", "/convert"),
            ("https://webhook.example.com/hooks/convert", "/hooks/convert"),
        ] {
            assert_eq!(endpoint(url).unwrap().path(), path, "{url}");
        }
        assert_eq!(
            endpoint("http://webhook.example.com").unwrap_err(),
            "http://webhook.example.com must begin with https:// and have a host"
        );
    }
}
