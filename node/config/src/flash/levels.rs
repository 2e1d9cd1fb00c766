//! Times by the level of a cell, as they are written.

use crate::read::{Read, one_or_list, time};
use crate::value::Value;
use weir_flash::{FlashTiming, Levels};
use weir_units::Nanos;

/// One time for all pages, or one for each level of a cell, the last for those that remain.
pub(super) fn levels(value: &Value) -> Read<Levels> {
    let times = one_or_list(time(FlashTiming::LONGEST))(value)?;
    let (Some(last), 1..=5) = (times.last(), times.len()) else {
        return Err(format!("{} times where 1 to 5 are wanted", times.len()).into());
    };
    Ok(std::array::from_fn(|level| times.get(level).copied().unwrap_or(*last)))
}

/// The same again, without what repeats the last.
pub(super) fn written(levels: &Levels) -> Vec<Nanos> {
    let same = levels.iter().rev().take_while(|l| **l == levels[4]).count();
    levels[..levels.len() + 1 - same].to_vec()
}
