//! Adds further faults to a plan.
//!
//! They are drawn separately, so that a new kind of fault does not change other plans.

use fastrand::Rng;

use super::contents::Plan;
use super::event::{Action, Effect, Event, Fault, Op, Span};
use super::scene::{Scene, Setup};

fn fault(op: Op, object: Option<usize>, skip: u32, span: Span, effect: Effect) -> Event {
    Event::Fault(Fault { op, object, skip, span, effect })
}

/// Adds the further faults of a seed.
pub(super) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6578_7472_6173);
    if rng.u8(..8) == 0 {
        // A webhook that fails for one object often fails for another.
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
        // Permissions may differ between servers.
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
        // A proof may be outdated when storedVersions are pruned.
        let effect = if rng.bool() { Effect::Status(503) } else { Effect::Cut };
        plan.events.push(fault(Op::Prune, None, 0, Span::Millis(20_000), effect));
        let at = rng.u64(8_500..14_000);
        plan.events.push(Event::At(at, Action::Store("v1")));
        plan.events.push(Event::At(at + rng.u64(200..3000), Action::Store("v2")));
    }
    if plan.scene == Scene::Single && rng.u8(..4) == 0 {
        plan.retired = true;
        // A version that is not served does not become the storage version again.
        plan.events.retain(|event| !matches!(event, Event::At(_, Action::Store(_))));
    }
    plan.misplaced = plan.scene != Scene::Keys && rng.u8(..8) == 0;
}

/// Adds many more of the faults that known defects need to show.
pub(super) fn thicken(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6465_6e73_6500);
    plan.users = plan.users.max(30);
    if rng.u8(..3) == 0 {
        // A webhook passes on the code of another request.
        let (object, code) = (rng.usize(..plan.objects), [404, 409, 410][rng.usize(..3)]);
        plan.events.push(fault(Op::Write, Some(object), 0, Span::Always, Effect::Status(code)));
    }
    if rng.bool() {
        // A single answer of a proxy, or a 401 while a token is renewed.
        let op = if rng.bool() { Op::List } else { Op::Write };
        let effect = Effect::Status(if rng.bool() { 302 } else { 401 });
        plan.events.push(fault(op, None, rng.u32(..4), Span::Times(1), effect));
    }
    let skip = rng.u32(..4);
    plan.events.extend(match rng.u8(..10) {
        0..2 => Some(fault(Op::List, None, skip / 2, Span::Times(rng.u32(2..5)), Effect::Short)),
        2..4 => Some(fault(Op::List, None, skip, Span::Millis(rng.u64(3000..8000)), Effect::Repeat)),
        // The KMS plugin restarts.
        4..6 => Some(fault(Op::List, None, skip, Span::Millis(rng.u64(1000..6000)), Effect::Status(500))),
        _ => None,
    });
    if rng.u8(..5) == 0 {
        let (skip, span) = (rng.u32(..10), Span::Times(rng.u32(1..4)));
        plan.events.push(fault(Op::Look, None, skip, span, Effect::Cut));
    }
    plan.misplaced |= plan.scene != Scene::Keys && rng.u8(..8) == 0;
    if rng.bool() {
        // With objects that are refused forever nothing can be proven.
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

/// Adds to a plan of the controllers many more of the faults that known defects need to show.
pub(super) fn thicken_controllers(plan: &mut Plan, setup: Setup) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6465_6e73_6501);
    // Known defects show best if nothing else goes wrong.
    plan.events.clear();
    let change = |there: bool| match (plan.scene, there) {
        (Scene::Rotation, true) => (0..setup.servers).map(Action::Rotate).collect::<Vec<_>>(),
        (Scene::Rotation, false) => (0..setup.servers).map(Action::RotateBack).collect(),
        (_, true) => vec![Action::Store("v1")],
        (_, false) => vec![Action::Store("v2")],
    };
    plan.users = 80;
    // A change that is reverted: while the controllers are down, between two polls, or before the first migration lists.
    let (there, back) = match rng.u8(..3) {
        0 => {
            let down = (0..setup.replicas).map(|replica| Event::At(10_000, Action::Down(replica, 640_000)));
            plan.events.extend(down);
            (12_000, 24_000)
        }
        1 => {
            let at = 30_000 + rng.u64(..5_000);
            (at, at + rng.u64(300..1500))
        }
        _ => {
            // A server that is being upgraded does not support the method yet.
            let (skip, span) = (rng.u32(..6), Span::Times(1));
            plan.events.push(fault(Op::List, None, skip, span, Effect::Status(405)));
            (100 + rng.u64(..300), 500 + rng.u64(..500))
        }
    };
    let (forth, home) = (change(true), change(false));
    plan.events.extend(forth.into_iter().map(|action| Event::At(there, action)));
    plan.events.extend(home.into_iter().map(|action| Event::At(back, action)));
}

/// One server uses the second key long before the other one, which may be silent.
fn part(plan: &mut Plan, rng: &mut Rng) {
    let late = rng.usize(..2);
    for event in &mut plan.events {
        if let Event::At(at, Action::Rotate(server)) = event {
            *at = if *server == late { rng.u64(8_000..15_000) } else { rng.u64(..300) };
        }
    }
    if rng.u8(..3) > 0 {
        let effect = if rng.bool() { Effect::Status(403) } else { Effect::Cut };
        plan.events.push(fault(Op::Metrics, Some(late), 0, Span::Millis(10_000), effect));
    }
}

/// A proof may be outdated when it is used: a CRD is changed and reverted.
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
    plan.events.push(Event::At(at, Action::Store("v1")));
    plan.events.push(Event::At(at + rng.u64(800..2500), Action::Store("v2")));
}
