//! The store in memory.

use std::sync::Arc;

use restow_store::memory::MemoryStore;

use crate::semantics;

macro_rules! check_semantics {
    ($($rule:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            semantics::$rule(Arc::new(MemoryStore::default()), "/registry/").await;
        }
    )*};
}

check_semantics! {
    a_write_needs_the_current_mod_revision,
    a_write_can_depend_on_another_key,
    similar_keys_are_distinct,
    a_list_shows_one_revision,
    pages_belong_to_one_revision,
    a_watch_delivers_history_and_new_changes,
    a_slow_watch_misses_nothing,
    a_compacted_revision_cannot_be_read,
    a_future_revision_is_an_error,
    a_watch_delivers_every_change_once,
}
