use super::scale::SMALL;
use super::*;
use crate::reproduce::RowVerdict;

#[test]
fn a_small_store_keeps_what_it_has_acknowledged() {
    let mut last = 0.0;
    let figure = made(SMALL, &mut |part| {
        assert!((0.0..=1.0).contains(&part) && part >= last, "{part} after {last}");
        last = part;
    });
    for row in &figure.rows {
        println!("{:<50} {:>14.3} {:<6} {} ({})", row.label, row.ours, row.unit, row.verdict().name(), row.basis());
    }
    let missed: Vec<&Row> = figure.rows.iter().filter(|row| row.verdict() == RowVerdict::Missed).collect();
    assert!(missed.is_empty(), "{missed:#?}\n{:?}", figure.notes);
    let ours = |label: &str| figure.rows.iter().find(|row| row.label == label).map(|row| row.ours);
    assert!(ours("files in the end") > Some(800.0) && ours("files with one copy that are lost") > Some(0.0));
    assert!(ours("bytes moved in all") > Some(100.0), "blocks were made again");
    assert_eq!(figure.charts.len(), 3);
    assert!(figure.charts.iter().all(|chart| chart.marks.len() == 2 + SMALL.losses && !chart.curves.is_empty()));
}
