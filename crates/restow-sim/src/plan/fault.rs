//! Draws faults of requests.

use fastrand::Rng;

use super::event::{Effect, Fault, Op, Span};
use super::scene::Scene;

/// The codes with which a webhook may deny one object.
const DENIALS: [u16; 12] = [400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503, 504];
/// The codes of a failing server or a proxy.
const FAILING: [u16; 8] = [302, 401, 408, 429, 500, 502, 503, 504];

pub(super) fn fault(rng: &mut Rng, scene: Scene) -> Fault {
    let ops =
        [Op::List, Op::List, Op::Write, Op::Write, Op::Write, Op::Read, Op::Look, Op::Discover, Op::Metrics];
    let op = ops[rng.usize(..if scene == Scene::Keys { 9 } else { 8 })];
    fault_of(rng, op)
}

pub(super) fn fault_of(rng: &mut Rng, op: Op) -> Fault {
    let within = if rng.bool() { 3 } else { 12 };
    let skip = rng.u32(..within);
    let object = (op == Op::Write && rng.u8(..3) > 0).then(|| rng.usize(..12));
    // An admission webhook that denies one object does so forever.
    if op == Op::Write && object.is_some() && rng.bool() {
        let code = DENIALS[rng.usize(..DENIALS.len())];
        return Fault { op, object, skip: 0, span: Span::Always, effect: Effect::Status(code) };
    }
    let span = if rng.bool() { Span::Times(rng.u32(1..4)) } else { Span::Millis(rng.u64(200..20_000)) };
    let failing = FAILING[rng.usize(..FAILING.len())];
    let effect = match rng.u8(..12) {
        0..3 => Effect::Status(failing),
        3 => Effect::Text(if rng.bool() { failing } else { 404 }),
        4 => Effect::Empty,
        5 => Effect::Success,
        6 => Effect::Foreign,
        7 => Effect::Half,
        8 if op == Op::List => Effect::Repeat,
        8 | 9 => Effect::Late(rng.u64(100..90_000)),
        10 => Effect::Cut,
        _ => Effect::Lost,
    };
    Fault { op, object, skip, span, effect }
}
