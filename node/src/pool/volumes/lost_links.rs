//! Ways to lost drives that are on other drives: which of them are back, so that the drives can take part again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Before a drive that could not be taken in is tried again.
const PAUSE: Duration = Duration::from_secs(5);
/// A way that goes so soon after its drive was taken out had gone before that: a target that completes nothing is noticed late.
const NOTICED_LATE: Duration = Duration::from_secs(30);

/// Lost drives on other drives, by the place of the pool and their number in it.
#[derive(Debug, Default)]
pub(super) struct LostLinks(BTreeMap<(usize, u16), LostLink>);

/// What is known of the way to a lost drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostLink {
    /// It served when the drive was taken out, at that time and after so many outages: whoever did that brings it back, unless the way goes soon.
    Held(Instant, u64),
    /// It does not serve.
    Out,
    /// It was tried after so many outages. It is tried again after the next one, or from then on.
    Tried(u64, Option<Instant>),
}

/// The way to a drive at a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkLook {
    pub serves: bool,
    /// Outages so far.
    pub outages: u64,
}

impl LostLink {
    /// What is known after a look, and whether the drive is to be tried.
    fn look(known: Option<Self>, LinkLook { serves, outages }: LinkLook, now: Instant) -> (Self, bool) {
        let is_left = match known {
            None => serves,
            Some(LostLink::Held(since, before)) => outages == before || now > since + NOTICED_LATE,
            Some(LostLink::Tried(before, again)) => serves && outages == before && again.is_none_or(|at| now < at),
            Some(LostLink::Out) => false,
        };
        match (is_left, serves) {
            (true, _) => (known.unwrap_or(LostLink::Held(now, outages)), false),
            (false, true) => (LostLink::Tried(outages, Some(now + PAUSE)), true),
            (false, false) => (LostLink::Out, false),
        }
    }
}

impl LostLinks {
    /// Forgets those of a pool that are not lost any more.
    pub fn keep(&mut self, pool: usize, is_lost: impl Fn(u16) -> bool) {
        self.0.retain(|(of, number), _| *of != pool || is_lost(*number));
    }

    /// A drive was taken out, and how the way to it was before that.
    pub fn begin(&mut self, key: (usize, u16), link: Option<LinkLook>) {
        self.0.remove(&key);
        link.into_iter().for_each(|link| _ = self.look(key, link));
    }

    /// A look at the way to a lost drive; whether the drive is to be tried.
    pub fn look(&mut self, key: (usize, u16), link: LinkLook) -> bool {
        let (known, is_tried) = LostLink::look(self.0.get(&key).copied(), link, Instant::now());
        self.0.insert(key, known);
        is_tried
    }

    /// It was tried, and is not tried again before the next outage.
    pub fn refuse(&mut self, key: (usize, u16)) {
        if let Some(LostLink::Tried(_, again)) = self.0.get_mut(&key) {
            *again = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVES: bool = true;

    fn link(serves: bool, outages: u64) -> LinkLook {
        LinkLook { serves, outages }
    }

    #[test]
    fn a_drive_is_tried_when_its_way_is_back() {
        let now = Instant::now();
        let mut known = None;
        let mut look = |serves, outages, after| {
            let (next, is_tried) = LostLink::look(known, link(serves, outages), now + after);
            known = Some(next);
            is_tried
        };
        assert!(!look(false, 1, Duration::ZERO) && look(SERVES, 1, Duration::ZERO), "it was out, and serves");
        assert!(!look(SERVES, 1, PAUSE / 2) && look(SERVES, 1, PAUSE), "again after a pause, if it is still lost");
        assert!(!look(false, 2, PAUSE) && look(SERVES, 2, PAUSE), "and after the next outage at once");
        assert!(look(SERVES, 3, PAUSE), "also after one that nobody has looked at");
        let mut links = LostLinks::default();
        assert!(!links.look((0, 1), link(false, 1)) && links.look((0, 1), link(SERVES, 1)));
        links.refuse((0, 1));
        assert!(!LostLink::look(links.0.get(&(0, 1)).copied(), link(SERVES, 1), now + PAUSE * 9).1, "refused for good");
        assert!(links.look((0, 1), link(SERVES, 2)), "it may be another one");
    }

    #[test]
    fn a_drive_that_was_taken_out_while_it_served_is_left_to_whoever_did_that() {
        let now = Instant::now();
        let held = LostLink::Held(now, 4);
        assert_eq!(LostLink::look(None, link(SERVES, 4), now), (held, false));
        for serves in [false, SERVES] {
            assert_eq!(LostLink::look(Some(held), link(serves, 5), now + NOTICED_LATE * 2), (held, false));
        }
        // It had gone, and that was not noticed yet.
        let soon = now + NOTICED_LATE / 2;
        assert_eq!(LostLink::look(Some(held), link(SERVES, 4), soon), (held, false));
        assert_eq!(LostLink::look(Some(held), link(false, 5), soon), (LostLink::Out, false));
        assert!(LostLink::look(Some(held), link(SERVES, 5), soon).1, "and is back");
    }
}
