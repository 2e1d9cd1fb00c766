//! Changes in memory over what the database has.

use redb::{ReadOnlyTable, StorageError, TableDefinition};
use std::collections::BTreeMap;
use std::iter::Peekable;
use weir_store::kv::{KvKey, KvWrite, RANGE_MAX, Revision, Versioned};

/// Keys, and the revision (8 bytes, little endian) before each value.
pub(super) const VALUES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

/// What the database had at one moment.
pub(super) type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What a key has become.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub revision: u64,
    /// `None`: it has no value any more.
    pub value: Option<Vec<u8>>,
}

/// Changes since some moment.
pub(super) type Overlay = BTreeMap<KvKey, Change>;

impl Change {
    pub fn versioned(&self) -> Option<Versioned> {
        let revision = Revision(self.revision);
        self.value.as_ref().map(|value| Versioned { value: value.clone(), revision })
    }

    /// As the database has it.
    pub fn stored(&self) -> Option<Vec<u8>> {
        self.value.as_ref().map(|value| [&self.revision.to_le_bytes()[..], value].concat())
    }
}

/// Makes changes; `replaced` gets each key with what was there before.
pub(super) fn apply(
    overlay: &mut Overlay,
    revision: u64,
    writes: &[KvWrite],
    mut replaced: impl FnMut(KvKey, Option<Change>),
) {
    for write in writes {
        let (key, value) = match write {
            KvWrite::Put(key, value) => (key, Some(value.clone())),
            KvWrite::Delete(key) => (key, None),
        };
        let before = overlay.insert(key.clone(), Change { revision, value });
        replaced(key.clone(), before);
    }
}

/// Puts back what was replaced, the newest first.
pub(super) fn take_back(overlay: &mut Overlay, replaced: Vec<(KvKey, Option<Change>)>) {
    for (key, before) in replaced.into_iter().rev() {
        match before {
            Some(change) => drop(overlay.insert(key, change)),
            None => drop(overlay.remove(&key)),
        }
    }
}

/// The value of a key in the database.
pub(super) fn stored(table: &Table, key: &KvKey) -> Result<Option<Versioned>, StorageError> {
    table.get(&key.0[..])?.map(|found| versioned(found.value())).transpose()
}

fn versioned(bytes: &[u8]) -> Result<Versioned, StorageError> {
    let Some((revision, value)) = bytes.split_first_chunk() else {
        return Err(StorageError::Corrupted("a value has no revision".into()));
    };
    Ok(Versioned { value: value.to_vec(), revision: Revision(u64::from_le_bytes(*revision)) })
}

/// The first keys of a range. Of the layers, each counts for more than those behind it, and the database for least.
pub(super) fn range(
    layers: &[&Overlay],
    table: &Table,
    (from, until): (&KvKey, &KvKey),
    most: usize,
) -> Result<Vec<(KvKey, Versioned)>, StorageError> {
    let mut found = Vec::new();
    if from >= until {
        return Ok(found);
    }
    let mut layers: Vec<Peekable<_>> = layers.iter().map(|layer| layer.range(from..until).peekable()).collect();
    let mut below = table.range(&from.0[..]..&until.0[..])?;
    let mut stored = below.next().transpose()?;
    while found.len() < most.min(RANGE_MAX) {
        let changed = layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key)).min();
        let under = stored.as_ref().map(|(key, _)| key.value());
        let Some(next) = changed.map(|key| &key.0[..]).into_iter().chain(under).min() else { break };
        let is_stored = under == Some(next);
        let change = changed.filter(|key| key.0 == next).cloned();
        let versioned = match &change {
            Some(key) => {
                let here = layers.iter_mut().filter_map(|layer| layer.next_if(|(k, _)| *k == key).map(|(_, c)| c));
                // All layers go on behind the key; the first that has it counts.
                here.collect::<Vec<_>>().first().and_then(|change| change.versioned()).map(|v| (key.clone(), v))
            }
            None => match &stored {
                Some((key, value)) => Some((KvKey(key.value().to_vec()), versioned(value.value())?)),
                None => None,
            },
        };
        found.extend(versioned);
        if is_stored {
            stored = below.next().transpose()?;
        }
    }
    Ok(found)
}
