//! The four priority classes of NVMe's weighted round robin with urgent priority class arbitration.

use core::fmt;
use core::ops::{Index, IndexMut};
use core::str::FromStr;

/// A submission queue's priority class, highest first, numbered as QPRIO and CATTR encode it
/// (NVMe base 2.0, Create I/O Submission Queue, Figure "QPRIO": 00b urgent .. 11b low).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Strictly first; for the operator's own use.
    Urgent = 0,
    /// The heaviest weighted class.
    High = 1,
    /// The middle one.
    Medium = 2,
    /// The lightest.
    Low = 3,
}

impl Class {
    /// All, highest first.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::High, Class::Medium, Class::Low];
    /// The three that share by weight, heaviest first.
    pub const WEIGHTED: [Class; 3] = [Class::High, Class::Medium, Class::Low];

    /// From the two-bit field (QPRIO, CATTR bits 1:0); higher bits are ignored.
    pub const fn from_bits(bits: u8) -> Class {
        match bits & 3 {
            0 => Class::Urgent,
            1 => Class::High,
            2 => Class::Medium,
            _ => Class::Low,
        }
    }

    /// The two-bit field.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// This class, but never above `ceiling`.
    pub fn at_most(self, ceiling: Class) -> Class {
        self.max(ceiling)
    }

    /// As configuration and JSON write it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Urgent => "urgent",
            Class::High => "high",
            Class::Medium => "medium",
            Class::Low => "low",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        Class::ALL.into_iter().find(|c| c.name() == s).ok_or(())
    }
}

/// One value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T>(pub [T; 4]);

impl<T> Index<Class> for PerClass<T> {
    type Output = T;
    fn index(&self, c: Class) -> &T {
        &self.0[c as usize]
    }
}

impl<T> IndexMut<Class> for PerClass<T> {
    fn index_mut(&mut self, c: Class) -> &mut T {
        &mut self.0[c as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_rises_above_the_ceiling() {
        assert_eq!(Class::Urgent.at_most(Class::Medium), Class::Medium);
        assert_eq!(Class::Low.at_most(Class::Medium), Class::Low);
        for c in Class::ALL {
            assert_eq!(Class::from_bits(c.bits()), c);
            assert_eq!(c.name().parse(), Ok(c));
        }
    }
}
