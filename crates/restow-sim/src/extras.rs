//! What a plan has beyond its first draft.
//!
//! It is drawn apart from the rest, so that another kind of trouble leaves all other plans as they were.

use fastrand::Rng;

use crate::plan::{Deed, Effect, Event, Fault, Op, Plan, Scene, Span};

/// Adds to a plan what its seed has for it.
pub(crate) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6578_7472_6173);
    let fault = |op, object, skip, span, effect| Event::Fault(Fault { op, object, skip, span, effect });
    if rng.u8(..8) == 0 {
        // A webhook that fails at one object often fails at another.
        for object in [rng.usize(..plan.objects / 2), rng.usize(plan.objects / 2..plan.objects)] {
            plan.events.push(fault(Op::Write, Some(object), 0, Span::Always, Effect::Status(500)));
        }
    }
    if rng.u8(..5) == 0 {
        let (skip, span) = (rng.u32(..2), Span::Times(rng.u32(1..5)));
        plan.events.push(fault(Op::List, None, skip, span, Effect::Short));
    }
    let span = Span::Millis(rng.u64(200..20_000));
    match plan.scene {
        Scene::Single if rng.u8(..5) == 0 => {
            let effects = [Effect::Status(503), Effect::Cut, Effect::Late(20_000)];
            let effect = effects[rng.usize(..effects.len())];
            plan.events.push(fault(Op::Metrics, None, rng.u32(..3), Span::Times(rng.u32(1..4)), effect));
        }
        // Who may read what is set for each server by itself.
        Scene::Keys if rng.u8(..3) == 0 => {
            let effect = if rng.bool() { Effect::Status(403) } else { Effect::Cut };
            plan.events.push(fault(Op::Metrics, Some(rng.usize(..2)), 0, span, effect));
        }
        Scene::Pair if rng.u8(..4) == 0 => {
            plan.events.push(fault(Op::Members, None, rng.u32(..6), span, Effect::Status(403)));
        }
        _ => {}
    }
    if plan.scene != Scene::Keys && rng.u8(..5) == 0 {
        // What is proven may be past by the time it is pruned.
        let effect = if rng.bool() { Effect::Status(503) } else { Effect::Cut };
        plan.events.push(fault(Op::Prune, None, 0, Span::Millis(20_000), effect));
        let at = rng.u64(8_500..14_000);
        plan.events.push(Event::At(at, Deed::Store("v1")));
        plan.events.push(Event::At(at + rng.u64(200..3000), Deed::Store("v2")));
    }
    if plan.scene == Scene::Single && rng.u8(..4) == 0 {
        plan.retired = true;
        // What is not served is not stored in again.
        plan.events.retain(|event| !matches!(event, Event::At(_, Deed::Store(_))));
    }
    plan.misplaced = plan.scene != Scene::Keys && rng.u8(..8) == 0;
}
