//! Which drive it is.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// What tells a namespace from others, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveIdentity {
    /// Namespace globally unique identifier; zeroes where it has none (NVM command set 1.0, Figure 97).
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zeroes where it has none.
    pub eui64: [u8; 8],
    /// UUID of its namespace identification descriptors (base 2.0, Figure 277); zeroes where it has none.
    pub uuid: [u8; 16],
    /// Bytes.
    pub capacity: u64,
    /// Bytes of a logical block.
    pub block_size: u32,
}

impl DriveIdentity {
    /// In words, how another one differs from this one; `None`: it does not.
    pub fn difference(&self, found: &DriveIdentity) -> Option<String> {
        let identifiers: [(&str, &[u8], &[u8]); 3] = [
            ("NGUID", &self.nguid, &found.nguid),
            ("EUI-64", &self.eui64, &found.eui64),
            ("UUID", &self.uuid, &found.uuid),
        ];
        if let Some((name, own, other)) = identifiers.into_iter().find(|(_, own, other)| own != other) {
            return Some(format!("its {name} is {}, and the drive's was {}", hex(other), hex(own)));
        }
        if self.capacity != found.capacity {
            return Some(format!("it has {} bytes, and the drive had {}", found.capacity, self.capacity));
        }
        (self.block_size != found.block_size)
            .then(|| format!("its blocks have {} bytes, and the drive's had {}", found.block_size, self.block_size))
    }
}

/// "none" for zeroes.
fn hex(bytes: &[u8]) -> String {
    if bytes.iter().all(|b| *b == 0) {
        return "none".into();
    }
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
