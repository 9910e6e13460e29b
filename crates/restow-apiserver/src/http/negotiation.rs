//! In which form an answer is wanted, by the request's `Accept`.

/// What answers can be written as.
pub(crate) const ACCEPTED: &[&str] = &["application/json", "application/yaml"];

/// What an object or a list is shown as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole.
    #[default]
    Whole,
    /// Just its metadata.
    Metadata,
    /// Rows for a person.
    Table,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// What is shown.
    pub form: Form,
    /// Whether discovery may come in one document.
    pub aggregated: bool,
    /// Whether it is written as YAML.
    pub yaml: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// One object, or changes of some.
    One,
    /// A list.
    List,
    /// Anything else: only whole.
    Other,
}

/// Chooses the first alternative that can be given, those of higher quality first; none if there is none.
pub(crate) fn negotiate(accept: &str, asked: Asked) -> Option<Accepted> {
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
    fn accepted(&self, asked: Asked) -> Option<Accepted> {
        let yaml = match self.media {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" => true,
            _ => return None,
        };
        let plain = Accepted { yaml, ..Accepted::default() };
        match (self.shown, self.group, self.version, asked) {
            ("", ..) => Some(plain),
            ("Table", "meta.k8s.io", "v1", Asked::One | Asked::List) => {
                Some(Accepted { form: Form::Table, ..plain })
            }
            ("PartialObjectMetadata", "meta.k8s.io", "v1", Asked::One)
            | ("PartialObjectMetadataList", "meta.k8s.io", "v1", Asked::List) => {
                Some(Accepted { form: Form::Metadata, ..plain })
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2", Asked::Other) => {
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
    fn the_first_that_can_be_given() {
        let form = |accept, asked| negotiate(accept, asked).map(|accepted| accepted.form);
        for (accept, asked, expected) in [
            ("", Asked::One, Some(Form::Whole)),
            ("*/*", Asked::List, Some(Form::Whole)),
            ("application/json", Asked::List, Some(Form::Whole)),
            ("application/vnd.kubernetes.protobuf", Asked::One, None),
            ("application/cbor", Asked::One, None),
            ("application/vnd.kubernetes.protobuf,application/json", Asked::One, Some(Form::Whole)),
            (TABLE, Asked::List, Some(Form::Table)),
            (TABLE, Asked::Other, Some(Form::Whole)),
            (METADATA, Asked::One, Some(Form::Metadata)),
            (METADATA, Asked::List, None),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0",
                Asked::One,
                None,
            ),
            (
                "application/json;q=0.5,application/json;as=Table;g=meta.k8s.io;v=v1",
                Asked::One,
                Some(Form::Table),
            ),
        ] {
            assert_eq!(form(accept, asked), expected, "{accept}");
        }
    }

    #[test]
    fn discovery_in_one_document() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(negotiate(accept, Asked::Other).is_some_and(|accepted| accepted.aggregated));
    }
}
