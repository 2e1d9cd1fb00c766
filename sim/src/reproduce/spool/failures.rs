//! Figure 4 of papers/001: failures with the shares that a production cloud saw, each diagnosed and acted upon.

use crate::failures::{FailureClass, FailureTally, trial};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use weir_driver::health::Verdict;

const MEDIA: &str =
    "The pie chart shows that only 6% of the hardware failures are due to real media errors (MEDIAERR).";
const RESET: &str = "Most of the failures, 36%, are due to the NVMe controller failure error (NVMEFAILRESET).";

/// Failures drawn.
const FAILURES: u64 = 10_000;

/// Draws and diagnoses them.
pub fn fig4(live: &mut dyn LiveMeasurements) -> Figure {
    let mut tally = FailureTally::default();
    for seed in 0..FAILURES {
        let (failure, outcome) = trial(seed);
        tally.add(seed, &failure, &outcome);
        if seed % 100 == 0 {
            live.progress(seed as f64 / FAILURES as f64);
        }
    }
    figure_of(&tally)
}

fn share(tally: &FailureTally, class: FailureClass) -> f64 {
    tally.drawn.get(&class).copied().unwrap_or_default() as f64 / tally.failures.max(1) as f64 * 100.0
}

fn isolated_label(class: FailureClass) -> String {
    format!("{}: drives isolated", class.name())
}

fn drawn_label(class: FailureClass) -> String {
    format!("{}: drawn", class.name())
}

fn none(label: &str, seeds: &[u64]) -> Row {
    Row::relation(label, seeds.len() as f64, "", seeds.is_empty(), "none")
}

fn figure_of(tally: &FailureTally) -> Figure {
    let mut rows: Vec<Row> = Vec::new();
    for (class, _) in FailureClass::SHARES {
        let drawn = share(tally, class);
        rows.push(match class {
            FailureClass::Media => {
                Row::beside(drawn_label(class), drawn, "%", 6.0, MEDIA, (drawn - 6.0).abs() < 1.0, "drawn so")
            }
            FailureClass::Controller => {
                Row::beside(drawn_label(class), drawn, "%", 36.0, RESET, (drawn - 36.0).abs() < 2.0, "drawn so")
            }
            _ => Row::told(drawn_label(class), drawn, "%", "the split of the other 58 % is ours"),
        });
        let isolated = tally.verdicts.get(&(class, Verdict::Media)).copied().unwrap_or_default();
        rows.push(Row::told(isolated_label(class), isolated as f64, "", "by the diagnosis"));
    }
    rows.push(Row::told("ambiguous, combined or changing midway", tally.ambiguous as f64, "", "a count"));
    rows.push(none("needless replacements", &tally.needless));
    rows.push(none("media failures that were to be seen and not isolated in time", &tally.missed));
    rows.push(none("runs with bytes lost or wrong", &tally.wrong));
    rows.push(none("runs with a command that was never answered", &tally.hung));
    rows.push(none("runs without a verdict", &tally.undecided));
    let errors = tally.errors.len() as f64;
    rows.push(Row::relation(
        "runs with an error that nothing drawn explains",
        errors,
        "",
        errors * 1000.0 <= tally.failures as f64,
        "at most one in a thousand: a controller that lies about some blocks while others are bad and counted, or that fails at random \
         until a deeper reset",
    ));
    rows.push(none("drives that neither serve nor are isolated in the end", &tally.stuck));
    rows.push(Row::told(
        "longest time from evident to isolated",
        tally.slowest_isolation.as_secs_f64() * 1e3,
        "ms",
        "every reset that the drive takes is in it",
    ));
    rows.push(Row::told("commands answered", tally.commands as f64, "", "a count"));
    let places = || FailureClass::SHARES.iter().enumerate();
    let curve = |name: &str, label: fn(FailureClass) -> String| {
        Curve::of_rows(name, &rows, places().map(|(place, (class, _))| (place as f64, label(*class))))
    };
    let curves = vec![curve("drawn, %", drawn_label), curve("drives isolated", isolated_label)];
    Figure {
        subject: Subject::SpoolFig4,
        about: vec![
            "Failures drawn with the paper's shares, half of them ambiguous, combined or changing midway. A client reads and writes; the \
             diagnosis that nodes run sees completions, registers and log pages, never what was drawn."
                .into(),
            "The drive is a model of what a host sees of one; the paper's drives and its 300,000 failures are not there. Replacing each \
             drive that failed, as was done before Spool, would have replaced all of them."
                .into(),
        ],
        rows,
        notes: vec!["In the picture, from left to right: MEDIAERR, NVMEFAILRESET, LINKERR, NAMESPACEERR, BLKUPDATEERR, removal.".into()],
        charts: vec![Chart {
            title: "failures drawn, and drives isolated for them",
            axes: ("class of failure", "% drawn, drives isolated"),
            scales: (Scale::Linear, Scale::Linear),
            curves, marks: Vec::new() }],
    }
}
