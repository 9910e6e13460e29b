//! Content negotiation: the form of a response, from the `Accept` header.

/// The media types of responses.
pub(crate) const ACCEPTED: &[&str] = &["application/json", "application/yaml"];

/// The form of an object or a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// The complete object.
    #[default]
    Whole,
    /// PartialObjectMetadata.
    Metadata,
    /// A Table, for people.
    Table,
}

/// The negotiated form of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The form of objects.
    pub form: Form,
    /// Whether discovery is aggregated.
    pub aggregated: bool,
    /// Whether it is written as YAML.
    pub yaml: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedItem {
    /// One object, or a watch.
    One,
    List,
    /// Anything else: it has only one form.
    Other,
}

/// Chooses the acceptable form of the highest quality; none if there is none.
pub(crate) fn negotiate(accept: &str, asked: RequestedItem) -> Option<Accepted> {
    if accept.trim().is_empty() {
        return Some(Accepted::default());
    }
    let mut clauses: Vec<(f32, Clause<'_>)> = accept.split(',').map(clause).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    clauses.into_iter().filter(|(quality, _)| *quality > 0.0).find_map(|(_, clause)| clause.accepted(asked))
}

#[derive(Default)]
struct Clause<'a> {
    media: &'a str,
    shown: &'a str,
    group: &'a str,
    version: &'a str,
}

fn clause(text: &str) -> (f32, Clause<'_>) {
    let mut parts = text.split(';').map(str::trim);
    let mut clause = Clause { media: parts.next().unwrap_or_default(), ..Clause::default() };
    let mut quality = 1.0;
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "q" => quality = value.parse().unwrap_or(0.0),
            "as" => clause.shown = value,
            "g" => clause.group = value,
            "v" => clause.version = value,
            _ => {}
        }
    }
    (quality, clause)
}

impl Clause<'_> {
    fn accepted(&self, asked: RequestedItem) -> Option<Accepted> {
        let yaml = match self.media {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" => true,
            _ => return None,
        };
        let plain = Accepted { yaml, ..Accepted::default() };
        match (self.shown, self.group, self.version, asked) {
            ("", ..) => Some(plain),
            ("Table", "meta.k8s.io", "v1", RequestedItem::One | RequestedItem::List) => {
                Some(Accepted { form: Form::Table, ..plain })
            }
            ("PartialObjectMetadata", "meta.k8s.io", "v1", RequestedItem::One)
            | ("PartialObjectMetadataList", "meta.k8s.io", "v1", RequestedItem::List) => {
                Some(Accepted { form: Form::Metadata, ..plain })
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2", RequestedItem::Other) => {
                Some(Accepted { aggregated: true, ..plain })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
        application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

    #[test]
    fn the_first_acceptable_media_type_is_chosen() {
        let form = |accept, asked| negotiate(accept, asked).map(|accepted| accepted.form);
        for (accept, asked, expected) in [
            ("", RequestedItem::One, Some(Form::Whole)),
            ("*/*", RequestedItem::List, Some(Form::Whole)),
            ("application/json", RequestedItem::List, Some(Form::Whole)),
            ("application/vnd.kubernetes.protobuf", RequestedItem::One, None),
            ("application/cbor", RequestedItem::One, None),
            ("application/vnd.kubernetes.protobuf,application/json", RequestedItem::One, Some(Form::Whole)),
            (TABLE, RequestedItem::List, Some(Form::Table)),
            (TABLE, RequestedItem::Other, Some(Form::Whole)),
            (METADATA, RequestedItem::One, Some(Form::Metadata)),
            (METADATA, RequestedItem::List, None),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0",
                RequestedItem::One,
                None,
            ),
            (
                "application/json;q=0.5,application/json;as=Table;g=meta.k8s.io;v=v1",
                RequestedItem::One,
                Some(Form::Table),
            ),
        ] {
            assert_eq!(form(accept, asked), expected, "{accept}");
        }
    }

    #[test]
    fn aggregated_discovery_is_negotiated() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(negotiate(accept, RequestedItem::Other).is_some_and(|accepted| accepted.aggregated));
    }
}
