//! Weights of classes and tenants: what the planner chooses.

use alloc::vec::Vec;
use weir_arbiter::{ArbiterSettings, Mechanism, Quanta, Weights};
use weir_units::Class;

/// The least quantum, and the step of quanta, in bytes: what the smallest command costs.
pub const QUANTUM: u32 = 4096;

/// What classes and, inside them, tenants may spend a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// High, medium, low: commands under weighted round robin, bytes under deficit round robin.
    pub classes: [u32; 3],
    /// Each tenant's weight within its class, in the tenants' order. They count under deficit round robin only.
    pub tenants: Vec<u16>,
}

impl Shares {
    /// As the settings have them, with these weights of tenants.
    pub fn of(settings: &ArbiterSettings, tenants: Vec<u16>) -> Shares {
        let (w, q) = (settings.weights, settings.quanta);
        let classes = match settings.mechanism {
            Mechanism::Drr => [q.high, q.medium, q.low],
            _ => [w.high, w.medium, w.low].map(u32::from),
        };
        Shares { classes, tenants }
    }

    /// The settings with these shares of classes.
    pub fn settings(&self, settings: &ArbiterSettings) -> ArbiterSettings {
        let [high, medium, low] = self.classes;
        match settings.mechanism {
            Mechanism::Drr => ArbiterSettings { quanta: Quanta { high, medium, low }, ..*settings },
            _ => {
                let [high, medium, low] = self.classes.map(|w| w.clamp(1, 256) as u16);
                ArbiterSettings { weights: Weights { high, medium, low }, ..*settings }
            }
        }
    }
}

/// Shares as parts of a whole, before they are rounded to numbers that an arbiter takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShareFractions {
    /// High, medium and low, 0 where nobody is; they sum to 1.
    pub classes: [f64; 3],
    /// Each tenant's part of its class.
    pub tenants: Vec<f64>,
}

impl ShareFractions {
    /// Everybody alike: classes by their number of tenants.
    pub fn even(classes: &[Class]) -> ShareFractions {
        let of = |class: Class| classes.iter().filter(|c| **c == class).count() as f64;
        let mut parts = ShareFractions {
            classes: Class::WEIGHTED.map(of),
            tenants: classes.iter().map(|c| 1.0 / of(*c)).collect(),
        };
        parts.normalise(classes);
        parts
    }

    /// Makes classes, and tenants within each, sum to 1.
    pub fn normalise(&mut self, classes: &[Class]) {
        scale(self.classes.iter_mut());
        for class in Class::ALL {
            scale(self.tenants.iter_mut().zip(classes).filter(|(_, c)| **c == class).map(|(t, _)| t));
        }
    }

    /// Whole numbers near the classes' parts that sum to `sum`, each at least 1 where somebody is.
    pub fn whole(&self, sum: u32) -> [u32; 3] {
        let mut whole = [1u32; 3];
        let numbers = apportion(&self.classes, sum);
        for (to, from) in whole.iter_mut().zip(&numbers) {
            *to = (*from).max(1);
        }
        whole
    }
}

fn scale<'a>(values: impl Iterator<Item = &'a mut f64>) {
    let values: Vec<&mut f64> = values.collect();
    let sum: f64 = values.iter().map(|v| **v).sum();
    if sum > 0.0 {
        values.into_iter().for_each(|v| *v /= sum);
    }
}

/// Whole numbers in the proportion of `parts`, at least 1 where a part is above 0, by largest remainders; they sum to `sum`
/// where that is no fewer than there are parts.
pub(super) fn apportion(parts: &[f64], sum: u32) -> Vec<u32> {
    let total: f64 = parts.iter().sum();
    let exact: Vec<f64> = parts.iter().map(|p| p / total.max(f64::MIN_POSITIVE) * f64::from(sum)).collect();
    let mut whole: Vec<u32> = exact.iter().map(|e| if *e > 0.0 { (*e as u32).max(1) } else { 0 }).collect();
    let mut given: u32 = whole.iter().sum();
    while given < sum {
        let short = |i: &usize| exact[*i] - f64::from(whole[*i]);
        let Some(most) = (0..whole.len()).filter(|i| exact[*i] > 0.0).max_by(|a, b| short(a).total_cmp(&short(b)))
        else {
            break;
        };
        whole[most] += 1;
        given += 1;
    }
    while given > sum {
        let over = |i: &usize| f64::from(whole[*i]) - exact[*i];
        let Some(most) = (0..whole.len()).filter(|i| whole[*i] > 1).max_by(|a, b| over(a).total_cmp(&over(b))) else {
            break;
        };
        whole[most] -= 1;
        given -= 1;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn apportioned_numbers_sum_up_and_are_near(parts in prop::collection::vec(0.001f64..1.0, 1..6), extra in 0u32..300) {
            let sum = parts.len() as u32 + extra;
            let whole = apportion(&parts, sum);
            prop_assert_eq!(whole.iter().sum::<u32>(), sum);
            let total: f64 = parts.iter().sum();
            for (part, number) in parts.iter().zip(&whole) {
                prop_assert!(*number >= 1);
                let exact = part / total * f64::from(sum);
                let far = f64::from(*number) - exact;
                prop_assert!(far < 1.0 + 1e-9 && far > -(parts.len() as f64) - 1e-9, "{} for {}", number, exact);
            }
        }
    }

    #[test]
    fn even_parts() {
        let parts = ShareFractions::even(&[Class::High, Class::High, Class::Low, Class::Urgent]);
        assert_eq!(parts.tenants, vec![0.5, 0.5, 1.0, 1.0]);
        assert!((parts.classes[0] - 2.0 / 3.0).abs() < 1e-12 && parts.classes[1] == 0.0);
        assert_eq!(parts.whole(6), [4, 1, 2]);
    }
}
