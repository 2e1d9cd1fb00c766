//! Which steps of other threads come before a step: see [`super`].

use super::super::super::path::{folder_of, join};
use super::load::RecordedStep;
use std::collections::BTreeMap;
use weir_store_node::record::RecordedCall;

/// Of each thread the last two steps: the last may not be over when another thread's step begins.
type Last = BTreeMap<usize, [Option<usize>; 2]>;

/// The steps about a path so far.
#[derive(Debug, Default)]
struct Uses {
    changes: Last,
    others: Last,
    /// Changes of the names in it.
    names: Last,
}

/// See [the module](self).
#[derive(Debug)]
pub struct Order {
    paths: BTreeMap<Vec<u8>, Uses>,
    files: BTreeMap<usize, Last>,
    /// The step that opened each.
    opened: BTreeMap<usize, usize>,
    /// Of each thread the last step that was over so far.
    threads: Vec<Option<usize>>,
    has_begun: Vec<bool>,
}

/// Whether a step changes what its path leads to.
const fn changes_name(step: &RecordedStep) -> bool {
    matches!(
        step.line.call,
        RecordedCall::Create
            | RecordedCall::Put
            | RecordedCall::MakeDirectory
            | RecordedCall::Make
            | RecordedCall::Symlink
            | RecordedCall::Rename
            | RecordedCall::Replace
            | RecordedCall::Remove
    )
}

/// Whether others see other bytes after it.
fn publishes(step: &RecordedStep) -> bool {
    let ends = matches!(
        step.line.call,
        RecordedCall::Close | RecordedCall::Drop | RecordedCall::Flush | RecordedCall::Truncate
    );
    (ends && step.is_writer) || (step.line.call == RecordedCall::Open && step.line.detail == b"wt")
}

/// Whether it is about the names in a directory, or all that is below it.
const fn is_about_names(step: &RecordedStep) -> bool {
    matches!(step.line.call, RecordedCall::List | RecordedCall::Page)
}

const fn takes_all_below(step: &RecordedStep) -> bool {
    matches!(step.line.call, RecordedCall::Rename | RecordedCall::Replace | RecordedCall::Remove)
}

/// Reads, writes and the like come after and before others of their open file only.
const fn is_of_path(step: &RecordedStep) -> bool {
    !matches!(step.line.call, RecordedCall::Read | RecordedCall::Write | RecordedCall::Append)
}

fn paths_of(step: &RecordedStep) -> impl Iterator<Item = &[u8]> {
    let paths = [&step.path[..], &step.other[..]];
    paths.into_iter().filter(|path| !path.is_empty() && is_of_path(step))
}

impl Order {
    pub fn new(threads: usize) -> Self {
        Self {
            paths: BTreeMap::new(),
            files: BTreeMap::new(),
            opened: BTreeMap::new(),
            threads: vec![None; threads],
            has_begun: vec![false; threads],
        }
    }

    /// The steps that come before the next one.
    pub fn before(&self, step: &RecordedStep, steps: &[RecordedStep]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut add = |last: &Last| {
            let others = last.iter().filter(|(thread, _)| **thread != step.thread);
            let over = |index: &usize| steps[*index].end() <= step.start;
            found.extend(others.filter_map(|(_, two)| two.iter().rev().flatten().copied().find(over)));
        };
        step.file.and_then(|file| self.files.get(&file)).into_iter().for_each(&mut add);
        // Whatever else of the file is under way.
        let opened = step.file.and_then(|file| self.opened.get(&file)).copied();
        let opened = opened.filter(|index| steps[*index].thread != step.thread);
        for path in paths_of(step) {
            self.of_path(step, path, &mut add);
        }
        found.extend(opened);
        if !self.has_begun[step.thread] {
            let ended = self.threads.iter().flatten().copied().filter(|index| steps[*index].is_last_of_thread);
            found.extend(ended.filter(|index| steps[*index].end() <= step.start));
        }
        found
    }

    fn of_path(&self, step: &RecordedStep, path: &[u8], add: &mut impl FnMut(&Last)) {
        if let Some(uses) = self.paths.get(path) {
            add(&uses.changes);
            if changes_name(step) || publishes(step) {
                add(&uses.others);
            }
            if is_about_names(step) {
                add(&uses.names);
            }
        }
        let mut above = path;
        while above != b"/" && above.starts_with(b"/") {
            above = folder_of(above);
            self.paths.get(above).into_iter().for_each(|uses| add(&uses.changes));
        }
        if takes_all_below(step) {
            let first = join(path, b"");
            let below = self.paths.range(first.clone()..).take_while(|(path, _)| path.starts_with(&first));
            below.for_each(|(_, uses)| {
                add(&uses.changes);
                add(&uses.others);
            });
        }
    }

    /// Takes note of a step.
    pub fn add(&mut self, index: usize, steps: &[RecordedStep]) {
        let step = &steps[index];
        (self.threads[step.thread], self.has_begun[step.thread]) = (Some(index), true);
        let note = |last: &mut Last| {
            let two = last.entry(step.thread).or_default();
            *two = [two[1], Some(index)];
        };
        if let Some(file) = step.file {
            note(self.files.entry(file).or_default());
            self.opened.entry(file).or_insert(index);
        }
        for path in paths_of(step) {
            let uses = self.paths.entry(path.into()).or_default();
            note(if changes_name(step) || publishes(step) { &mut uses.changes } else { &mut uses.others });
            if changes_name(step) {
                note(&mut self.paths.entry(folder_of(path).into()).or_default().names);
            }
        }
    }
}
