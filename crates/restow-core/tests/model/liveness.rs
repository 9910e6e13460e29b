//! Whether everything comes to rest again from wherever it has got to.
//!
//! stateright's `eventually` is blind to cycles, and retries are cycles. So the graph of all states is built, and
//! searched backwards from those at rest, along the steps that are taken when nothing goes wrong any more. A state that
//! is not reached so can never come to rest; where there is none, a scheduler that neglects no step for ever brings
//! everything to rest, because the graph is finite.

use std::collections::HashMap;

use stateright::Model as _;

use super::properties::at_rest;
use super::protocol::{Action, Protocol};
use super::state::State;

/// The graph of all states.
pub(crate) struct Graph {
    pub(crate) states: Vec<State>,
    /// From where, and by which step, each was first reached.
    found: Vec<Option<(usize, Action)>>,
    /// From where each is reached by a step that is to be expected.
    before: Vec<Vec<u32>>,
}

impl Graph {
    pub(crate) fn of(model: &Protocol) -> Self {
        let mut graph = Self { states: Vec::new(), found: Vec::new(), before: Vec::new() };
        let mut known = HashMap::new();
        for state in model.init_states() {
            graph.add(&mut known, state, None);
        }
        let mut next = 0;
        let mut actions = Vec::new();
        while next < graph.states.len() {
            let state = graph.states[next].clone();
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let Some(after) = model.next_state(&state, action) else { continue };
                let index = graph.add(&mut known, after, Some((next, action)));
                if Protocol::is_expected(&state, action) {
                    graph.before[index].push(u32::try_from(next).unwrap());
                }
            }
            next += 1;
        }
        graph
    }

    fn add(
        &mut self,
        known: &mut HashMap<State, usize>,
        state: State,
        from: Option<(usize, Action)>,
    ) -> usize {
        *known.entry(state).or_insert_with_key(|state| {
            self.states.push(state.clone());
            self.found.push(from);
            self.before.push(Vec::new());
            self.states.len() - 1
        })
    }

    /// A state from which it never comes to rest, if there is one.
    pub(crate) fn restless(&self, model: &Protocol) -> Option<usize> {
        let mut rests = vec![false; self.states.len()];
        let mut reached: Vec<usize> =
            (0..self.states.len()).filter(|index| at_rest(model, &self.states[*index])).collect();
        while let Some(index) = reached.pop() {
            if !std::mem::replace(&mut rests[index], true) {
                reached
                    .extend(self.before[index].iter().map(|before| *before as usize).filter(|b| !rests[*b]));
            }
        }
        rests.iter().position(|rests| !rests)
    }

    /// The steps that lead to a state.
    pub(crate) fn path(&self, mut index: usize) -> Vec<Action> {
        let mut path = Vec::new();
        while let Some((from, action)) = self.found[index] {
            path.push(action);
            index = from;
        }
        path.reverse();
        path
    }
}
