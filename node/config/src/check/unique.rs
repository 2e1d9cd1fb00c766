//! Values that only one may have, and the names there are.

use crate::read::{Placed, Sink, quoted};
use std::collections::BTreeMap;

/// Notes the second use of a value that only one may have.
pub(super) struct Unique<'a> {
    sink: &'a Sink,
    seen: BTreeMap<String, u32>,
}

impl<'a> Unique<'a> {
    pub(super) fn new(sink: &'a Sink) -> Self {
        Unique { sink, seen: BTreeMap::new() }
    }

    pub(super) fn see(&mut self, value: &str, line: u32, key: &str, what_to_do: &str) {
        match self.seen.get(value) {
            Some(first) => {
                self.sink.note(line, key, format_args!("{} is taken by line {first}; {what_to_do}", quoted(value)));
            }
            None => {
                self.seen.insert(value.to_string(), line);
            }
        }
    }

    pub(super) fn see_placed(&mut self, placed: &Placed<String>, what_to_do: &str) {
        self.see(&placed.value, placed.line, &placed.key, what_to_do);
    }
}

pub(super) fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|n| if n.is_empty() { "(unnamed)" } else { n }).collect::<Vec<_>>().join(", ")
}
