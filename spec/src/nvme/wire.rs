//! How wire structures are written down in this module: a field per line with its byte offset, which is asserted.

/// A little-endian structure of a fixed size. Every field's offset and the total size are checked by the compiler.
macro_rules! wire {
    ($(#[$m:meta])* $name:ident: $size:literal { $($(#[$fm:meta])* $f:ident: $t:ty = $off:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fm])* #[doc = concat!(" (Byte ", $off, ".)")] pub $f: $t,)*
        }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $f) == $off);)*
        };
        impl Default for $name {
            /// All bytes zero.
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}
pub(crate) use wire;

/// A register or dword made of bit fields: a getter and a `with_` setter each, high and low bit inclusive. A value that is
/// too large for its field is cut to it.
macro_rules! bits {
    ($(#[$m:meta])* $name:ident: $t:ty { $($(#[$fm:meta])* $get:ident, $with:ident: $hi:literal, $lo:literal;)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub $t);
        impl $name {
            $(
                $(#[$fm])*
                pub const fn $get(self) -> $t {
                    self.0 >> $lo & (<$t>::MAX >> (<$t>::BITS - 1 - ($hi - $lo)))
                }
                /// With that field replaced.
                pub const fn $with(self, v: $t) -> Self {
                    let mask = <$t>::MAX >> (<$t>::BITS - 1 - ($hi - $lo));
                    Self(self.0 & !(mask << $lo) | (v & mask) << $lo)
                }
            )*
        }
    };
}
pub(crate) use bits;

/// A text in a fixed field, ended by a zero byte or the field's end; `None` where it is no UTF-8.
pub fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    core::str::from_utf8(&field[..end]).ok()
}

/// Puts a text into a fixed field, cut to what fits, the rest filled with `pad` (0 for names, space for ASCII strings).
pub fn set_text(field: &mut [u8], text: &str, pad: u8) {
    field.fill(pad);
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}
