//! Geometries that are refused, and the arithmetic of those that are not.

use crate::{CellType, Divisor, Geometry, GeometryError, PageAddress, PageMap, Unit};
use alloc::format;
use proptest::prelude::*;
use weir_units::Bytes;

const SMALL: Geometry = Geometry {
    channels: 3,
    ways: 2,
    planes: 2,
    blocks: 5,
    pages: 7,
    page_bytes: 3 * 4096,
    spare_bytes: 24,
    cell: CellType::Mlc,
    page_map: PageMap::Modulo,
};

#[test]
fn every_count_is_derived() {
    let shape = SMALL.shape().unwrap();
    assert_eq!((shape.dies(), shape.planes(), shape.blocks()), (6, 12, 60));
    assert_eq!(
        (shape.units_per_page(), shape.units_per_block(), shape.units_per_plane(), shape.units()),
        (3, 21, 105, 1260)
    );
    assert_eq!(shape.bytes(), Bytes(1260 * 4096));
    let planes: alloc::vec::Vec<_> = (0..12).map(|p| (shape.die_of(p), shape.channel_of(p))).collect();
    let expected = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5].map(|die| (die, die % 3));
    assert_eq!(planes, expected);
    assert_eq!(shape.plane(1, 1, 1), 9);
}

#[test]
fn units_and_places_are_each_others_inverse() {
    let shape = SMALL.shape().unwrap();
    for unit in 0..shape.units() {
        let at = shape.place(Unit(unit));
        assert_eq!(shape.unit(at, unit % 3), Unit(unit));
    }
    assert_eq!(shape.place(Unit(105 + 21 + 4)), PageAddress { plane: 1, block: 1, page: 1 });
}

#[test]
fn what_is_wrong_is_named() {
    let error = |g: Geometry| format!("{}", g.shape().unwrap_err());
    for (field, g) in [
        ("channels", Geometry { channels: 0, ..SMALL }),
        ("ways", Geometry { ways: 0, ..SMALL }),
        ("planes", Geometry { planes: 0, ..SMALL }),
        ("blocks", Geometry { blocks: 0, ..SMALL }),
        ("pages", Geometry { pages: 0, ..SMALL }),
        ("page_bytes", Geometry { page_bytes: 0, ..SMALL }),
    ] {
        assert_eq!(error(g), format!("geometry.{field} is 0; it must be at least 1"));
    }
    let e = error(Geometry { page_bytes: 6144, ..SMALL });
    assert_eq!(e, "geometry.page_bytes is 6144; it must be a multiple of 4096 (the mapping unit)");
    let e = error(Geometry { blocks: u32::MAX, ..SMALL });
    assert!(e.starts_with("geometry.blocks = 4294967295 makes the drive larger than 16TiB"), "{e}");
    let huge = Geometry { channels: 1 << 16, ways: 1 << 16, ..SMALL };
    assert_eq!(huge.shape(), Err(GeometryError::TooLarge { field: "ways", value: 1 << 16 }));
    let pages = Geometry { pages: 30_000, ..SMALL };
    assert_eq!(pages.shape(), Err(GeometryError::BlockTooLarge { units: 90_000 }));
    assert_eq!(
        Geometry { spare_bytes: 23, ..SMALL }.shape(),
        Err(GeometryError::SpareTooSmall { spare_bytes: 23, needed: 24 })
    );
    // The largest drive: one unit less than 2^32.
    let most =
        Geometry { channels: 1, ways: 3, planes: 5, blocks: 17 * 257, pages: 1, page_bytes: 65537 * 4096, ..SMALL };
    assert!(matches!(most.shape(), Err(GeometryError::BlockTooLarge { .. })));
    let most = Geometry { channels: 65537, ways: 257, planes: 17, blocks: 5, pages: 3, page_bytes: 4096, ..SMALL };
    assert_eq!(most.shape().unwrap().units(), u32::MAX);
}

proptest! {
    #[test]
    fn a_divisor_divides(n: u32, d in prop_oneof![Just(1), Just(u32::MAX), 1u32..100, 1u32..=u32::MAX]) {
        let by = Divisor::new(d);
        prop_assert_eq!(by.div_rem(n), (n / d, n % d));
        prop_assert_eq!(by.div_rem(u32::MAX), (u32::MAX / d, u32::MAX % d));
        prop_assert_eq!(by.rem(n), n % d);
    }

    /// Whatever is configured, there is a shape or an error, and never an overflow.
    #[test]
    fn any_numbers_are_checked(counts: [u32; 5], small: [u8; 5], page_bytes: u32, spare_bytes: u32, tiny: bool) {
        let of = |i: usize| if tiny { u32::from(small[i] % 9) } else { counts[i] };
        let page_bytes = if tiny { page_bytes % 9 * 2048 } else { page_bytes };
        let g = Geometry {
            channels: of(0), ways: of(1), planes: of(2), blocks: of(3), pages: of(4), page_bytes, spare_bytes, ..SMALL
        };
        if let Ok(shape) = g.shape() {
            let product: u64 = [of(0), of(1), of(2), of(3), of(4), page_bytes / 4096].iter().map(|n| u64::from(*n)).product();
            prop_assert_eq!(u64::from(shape.units()), product);
            let last = shape.place(Unit(shape.units() - 1));
            prop_assert_eq!(last, PageAddress { plane: shape.planes() - 1, block: of(3) - 1, page: of(4) - 1 });
        }
    }
}
