//! Charts drawn by plotters, as SVG: text stays text, so that no font is needed here.

use super::{Axis, Chart, Curve, Scale, Shape, Unit};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 380;
/// Of a bar with its gap, and of what is above and below all bars.
const BAR: u32 = 26;
const AROUND_BARS: u32 = 110;
/// Room for the legend, right of the curves.
const LEGEND: u32 = 190;
/// A legend's line has so many characters; longer names have several lines.
const LINE: usize = 24;
/// Told apart by those who see fewer colours as well (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const FONT: &str = "system-ui, sans-serif";

/// Curves of so many points have them drawn.
const FEW_POINTS: usize = 24;
/// So many values of x are the ticks themselves.
const FEW_VALUES: usize = 10;

type DrawError = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// All charts, one below the other.
///
/// # Errors
/// What plotters says.
pub fn svg(charts: &[Chart]) -> Result<String, String> {
    let mut text = String::new();
    onto(&mut text, charts).map_err(|e| e.to_string())?;
    Ok(text)
}

fn onto(text: &mut String, charts: &[Chart]) -> Result<(), DrawError> {
    let heights: Vec<u32> = charts.iter().map(height).collect();
    let root = SVGBackend::with_string(text, (WIDTH, heights.iter().sum::<u32>().max(1))).into_drawing_area();
    root.fill(&WHITE)?;
    let mut rest = root.clone();
    for (chart, height) in charts.iter().zip(heights) {
        let (area, below) = rest.split_vertically(height);
        draw(chart, &area)?;
        rest = below;
    }
    root.present()?;
    Ok(())
}

fn height(chart: &Chart) -> u32 {
    match &chart.shape {
        Shape::Curves(_) => HEIGHT,
        Shape::Bars(bars) => AROUND_BARS + BAR * bars.len() as u32,
    }
}

fn draw(chart: &Chart, area: &Area<'_>) -> Result<(), DrawError> {
    match &chart.shape {
        Shape::Bars(bars) => draw_bars(chart, bars, area),
        Shape::Curves(curves) => {
            let (left, right) = area.split_horizontally(WIDTH - LEGEND);
            legend(curves, &right)?;
            draw_curves(chart, curves, &left)
        }
    }
}

/// A name for each colour.
fn legend(curves: &[Curve], area: &Area<'_>) -> Result<(), DrawError> {
    let style = (FONT, 13).into_font().color(&BLACK);
    let mut y = 44;
    for (at, curve) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let line = PathElement::new(vec![(4, y + 7), (20, y + 7)], colour.stroke_width(3));
        area.draw(&line)?;
        for part in wrapped(&curve.name) {
            area.draw(&Text::new(part, (26, y), style.clone()))?;
            y += 16;
        }
        y += 4;
    }
    Ok(())
}

/// A name in lines.
fn wrapped(name: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_inclusive([' ', ',', '=']) {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + word.trim_end().chars().count() > LINE {
            lines.push(word.to_owned());
        } else {
            lines[last].push_str(word);
        }
    }
    lines
}

/// An axis as it is drawn: where values lie on it, evenly, and its ticks.
struct Drawn<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    /// Where the values lie, if they are few: they are the ticks then.
    few: Vec<f64>,
}

impl<'a> Drawn<'a> {
    fn new(axis: &'a Axis, values: impl Iterator<Item = f64>) -> Self {
        let places = values.filter_map(|v| place(axis.scale, v));
        let (low, high) = places.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = match axis.scale {
            _ if low > high => (0.0, 1.0),
            Scale::Log => (low - 0.05, high + 0.05),
            Scale::Linear | Scale::Nines => (low.min(0.0), if high > low.min(0.0) { high * 1.04 } else { 1.0 }),
        };
        Drawn { axis, low, high, few: Vec::new() }
    }

    /// With a tick at each value, where these are few and lie apart from each other.
    fn with_values(mut self, values: impl Iterator<Item = f64>) -> Self {
        let mut places: Vec<f64> = values.filter_map(|v| place(self.axis.scale, v)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let apart = places.windows(2).all(|pair| pair[1] - pair[0] > (self.high - self.low) / 16.0);
        if (2..=FEW_VALUES).contains(&places.len()) && apart {
            self.few = places;
        }
        self
    }

    fn coordinates(&self) -> Ticked {
        Ticked { low: self.low, high: self.high, ticks: self.ticks() }
    }

    /// Values that are easy to read, where they lie.
    fn ticks(&self) -> Vec<f64> {
        let within = |v: &f64| (self.low..=self.high).contains(v);
        match self.axis.scale {
            _ if !self.few.is_empty() => self.few.clone(),
            Scale::Linear => {
                let step = step((self.high - self.low) / 6.0);
                (0..)
                    .map(|i| (self.low / step).ceil() * step + f64::from(i) * step)
                    .take_while(|v| *v <= self.high)
                    .collect()
            }
            Scale::Log => {
                let digits: &[f64] = if self.high - self.low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let powers = self.low.floor() as i32..=self.high.ceil() as i32;
                powers
                    .flat_map(|power| digits.iter().map(move |d| f64::from(power) + d.log10()))
                    .filter(within)
                    .collect()
            }
            Scale::Nines => [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999]
                .iter()
                .filter_map(|v| place(Scale::Nines, *v))
                .filter(within)
                .collect(),
        }
    }

    /// The text of a tick.
    fn text(&self, at: f64) -> String {
        let value = match self.axis.scale {
            Scale::Linear => at,
            Scale::Log => 10f64.powf(at),
            // Rounded, since it was a logarithm.
            Scale::Nines => ((1.0 - 10f64.powf(-at)) * 1e7).round() / 1e5,
        };
        shown(self.axis.unit, value)
    }
}

/// An axis for plotters, with ticks of our own.
struct Ticked {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (value - self.low) / (self.high - self.low);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        // Between them there are no lighter ones.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

/// A value in its unit, short.
pub fn shown(unit: Unit, value: f64) -> String {
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    let trimmed = |v: f64| ((v * 1e4).round() / 1e4).to_string();
    match unit {
        Unit::Percent => format!("{}%", trimmed(value)),
        Unit::Seconds => format!("{}s", trimmed(value)),
        Unit::Nanos => [(1e9, "s"), (1e6, "ms"), (1e3, "us")]
            .iter()
            .find(|(size, _)| value >= *size * 0.9999)
            .map_or_else(|| format!("{}ns", trimmed(value)), |(size, name)| format!("{}{name}", trimmed(value / size))),
        Unit::Number => [(1e9, "G"), (1e6, "M"), (1e3, "k")]
            .iter()
            .find(|(size, _)| value.abs() >= *size * 0.9999)
            .map_or_else(|| trimmed(value), |(size, name)| format!("{}{name}", trimmed(value / size))),
    }
}

/// 1, 2 or 5 times a power of ten, at least so much.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= least * 0.9999).unwrap_or(least)
}

/// Where a value lies; nowhere, if the scale does not have it.
fn place(scale: Scale, value: f64) -> Option<f64> {
    let place = match scale {
        Scale::Linear => value,
        Scale::Log => value.log10(),
        // 0 % at 0, 90 % at 1, 99 % at 2; the last of all where 99.999 % is.
        Scale::Nines => -(1.0 - value.min(99.999) / 100.0).log10(),
    };
    place.is_finite().then_some(place)
}

fn draw_curves(chart: &Chart, curves: &[Curve], area: &Area<'_>) -> Result<(), DrawError> {
    let points = || curves.iter().flat_map(|c| c.points.iter());
    let x = Drawn::new(&chart.x, points().map(|p| p.0).chain(chart.marks.iter().map(|m| m.0)));
    let x = if chart.x.scale == Scale::Nines { x } else { x.with_values(points().map(|p| p.0)) };
    let y = Drawn::new(&chart.y, points().map(|p| p.1));
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, 16))
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x.coordinates(), y.coordinates())?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_label_formatter(&|at| x.text(*at))
        .y_label_formatter(&|at| y.text(*at))
        .draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter_map(|(px, py)| Some((place(chart.x.scale, *px)?, place(chart.y.scale, *py)?)))
            .collect();
        if points.len() <= FEW_POINTS {
            context.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
        }
        context.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    for (moment, name) in &chart.marks {
        let Some(at) = place(chart.x.scale, *moment) else { continue };
        let line = PathElement::new(vec![(at, y.low), (at, y.high)], RGBColor(190, 30, 30).stroke_width(1));
        context.draw_series(std::iter::once(line))?;
        let style = (FONT, 12).into_font().color(&RGBColor(190, 30, 30));
        context.draw_series(std::iter::once(Text::new(name.clone(), (at, y.high), style)))?;
    }
    Ok(())
}

/// A bar a name, its value behind it.
fn draw_bars(chart: &Chart, bars: &[(String, f64)], area: &Area<'_>) -> Result<(), DrawError> {
    let x = Drawn::new(&chart.x, bars.iter().map(|bar| bar.1 * 1.12));
    let longest = bars.iter().map(|bar| bar.0.chars().count()).max().unwrap_or(0);
    let count = bars.len().max(1) as f64;
    let middles: Vec<f64> = (0..bars.len()).map(|at| count - 0.5 - at as f64).collect();
    let name = |at: &f64| bars.get((count - 0.5 - at).round() as usize).map_or_else(String::new, |bar| bar.0.clone());
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, 16))
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size((longest as u32 * 7 + 20).min(WIDTH / 2))
        .build_cartesian_2d(x.coordinates(), Ticked { low: 0.0, high: count, ticks: middles.clone() })?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .disable_y_mesh()
        .x_desc(&chart.x.label)
        .x_label_formatter(&|at| x.text(*at))
        .y_label_formatter(&name)
        .draw()?;
    let from = x.low;
    let ends =
        || bars.iter().zip(&middles).filter_map(|(bar, middle)| Some((place(chart.x.scale, bar.1)?, bar.1, *middle)));
    context.draw_series(
        ends().map(|(end, _, y)| Rectangle::new([(from, y - 0.32), (end.max(from), y + 0.32)], COLOURS[0].filled())),
    )?;
    let style = (FONT, 12).into_font().color(&BLACK);
    context.draw_series(ends().map(|(end, value, y)| {
        EmptyElement::at((end.max(from), y)) + Text::new(shown(chart.x.unit, rounded(value)), (6, -6), style.clone())
    }))?;
    Ok(())
}

/// Four digits that count.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let power = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * power).round() / power
}
