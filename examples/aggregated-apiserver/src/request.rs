//! Parses the path, verb and query of a request.

use http::Method;

use crate::error::ApiError;
use crate::rules::is_name;
use crate::ship::{GROUP, RESOURCE, Version};
use crate::ships::ListOptions;

/// What a path refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The liveness check.
    Alive,
    /// The readiness check.
    Ready,
    /// A discovery document, for every authenticated user.
    Discovery(Document),
    /// Ships, one or many.
    Ships(ResourcePath),
}

/// A discovery document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The discovery of all groups (`/apis`).
    Groups,
    /// This server's group.
    Group,
    /// The resources of a version.
    Resources(Version),
}

/// The path of ships: all, those of a namespace, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath {
    /// The version of the request.
    pub version: Version,
    /// The namespace, if there is one.
    pub namespace: Option<String>,
    /// The name, for a single ship.
    pub name: Option<String>,
}

/// Parses a path; `None` if nothing is served there.
pub fn target(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    Some(match segments[..] {
        ["healthz" | "livez"] => Target::Alive,
        ["readyz"] => Target::Ready,
        ["apis"] => Target::Discovery(Document::Groups),
        ["apis", GROUP] => Target::Discovery(Document::Group),
        ["apis", GROUP, version] => Target::Discovery(Document::Resources(Version::parse(version)?)),
        ["apis", GROUP, version, RESOURCE] => place(version, None, None)?,
        ["apis", GROUP, version, "namespaces", namespace, RESOURCE] => place(version, Some(namespace), None)?,
        ["apis", GROUP, version, "namespaces", namespace, RESOURCE, name] => {
            place(version, Some(namespace), Some(name))?
        }
        _ => return None,
    })
}

fn place(version: &str, namespace: Option<&str>, name: Option<&str>) -> Option<Target> {
    let plain = |name: Option<&str>| match name {
        Some(name) if !is_name(name) => None,
        name => Some(name.map(str::to_owned)),
    };
    Some(Target::Ships(ResourcePath {
        version: Version::parse(version)?,
        namespace: plain(namespace)?,
        name: plain(name)?,
    }))
}

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one ship.
    Get,
    /// Lists ships.
    List,
    /// Watches ships.
    Watch,
    /// Creates a ship.
    Create,
    /// Replaces a ship.
    Update,
    /// Patches a ship.
    Patch,
    /// Deletes a ship.
    Delete,
}

impl Verb {
    /// All verbs, in the order of discovery.
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Delete, Self::Get, Self::List, Self::Patch, Self::Update, Self::Watch];

    /// The name of the verb.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// The verb for a method and path; `None` if the method is not supported there.
    pub fn of(method: &Method, place: &ResourcePath, options: &Options) -> Option<Self> {
        Some(match (method.as_str(), &place.namespace, &place.name) {
            ("GET", _, Some(_)) => Self::Get,
            ("GET", _, None) if options.watch => Self::Watch,
            ("GET", _, None) => Self::List,
            ("POST", Some(_), None) => Self::Create,
            ("PUT", _, Some(_)) => Self::Update,
            ("PATCH", _, Some(_)) => Self::Patch,
            ("DELETE", _, Some(_)) => Self::Delete,
            _ => return None,
        })
    }
}

/// The parameters of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `limit`; 0 for no limit.
    pub limit: usize,
    /// `continue`.
    pub token: Option<String>,
    /// Whether changes are streamed.
    pub watch: bool,
    /// `resourceVersion`.
    pub revision: Option<u64>,
    /// Whether `resourceVersionMatch` is `Exact`.
    pub exact: bool,
    /// `timeoutSeconds`.
    pub seconds: Option<u64>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

impl Options {
    /// Parses a query. Parameters that this server does not support are rejected, so that nobody relies on them.
    pub fn read(query: &str) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| ApiError::bad_request(format!("{name} is not a number: {value}")))
            };
            match &*name {
                "limit" => options.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" => options.token = Some(value.into_owned()),
                "watch" => options.watch = matches!(&*value, "true" | "1"),
                "resourceVersion" => options.revision = Some(number()?).filter(|revision| *revision > 0),
                "resourceVersionMatch" => options.exact = value == "Exact",
                "timeoutSeconds" => options.seconds = Some(number()?),
                "dryRun" if value == "All" => options.dry_run = true,
                "dryRun" => return Err(ApiError::bad_request(format!("dryRun cannot be {value}"))),
                "labelSelector" | "fieldSelector" => {
                    return Err(ApiError::bad_request(format!("{name} is not supported by this server")));
                }
                "sendInitialEvents" => {
                    return Err(ApiError::invalid(format!(
                        "{name}: Forbidden: this server does not support it"
                    )));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// The options of a list.
    pub fn list(&self, namespace: Option<String>) -> ListOptions {
        let revision = self.revision.filter(|_| self.exact);
        ListOptions { namespace, limit: self.limit, token: self.token.clone(), revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed() {
        let ships = |version, namespace: Option<&str>, name: Option<&str>| {
            let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
            Some(Target::Ships(ResourcePath { version, namespace, name }))
        };
        for (path, expected) in [
            ("/livez", Some(Target::Alive)),
            ("/readyz", Some(Target::Ready)),
            ("/apis", Some(Target::Discovery(Document::Groups))),
            ("/apis/fleet.example.com", Some(Target::Discovery(Document::Group))),
            ("/apis/fleet.example.com/v2", Some(Target::Discovery(Document::Resources(Version::V2)))),
            ("/apis/fleet.example.com/v3", None),
            ("/apis/fleet.example.com/v1/ships", ships(Version::V1, None, None)),
            ("/apis/fleet.example.com/v1/ships/a", None),
            ("/apis/fleet.example.com/v1/namespaces/x/ships", ships(Version::V1, Some("x"), None)),
            ("/apis/fleet.example.com/v2/namespaces/x/ships/a", ships(Version::V2, Some("x"), Some("a"))),
            ("/apis/fleet.example.com/v2/namespaces/x/ships/a/status", None),
            ("/apis/fleet.example.com/v2/namespaces/x/ships/%2e", None),
            ("/apis/fleet.example.com/v2/namespaces/../ships/a", None),
            ("/apis/fleet.example.com/v2/namespaces/x/boats", None),
            ("//apis", None),
            ("/apis/", None),
            ("", None),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }

    #[test]
    fn a_method_and_path_give_the_verb() {
        for (method, path, query, expected) in [
            (Method::GET, "ships", "", Some("list")),
            (Method::GET, "ships", "watch=1", Some("watch")),
            (Method::GET, "namespaces/x/ships/a", "", Some("get")),
            (Method::POST, "namespaces/x/ships", "", Some("create")),
            (Method::POST, "ships", "", None),
            (Method::POST, "namespaces/x/ships/a", "", None),
            (Method::PUT, "namespaces/x/ships/a", "", Some("update")),
            (Method::PATCH, "namespaces/x/ships/a", "", Some("patch")),
            (Method::DELETE, "namespaces/x/ships/a", "", Some("delete")),
            (Method::DELETE, "namespaces/x/ships", "", None),
            (Method::OPTIONS, "ships", "", None),
        ] {
            let Some(Target::Ships(place)) = target(&format!("/apis/{GROUP}/v1/{path}")) else {
                panic!("{path}")
            };
            let verb = Verb::of(&method, &place, &Options::read(query).unwrap());
            assert_eq!(verb.map(Verb::name), expected, "{method} {path}");
        }
    }

    #[test]
    fn queries_are_parsed_and_unsupported_parameters_rejected() {
        let read =
            Options::read("limit=5&continue=a%2Bb&resourceVersion=0&dryRun=All&fieldManager=me").unwrap();
        let expected =
            Options { limit: 5, token: Some("a+b".to_owned()), dry_run: true, ..Options::default() };
        assert_eq!(read, expected);
        for refused in
            ["limit=x", "dryRun=yes", "labelSelector=a%3Db", "fieldSelector=a", "sendInitialEvents=true"]
        {
            assert!(Options::read(refused).is_err(), "{refused}");
        }
    }
}
