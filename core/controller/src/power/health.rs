//! What SMART tells of the media.

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    /// Media and data integrity errors since the drive was powered on.
    pub media_errors: u64,
    /// Critical warnings that the media has earned.
    pub warning: u8,
    /// What the available spare is at the most, in percent.
    pub spare_limit: u8,
}

impl Health {
    /// All is well.
    pub const fn new() -> Self {
        Self { media_errors: 0, warning: 0, spare_limit: 100 }
    }
}
