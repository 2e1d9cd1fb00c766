//! Curves and charts of a figure.

use super::Row;

/// A curve of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// The rows of these labels, as heights over the x beside them: what a table says is what its chart shows.
    ///
    /// # Panics
    /// There is no such row.
    pub(super) fn of_rows(
        name: impl Into<String>,
        rows: &[Row],
        points: impl IntoIterator<Item = (f64, String)>,
    ) -> Curve {
        let height = |label: &str| rows.iter().find(|row| row.label == label).map(|row| row.ours);
        let point = |(x, label): (f64, String)| (x, height(&label).unwrap_or_else(|| panic!("no row {label:?}")));
        Curve { name: name.into(), points: points.into_iter().map(point).collect() }
    }
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers.
    Log,
}

/// A chart of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: &'static str,
    /// What runs along x and y, with units.
    pub axes: (&'static str, &'static str),
    /// How they run.
    pub scales: (Scale, Scale),
    /// All of ours.
    pub curves: Vec<Curve>,
    /// What happened meanwhile.
    pub marks: Vec<Mark>,
}

/// A moment at which something was done to what is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where on the x axis, in its unit.
    pub x: f64,
    /// What was done.
    pub name: String,
}
