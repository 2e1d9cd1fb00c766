use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// So many completions from `from` on, one a millisecond, each late by so much, on a full core; the time after them.
fn complete(lateness: &mut Lateness, from: u64, n: u64, late: impl Fn(u64) -> u64) -> u64 {
    complete_at(lateness, (100, &mut from.clone()), from, n, late)
}

/// The same on a core that is busy for so many percent of its time, in all for so long.
fn complete_at(
    lateness: &mut Lateness,
    (load, busy): (u64, &mut u64),
    from: u64,
    n: u64,
    late: impl Fn(u64) -> u64,
) -> u64 {
    for i in 0..n {
        let at = from + i * MS;
        lateness.record((Nanos(at - late(i)), Nanos(late(i))), (Nanos(at), Nanos(*busy)));
        *busy += MS * load / 100;
    }
    from + n * MS
}

#[test]
fn what_is_late_is_counted() {
    let mut lateness = Lateness::new(Nanos(0));
    let late = [0, 5_000, 5_001, 20_000, 20_001, 900_000];
    complete(&mut lateness, MS, 6, |i| late[i as usize]);
    let total = lateness.summary(Nanos(7 * MS)).total;
    assert_eq!(total, Late { completions: 6, late: 4, very_late: 2, net_late: 4, net_very_late: 2 });
    assert_eq!((lateness.raw().max(), lateness.net().max(), lateness.raw().count()), (900_000, 900_000, 6));
    lateness.reset(Nanos(8 * MS));
    assert_eq!(lateness.summary(Nanos(9 * MS)).total, Late::default());
    assert_eq!((lateness.raw().count(), lateness.span(Nanos(9 * MS))), (0, Nanos(MS)));
}

#[test]
fn an_overload_is_seen_lasts_and_ends() {
    let mut lateness = Lateness::new(Nanos(0));
    let calm = complete(&mut lateness, MS, 600, |_| 1_000);
    assert_eq!(lateness.summary(Nanos(calm)).standing, Standing::OnTime);
    // One in five is late; the window in which it begins is judged with the next.
    let busy = complete(&mut lateness, calm, 1000, |i| if i % 5 == 0 { 40_000 } else { 0 });
    let summary = lateness.summary(Nanos(busy));
    assert_eq!(summary.standing, Standing::Overloaded);
    assert!((19.0..21.0).contains(&summary.recent.1), "{summary:?}");
    assert!((1000..=1250).contains(&(summary.lasting.get() / MS)), "{summary:?}");
    // Less, but not little: it stays.
    let still = complete(&mut lateness, busy, 500, |i| if i % 14 == 0 { 40_000 } else { 0 });
    assert_eq!(lateness.summary(Nanos(still)).standing, Standing::Overloaded);
    let calm = complete(&mut lateness, still, 600, |_| 0);
    let summary = lateness.summary(Nanos(calm));
    assert_eq!((summary.standing, summary.overloads), (Standing::OnTime, 1), "it is over and not forgotten");
    assert!((1400..2000).contains(&(summary.overloaded.get() / MS)), "{summary:?}");
}

#[test]
fn little_late_is_no_overload() {
    let mut lateness = Lateness::new(Nanos(0));
    let end = complete(&mut lateness, MS, 2000, |i| if i % 12 == 0 { 40_000 } else { 4_999 });
    let summary = lateness.summary(Nanos(end));
    assert_eq!((summary.standing, summary.overloads), (Standing::OnTime, 0));
    assert!(summary.recent.0 > 7.0);
}

/// Commands that are due together make each other late on a core that has time left: that is told, but it is no overload.
#[test]
fn only_a_full_core_is_overloaded() {
    let mut lateness = Lateness::new(Nanos(0));
    let (mut at, mut busy) = (MS, 0);
    let bursts = |i: u64| i % 64 * 700;
    let steps = [
        (40, Standing::Late),
        (89, Standing::Late),
        (95, Standing::Overloaded),
        (85, Standing::Overloaded),
        (75, Standing::Late),
        (85, Standing::Late),
    ];
    for (load, standing) in steps {
        at = complete_at(&mut lateness, (load, &mut busy), at, 600, bursts);
        let summary = lateness.summary(Nanos(at));
        assert_eq!(summary.standing, standing, "{load} %");
        assert!(summary.recent.1 > 80.0, "{summary:?}");
    }
    let summary = lateness.summary(Nanos(at));
    assert_eq!(summary.overloads, 1);
    // Windows do not begin with the steps: from one in which the load rose to one in which it fell.
    assert!((1200..=1600).contains(&(summary.overloaded.get() / MS)), "{summary:?}");
    at = complete_at(&mut lateness, (95, &mut busy), at, 600, |_| 0);
    assert_eq!(lateness.summary(Nanos(at)).standing, Standing::OnTime, "full, but in time");
}

#[test]
fn a_reset_keeps_how_things_stand() {
    let mut lateness = Lateness::new(Nanos(0));
    let end = complete(&mut lateness, MS, 600, |_| 50_000);
    lateness.reset(Nanos(end));
    let summary = lateness.summary(Nanos(end + 100 * MS));
    assert_eq!((summary.standing, summary.overloads, summary.total.completions), (Standing::Overloaded, 1, 0));
    assert_eq!(summary.overloaded, Nanos(100 * MS), "since the reset");
    assert!(summary.lasting > Nanos(600 * MS), "since it began: {summary:?}");
}

#[test]
fn who_has_nothing_to_do_is_on_time() {
    let mut lateness = Lateness::new(Nanos(0));
    let end = complete(&mut lateness, MS, 600, |_| 50_000);
    assert_eq!(lateness.summary(Nanos(end + 500 * MS)).standing, Standing::Overloaded);
    let later = lateness.summary(Nanos(end + 3000 * MS));
    assert_eq!((later.standing, later.recent), (Standing::OnTime, (0.0, 0.0)));
    assert!(later.overloaded < Nanos(1000 * MS), "{later:?}");
    // A few commands a second are too few to judge.
    let mut at = end + 4000 * MS;
    for _ in 0..10 {
        at = complete(&mut lateness, at, 1, |_| 50_000) + 500 * MS;
        assert_eq!(lateness.summary(Nanos(at)).standing, Standing::OnTime);
    }
}

/// Completions a millisecond apart, each late by 990 us, of which so many are the drive's own; what the drive is then.
fn net_of(own: u64) -> (Lateness, Summary) {
    let mut lateness = Lateness::new(Nanos(0));
    for i in 1..1000 {
        let at = Nanos(i * MS);
        lateness.record((Nanos((i - 1) * MS + 10_000), Nanos(own)), (at, at));
    }
    let summary = lateness.summary(Nanos(1000 * MS));
    (lateness, summary)
}

#[test]
fn waiting_for_the_core_is_not_the_drives_doing() {
    let (lateness, summary) = net_of(490_000);
    assert_eq!(summary.standing, Standing::Overloaded, "half of it was work");
    let [raw, net] = [lateness.raw(), lateness.net()].map(|h| h.percentile(50.0).div_ceil(10_000));
    assert!((98..=100).contains(&raw) && (49..=51).contains(&net), "{raw} {net}");
}

#[test]
fn a_drive_whose_core_is_taken_is_starved() {
    let (_, summary) = net_of(0);
    assert_eq!((summary.standing, summary.overloads), (Standing::Starved, 0));
    assert_eq!(summary.recent, (100.0, 0.0));
}

proptest! {
    /// Whatever happens, what is counted adds up and time in overload is no longer than time.
    #[test]
    fn sums_hold(steps in prop::collection::vec((1..400u64, 0..60_000u64, 0..4u8, 70..100u64), 1..200)) {
        let mut lateness = Lateness::new(Nanos(0));
        let (mut now, mut busy, mut n) = (MS, 0, 0);
        for (span, late, what, load) in steps {
            match what {
                0 => now += span * 10 * MS,
                1 => { lateness.reset(Nanos(now)); n = 0; }
                _ => {
                    now = complete_at(&mut lateness, (load, &mut busy), now, span, |_| late);
                    n += span;
                }
            }
            let s = lateness.summary(Nanos(now));
            prop_assert_eq!((s.total.completions, lateness.raw().count(), lateness.net().count()), (n, n, n));
            prop_assert!(s.total.very_late <= s.total.late && s.total.late <= n);
            prop_assert!(s.overloaded <= lateness.span(Nanos(now)), "{:?}", s);
            prop_assert!((s.overloads > 0) || s.overloaded == Nanos(0), "{:?}", s);
        }
    }
}
