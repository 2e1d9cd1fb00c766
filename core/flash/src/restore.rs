//! Drives on an image: new ones, those that go on where a process left them, and those found again.

use crate::config::{FlashDriveConfig, FtlConfig};
use crate::config_error::ConfigError;
use crate::flash::Flash;
use crate::ftl::Map;
use crate::image::Image;
use weir_units::Nanos;

impl Flash {
    /// [`Flash::new`] on an image that is all zero, which keeps what survives the loss of power ([`crate::FtlConfig::spare`] is
    /// taken as set).
    ///
    /// # Errors
    /// Names the key that does not fit; or the image is of another size than [`crate::ImageSize::of`] says.
    pub fn create(config: &FlashDriveConfig, now: Nanos, image: Image) -> Result<Flash, ConfigError> {
        let mut made = Flash::with_image(config, now, image)?;
        made.ftl.map.begin_anew();
        made.ftl.map.clear();
        made.ftl.mark_bad();
        made.ftl.map.is_sound();
        Ok(made)
    }

    /// The drive that its image and the controller's memory tell of, as the process that used both last has left them, at any moment; idle since
    /// `now`. What is looked at is what was under way, and a few words a block; `None`, or the pages that were read where the memory was
    /// not whole.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn resume(config: &FlashDriveConfig, now: Nanos, image: Image) -> Result<(Flash, Option<u64>), ConfigError> {
        if image.mapped.is_none() {
            return Flash::recover(config, now, image).map(|(flash, pages)| (flash, Some(pages)));
        }
        let mut made = Flash::with_image(config, now, image)?;
        let pages = made.ftl.resume();
        made.silicon.set_wear(&made.ftl.map.erases);
        made.reset_stats();
        Ok((made, pages))
    }

    /// The drive that an image tells of, idle since `now`, and the pages that were read to find its map. Whatever the image
    /// holds, the drive is whole; an undamaged one that a drive of the same configuration has left, at any moment, tells of
    /// every unit whose program was done.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn recover(config: &FlashDriveConfig, now: Nanos, image: Image) -> Result<(Flash, u64), ConfigError> {
        let mut made = Flash::with_image(config, now, image)?;
        let pages = made.ftl.recover();
        made.silicon.set_wear(&made.ftl.map.erases);
        made.reset_stats();
        Ok((made, pages))
    }

    fn with_image(config: &FlashDriveConfig, now: Nanos, image: Image) -> Result<Flash, ConfigError> {
        let plan = config.plan()?;
        if !image.fits(&plan.image()) || image.mapped.as_ref().is_some_and(|m| !m.fits(&plan.memory())) {
            return Err(plan.foreign(&image));
        }
        let config = FlashDriveConfig { ftl: FtlConfig { spare: true, ..config.ftl }, ..*config };
        let plan = config.plan()?;
        let map = Map::on(plan.shape, plan.mapped, plan.slots, image);
        Ok(Flash::made(&config, now, &plan, Some(map)))
    }
}
