//! What a reproduction comes to: rows, charts and what has to be known about them.

use super::chart::Chart;
use super::row::{Row, RowVerdict};
use super::subject::Subject;

/// A reproduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Which.
    pub subject: Subject,
    /// What was run, and what cannot be compared.
    pub about: Vec<String>,
    /// The table.
    pub rows: Vec<Row>,
    /// What has to be known about this run of it.
    pub notes: Vec<String>,
    /// Of the report.
    pub charts: Vec<Chart>,
}

/// A control that lost more of its time than this, in percent, says that the machine was disturbed.
pub(super) const LOST_PCT: f64 = 5.0;

impl Figure {
    /// Whether no row is missed.
    pub fn ok(&self) -> bool {
        self.rows.iter().all(Row::ok)
    }

    /// Takes the verdict "missed" from all rows where the machine was disturbed, and says so.
    pub(super) fn consider(&mut self, lost_pct: f64) {
        if lost_pct <= LOST_PCT {
            return;
        }
        for row in self.rows.iter_mut().filter(|row| row.verdict() == RowVerdict::Missed) {
            row.is_disturbed = true;
        }
        self.notes.push(format!(
            "The machine was disturbed: threads that only spin had no core for {lost_pct:.0} % of their time, so no row is called \
             missed; repeat it while nothing else runs."
        ));
    }
}
