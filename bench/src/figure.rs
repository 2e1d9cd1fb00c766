//! Figures with their spread, ratios of figures, and how they are printed.

use serde::Serialize;
use std::process::ExitCode;

/// The values of some rounds.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

/// Median, lowest and highest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median; the mean of the middle two of an even number.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl Series {
    /// No round yet.
    pub const EMPTY: Series = Series(Vec::new());

    /// Adds a round.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Of one value.
    pub fn of(value: f64) -> Self {
        Series(vec![value])
    }

    /// The value that so many percent do not exceed; 0 where there was no round.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
    }

    /// Round by round, this one over that one: what happens to the machine in a round happens to both.
    pub fn over(&self, other: &Series) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// Round by round, this one less that one.
    pub fn minus(&self, other: &Series) -> Series {
        Series(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }

    /// The 95 % interval of the median by order statistics (binomial with one half): with fewer than six values it has no end.
    pub fn interval(&self) -> (f64, f64) {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        // The most values that may lie beyond an end with a probability of no more than 2.5 %.
        let (mut below, mut term, mut beyond) = (0.0, 0.5_f64.powi(sorted.len() as i32), None);
        for k in 0..sorted.len() {
            below += term;
            if below > 0.025 {
                break;
            }
            beyond = Some(k);
            term *= (sorted.len() - k) as f64 / (k + 1) as f64;
        }
        match beyond {
            Some(k) => (sorted[k], sorted[sorted.len() - 1 - k]),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// What there is to say of it; zeroes where there was no round.
    pub fn spread(&self) -> Spread {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some((&min, &max)) = sorted.first().zip(sorted.last()) else {
            return Spread { median: 0.0, min: 0.0, max: 0.0 };
        };
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Spread { median: (low + high) / 2.0, min, max }
    }
}

/// Which way a target looks.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// A line of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was measured.
    pub what: String,
    /// The unit.
    pub unit: &'static str,
    /// The figure.
    pub value: Spread,
    /// What it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Whether it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Of a median over pairs: what contains it in 95 of 100 repetitions. All of it has to be as the target says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
}

/// What one subcommand found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The subcommand.
    pub name: &'static str,
    /// How it was measured.
    pub method: Vec<String>,
    /// The figures.
    pub lines: Vec<Line>,
}

impl Report {
    /// An empty one.
    pub fn new(name: &'static str, method: Vec<String>) -> Self {
        Report { name, method, lines: Vec::new() }
    }

    /// Adds a figure.
    pub fn figure(&mut self, what: impl Into<String>, unit: &'static str, series: &Series) {
        self.lines.push(Line {
            what: what.into(),
            unit,
            value: series.spread(),
            target: None,
            met: None,
            interval: None,
        });
    }

    /// Adds a figure that has a target; the median is judged.
    pub fn judged(&mut self, what: impl Into<String>, unit: &'static str, series: &Series, target: Target) {
        let value = series.spread();
        let met = match target {
            Target::AtLeast(t) => value.median >= t,
            Target::AtMost(t) => value.median <= t,
        };
        self.lines.push(Line { what: what.into(), unit, value, target: Some(target), met: Some(met), interval: None });
    }

    /// Adds a figure of pairs that has a target: all of the 95 % interval of the median is judged.
    pub fn judged_by_interval(&mut self, what: impl Into<String>, unit: &'static str, series: &Series, target: Target) {
        let (low, high) = series.interval();
        let met = match target {
            Target::AtLeast(t) => low >= t,
            Target::AtMost(t) => high <= t,
        };
        let (value, interval) = (series.spread(), Some((low, high)));
        self.lines.push(Line { what: what.into(), unit, value, target: Some(target), met: Some(met), interval });
    }

    /// As a table.
    pub fn text(&self) -> String {
        let width = self.lines.iter().map(|l| l.what.chars().count()).max().unwrap_or(0);
        let mut out = format!("{}\n", self.name);
        for text in &self.method {
            out.push_str(&format!("  {text}\n"));
        }
        for line in &self.lines {
            let Spread { median, min, max } = line.value;
            let pad = " ".repeat(width - line.what.chars().count());
            let unit = line.unit;
            out.push_str(&format!(
                "  {}{pad}  {:>9} {unit:<6} [{} - {}]",
                line.what,
                number(median),
                number(min),
                number(max)
            ));
            if let Some((low, high)) = line.interval {
                out.push_str(&format!("  95 %: {} - {}", number(low), number(high)));
            }
            match (line.target, line.met) {
                (Some(Target::AtLeast(t)), Some(met)) => out.push_str(&format!("  at least {t}: {}", word(met))),
                (Some(Target::AtMost(t)), Some(met)) => out.push_str(&format!("  at most {t}: {}", word(met))),
                _ => {}
            }
            out.push('\n');
        }
        out
    }
}

fn word(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn number(n: f64) -> String {
    match n.abs() {
        a if a >= 1e6 => format!("{:.3}M", n / 1e6),
        a if a >= 1e4 => format!("{:.1}k", n / 1e3),
        a if a >= 100.0 => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        _ => format!("{n:.3}"),
    }
}

/// Prints all reports as one document.
pub fn print_json(reports: &[Report]) -> ExitCode {
    match serde_json::to_string_pretty(reports) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("weir-bench: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let series = |values: &[f64]| Series(values.to_vec());
        let s = series(&[3.0, 1.0, 2.0]);
        assert_eq!(s.spread(), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(series(&[1.0, 4.0]).spread().median, 2.5);
        assert_eq!(s.over(&series(&[1.0, 2.0, 4.0])).spread(), Spread { median: 0.5, min: 0.5, max: 3.0 });
        assert_eq!(Series::default().spread().median, 0.0);
        assert_eq!((s.percentile(50.0), s.percentile(99.0), Series::default().percentile(99.0)), (2.0, 3.0, 0.0));
    }

    #[test]
    fn intervals_of_a_median() {
        let first = |n: u32| Series((1..=n).map(f64::from).collect());
        // The tables of the sign test: 20 values, the sixth from each end; 6, the first; 5, none.
        assert_eq!(first(20).interval(), (6.0, 15.0));
        assert_eq!(first(6).interval(), (1.0, 6.0));
        assert_eq!(first(5).interval(), (f64::NEG_INFINITY, f64::INFINITY));
        let mut report = Report::new("x", Vec::new());
        report.judged_by_interval("a", "x", &first(20), Target::AtMost(14.0));
        report.judged_by_interval("b", "x", &first(20), Target::AtMost(15.0));
        assert_eq!(report.lines.iter().map(|l| l.met).collect::<Vec<_>>(), [Some(false), Some(true)]);
        assert!(report.text().contains("95 %: 6.000 - 15.0  at most 14: MISSED"), "{}", report.text());
    }

    #[test]
    fn targets_are_judged_by_the_median() {
        let mut report = Report::new("x", vec!["so".to_string()]);
        let series = Series(vec![1.0, 1.2, 9.0]);
        report.judged("a", "x", &series, Target::AtMost(1.2));
        report.judged("b", "x", &series, Target::AtLeast(1.3));
        assert_eq!(report.lines.iter().map(|l| l.met).collect::<Vec<_>>(), [Some(true), Some(false)]);
        let text = report.text();
        assert!(text.contains("at most 1.2: met") && text.contains("at least 1.3: MISSED"), "{text}");
    }
}
