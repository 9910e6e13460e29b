//! The endpoints of health, version and metrics.

use std::sync::atomic::Ordering;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::docs::metrics;
use crate::http::body::Body;
use crate::http::request_info::RequestInfo;
use crate::http::response::{json_response, plain};
use crate::verbs::api::Api;

/// A health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// The server answers.
    Ping,
    /// The store can be written.
    Store,
    /// The storage versions are registered.
    StorageVersions,
}

impl Check {
    const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Store => "store",
            Self::StorageVersions => "storage-versions",
        }
    }

    /// Runs the check. The error may be shown to unauthenticated users.
    async fn check(self, api: &Api) -> Result<(), String> {
        match self {
            Self::Ping => Ok(()),
            Self::Store => api.store_health.check(&*api.store).await,
            Self::StorageVersions => api.gate.readiness().check().map_err(|why| why.to_string()),
        }
    }
}

/// The checks of an endpoint.
fn checks(endpoint: &str) -> &'static [Check] {
    match endpoint {
        "healthz" | "livez" => &[Check::Ping, Check::Store],
        "readyz" => &[Check::Ping, Check::Store, Check::StorageVersions],
        _ => &[],
    }
}

/// The endpoint and the checks that a path selects; none for other paths.
fn selected_checks(path: &str) -> Option<(&str, Vec<Check>)> {
    let path = path.trim_end_matches('/').strip_prefix('/')?;
    let (endpoint, one) = path.split_once('/').map_or((path, None), |(endpoint, one)| (endpoint, Some(one)));
    let wanted = |check: &&Check| one.is_none_or(|one| check.name() == one);
    let checks: Vec<Check> = checks(endpoint).iter().filter(wanted).copied().collect();
    (!checks.is_empty()).then_some((endpoint, checks))
}

/// Answers health checks, version and metrics; none for other paths.
pub(crate) async fn answer(api: &Api, info: &RequestInfo) -> Option<Response<Body>> {
    if let Some((endpoint, checks)) = selected_checks(&info.path) {
        return Some(report(api, endpoint, &checks, info.has_parameter("verbose")).await);
    }
    match info.path.trim_end_matches('/') {
        "/version" => Some(json_response(&version())),
        "/metrics" => {
            let reloaded = Some(api.encryption_reloaded.load(Ordering::Relaxed)).filter(|at| *at > 0);
            let text = metrics::text(&api.server_id, api.started, api.encryption.load().as_deref(), reloaded);
            Some(plain(StatusCode::OK, text))
        }
        _ => None,
    }
}

async fn report(api: &Api, endpoint: &str, checks: &[Check], verbose: bool) -> Response<Body> {
    let mut lines = String::new();
    let mut well = true;
    for check in checks {
        let line = match check.check(api).await {
            Ok(()) => format!("[+]{} ok\n", check.name()),
            Err(why) => {
                well = false;
                format!("[-]{} failed: {why}\n", check.name())
            }
        };
        lines.push_str(&line);
    }
    match (well, verbose) {
        (true, false) => plain(StatusCode::OK, "ok".to_owned()),
        (true, true) => plain(StatusCode::OK, format!("{lines}{endpoint} check passed\n")),
        (false, _) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{endpoint} check failed\n")),
    }
}

/// The document of `/version`.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3+restow", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_path_selects_its_checks() {
        let (ping, store, registered) = (Check::Ping, Check::Store, Check::StorageVersions);
        for (path, expected) in [
            ("/healthz", Some(("healthz", vec![ping, store]))),
            ("/livez", Some(("livez", vec![ping, store]))),
            ("/livez/", Some(("livez", vec![ping, store]))),
            ("/readyz", Some(("readyz", vec![ping, store, registered]))),
            ("/livez/ping", Some(("livez", vec![ping]))),
            ("/livez/store", Some(("livez", vec![store]))),
            ("/readyz/storage-versions", Some(("readyz", vec![registered]))),
            ("/livez/storage-versions", None),
            ("/livez/other", None),
            ("/version", None),
            ("/", None),
        ] {
            assert_eq!(selected_checks(path), expected, "{path}");
        }
    }
}
