//! What a plan has beyond its first draft.
//!
//! It is drawn apart from the rest, so that another kind of trouble leaves all other plans as they were.

use fastrand::Rng;

use crate::plan::{Deed, Effect, Event, Fault, Op, Plan, Scene, Setup, Span};

fn fault(op: Op, object: Option<usize>, skip: u32, span: Span, effect: Effect) -> Event {
    Event::Fault(Fault { op, object, skip, span, effect })
}

/// Adds to a plan what its seed has for it.
pub(crate) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6578_7472_6173);
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

/// Adds much more of what known defects need to show.
pub(crate) fn thicken(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6465_6e73_6500);
    plan.users = plan.users.max(30);
    if rng.u8(..3) == 0 {
        // A webhook passes on the code of a lookup of something else.
        let (object, code) = (rng.usize(..plan.objects), [404, 409, 410][rng.usize(..3)]);
        plan.events.push(fault(Op::Write, Some(object), 0, Span::Always, Effect::Status(code)));
    }
    if rng.bool() {
        // A single answer of a proxy, or one while a token is renewed.
        let op = if rng.bool() { Op::List } else { Op::Write };
        let effect = Effect::Status(if rng.bool() { 302 } else { 401 });
        plan.events.push(fault(op, None, rng.u32(..4), Span::Times(1), effect));
    }
    let skip = rng.u32(..4);
    plan.events.extend(match rng.u8(..10) {
        0..2 => Some(fault(Op::List, None, skip / 2, Span::Times(rng.u32(2..5)), Effect::Short)),
        2..4 => Some(fault(Op::List, None, skip, Span::Millis(rng.u64(3000..8000)), Effect::Repeat)),
        // What decrypts objects is started anew.
        4..6 => Some(fault(Op::List, None, skip, Span::Millis(rng.u64(1000..6000)), Effect::Status(500))),
        _ => None,
    });
    if rng.u8(..5) == 0 {
        let (skip, span) = (rng.u32(..10), Span::Times(rng.u32(1..4)));
        plan.events.push(fault(Op::Look, None, skip, span, Effect::Cut));
    }
    plan.misplaced |= plan.scene != Scene::Keys && rng.u8(..8) == 0;
    if rng.bool() {
        // What is left for ever leaves nothing to be proven.
        plan.misplaced = false;
        let lasts = |event: &Event| matches!(event, Event::Fault(fault) if fault.span == Span::Always);
        plan.events.retain(|event| !lasts(event));
    }
    match plan.scene {
        Scene::Keys => part(plan, &mut rng),
        _ if !plan.retired => change(plan, &mut rng),
        _ => {}
    }
}

/// Adds to a plan of the controllers much more of what known defects need to show.
pub(crate) fn thicken_controllers(plan: &mut Plan, setup: Setup) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6465_6e73_6501);
    // Known defects show best where nothing else goes wrong.
    plan.events.clear();
    let change = |there: bool| match (plan.scene, there) {
        (Scene::Rotation, true) => (0..setup.servers).map(Deed::Rotate).collect::<Vec<_>>(),
        (Scene::Rotation, false) => (0..setup.servers).map(Deed::RotateBack).collect(),
        (_, true) => vec![Deed::Store("v1")],
        (_, false) => vec![Deed::Store("v2")],
    };
    plan.users = 80;
    // Forth and back: while nobody looks, between two looks, or before the first migration lists.
    let (there, back) = match rng.u8(..3) {
        0 => {
            let down = (0..setup.replicas).map(|replica| Event::At(10_000, Deed::Down(replica, 640_000)));
            plan.events.extend(down);
            (12_000, 24_000)
        }
        1 => {
            let at = 30_000 + rng.u64(..5_000);
            (at, at + rng.u64(300..1500))
        }
        _ => {
            // A server that is being upgraded does not know the method yet.
            let (skip, span) = (rng.u32(..6), Span::Times(1));
            plan.events.push(fault(Op::List, None, skip, span, Effect::Status(405)));
            (100 + rng.u64(..300), 500 + rng.u64(..500))
        }
    };
    let (forth, home) = (change(true), change(false));
    plan.events.extend(forth.into_iter().map(|deed| Event::At(there, deed)));
    plan.events.extend(home.into_iter().map(|deed| Event::At(back, deed)));
}

/// One server takes the second key up long before the other, of which perhaps nothing is heard.
fn part(plan: &mut Plan, rng: &mut Rng) {
    let late = rng.usize(..2);
    for event in &mut plan.events {
        if let Event::At(at, Deed::Rotate(server)) = event {
            *at = if *server == late { rng.u64(8_000..15_000) } else { rng.u64(..300) };
        }
    }
    if rng.u8(..3) > 0 {
        let effect = if rng.bool() { Effect::Status(403) } else { Effect::Cut };
        plan.events.push(fault(Op::Metrics, Some(late), 0, Span::Millis(10_000), effect));
    }
}

/// What is proven may be past by the time it counts: a definition is changed forth and back.
fn change(plan: &mut Plan, rng: &mut Rng) {
    plan.events.push(if rng.bool() {
        // One write of the verifying pass is slow.
        let skip = plan.objects as u32 + rng.u32(..plan.objects as u32);
        fault(Op::Write, None, skip, Span::Times(1), Effect::Late(4000))
    } else {
        let effect = if rng.bool() { Effect::Status(503) } else { Effect::Cut };
        fault(Op::Prune, None, 0, Span::Millis(10_000), effect)
    });
    let at = rng.u64(6_800..9_000);
    plan.events.push(Event::At(at, Deed::Store("v1")));
    plan.events.push(Event::At(at + rng.u64(800..2500), Deed::Store("v2")));
}
