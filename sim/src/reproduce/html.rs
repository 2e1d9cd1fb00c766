//! The report: one page without anything to load, its charts drawn as SVG.

use super::{Chart, Curve, Figure, RowVerdict, Scale};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Room for the axes: left, top, right, bottom.
const ROOM: [f64; 4] = [80.0, 20.0, 180.0, 50.0];
/// Told apart by those who see fewer colours as well (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}th,td{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left;\
vertical-align:top}td.n{text-align:right;white-space:nowrap}tr.missed{background:#fde8e4}tr.unjudged{color:#777}figure{margin:2em 0}\
figcaption{font-weight:600}svg{max-width:100%;height:auto}";

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Four digits that count, for people.
pub fn number(n: f64) -> String {
    let digits = if n == 0.0 { 0 } else { (3 - n.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{n:.*}", digits as usize)
}

impl Figure {
    /// A page of its own, with table and charts.
    pub fn html(&self) -> String {
        page(self)
    }
}

fn page(figure: &Figure) -> String {
    let title = format!("{}: {}", figure.subject, figure.subject.title());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style></head>\n\
         <body><h1>{0}</h1>\n",
        escaped(&title)
    );
    for text in figure.about.iter().chain(&figure.notes) {
        out += &format!("<p>{}</p>\n", escaped(text));
    }
    out += &table(figure);
    for chart in &figure.charts {
        out += &format!("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escaped(chart.title), svg(chart));
    }
    out += "</body></html>\n";
    out
}

fn table(figure: &Figure) -> String {
    let mut out =
        "<table><thead><tr><th></th><th>paper</th><th>ours</th><th>unit</th><th>deviation</th><th>verdict</th>\
                   <th>held to</th></tr></thead>\n<tbody>\n"
            .to_string();
    for row in &figure.rows {
        let some = |n: Option<f64>, unit: &str| n.map_or("-".to_string(), |n| format!("{}{unit}", number(n)));
        let cells = [some(row.paper(), ""), number(row.ours), row.unit.to_string(), some(row.deviation_pct(), " %")];
        let class = match row.verdict() {
            RowVerdict::Held => "",
            RowVerdict::Missed => " class=\"missed\"",
            RowVerdict::Told | RowVerdict::Disturbed => " class=\"unjudged\"",
        };
        out += &format!("<tr{class}><td>{}</td>", escaped(&row.label));
        for cell in cells {
            out += &format!("<td class=\"n\">{}</td>", escaped(&cell));
        }
        out += &format!("<td>{}</td><td>{}</td></tr>\n", row.verdict().name(), escaped(&row.basis()));
    }
    out + "</tbody></table>\n"
}

/// One axis: where a value lies between 0 and 1, and its ticks.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return Axis { scale, low: 1.0, high: 2.0 };
        }
        match scale {
            Scale::Linear => {
                Axis { scale, low: low.min(0.0), high: if high > low.min(0.0) { high } else { low + 1.0 } }
            }
            Scale::Log => Axis { scale, low, high: if high > low { high } else { low * 2.0 } },
        }
    }

    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// Five or so values that are easy to read.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let raw = (self.high - self.low) / 5.0;
                let power = 10f64.powf(raw.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw).unwrap_or(raw);
                let first = (self.low / step).ceil() as i64;
                (first..).map(|i| i as f64 * step).take_while(|v| *v <= self.high * 1.0001).collect()
            }
            Scale::Log => {
                let base: f64 = if self.high / self.low > 200.0 { 10.0 } else { 2.0 };
                let first = (self.low.ln() / base.ln() - 1e-9).ceil() as i32;
                (first..).map(|i| base.powi(i)).take_while(|v| *v <= self.high * 1.0001).collect()
            }
        }
    }
}

fn svg(chart: &Chart) -> String {
    let points = || chart.curves.iter().flat_map(|c| c.points.iter());
    let (x, y) = (Axis::of(chart.scales.0, points().map(|p| p.0)), Axis::of(chart.scales.1, points().map(|p| p.1)));
    let [left, top, right, bottom] = ROOM;
    let across = |v: f64| left + x.place(v) * (WIDTH - left - right);
    let up = |v: f64| HEIGHT - bottom - y.place(v) * (HEIGHT - top - bottom);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" font-size=\"12\" \
         font-family=\"system-ui,sans-serif\">\n",
        escaped(chart.title)
    );
    let (floor, end) = (HEIGHT - bottom, WIDTH - right);
    for tick in x.ticks() {
        let (at, text) = (across(tick), short(tick));
        out += &format!("<path d=\"M{at:.1} {top}V{floor}\" stroke=\"#eee\"/>");
        out += &format!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\n", floor + 16.0);
    }
    for tick in y.ticks() {
        let (at, text) = (up(tick), short(tick));
        out += &format!("<path d=\"M{left} {at:.1}H{end}\" stroke=\"#eee\"/>");
        out += &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n", left - 6.0, at + 4.0);
    }
    let axes = (escaped(chart.axes.0), escaped(chart.axes.1));
    out += &format!("<path d=\"M{left} {top}V{floor}H{end}\" fill=\"none\" stroke=\"#666\"/>\n");
    out += &format!(
        "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        (left + end) / 2.0,
        HEIGHT - 10.0,
        axes.0
    );
    out += &format!(
        "<text transform=\"translate(16 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        floor / 2.0,
        axes.1
    );
    for mark in &chart.marks {
        let at = across(mark.x);
        out += &format!("<path d=\"M{at:.1} {top}V{floor}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>");
        let place = format!("transform=\"translate({:.1} {}) rotate(-90)\"", at - 4.0, top + 4.0);
        out += &format!("<text {place} text-anchor=\"end\" fill=\"#666\">{}</text>\n", escaped(&mark.name));
    }
    for (i, curve) in chart.curves.iter().enumerate() {
        out += &drawn(curve, COLOURS[i % COLOURS.len()], i, across, up);
    }
    out + "</svg>\n"
}

fn drawn(curve: &Curve, colour: &str, place: usize, across: impl Fn(f64) -> f64, up: impl Fn(f64) -> f64) -> String {
    let mut out = String::from("<path d=\"");
    for (i, (x, y)) in curve.points.iter().enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(out, "{letter}{:.1} {:.1}", across(*x), up(*y));
    }
    out += &format!("\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n");
    if curve.points.len() <= 16 {
        for (x, y) in &curve.points {
            out += &format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", across(*x), up(*y));
        }
    }
    let (x, y) = (WIDTH - ROOM[2] + 12.0, ROOM[1] + 10.0 + 18.0 * place as f64);
    out += &format!("<path d=\"M{x} {y}h14\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    out + &format!("<text x=\"{}\" y=\"{}\">{}</text>\n", x + 18.0, y + 4.0, escaped(&curve.name))
}

/// A tick's text.
fn short(n: f64) -> String {
    match n.abs() {
        a if a >= 1e6 => format!("{}M", n / 1e6),
        a if a >= 1e4 => format!("{}k", n / 1e3),
        _ => format!("{}", (n * 1e4).round() / 1e4),
    }
}
