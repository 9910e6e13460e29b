//! What the operator makes of a page: pure functions of its newest version.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Resource as _, ResourceExt as _};

use crate::status::PageStatus;
use crate::v1::Page;

/// The name of the ConfigMap that a page is written to.
pub fn config_map_name(page: &Page) -> String {
    format!("page-{}", page.name_any())
}

/// The page as a ConfigMap, which goes when the page goes.
pub fn config_map(page: &Page) -> ConfigMap {
    let mut config_map = ConfigMap::default();
    config_map.metadata.name = Some(config_map_name(page));
    config_map.metadata.namespace = page.namespace();
    config_map.metadata.owner_references = page.controller_owner_ref(&()).map(|owner| vec![owner]);
    config_map.data = Some(BTreeMap::from([("index.html".to_owned(), html(page))]));
    config_map
}

/// What the status says.
pub fn status(page: &Page) -> PageStatus {
    let port = page.spec.port.filter(|port| *port != 80).map(|port| format!(":{port}")).unwrap_or_default();
    PageStatus { url: Some(format!("http://{}{port}/", page.spec.host)) }
}

fn html(page: &Page) -> String {
    let (title, language) = (escaped(&page.spec.title), escaped(&page.spec.language));
    let body = escaped(page.spec.body.as_deref().unwrap_or_default());
    format!("<html lang=\"{language}\"><title>{title}</title><h1>{title}</h1><p>{body}</p></html>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::PageSpec;

    fn page(port: Option<u16>) -> Page {
        let spec = PageSpec {
            title: "Cats & dogs".to_owned(),
            body: Some("<3".to_owned()),
            host: "www.example.com".to_owned(),
            port,
            language: "en".to_owned(),
        };
        Page::new("pets", spec)
    }

    #[test]
    fn a_page_becomes_a_config_map() {
        let config_map = config_map(&page(None));
        assert_eq!(config_map.metadata.name.as_deref(), Some("page-pets"));
        assert_eq!(
            config_map.data.unwrap()["index.html"],
            "<html lang=\"en\"><title>Cats &amp; dogs</title><h1>Cats &amp; dogs</h1><p>&lt;3</p></html>\n"
        );
    }

    #[test]
    fn the_status_has_the_address() {
        let url = |port| status(&page(port)).url.unwrap();
        assert_eq!(url(None), "http://www.example.com/");
        assert_eq!(url(Some(80)), "http://www.example.com/");
        assert_eq!(url(Some(8080)), "http://www.example.com:8080/");
    }
}
