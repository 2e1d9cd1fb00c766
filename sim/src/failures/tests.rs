use super::*;

/// The seeds after those of the figure of `weir reproduce spool-fig4`, which its test holds to the same.
#[test]
fn other_failures() {
    let mut tally = FailureTally::default();
    for seed in 10_000..11_000 {
        let (failure, outcome) = trial(seed);
        tally.add(seed, &failure, &outcome);
    }
    for (what, seeds) in [
        ("needless replacements", &tally.needless),
        ("media failures missed", &tally.missed),
        ("wrong bytes", &tally.wrong),
        ("hangs", &tally.hung),
        ("no verdict", &tally.undecided),
        ("neither serving nor isolated", &tally.stuck),
    ] {
        assert!(seeds.is_empty(), "{what}: seeds {seeds:?}");
    }
    assert!(tally.errors.len() <= 1, "errors that nothing explains: seeds {:?}", tally.errors);
}

/// Prints one failure and what became of it: `WEIR_FAILURE=SEED cargo test -p weir-sim one_failure -- --ignored --nocapture`.
#[test]
#[ignore = "prints what a seed does"]
fn one_failure() {
    let seeds = std::env::var("WEIR_FAILURE").unwrap_or_default();
    for seed in seeds.split(',').filter_map(|text| text.parse().ok()) {
        let (failure, outcome) = trial(seed);
        println!("{seed}: {failure:#?}");
        for report in &outcome.reports {
            println!("{} from {} to {:?}", report.verdict, report.began, report.ended);
            report.seen.iter().for_each(|seen| println!("    {} {:?}", seen.at, seen.evidence));
            report.taken.iter().for_each(|taken| println!("    {} did {:?}", taken.at, taken.step));
        }
        let Outcome { isolated, evident, wrong, hung, .. } = &outcome;
        println!(
            "isolated {isolated:?} evident {evident:?} wrong {wrong:?} hung {hung} errors {}",
            outcome.errors.len()
        );
    }
}
