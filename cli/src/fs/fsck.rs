//! `weir store fsck`: what is wrong in the metadata of a store.

use crate::failure::CommandFailure;
use crate::output;
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_store::fsck::{Finding, Repair};
use weir_store_node::fsck::{FsckReport, fsck};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// Checks a file, and with `repairs` puts right what can be.
///
/// # Errors
/// Something was found, or the file cannot be checked.
pub fn run(file: &Path, repairs: bool, json: bool) -> Result<(), CommandFailure> {
    let (is_watched, mut shown, mut is_open) = (std::io::stderr().is_terminal(), Instant::now(), false);
    let mut watch = |records: usize| {
        if is_watched && shown.elapsed() >= PROGRESS {
            (shown, is_open) = (Instant::now(), true);
            // Nobody is told where the terminal is gone.
            let _ = write!(std::io::stderr(), "\r{records} records");
        }
    };
    let report = fsck(file, repairs, &mut watch);
    if is_open {
        let _ = writeln!(std::io::stderr());
    }
    let report = report.map_err(CommandFailure::new)?;
    match json {
        true => output::json(&value(&report))?,
        false => output::text(&text(&report))?,
    }
    let (repaired, left) = (report.findings.repaired.len(), report.findings.left.len());
    let about = file.display();
    match (repaired, left, repairs) {
        (0, 0, _) => Ok(()),
        (_, 0, true) => {
            Err(CommandFailure::new(format_args!("{about}: {repaired} things were put right; nothing is left")))
        }
        (_, _, true) => {
            Err(CommandFailure::new(format_args!("{about}: {repaired} things were put right, {left} are left")))
        }
        (_, _, false) => {
            Err(CommandFailure::new(format_args!("{about}: {left} things are wrong; --repair puts right what can be")))
        }
    }
}

fn text(report: &FsckReport) -> String {
    let mut text = format!("{} records\n", report.records);
    for finding in &report.findings.repaired {
        text += &format!("repaired  {finding}\n");
    }
    for finding in &report.findings.left {
        text += &format!("found     {finding}\n");
    }
    text
}

fn value(report: &FsckReport) -> Value {
    let finding = |finding: &Finding| {
        let instead = match finding.repair {
            Repair::Writes(_) => Value::Null,
            Repair::Refused(what) => what.into(),
        };
        json!({ "kind": finding.kind.name(), "about": finding.about, "not_repaired": instead })
    };
    let all = |findings: &[Finding]| findings.iter().map(finding).collect::<Vec<_>>();
    json!({
        "records": report.records,
        "repaired": all(&report.findings.repaired),
        "left": all(&report.findings.left),
    })
}
