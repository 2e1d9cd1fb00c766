//! Clients made by hand, byte by byte, so that they can break every rule.

pub mod nvme_tcp;
pub mod vfio_user;
pub mod vhost_user;

/// xorshift64*: the same bytes from the same seed.
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next_u64() % n as u64) as usize }
    }

    /// Changes some bytes: single ones, or integers at which code breaks.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        const INTERESTING: [u32; 8] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff];
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            match self.below(3) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next_u64() as u8,
                _ => {
                    let value = INTERESTING[self.below(INTERESTING.len())].to_le_bytes();
                    let width = 1 << self.below(3);
                    for (to, from) in bytes[at..].iter_mut().zip(&value[..width]) {
                        *to = *from;
                    }
                }
            }
        }
    }
}
