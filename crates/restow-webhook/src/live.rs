//! The converters in use, which can be replaced while requests are served.

use std::sync::Arc;

use arc_swap::ArcSwap;
use restow_convert::Converters;

/// The set of converters in use. A request sees either the old set or the new one, never a part of each.
#[derive(Debug, Default)]
pub struct LiveConverters(ArcSwap<Converters>);

impl LiveConverters {
    /// Begins with these converters.
    pub fn new(converters: Converters) -> Self {
        Self(ArcSwap::from_pointee(converters))
    }

    /// The set in use. It stays as it is for whoever holds it.
    pub fn load(&self) -> Arc<Converters> {
        self.0.load_full()
    }

    /// Replaces the set. Requests that have begun go on with the old one.
    pub fn replace(&self, converters: Converters) {
        self.0.store(Arc::new(converters));
    }
}
