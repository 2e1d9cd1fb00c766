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
    fn identifiers(&self) -> [(&'static str, &[u8]); 3] {
        [("NGUID", &self.nguid), ("EUI-64", &self.eui64), ("UUID", &self.uuid)]
    }

    /// NSZE, logical blocks.
    pub fn blocks(&self) -> u64 {
        self.capacity / u64::from(self.block_size.max(1))
    }

    /// Whether it has an identifier. Without one, an empty drive of the same size cannot be told from it.
    pub fn is_identified(&self) -> bool {
        self.identifiers().iter().any(|(_, id)| is_there(id))
    }

    /// In words, how another one differs from this one; `None`: it does not. An identifier counts where both have it, since a target may
    /// show more of them after an upgrade; at least one has to be the same.
    pub fn difference(&self, found: &DriveIdentity) -> Option<String> {
        let pairs = self.identifiers().into_iter().zip(found.identifiers());
        let common = || pairs.clone().filter(|((_, own), (_, other))| is_there(own) && is_there(other));
        if let Some(((name, own), (_, other))) = common().find(|((_, own), (_, other))| own != other) {
            return Some(format!("its {name} is {}, and the drive's was {}", hex(other), hex(own)));
        }
        if common().next().is_none() {
            return Some(self.lack());
        }
        if self.capacity != found.capacity {
            return Some(format!("it has {} bytes, and the drive had {}", found.capacity, self.capacity));
        }
        (self.block_size != found.block_size)
            .then(|| format!("its blocks have {} bytes, and the drive's had {}", found.block_size, self.block_size))
    }

    fn lack(&self) -> String {
        match self.identifiers().into_iter().find(|(_, id)| is_there(id)) {
            Some((name, id)) => format!("it has none of the drive's identifiers, such as {name} {}", hex(id)),
            None => "the drive had no identifier by which it could be known again".into(),
        }
    }
}

/// Identifiers that a namespace does not have are zeroes.
fn is_there(identifier: &[u8]) -> bool {
    identifier.iter().any(|b| *b != 0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
