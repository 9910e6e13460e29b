//! The trigger, the migrator and the pruner.

use restow_core::rewrite::progress::PassVerdict;

use super::bug::Bug;
use super::migration_rules::{self as rules, Decided, Do};
use super::protocol::{Action, Protocol};
use super::rules::{Persisted, Silent, hash};
use super::state::{At, OBJECTS, Pass, Run, State, Version};

impl Protocol {
    pub(crate) fn migration_actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Look);
        if state.budget.faults > 0 {
            actions.extend((1..self.decided(state).steps.len()).map(Action::LookCut));
        }
        let Some(run) = state.run else { return };
        match run.at {
            At::Made | At::Check | At::Recheck => actions.push(Action::Check),
            At::List => {
                actions.push(Action::List);
                if state.budget.faults > 0 {
                    actions.push(Action::Refuse);
                }
            }
            At::Page { .. } => {
                let open = |server: &usize| self.may_write(&state.servers[*server]);
                for server in (0..self.scene.servers).filter(open) {
                    actions.push(Action::Patch { server, lost: false });
                    if state.budget.faults > 0 {
                        actions.push(Action::Patch { server, lost: true });
                    }
                }
            }
            At::Ended => actions.push(Action::Prune),
            At::Failed => {}
        }
        if state.budget.faults > 0 && matches!(run.at, At::List | At::Page { .. } | At::Recheck) {
            actions.push(Action::Resume);
        }
    }

    fn decided(&self, state: &State) -> Decided {
        let failure_is_final = self.has(Bug::FailureIsFinal);
        let seen = self.seen(state);
        let mut decided = rules::look(seen, state.definition, state.persisted, state.run, failure_is_final);
        let makes = decided.steps.iter().any(|step| matches!(step, Do::Create(..)));
        if makes && self.has(Bug::StateWrittenLast) && matches!(decided.steps[0], Do::Write(_)) {
            decided.steps.remove(0);
        }
        decided
    }

    /// Takes so many steps of what a look comes to.
    pub(crate) fn look(&self, state: &mut State, steps: usize) {
        let seen = self.seen(state);
        let done = state.run.filter(|run| run.at == At::Ended && run.verified);
        if let (Some(_), Ok(now), true) = (done, seen.agreed(), self.has(Bug::CurrentRefined)) {
            let mut status = state.persisted.read().map(|status| (*status).clone()).unwrap_or_default();
            status.persisted_storage_version_hashes = vec![hash(now)];
            status.current_storage_version_hash = Some(hash(now));
            state.persisted = Persisted::new(status);
            state.ghost.early_refinement |= !state.is_stored_in(now);
            return;
        }
        let decided = self.decided(state);
        for step in decided.steps.into_iter().take(steps) {
            match step {
                Do::Delete(name) => state.run = state.run.filter(|run| run.name != name),
                Do::Create(name, version) => state.run = Some(Run::made(name, version)),
                Do::Write(persisted) => state.persisted = persisted,
            }
        }
        if let Some(run) = state.run.as_mut().filter(|_| rules::pending(state.persisted).is_none()) {
            run.name = rules::RUN;
        }
        if let (true, Some(refined)) = (decided.refined, state.persisted.settled()) {
            state.ghost.early_refinement |= !state.is_stored_in(refined);
        }
    }

    pub(crate) fn check(&self, state: &mut State) {
        let seen = self.seen(state);
        let Some(mut run) = state.run else { return };
        match seen.agreed() {
            // Servers that are silent are waited for.
            Err(Silent(true)) => {}
            // What was done counts for nothing.
            Err(Silent(false)) => run = Run::made(run.name, run.version),
            Ok(version) if version != run.version => run.at = At::Failed,
            Ok(_) => {
                rules::watch(&mut run, &seen);
                if run.at == At::Recheck {
                    self.pass_ended(&mut run);
                } else {
                    run.at = At::List;
                }
            }
        }
        state.run = Some(run);
    }

    fn pass_ended(&self, run: &mut Run) {
        if self.has(Bug::NeverVerified) || self.has(Bug::WrittenSinceSkipped) {
            run.at = At::Ended;
            run.verified = true;
            return;
        }
        if self.has(Bug::ShiftIgnored) {
            run.shifted = false;
        }
        match (run.pass, rules::judged(run)) {
            (Pass::Verifying, PassVerdict::Verified) => {
                run.verified = true;
                run.at = At::Ended;
            }
            (Pass::Verifying, PassVerdict::Restless) => run.at = At::Failed,
            (Pass::Rewriting, _) | (_, PassVerdict::AnotherPass) => rules::begin_verifying(run),
        }
    }

    pub(crate) fn list(&self, state: &mut State) {
        let as_listed = state.stored.map(|stored| stored.is_some());
        if let Some(run) = &mut state.run {
            run.rewritten = false;
            run.at = page(0, as_listed);
        }
    }

    /// Rewrites the next object of the page, on condition that it is as it was when listed.
    pub(crate) fn patch(&self, state: &mut State, server: usize, lost: bool) {
        let Some(Run { at: At::Page { next, as_listed }, .. }) = state.run else { return };
        let version = state.servers[server].version;
        let rewrites = as_listed[next] && state.stored[next] != Some(version);
        if rewrites {
            self.stored(state, next, version);
        }
        let Some(Run { at, rewritten, .. }) = &mut state.run else { return };
        let At::Page { as_listed, .. } = *at else { return };
        if lost {
            state.budget.faults -= 1;
            return;
        }
        *rewritten |= rewrites;
        *at = page(next + 1, as_listed);
    }

    /// Goes on from the last page that was kept: here, the beginning of the pass.
    pub(crate) fn resume(&self, state: &mut State) {
        state.budget.faults -= 1;
        if let Some(run) = &mut state.run {
            run.at = At::Check;
            run.rewritten = false;
        }
    }

    pub(crate) fn refuse(&self, state: &mut State) {
        state.budget.faults -= 1;
        if let Some(run) = &mut state.run {
            run.at = At::Failed;
        }
    }

    pub(crate) fn prune(&self, state: &mut State) {
        let (Some(run), Some(mut definition)) = (state.run, state.definition) else { return };
        let pruned = if self.has(Bug::PruneUnguarded) {
            Some(vec![definition.version])
        } else {
            rules::prune(&run, &definition)
        };
        let Some(pruned) = pruned else { return };
        for version in Version::BOTH {
            definition.stored[version as usize] = pruned.contains(&version);
        }
        let kept = |stored: &Version| definition.stored[*stored as usize];
        state.ghost.early_refinement |= !state.stored.iter().flatten().all(kept);
        state.definition = Some(definition);
    }
}

/// The page from this object on. What was written since it was listed would be refused, and counts as done.
fn page(from: usize, as_listed: [bool; OBJECTS]) -> At {
    match (from..OBJECTS).find(|object| as_listed[*object]) {
        Some(next) => At::Page { next, as_listed },
        None => At::Recheck,
    }
}
