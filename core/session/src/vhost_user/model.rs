//! Guest memory in a model, shared by handing over the model that has the region: for tests and fuzzing.

use super::map::{GuestRegion, Map};
use crate::memory::MapError;
use crate::memory::model::ModelMemory;
use alloc::rc::Rc;
use alloc::vec::Vec;

impl Map<Rc<ModelMemory>> for ModelMemory {
    fn replace(&mut self, regions: Vec<(GuestRegion, Rc<ModelMemory>)>) -> Result<(), MapError> {
        let mut new = ModelMemory::new();
        for (region, from) in regions {
            share(&mut new, &region, &from)?;
        }
        self.take_over(new);
        Ok(())
    }
    fn add(&mut self, region: GuestRegion, from: Rc<ModelMemory>) -> Result<(), MapError> {
        share(self, &region, &from)
    }
    fn remove(&mut self, region: &GuestRegion) {
        ModelMemory::remove(self, region.guest);
    }
    fn make_words(&mut self, len: u64) -> Result<(Self::Words, Rc<ModelMemory>), MapError> {
        Ok(ModelMemory::make_words(self, len))
    }
    fn map_words(&mut self, from: Rc<ModelMemory>, offset: u64, len: u64) -> Result<Self::Words, MapError> {
        self.words_of(&from, offset, len).ok_or(MapError::TooShort { need: offset.saturating_add(len), have: 0 })
    }
}

fn share(to: &mut ModelMemory, region: &GuestRegion, from: &ModelMemory) -> Result<(), MapError> {
    let need = region.offset + region.len;
    match to.share(from, region.guest) {
        Some(have) if have == region.len => Ok(()),
        have => {
            ModelMemory::remove(to, region.guest);
            Err(MapError::TooShort { need, have: have.unwrap_or(0) })
        }
    }
}
