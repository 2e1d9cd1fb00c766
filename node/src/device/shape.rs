//! What doors without namespaces were told of a drive, and how its namespace is known.

/// What doors without namespaces were told.
#[derive(Default)]
pub(super) struct Told {
    /// [`Subsystem::nonvolatile_generation`](weir_controller::Subsystem::nonvolatile_generation) when it was looked at.
    pub seen: u64,
    pub bytes: u64,
    pub news: Option<u64>,
}

impl Told {
    pub fn size(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// Sixteen bytes that stay the same for a name and the memory behind it (0: none): FNV-1a over both, twice, marked as a UUID of version 8 (RFC 9562).
pub(super) fn uuid_of(name: &str, medium: u64) -> [u8; 16] {
    let medium = medium.to_le_bytes().into_iter().filter(|_| medium != 0);
    let hash = |seed: u64| {
        name.bytes().chain(medium.clone()).fold(seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    };
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325).to_be_bytes());
    uuid[8..].copy_from_slice(&hash(0x8422_2325_cbf2_9ce4).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
