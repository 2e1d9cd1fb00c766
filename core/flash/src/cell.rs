//! Cell types, and which page of a block lies on which level of its cells.
//!
//! A wordline of multi-level cells holds several pages; the lower ones read and program fast, the upper ones slowly. How
//! page numbers map to levels differs from chip to chip: [`PageMap`] names the maps of the published models.

use crate::name::names;
use alloc::vec::Vec;

/// The most levels of any cell type.
pub const MAX_LEVELS: usize = 5;

/// How many bits a cell holds; as many pages share a wordline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellType {
    /// One bit.
    Slc,
    /// Two bits: lower and upper pages.
    Mlc,
    /// Three bits: lower, centre, upper.
    Tlc,
    /// Four bits: lower, centre-lower, centre-upper, upper.
    Qlc,
    /// Five bits.
    Plc,
}

names!(CellType, "cell type", Slc = "slc", Mlc = "mlc", Tlc = "tlc", Qlc = "qlc", Plc = "plc");

impl CellType {
    /// Bits a cell, pages a wordline.
    pub const fn levels(self) -> usize {
        self as usize + 1
    }
}

/// Which level a page lies on, by its number in the block. Level 0 is the lowest and fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageMap {
    /// Page number modulo levels: NVMeVirt's map, and the textbook's.
    Modulo,
    /// FEMU's tables for 512 pages a block (hw/femu/nand/nand.c:45-121): MLC `LLLLLLuLLuLLuuLLuu…` with the last four
    /// `uLLu`; TLC six lower, two centre, then pairs; QLC likewise. FEMU leaves pages 496 to 511 of QLC unset (all
    /// lower); here the pairs go on. Blocks of more pages continue the pairs. Other cells: modulo.
    Femu,
    /// MQSim's (src/nvm_chip/flash_memory/Flash_Chip.h:85-93): MLC modulo; TLC as [`PageMap::Femu`].
    Mqsim,
}

names!(PageMap, "page map", Modulo = "modulo", Femu = "femu", Mqsim = "mqsim");

impl PageMap {
    /// The level of page `page` (from 0) of a block of `pages` pages.
    pub const fn level(self, cell: CellType, page: u32, pages: u32) -> u8 {
        match (self, cell) {
            (PageMap::Femu, CellType::Mlc) => femu_mlc(page, pages),
            (PageMap::Femu | PageMap::Mqsim, CellType::Tlc) => femu_tlc(page),
            (PageMap::Femu, CellType::Qlc) => femu_qlc(page),
            _ => (page % cell.levels() as u32) as u8,
        }
    }

    /// The level of each page of a block.
    pub fn table(self, cell: CellType, pages: u32) -> Vec<u8> {
        (0..pages).map(|page| self.level(cell, page, pages)).collect()
    }
}

const fn femu_mlc(page: u32, pages: u32) -> u8 {
    match page {
        0..=5 | 7 | 8 => 0,
        6 | 9 => 1,
        508 | 511 if pages <= 512 => 1,
        509 | 510 if pages <= 512 => 0,
        _ => ((page - 10) / 2 % 2) as u8,
    }
}

const fn femu_tlc(page: u32) -> u8 {
    match page {
        0..=5 => 0,
        6 | 7 => 1,
        _ => ((page - 8) / 2 % 3) as u8,
    }
}

const fn femu_qlc(page: u32) -> u8 {
    match page {
        0..=5 => 0,
        6 | 7 => 1,
        _ => ((page - 8) / 2 % 4) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn letters(map: PageMap, cell: CellType, pages: u32) -> String {
        map.table(cell, pages).iter().map(|l| char::from(b'0' + *l)).collect()
    }

    #[test]
    fn femu_mlc_follows_the_published_string_and_its_tail() {
        let map = letters(PageMap::Femu, CellType::Mlc, 512);
        assert_eq!(&map[..18], "000000100100110011");
        assert_eq!(&map[498..], "00110011001001");
        // Lower: 0-5, 7, 8, half of 10..=501, and 502, 503, 506, 507, 509, 510.
        assert_eq!(map.bytes().filter(|b| *b == b'0').count(), 8 + 246 + 6);
        assert_eq!(letters(PageMap::Femu, CellType::Mlc, 1024).len(), 1024);
        assert_eq!(&letters(PageMap::Femu, CellType::Mlc, 1024)[506..514], "00110011");
    }

    #[test]
    fn tlc_and_qlc_begin_low_and_go_on_in_pairs() {
        assert_eq!(&letters(PageMap::Femu, CellType::Tlc, 512)[..20], "00000011001122001122");
        assert_eq!(letters(PageMap::Femu, CellType::Tlc, 256), letters(PageMap::Mqsim, CellType::Tlc, 256));
        assert_eq!(&letters(PageMap::Femu, CellType::Qlc, 512)[..20], "00000011001122330011");
        assert_eq!(letters(PageMap::Mqsim, CellType::Mlc, 6), "010101");
        assert_eq!(letters(PageMap::Modulo, CellType::Plc, 7), "0123401");
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for cell in CellType::ALL {
            assert_eq!(cell.name().parse::<CellType>().as_ref(), Ok(cell));
        }
        for map in PageMap::ALL {
            assert_eq!(map.name().parse::<PageMap>().as_ref(), Ok(map));
        }
        let error = "tcl".parse::<CellType>().unwrap_err();
        assert_eq!(alloc::format!("{error}"), "\"tcl\" is no cell type; known: slc, mlc, tlc, qlc, plc");
    }
}
