//! Equations 1 to 3 of the paper (section IV.A, table I), as printed.
//!
//! | symbol | here |
//! |---|---|
//! | h, m, l | `weights`: commands (WRR) or bytes (DRR) that a class may spend a round |
//! | λ | input rate of a class, commands/s or bytes/s |
//! | γ | average throughput of the drive, in the same unit |
//! | ρ | `utilisation` of each class, 0 to 1; there are two readings of it, [`of_rate`] and [`of_share`] |
//! | q | depth: requests that a class may have outstanding |
//! | p | parallelism of the drive: requests that it carries out at once |
//! | a | average time of a request in the drive, seconds |
//!
//! They assume that all classes' requests have the same mean size (equations 1 and 2 under DRR do not), that the classes whose
//! utilisation is not 1 ask for less than their share, and that everybody else never runs out of requests. Unit: with WRR commands
//! everywhere, with DRR bytes everywhere (q in equation 3 too: requests times their size).
//!
//! The paper's constants for its figure 7, γ = 240 k and a/p = 81 µs, do not belong together: γ·a/p is 19.4 where Little's law
//! wants 1. Read as a = 81 µs they make p = γ·a ≈ 19. Nothing here rests on either.

use weir_units::Class;

/// One arbitration round: what high, medium and low may spend in it, and which part of that they ask for.
///
/// ```
/// use weir_plan::equations::Round;
/// use weir_units::Class;
///
/// let round = Round { weights: [32.0, 16.0, 8.0], utilisation: [1.0, 1.0, 0.0] };
/// assert_eq!(round.minimum(Class::High, 560.0), 320.0);
/// assert_eq!(round.throughput(Class::High, 480.0, f64::INFINITY), 320.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// h, m, l: commands, or bytes.
    pub weights: [f64; 3],
    /// ρ of high, medium and low, 0 to 1.
    pub utilisation: [f64; 3],
}

impl Round {
    /// The place of a weighted class. Urgent has no weight, and so no share by these equations.
    fn place(class: Class) -> usize {
        (class as usize).checked_sub(1).expect("urgent is served strictly first, not by weight")
    }

    /// h + ρ_m·m + ρ_l·l for the class looked at: what a round holds when that class never runs out.
    fn spent(&self, class: Class) -> f64 {
        let own = Round::place(class);
        let part = |i: usize| self.weights[i] * if i == own { 1.0 } else { self.utilisation[i] };
        (0..3).map(part).sum()
    }

    /// Equation 1: the least that a class gets of the drive's throughput `gamma`, whatever the others ask for:
    /// γ_h ≥ h/(h+m+l)·γ. In the unit of `gamma`.
    pub fn minimum(&self, class: Class, gamma: f64) -> f64 {
        self.weights[Round::place(class)] / self.weights.iter().sum::<f64>() * gamma
    }

    /// Equation 2: what a class gets that asks for `lambda`: γ_h = min(λ_h, h/(h + ρ_m·m + ρ_l·l)·γ). In the unit of `gamma`.
    pub fn throughput(&self, class: Class, gamma: f64, lambda: f64) -> f64 {
        (self.weights[Round::place(class)] / self.spent(class) * gamma).min(lambda)
    }

    /// Equation 3: the longest that a request of a class takes, in seconds:
    /// t_max = q/h · (h + ρ_m·m + ρ_l·l)/p · a. `depth` is q, in the unit of the weights; `service` is a, in seconds.
    pub fn latency(&self, class: Class, depth: f64, parallelism: f64, service: f64) -> f64 {
        depth / self.weights[Round::place(class)] * self.spent(class) / parallelism * service
    }
}

/// ρ, first reading, as the paper's text has it: λ/γ, a class's input rate over the throughput of the whole drive; at most 1.
/// A class that asks for all of its share then has a ρ below 1, and equation 2 gives the others too much: at 128:64:32 up to 14 %.
pub fn of_rate(lambda: f64, gamma: f64) -> f64 {
    (lambda / gamma).min(1.0)
}

/// ρ, second reading: the part of its own round share that a class asks for, λ over what equation 1 gives it; at most 1.
/// "A utilization of one means that the number of requests available for processing is equal to the weight of the priority
/// class" (section IV.A). At 128:64:32 equation 2 is then right within 0.6 %; figure 7 uses this one.
pub fn of_share(lambda: f64, gamma: f64, weights: [f64; 3], class: Class) -> f64 {
    let round = Round { weights, utilisation: [1.0; 3] };
    (lambda / round.minimum(class, gamma)).min(1.0)
}
