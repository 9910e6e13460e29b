//! What a request is about: told from its method, path and query.

use http::Method;

use crate::failure::Failure;
use crate::rules::is_name;
use crate::ship::{GROUP, RESOURCE, Version};
use crate::ships::Wanted;

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whether the server is alive.
    Alive,
    /// Whether it is ready.
    Ready,
    /// What it serves: for everybody whose name is known.
    Discovery(Document),
    /// Ships.
    Ships(Place),
}

/// A document about what the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// All groups.
    Groups,
    /// Our group.
    Group,
    /// The resources of a version.
    Resources(Version),
}

/// Which ships.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The version they are read and written in.
    pub version: Version,
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Just this one.
    pub name: Option<String>,
}

/// What a path stands for; none if nothing.
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
    Some(Target::Ships(Place {
        version: Version::parse(version)?,
        namespace: plain(namespace)?,
        name: plain(name)?,
    }))
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Shows one.
    Get,
    /// Shows many.
    List,
    /// Shows changes.
    Watch,
    /// Makes one.
    Create,
    /// Replaces one.
    Update,
    /// Changes one.
    Patch,
    /// Deletes one.
    Delete,
}

impl Verb {
    /// All of them, as discovery names them.
    pub const ALL: [Self; 7] =
        [Self::Create, Self::Delete, Self::Get, Self::List, Self::Patch, Self::Update, Self::Watch];

    /// Its name.
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

    /// What a method does at a place; none if it does nothing there.
    pub fn of(method: &Method, place: &Place, options: &Options) -> Option<Self> {
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

/// What the query says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// At most so many; 0 for all.
    pub limit: usize,
    /// Where a list goes on.
    pub token: Option<String>,
    /// To be watched.
    pub watch: bool,
    /// After this, for a watch; at this, for a list that wants just that.
    pub revision: Option<u64>,
    /// Just that.
    pub exact: bool,
    /// For so many seconds.
    pub seconds: Option<u64>,
    /// Without storing anything.
    pub dry_run: bool,
}

impl Options {
    /// Reads a query. What this server does not know to do is refused, lest somebody rely on it.
    pub fn read(query: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| Failure::bad_request(format!("{name} is no number: {value}")))
            };
            match &*name {
                "limit" => options.limit = usize::try_from(number()?).unwrap_or(usize::MAX),
                "continue" => options.token = Some(value.into_owned()),
                "watch" => options.watch = matches!(&*value, "true" | "1"),
                "resourceVersion" => options.revision = Some(number()?).filter(|revision| *revision > 0),
                "resourceVersionMatch" => options.exact = value == "Exact",
                "timeoutSeconds" => options.seconds = Some(number()?),
                "dryRun" if value == "All" => options.dry_run = true,
                "dryRun" => return Err(Failure::bad_request(format!("dryRun cannot be {value}"))),
                "labelSelector" | "fieldSelector" => {
                    return Err(Failure::bad_request(format!("{name} is not known to this server")));
                }
                "sendInitialEvents" => {
                    return Err(Failure::invalid(format!("{name}: Forbidden: this server cannot do that")));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// The list that is wanted.
    pub fn list(&self, namespace: Option<String>) -> Wanted {
        let revision = self.revision.filter(|_| self.exact);
        Wanted { namespace, limit: self.limit, token: self.token.clone(), revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let ships = |version, namespace: Option<&str>, name: Option<&str>| {
            let (namespace, name) = (namespace.map(str::to_owned), name.map(str::to_owned));
            Some(Target::Ships(Place { version, namespace, name }))
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
    fn verbs() {
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
    fn queries() {
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
