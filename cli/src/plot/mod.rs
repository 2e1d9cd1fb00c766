//! `--plot FILE`: what a command has measured, as a picture that needs nothing else.
//!
//! ```text
//!   reports ─▶ runs: which charts there are ─▶ Chart ─▶ draw (plotters, SVG) ─▶ FILE.svg, or FILE.html with a table of the figures
//! ```

mod draw;
mod runs;

pub use runs::{PlottedRun, picture};

use crate::failure::CommandFailure;
use crate::output;
use std::path::Path;

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten.
    Log,
    /// Percentiles, so that 90, 99, 99.9 lie equally far apart.
    Nines,
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// As they are.
    Number,
    /// Nanoseconds, shown in what is easy to read.
    Nanos,
    /// Percent.
    Percent,
    /// Seconds.
    Seconds,
}

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is along it.
    pub label: String,
    /// How it runs.
    pub scale: Scale,
    /// What its numbers are.
    pub unit: Unit,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Curves over x.
    Curves(Vec<Curve>),
    /// A bar for each name.
    Bars(Vec<(String, f64)>),
}

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Its x axis; for bars, the one along which they grow.
    pub x: Axis,
    /// Its y axis; not used for bars.
    pub y: Axis,
    /// What it shows.
    pub shape: Shape,
    /// Moments to be marked, and their names.
    pub marks: Vec<(f64, String)>,
}

/// Charts, and the table that they are drawn from.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Of the page.
    pub title: String,
    /// Version, seed, machine, date: what one needs to make it again.
    pub origin: String,
    /// In their order.
    pub charts: Vec<Chart>,
    /// Headings and rows.
    pub table: Vec<Vec<String>>,
}

/// Refuses a name whose kind cannot be drawn, and a place that cannot be written, before the work begins.
///
/// # Errors
/// Neither `.svg` nor `.html`, or the file cannot be made.
pub fn check(path: &Path) -> Result<(), CommandFailure> {
    kind(path)?;
    output::can_write(path).map_err(|e| CommandFailure::new(format_args!("--plot {}: {e}", path.display())))
}

#[derive(Clone, Copy)]
enum Kind {
    Svg,
    Html,
}

fn kind(path: &Path) -> Result<Kind, CommandFailure> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(Kind::Svg),
        Some("html" | "htm") => Ok(Kind::Html),
        Some("png") => Err(CommandFailure::usage(format_args!(
            "--plot {}: write .svg or .html; `rsvg-convert FILE.svg -o FILE.png` makes a PNG of it",
            path.display()
        ))),
        _ => Err(CommandFailure::usage(format_args!(
            "--plot {}: name a file that ends with .svg or .html",
            path.display()
        ))),
    }
}

impl Picture {
    /// Writes it whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written, as on a full disk.
    pub fn write(&self, path: &Path) -> Result<(), CommandFailure> {
        let failed = |e: String| CommandFailure::new(format_args!("--plot {}: {e}", path.display()));
        let text = match kind(path)? {
            Kind::Svg => draw::svg(&self.charts),
            Kind::Html => self.html(),
        };
        output::file(path, text.map_err(failed)?).map_err(|e| failed(e.to_string()))
    }

    fn html(&self) -> Result<String, String> {
        let title = escaped(&self.title);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        );
        for chart in &self.charts {
            let (name, svg) = (escaped(&chart.title), draw::svg(std::slice::from_ref(chart))?);
            page += &format!("<figure role=\"img\" aria-label=\"{name}\">{svg}</figure>\n");
        }
        page += &self.html_table();
        Ok(page + &format!("<p class=\"origin\">{}</p>\n</body></html>\n", escaped(&self.origin)))
    }

    fn html_table(&self) -> String {
        let cells = |row: &[String], tag: &str| -> String {
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
        };
        let mut rows = self.table.iter();
        let head = rows.next().map(|row| cells(row, "th")).unwrap_or_default();
        let body: String = rows.map(|row| format!("<tr>{}</tr>\n", cells(row, "td"))).collect();
        format!("<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>\n")
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
    figure{margin:1.5em 0}svg{max-width:100%;height:auto}table{border-collapse:collapse}th,td{padding:.2em .8em;\
    border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}.origin{color:#666;font-size:13px}";

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
