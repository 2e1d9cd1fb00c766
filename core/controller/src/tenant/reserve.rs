//! What tenants share and none may take all of: of every tenant's reserve, what it has not taken stays free for it.
//!
//! ```text
//!   limit = taken by all + Σ over the other tenants (reserve − taken, if that is more than 0) + what this one may still have
//! ```

/// What one tenant has.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// So many.
    pub has: u32,
    /// It is the one that wants one more.
    pub is_own: bool,
}

/// Reserve of each tenant where nothing else is said: half of all is divided among them.
pub const fn default_reserve(limit: u32, tenants: u32) -> u32 {
    match tenants.checked_mul(2) {
        Some(0) | None => 0,
        Some(parts) => limit / parts,
    }
}

/// Whether a tenant may have one more, of `limit` in all.
pub fn may_have_one_more(limit: u32, reserve: u32, tenants: impl Iterator<Item = Share>) -> bool {
    let (mut taken, mut kept_free) = (0u64, 0u64);
    for share in tenants {
        taken += u64::from(share.has);
        if !share.is_own {
            kept_free += u64::from(reserve.saturating_sub(share.has));
        }
    }
    taken + kept_free < u64::from(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn may(limit: u32, reserve: u32, has: &[u32], who: usize) -> bool {
        let share = |(i, has): (usize, &u32)| Share { has: *has, is_own: i == who };
        may_have_one_more(limit, reserve, has.iter().enumerate().map(share))
    }

    /// Whatever one tenant takes, and in whatever order, each of the others comes to its reserve.
    #[test]
    fn nobody_takes_what_another_relies_on() {
        for limit in 0..24 {
            for tenants in 1..5usize {
                let reserve = default_reserve(limit, tenants as u32);
                let mut has = vec![0; tenants];
                while may(limit, reserve, &has, 0) {
                    has[0] += 1;
                }
                assert!(has[0] >= reserve && has[0] <= limit);
                for who in 1..tenants {
                    for _ in 0..reserve {
                        assert!(may(limit, reserve, &has, who), "{limit} {tenants}: {has:?}");
                        has[who] += 1;
                    }
                }
                assert!(has.iter().sum::<u32>() <= limit);
            }
        }
    }

    #[test]
    fn a_single_tenant_has_all() {
        assert!(may(2, default_reserve(2, 1), &[1], 0));
        assert!(!may(2, default_reserve(2, 1), &[2], 0));
    }
}
