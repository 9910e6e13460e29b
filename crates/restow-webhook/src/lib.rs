//! A conversion webhook for custom resources: it serves converters, keeps its own certificates, and registers itself in CRDs.
//!
//! - [`LiveConverters`]: the converters in use, which can be replaced as a whole while requests are served.
//! - [`rules`]: converters from the ConversionRules of a cluster, followed while it runs.
//! - [`CertificateFiles`]: a certificate that others make, such as cert-manager, read again when its files change.
//! - [`certificates`]: the webhook's own certificates, shared by its replicas and rotated without a failed request.
//! - [`registration`]: the conversion stanza of CRDs, changed only after every gate has passed.
//! - [`serve`]: the HTTPS server. It takes a listener, a certificate and a token that ends it, so an operator runs it
//!   beside its controllers, with its own admission handlers on the same port.

mod announcement;
mod certificate_files;
pub mod certificates;
mod live;
pub mod registration;
pub mod rules;
pub mod serve;

pub use certificate_files::{CertificateFileError, CertificateFiles};
pub use live::LiveConverters;
pub use serve::{Server, Settings};
