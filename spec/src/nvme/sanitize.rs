//! The Sanitize command (base 2.0, 5.24).

use super::wire::bits;

bits! {
    /// CDW10 of Sanitize (base 2.0, Figure 311). CDW11 is the overwrite pattern.
    SanitizeDw10: u32 {
        /// [`action`].
        sanact, with_sanact: 2, 0;
        /// Allow unrestricted sanitize exit.
        ause, with_ause: 3, 3;
        /// Overwrite passes; 0 is 16.
        owpass, with_owpass: 7, 4;
        /// The pattern is inverted between passes.
        oipbp, with_oipbp: 8, 8;
        /// Nothing is deallocated afterwards.
        ndas, with_ndas: 9, 9;
    }
}

/// SANACT.
pub mod action {
    /// Leave the failure mode.
    pub const EXIT_FAILURE: u32 = 1;
    /// Block erase.
    pub const BLOCK_ERASE: u32 = 2;
    /// Overwrite.
    pub const OVERWRITE: u32 = 3;
    /// Crypto erase.
    pub const CRYPTO_ERASE: u32 = 4;
}

/// Bits of SANICAP (base 2.0, Figure 275).
pub mod sanicap {
    /// Crypto erase.
    pub const CRYPTO: u32 = 1 << 0;
    /// Block erase.
    pub const BLOCK: u32 = 1 << 1;
    /// Overwrite.
    pub const OVERWRITE: u32 = 1 << 2;
    /// NODMMAS 01b: media are not modified additionally after an operation.
    pub const NOT_MODIFIED: u32 = 1 << 30;
}

impl SanitizeDw10 {
    /// Passes of an overwrite, 1 to 16.
    pub const fn passes(self) -> u32 {
        if self.owpass() == 0 { 16 } else { self.owpass() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nvme sanitize --sanact=3 --ause --owpass=2 --oipbp --no-dealloc`.
    #[test]
    fn as_nvme_cli_sends_it() {
        let dw10 = SanitizeDw10(0x32b);
        assert_eq!((dw10.sanact(), dw10.ause(), dw10.passes()), (action::OVERWRITE, 1, 2));
        assert_eq!((dw10.oipbp(), dw10.ndas()), (1, 1));
        assert_eq!(SanitizeDw10(3).passes(), 16);
    }
}
