//! Calls a conversion webhook as an API server does, without writing anything.
//!
//! Through an API server nobody can see what comes back from the way to the other version: reads convert once, and a dry
//! run answers in the version it was sent in. So the check asks the webhook itself.

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::config::{KubeConfigOptions, Kubeconfig};
use restow_migrate::client::Server;
use serde_json::{Value, json};

use super::error::RoundError;

/// A conversion webhook.
pub(super) struct Reviewer {
    server: Server,
    path: String,
    group: String,
    /// The version of ConversionReview that it understands.
    review_version: &'static str,
}

/// What the webhook said to a review.
pub(super) enum Reviewed {
    /// The converted objects, in the same order.
    Converted(Vec<Value>),
    /// It refused, for this reason.
    Refused(String),
}

/// Where a webhook is.
struct Address {
    url: String,
    path: String,
}

impl Reviewer {
    /// The webhook of a definition.
    pub(super) async fn of(crd: &CustomResourceDefinition) -> Result<Self, RoundError> {
        let raw = serde_json::to_value(&crd.spec.conversion).unwrap_or_default();
        let webhook = &raw["webhook"];
        let missing = || RoundError::Webhook {
            address: "spec.conversion.webhook".to_owned(),
            why: "the definition does not say where it is".to_owned(),
        };
        let Address { url, path } = address(&webhook["clientConfig"]).ok_or_else(missing)?;
        let failed = |error: &dyn std::error::Error| RoundError::Webhook {
            address: url.clone(),
            why: error.to_string(),
        };
        let mut cluster = json!({"server": url});
        if let Some(bundle) = webhook["clientConfig"]["caBundle"].as_str().filter(|bundle| !bundle.is_empty())
        {
            cluster["certificate-authority-data"] = json!(bundle);
        }
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{"name": "webhook", "cluster": cluster}],
            "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "webhook"}}],
            "users": [{"name": "webhook", "user": {}}],
            "current-context": "webhook",
        }))
        .map_err(|error| failed(&error))?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        let config = config.await.map_err(|error| failed(&error))?;
        let understood = webhook["conversionReviewVersions"].as_array();
        let v1 = understood.is_some_and(|versions| versions.iter().any(|version| version == "v1"));
        Ok(Self {
            server: Server::connect(config).map_err(|error| failed(&error))?,
            path,
            group: crd.spec.group.clone(),
            review_version: if v1 { "v1" } else { "v1beta1" },
        })
    }

    /// Converts objects to a version.
    pub(super) async fn convert(&self, objects: &[Value], version: &str) -> Result<Reviewed, RoundError> {
        let uid = format!("{:032x}", u128::from(restow_clock::random()) | 1);
        let review = json!({
            "apiVersion": format!("apiextensions.k8s.io/{}", self.review_version),
            "kind": "ConversionReview",
            "request": {
                "uid": uid,
                "desiredAPIVersion": format!("{}/{version}", self.group),
                "objects": objects,
            },
        });
        let body = review.to_string().into_bytes();
        let sent = self.server.write::<Value>(Method::POST, &self.path, "application/json", body).await;
        let mut answer = sent.map_err(|error| RoundError::Webhook {
            address: self.server.name().to_owned(),
            why: error.to_string(),
        })?;
        read(&uid, objects, &format!("{}/{version}", self.group), answer["response"].take())
            .map_err(|why| RoundError::Webhook { address: self.server.name().to_owned(), why })
    }
}

/// Reads a response; an error if it does not belong to these objects.
fn read(uid: &str, objects: &[Value], wanted: &str, mut response: Value) -> Result<Reviewed, String> {
    if response["uid"] != uid {
        return Err("the answer is not a ConversionReview for this request".to_owned());
    }
    if response["result"]["status"] != "Success" {
        let message = response["result"]["message"].as_str().unwrap_or("no message");
        return Ok(Reviewed::Refused(message.to_owned()));
    }
    let Value::Array(converted) = response["convertedObjects"].take() else {
        return Err("the answer has no objects".to_owned());
    };
    if converted.len() != objects.len() {
        return Err(format!("{} objects were sent, and {} came back", objects.len(), converted.len()));
    }
    let identity = |object: &Value| {
        let meta = &object["metadata"];
        [&meta["name"], &meta["namespace"], &meta["uid"], &object["kind"]].map(Value::clone)
    };
    if objects.iter().zip(&converted).any(|(sent, back)| identity(sent) != identity(back)) {
        return Err("the objects came back in another order, or as others".to_owned());
    }
    // API servers refuse these, too. A webhook that does not know the version may send back what it was sent.
    if let Some(other) = converted.iter().find(|object| object["apiVersion"] != wanted) {
        return Ok(Reviewed::Refused(format!("it answers with {} instead of {wanted}", other["apiVersion"])));
    }
    Ok(Reviewed::Converted(converted))
}

/// The address in a client configuration: a URL, or a Service of the cluster.
fn address(client: &Value) -> Option<Address> {
    if let Some(url) = client["url"].as_str() {
        let begin = url.find("://")? + 3;
        let slash = url[begin..].find('/').map_or(url.len(), |slash| begin + slash);
        let path = if slash == url.len() { "/" } else { &url[slash..] };
        return Some(Address { url: url[..slash].to_owned(), path: path.to_owned() });
    }
    let service = &client["service"];
    let (name, namespace) = (service["name"].as_str()?, service["namespace"].as_str()?);
    let port = service["port"].as_i64().unwrap_or(443);
    let path = service["path"].as_str().unwrap_or("/");
    Some(Address { url: format!("https://{name}.{namespace}.svc:{port}"), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_a_url_or_a_service() {
        for (client, expected) in [
            (json!({"url": "https://127.0.0.1:8443/review"}), Some(("https://127.0.0.1:8443", "/review"))),
            (json!({"url": "https://hooks.example"}), Some(("https://hooks.example", "/"))),
            (
                json!({"service": {"name": "hook", "namespace": "ns", "path": "/convert", "port": 9443}}),
                Some(("https://hook.ns.svc:9443", "/convert")),
            ),
            (json!({"service": {"name": "hook", "namespace": "ns"}}), Some(("https://hook.ns.svc:443", "/"))),
            (json!({"service": {"name": "hook"}}), None),
            (Value::Null, None),
        ] {
            let found = address(&client);
            let found = found.as_ref().map(|found| (found.url.as_str(), found.path.as_str()));
            assert_eq!(found, expected, "{client}");
        }
    }

    #[test]
    fn only_an_answer_for_the_same_objects_counts() {
        let object = |name: &str| json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name, "uid": name}});
        let sent = [object("a"), object("b")];
        let answer = |uid: &str, status: &str, objects: Vec<Value>| json!({"uid": uid, "result": {"status": status, "message": "no"}, "convertedObjects": objects});
        let verdict = |response: Value| match read("1", &sent, "example.com/v2", response) {
            Ok(Reviewed::Converted(objects)) => format!("{} converted", objects.len()),
            Ok(Reviewed::Refused(why)) => why,
            Err(_) => "error".to_owned(),
        };
        assert_eq!(verdict(answer("1", "Success", sent.to_vec())), "2 converted");
        assert_eq!(verdict(answer("1", "Failed", vec![])), "no");
        let mut unconverted = sent.to_vec();
        unconverted[1]["apiVersion"] = json!("example.com/v1");
        let expected = "it answers with \"example.com/v1\" instead of example.com/v2";
        assert_eq!(verdict(answer("1", "Success", unconverted)), expected);
        for bad in [
            answer("2", "Success", sent.to_vec()),
            answer("1", "Success", vec![object("a")]),
            answer("1", "Success", vec![object("b"), object("a")]),
            Value::Null,
        ] {
            assert_eq!(verdict(bad), "error");
        }
    }
}
