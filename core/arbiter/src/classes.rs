//! The classes of one scheduler: urgent strictly first, the others by what they may spend a round.
//!
//! Three entries need no calendar: each knows the round in which it may be served next and what it has left in it, and
//! the earliest is chosen; within a round the order is high, medium, low. Mechanisms without classes keep everything
//! in slot 0, which is served without accounts.

use crate::ring::{NONE, Price, repay};
use crate::settings::ArbiterSettings;

/// No class has anything to serve.
pub(crate) const IDLE: u8 = 4;

/// The state of the drive's scheduler, or of one controller's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classes {
    /// The rings of urgent, high, medium and low; `NONE` until something needs them.
    pub rings: [u32; 4],
    /// The round in which high, medium and low are next served; for those that are out, their debt.
    pub due: [u64; 3],
    /// What they have left in that round, 1 to `credit`.
    pub balance: [u32; 3],
    /// What they may spend a round.
    pub credit: [u32; 3],
    /// Not after the `due` of anybody active.
    pub round: u64,
    /// The node this scheduler is inside, `NONE` for the drive's.
    pub up: u32,
    pub price: Price,
    /// Bit per class that has something to serve.
    pub active: u8,
    /// Whose turn it is, or `IDLE`.
    pub current: u8,
    /// At least two of high, medium and low have a ring. Otherwise there is nothing to share, and the accounts rest.
    pub shared: bool,
}

impl Classes {
    pub fn new(up: u32, settings: &ArbiterSettings) -> Classes {
        let credit = settings.class_credit();
        Classes {
            rings: [NONE; 4],
            due: [0; 3],
            balance: credit,
            credit,
            round: 0,
            up,
            price: settings.class_price(),
            active: 0,
            current: IDLE,
            shared: false,
        }
    }

    /// Gives a class its ring.
    pub fn add_ring(&mut self, slot: usize, ring: u32) {
        self.rings[slot] = ring;
        if slot > 0 {
            (self.due[slot - 1], self.balance[slot - 1]) = (self.round, self.credit[slot - 1]);
        }
        self.shared = self.rings[1..].iter().filter(|&&r| r != NONE).count() > 1;
    }

    /// Other weights or quanta, from now on; balances beyond them are cut.
    pub fn set_credit(&mut self, credit: [u32; 3]) {
        for (i, credit) in credit.into_iter().enumerate() {
            self.credit[i] = credit;
            self.balance[i] = self.balance[i].min(credit);
        }
    }

    /// `class` has something to serve. True when that changes whose turn it is.
    pub fn join(&mut self, class: u8) -> bool {
        self.active |= 1 << class;
        if class > 0 {
            self.renew(usize::from(class) - 1);
        }
        self.choose()
    }

    /// Rounds that have passed have paid every debt.
    #[inline]
    fn renew(&mut self, i: usize) {
        if self.due[i] < self.round {
            (self.due[i], self.balance[i]) = (self.round, self.credit[i]);
        }
    }

    /// `class` has nothing to serve any more. True when that changes whose turn it is.
    pub fn leave(&mut self, class: u8) -> bool {
        self.active &= !(1 << class);
        if class > 0 && self.shared {
            let i = usize::from(class) - 1;
            if self.due[i] == self.round && self.balance[i] < self.credit[i] {
                (self.due[i], self.balance[i]) = (self.due[i] + 1, self.credit[i]);
            }
        }
        self.choose()
    }

    /// `class` was served a command of this cost and has (`keep`) or has not more to serve.
    #[inline]
    pub fn charge(&mut self, class: u8, cost: u32, keep: bool) -> bool {
        if class > 0 && self.shared {
            let i = usize::from(class) - 1;
            self.renew(i);
            let left = i64::from(self.balance[i]) - self.price.of(cost);
            if left > 0 {
                self.balance[i] = left as u32;
            } else {
                let (rounds, balance) = repay(left, self.credit[i]);
                (self.due[i], self.balance[i]) = (self.due[i] + rounds, balance);
                if keep {
                    return self.choose();
                }
            }
        }
        !keep && self.active & (1 << class) != 0 && self.leave(class)
    }

    /// Finds whose turn it is. True when that has changed.
    fn choose(&mut self) -> bool {
        let before = self.current;
        self.current = if self.active == 0 {
            IDLE
        } else if self.active & 1 != 0 {
            0
        } else {
            let key = |i: usize| if self.active & (2 << i) != 0 { self.due[i] << 2 | i as u64 } else { u64::MAX };
            let first = key(0).min(key(1)).min(key(2));
            self.round = first >> 2;
            (first & 3) as u8 + 1
        };
        self.current != before
    }
}
