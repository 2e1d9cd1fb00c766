//! What was found, and what to do about it.

use crate::output::Table;
use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// It works, and could be better.
    Advice,
    /// Something does not work, or will not.
    Problem,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Advice => "advice",
            Severity::Problem => "PROBLEM",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was looked at: `io_uring`, `device ssd0`.
    pub what: String,
    /// What was seen.
    pub found: String,
    /// What to do; empty where all is well.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Finding { severity: Severity::Ok, what: what.into(), found: found.into(), advice: String::new() }
    }

    /// It works, and could be better.
    pub fn advice(what: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { severity: Severity::Advice, what: what.into(), found: found.into(), advice: advice.into() }
    }

    /// It does not work, or will not.
    pub fn problem(what: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { severity: Severity::Problem, what: what.into(), found: found.into(), advice: advice.into() }
    }
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// This program's version.
    pub version: String,
    /// No problem was found; there may be advice.
    pub ok: bool,
    /// In the order in which things were looked at.
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    /// Of these findings.
    pub fn of(findings: Vec<Finding>) -> Self {
        let ok = findings.iter().all(|f| f.severity != Severity::Problem);
        DoctorReport { version: env!("CARGO_PKG_VERSION").to_owned(), ok, findings }
    }

    /// A table of what was looked at, then what to do, the worst first.
    pub fn text(&self) -> String {
        let mut table = Table::new(&["STATE", "WHAT", "FOUND"]);
        for f in &self.findings {
            table.row([f.severity.word().to_owned(), f.what.clone(), f.found.clone()]);
        }
        let mut text = table.render();
        let mut to_do: Vec<&Finding> = self.findings.iter().filter(|f| !f.advice.is_empty()).collect();
        to_do.sort_by_key(|f| std::cmp::Reverse(f.severity));
        if !to_do.is_empty() {
            text += "\nwhat to do\n";
        }
        let width = to_do.iter().map(|f| f.what.chars().count()).max().unwrap_or(0);
        for f in to_do {
            text += &format!("  {:width$}  {}\n", f.what, f.advice);
        }
        let count = |severity| self.findings.iter().filter(|f| f.severity == severity).count();
        text += &match (count(Severity::Problem), count(Severity::Advice)) {
            (0, 0) => "\nnothing is wrong\n".to_owned(),
            (0, advice) => format!("\nnothing is wrong; {advice} could be better\n"),
            (problems, _) => format!("\n{problems} must be put right\n"),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_first_and_decide() {
        let report = DoctorReport::of(vec![
            Finding::ok("kernel", "Linux 6.12"),
            Finding::advice("open files", "4096", "raise it"),
            Finding::problem("io_uring", "forbidden", "allow it"),
        ]);
        assert!(!report.ok);
        let expected = "STATE    WHAT        FOUND
ok       kernel      Linux 6.12
advice   open files  4096
PROBLEM  io_uring    forbidden

what to do
  io_uring    allow it
  open files  raise it

1 must be put right
";
        assert_eq!(report.text(), expected);
        let quiet = DoctorReport::of(vec![Finding::ok("kernel", "Linux 6.12")]);
        assert!(quiet.ok && quiet.text().ends_with("\nnothing is wrong\n"));
        let json = serde_json::to_value(&report.findings[1]).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"severity": "advice", "what": "open files", "found": "4096", "do": "raise it"})
        );
    }
}
