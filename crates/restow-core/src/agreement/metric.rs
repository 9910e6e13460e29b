//! Reads one line of an API server's metrics.

/// The value of one label, in `a="x",b="y"} 1`.
pub(crate) fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let labels = labels.trim_start_matches('{').split_once('}').map_or(labels, |(labels, _)| labels);
    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}
