//! Figure 3 of papers/002: two operations on one plane, with a single and with a double register.

use super::numbers::micros;
use super::{Chart, Curve, Figure, Row, Scale, Subject};
use weir_flash::{Array, FlashTiming, Geometry, PageAddress, PageMap, Preset, Registers, Variability};
use weir_units::Nanos;

/// When the operations on pages P1 and P2 are complete that are asked for at once.
struct Pair {
    first: Nanos,
    second: Nanos,
}

fn pair(registers: Registers, write: bool) -> Pair {
    let parts = Preset::FemuOc.parts(false);
    let geometry = Geometry { channels: 1, blocks: 4, page_map: PageMap::Femu, ..parts.geometry };
    let timing = FlashTiming { registers, cache_read: registers == Registers::Double, ..parts.timing };
    let shape = geometry.shape().expect("a plane of the preset is a shape");
    let mut array = Array::new(&shape, &timing, &Variability::default());
    let page = |page| PageAddress { plane: 0, block: 0, page };
    let mut one = |at| match write {
        true => array.program(Nanos(0), at, geometry.page_bytes).done,
        false => array.read(Nanos(0), at, geometry.page_bytes),
    };
    // Pages 0 and 1 are both lower pages.
    Pair { first: one(page(0)), second: one(page(1)) }
}

const FASTER: &str = "\"the completion time of the second IO to page P2 is faster in the double-register model\"";

pub(super) fn figure() -> Figure {
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for (name, write) in [("read", false), ("write", true)] {
        let (single, double) = (pair(Registers::Single, write), pair(Registers::Double, write));
        let us = |t: Nanos| micros(t.0 as f64);
        rows.push(Row::relation(
            format!("{name} P1, single register"),
            us(single.first),
            "us",
            single.first == double.first,
            "the first one does not gain by a second register",
        ));
        rows.push(Row::relation(
            format!("{name} P1, double register"),
            us(double.first),
            "us",
            single.first == double.first,
            "the first one does not gain by a second register",
        ));
        rows.push(Row::relation(
            format!("{name} P2, single register"),
            us(single.second),
            "us",
            single.second.0 == 2 * single.first.0,
            "the second one begins when the first is over: twice its time",
        ));
        rows.push(Row::relation(
            format!("{name} P2, double register"),
            us(double.second),
            "us",
            double.second < single.second,
            FASTER,
        ));
        for registers in ["single", "double"] {
            let label = |page: u32| (f64::from(page), format!("{name} P{page}, {registers} register"));
            curves.push(Curve::of_rows(format!("{name}, {registers} register"), &rows, [1, 2].map(label)));
        }
    }
    Figure {
        subject: Subject::FemuFig3,
        about: vec![
            "Two reads, or two writes, of lower pages of one plane, asked for at the same moment on an idle drive, with the \
             times of the advanced model (preset femu-oc: read 48 us, program 900 us, 16 KiB over the channel 52.4 us)."
                .into(),
            "Figure 3 is a drawing without numbers; what its caption in the text says is checked.".into(),
        ],
        rows,
        notes: Vec::new(),
        charts: vec![Chart {
            title: "Completion of two operations on one plane",
            axes: ("page", "complete after, us"),
            scales: (Scale::Linear, Scale::Linear),
            curves, marks: Vec::new() }],
    }
}
