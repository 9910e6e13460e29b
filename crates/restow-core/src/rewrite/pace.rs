//! How fast to send: additive increase and multiplicative decrease, within hard bounds.
//!
//! Time is a `Duration` since any fixed start, so that tests need not wait. No rate limiting crate is used, because the rate
//! and the in-flight limit share one state.

use std::collections::VecDeque;
use std::time::Duration;

/// A named set of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Hardly noticeable, for clusters near their limits: below ten writes and ten megabits per second.
    Gentle,
    /// The cluster's own traffic comes first.
    Steady,
    /// As fast as the servers allow.
    Fast,
}

/// The hard bounds of a pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The most writes in flight.
    pub max_in_flight: u32,
    /// The most writes per second.
    pub qps: Option<f64>,
    /// The most bytes per second, sent and received.
    pub bandwidth: Option<f64>,
    /// The pace falls when latency exceeds the lowest observed latency times this.
    pub tolerance: f64,
    /// After each write, its slot rests for the duration of the write times this.
    pub rest: f64,
}

impl Preset {
    /// The bounds of the preset.
    pub fn bounds(self) -> Bounds {
        let (max_in_flight, tolerance, rest) = match self {
            Self::Gentle => (1, 1.3, 1.0),
            Self::Steady => (8, 1.15, 1.0),
            Self::Fast => (32, f64::INFINITY, 0.0),
        };
        let (qps, bandwidth) = match self {
            // The writes alone need a tenth of a megabit, so the bandwidth bounds lists of large metadata.
            Self::Gentle => (Some(8.0), Some(1_250_000.0)),
            Self::Steady | Self::Fast => (None, None),
        };
        Bounds { max_in_flight, qps, bandwidth, tolerance, rest }
    }
}

impl Preset {
    /// How many objects a page has. Large pages cause latency that other clients notice.
    pub fn page_size(self) -> u32 {
        match self {
            Self::Gentle | Self::Steady => 100,
            Self::Fast => 500,
        }
    }
}

/// How a request affects the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It was answered.
    Fine,
    /// It ended with 429, 503, a timeout or a broken connection.
    Overloaded,
}

/// Whether one more request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It may be sent now.
    Now,
    /// It may be sent at this time.
    At(Duration),
    /// It may be sent when a request in flight has ended.
    WhenOneEnds,
}

/// The lowest adaptive limit: one request in flight for a tenth of the time.
const LOWEST: f64 = 0.1;
/// After this time the lowest latency is measured again, because clusters change.
const FORGET: Duration = Duration::from_secs(60);
/// How far a burst may run ahead of `qps` and `bandwidth`.
const BURST: Duration = Duration::from_millis(100);

/// Decides when the next request may be sent.
#[derive(Clone, Debug)]
pub struct Pace {
    bounds: Bounds,
    limit: f64,
    smoothed: f64,
    lowest: f64,
    lowest_since: Duration,
    last_cut: Duration,
    idle_until: Duration,
    resting: VecDeque<Duration>,
    qps_at: Duration,
    bandwidth_at: Duration,
}

impl Pace {
    /// Starts with a low limit, which grows as long as the server keeps up.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: Self::first_limit(&bounds),
            smoothed: 0.0,
            lowest: f64::INFINITY,
            lowest_since: Duration::ZERO,
            last_cut: Duration::ZERO,
            idle_until: Duration::ZERO,
            resting: VecDeque::new(),
            qps_at: Duration::ZERO,
            bandwidth_at: Duration::ZERO,
        }
    }

    /// If latency counts, it must first be measured without load from restow.
    fn first_limit(bounds: &Bounds) -> f64 {
        let first: f64 = if bounds.tolerance.is_finite() { 1.0 } else { 8.0 };
        first.min(f64::from(bounds.max_in_flight))
    }

    /// How many requests may be in flight; below one, the share of time in which one may be.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Whether one more request may be sent in addition to the `in_flight` ones.
    pub fn permit(&self, now: Duration, in_flight: usize) -> Permit {
        let rested = |until: &&Duration| **until > now;
        let resting = self.resting.iter().filter(rested).count();
        if (in_flight + resting) as f64 >= self.limit.max(1.0).floor() {
            return self.resting.iter().find(rested).map_or(Permit::WhenOneEnds, |until| Permit::At(*until));
        }
        let free = self.idle_until.max((self.qps_at.max(self.bandwidth_at)).saturating_sub(BURST));
        if free <= now { Permit::Now } else { Permit::At(free) }
    }

    /// When the next list may be requested; only the bandwidth limits lists.
    pub fn lists_at(&self) -> Duration {
        self.bandwidth_at.saturating_sub(BURST)
    }

    /// The most bytes per second.
    pub fn bandwidth(&self) -> Option<f64> {
        self.bounds.bandwidth
    }

    /// Records that a request was sent.
    pub fn sent(&mut self, now: Duration) {
        if let Some(qps) = self.bounds.qps {
            self.qps_at = self.qps_at.max(now) + Duration::from_secs_f64(1.0 / qps);
        }
    }

    /// Records that `bytes` were transferred.
    pub fn transferred(&mut self, now: Duration, bytes: usize) {
        if let Some(bandwidth) = self.bounds.bandwidth {
            self.bandwidth_at =
                self.bandwidth_at.max(now) + Duration::from_secs_f64(bytes as f64 / bandwidth);
        }
    }

    /// Records how a request ended.
    pub fn ended(&mut self, now: Duration, took: Duration, signal: Signal) {
        let took = took.as_secs_f64();
        match signal {
            Signal::Overloaded => self.cut(now, 0.5, LOWEST),
            Signal::Fine => {
                self.learn(now, took);
                if self.smoothed > self.bounds.tolerance * self.lowest {
                    // Latency always varies a little, so it alone never reduces the limit below one.
                    self.cut(now, 0.8, 1.0);
                } else {
                    // If latency counts, it must be measured at one limit before the next is tried.
                    let step = if self.bounds.tolerance.is_finite() { 0.05 } else { 1.0 };
                    let grown = self.limit + step / self.limit.max(1.0);
                    self.limit = grown.min(f64::from(self.bounds.max_in_flight));
                }
            }
        }
        if self.bounds.rest > 0.0 {
            while self.resting.front().is_some_and(|until| *until <= now) {
                self.resting.pop_front();
            }
            let until = now + Duration::from_secs_f64((took * self.bounds.rest).min(1.0));
            let place = self.resting.partition_point(|other| *other <= until);
            self.resting.insert(place, until);
        }
        if self.limit < 1.0 {
            self.idle_until = now + Duration::from_secs_f64((took * (1.0 / self.limit - 1.0)).min(1.0));
        }
    }

    fn learn(&mut self, now: Duration, took: f64) {
        self.smoothed = if self.smoothed == 0.0 { took } else { self.smoothed * 0.9 + took * 0.1 };
        if self.bounds.tolerance.is_finite() && now.saturating_sub(self.lowest_since) > FORGET {
            (self.lowest, self.lowest_since) = (f64::INFINITY, now);
            self.smoothed = took;
            self.limit = self.limit.min(Self::first_limit(&self.bounds));
        }
        self.lowest = self.lowest.min(self.smoothed);
    }

    /// Reduces the limit once for each overload: answers to requests sent before the last reduction do not count.
    fn cut(&mut self, now: Duration, factor: f64, lowest: f64) {
        let interval = Duration::from_secs_f64(self.smoothed.clamp(0.01, 2.0));
        if now.saturating_sub(self.last_cut) >= interval || self.last_cut.is_zero() {
            self.limit = (self.limit * factor).max(lowest.min(self.limit));
            self.last_cut = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Plays a server that answers one request in `base` and queues the rest behind `cores`.
    fn play(pace: &mut Pace, requests: u32, base: u64, cores: f64) -> f64 {
        let mut now = Duration::ZERO;
        for _ in 0..requests {
            let load = (pace.limit().max(1.0).floor() / cores).max(1.0);
            let took = Duration::from_secs_f64(base as f64 / 1000.0 * load);
            now += took;
            pace.ended(now, took, Signal::Fine);
        }
        pace.limit()
    }

    #[test]
    fn the_fast_preset_grows_to_its_bound() {
        let mut pace = Pace::new(Preset::Fast.bounds());
        assert_eq!(play(&mut pace, 3000, 6, 2.0), 32.0);
    }

    #[test]
    fn the_gentle_preset_stays_below_ten_writes_and_ten_megabits_per_second() {
        for (bytes, least, most) in [(1_300, 70, 99), (1_000_000, 10, 14)] {
            let mut pace = Pace::new(Preset::Gentle.bounds());
            let (mut now, mut writes) = (Duration::ZERO, 0);
            while now < ms(10_000) {
                match pace.permit(now, 0) {
                    Permit::Now => {
                        pace.sent(now);
                        now += ms(3);
                        pace.transferred(now, bytes);
                        pace.ended(now, ms(3), Signal::Fine);
                        writes += 1;
                    }
                    Permit::At(then) => now = then,
                    Permit::WhenOneEnds => now += ms(1),
                }
            }
            assert!((least..=most).contains(&writes), "{writes} writes of {bytes} bytes in 10 s");
        }
    }

    #[test]
    fn the_steady_preset_stops_growing_when_latency_rises() {
        let mut pace = Pace::new(Preset::Steady.bounds());
        let limit = play(&mut pace, 3000, 6, 2.0);
        assert!((1.0..6.0).contains(&limit), "{limit}");
        let mut strong = Pace::new(Preset::Steady.bounds());
        assert_eq!(play(&mut strong, 3000, 6, 100.0), 8.0);
    }

    #[test]
    fn varying_latency_leaves_one_slot() {
        let mut pace = Pace::new(Preset::Steady.bounds());
        for request in 1..3000_u64 {
            let took = ms(if request % 7 == 0 { 30 } else { 3 });
            pace.ended(ms(request * 10), took, Signal::Fine);
            assert!(pace.limit() >= 1.0, "{}", pace.limit());
        }
    }

    #[test]
    fn one_overload_halves_the_limit_once() {
        let mut pace = Pace::new(Preset::Fast.bounds());
        play(&mut pace, 3000, 6, 100.0);
        let now = Duration::from_secs(100);
        for _ in 0..32 {
            pace.ended(now, ms(6), Signal::Overloaded);
        }
        assert_eq!(pace.limit(), 16.0);
        pace.ended(now + Duration::from_secs(3), ms(6), Signal::Overloaded);
        assert_eq!(pace.limit(), 8.0);
    }

    #[test]
    fn a_limit_below_one_pauses_between_requests() {
        let mut pace = Pace::new(Preset::Steady.bounds());
        let mut now = Duration::from_secs(1);
        while pace.limit() >= 1.0 {
            now += Duration::from_secs(3);
            pace.ended(now, ms(100), Signal::Overloaded);
        }
        assert!(matches!(pace.permit(now, 0), Permit::At(at) if at > now));
        assert_ne!(pace.permit(now, 1), Permit::Now);
    }

    #[test]
    fn a_slot_rests_after_each_write() {
        let bounds =
            Bounds { max_in_flight: 2, qps: None, bandwidth: None, tolerance: f64::INFINITY, rest: 1.0 };
        let mut pace = Pace::new(bounds);
        pace.ended(ms(100), ms(10), Signal::Fine);
        assert_eq!(pace.permit(ms(100), 0), Permit::Now, "one place rests, the other is free");
        assert_eq!(pace.permit(ms(100), 1), Permit::At(ms(110)), "one rests, the other is taken");
        pace.ended(ms(104), ms(10), Signal::Fine);
        assert_eq!(pace.permit(ms(104), 0), Permit::At(ms(110)), "both rest");
        assert_eq!(pace.permit(ms(110), 0), Permit::Now);
        assert_eq!(pace.permit(ms(110), 2), Permit::At(ms(114)));
        assert_eq!(pace.permit(ms(114), 2), Permit::WhenOneEnds);
    }

    #[test]
    fn the_pace_never_exceeds_its_bounds() {
        let bounds =
            Bounds { max_in_flight: 4, qps: Some(10.0), bandwidth: Some(1000.0), tolerance: 2.0, rest: 0.0 };
        let mut pace = Pace::new(bounds);
        let mut now = Duration::from_secs(1);
        let mut sent = 0;
        while now < Duration::from_secs(11) {
            match pace.permit(now, 0) {
                Permit::Now => {
                    pace.sent(now);
                    sent += 1;
                }
                Permit::At(at) => now = at,
                Permit::WhenOneEnds => unreachable!(),
            }
        }
        assert!((100..=103).contains(&sent), "{sent}");
        assert_eq!(pace.permit(now, 4), Permit::WhenOneEnds);
        pace.transferred(now, 5000);
        assert!(matches!(pace.permit(now, 0), Permit::At(at) if at > now + Duration::from_secs(4)));
    }

    #[test]
    fn lists_and_writes_share_the_bandwidth() {
        let bounds = Bounds {
            max_in_flight: 4,
            qps: Some(1.0),
            bandwidth: Some(1000.0),
            tolerance: f64::INFINITY,
            rest: 0.0,
        };
        let mut pace = Pace::new(bounds);
        pace.sent(ms(1000));
        assert!(pace.lists_at() <= ms(1000), "writes a second do not hold lists up");
        // Two seconds' worth of a list, and one of a write.
        pace.transferred(ms(1000), 2000);
        assert_eq!((pace.permit(ms(1000), 0), pace.lists_at()), (Permit::At(ms(2900)), ms(2900)));
        pace.transferred(ms(1000), 1000);
        assert_eq!((pace.permit(ms(1000), 0), pace.lists_at()), (Permit::At(ms(3900)), ms(3900)));
        let mut free = Pace::new(Bounds { bandwidth: None, ..bounds });
        free.transferred(ms(1000), 1 << 30);
        assert_eq!(free.lists_at(), Duration::ZERO);
    }
}
