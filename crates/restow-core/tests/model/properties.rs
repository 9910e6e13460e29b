//! What must always hold, and what must be possible.

use stateright::Property;

use super::protocol::Protocol;
use super::state::{Server, State, Step, Version};

pub(crate) const S1: &str = "S1 nothing is refined or pruned while an object is stored in another version";
pub(crate) const S6: &str = "S6 no agreement while a server that may write stores otherwise";
pub(crate) const S7: &str = "S7 nothing is stored in another version than agreed on";
pub(crate) const S8: &str = "S8 a server that may write is registered as it writes";
/// It is not vacuous: both versions are agreed on, and a scene with a migrator migrates.
pub(crate) const MOVES: &str = "the servers move to v2, and so does what is stored";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(S1, |_: &Protocol, state: &State| !state.ghost.early_refinement),
        Property::always(S6, no_false_agreement),
        Property::always(S7, |_: &Protocol, state: &State| !state.ghost.late_write),
        Property::always(S8, registered_as_it_writes),
        Property::sometimes(MOVES, moved),
    ]
}

fn no_false_agreement(model: &Protocol, state: &State) -> bool {
    let Ok(agreed) = model.agreed(state) else { return true };
    state.servers.iter().all(|server| !model.may_write(server) || server.version == agreed)
}

fn registered_as_it_writes(model: &Protocol, state: &State) -> bool {
    let entries = state.object.unwrap_or_default().entries();
    let own = |(server, entry): (&Server, Option<Version>)| {
        !model.may_write(server) || entry == Some(server.version)
    };
    state.servers.iter().zip(entries).all(own)
}

fn moved(model: &Protocol, state: &State) -> bool {
    let settled = !model.scene.migrator || state.persisted.settled() == Some(Version::V2);
    settled && model.agreed(state) == Ok(Version::V2)
}

/// Where everything comes to rest when nothing goes wrong any more.
pub(crate) fn at_rest(model: &Protocol, state: &State) -> bool {
    let up: Vec<_> = state.servers.iter().filter(|server| server.step != Step::Down).collect();
    let Some(first) = up.first() else { return true };
    let entries = state.object.unwrap_or_default().entries();
    let open = up.iter().all(|server| model.may_write(server));
    let tidy = |(server, entry): (&Server, Option<Version>)| entry.is_none() == (server.step == Step::Down);
    let tidy = state.servers.iter().zip(entries).all(tidy);
    open && tidy && (up.iter().any(|server| server.version != first.version) || agreed_and_done(model, state))
}

fn agreed_and_done(model: &Protocol, state: &State) -> bool {
    let Ok(agreed) = model.agreed(state) else { return false };
    let pruned = state.definition.is_none_or(|definition| {
        definition.version == agreed && definition.stored[agreed as usize] && definition.stored != [true; 2]
    });
    !model.scene.migrator
        || (state.persisted.settled() == Some(agreed) && state.is_stored_in(agreed) && pruned)
}
