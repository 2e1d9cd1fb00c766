use super::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_spec::nvme::entry::SglDescriptor as D;

/// Memory of words; what was never written cannot be read.
#[derive(Default)]
struct Words(BTreeMap<u64, u64>);

impl Words {
    fn put(&mut self, at: u64, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            self.0.insert(at + i as u64 * 8, *word);
        }
    }
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Status> {
        for (i, bytes) in into.chunks_mut(8).enumerate() {
            let word = self.0.get(&address.wrapping_add(i as u64 * 8)).ok_or(Status::DATA_TRANSFER_ERROR)?;
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
    fn walk(&self, data: DataPointer, direction: Direction, offset: u32, len: u32) -> Result<Vec<DataPiece>, Status> {
        let mut walk = Walk::new(&data, direction, offset, len);
        let mut pieces = Vec::new();
        while let Some(piece) = walk.next(&mut |address, into: &mut [u8]| self.read(address, into))? {
            pieces.push(piece);
        }
        assert_eq!(pieces.iter().map(|p| u64::from(p.len())).sum::<u64>(), u64::from(len));
        Ok(pieces)
    }
    fn all(&self, data: DataPointer) -> Result<Vec<DataPiece>, Status> {
        self.walk(data, Direction::ToHost, 0, data.len())
    }
}

fn memory(address: u64, len: u32) -> DataPiece {
    DataPiece::Memory { address, len }
}

fn sgl(kind: u8, address: u64, len: u32, total: u32) -> DataPointer {
    DataPointer::sgl(D::new(kind, address, len), total)
}

#[test]
fn prp2_is_a_page_or_a_list_by_the_length_of_the_whole_command() {
    let mut m = Words::default();
    m.put(0x9000, &[0x20000, 0x30000]);
    // Two pages from the first one's begin; with an offset the same length needs a third one.
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x9000, 12, 8192)), Ok(vec![memory(0x1000, 4096), memory(0x9000, 4096)]));
    assert_eq!(
        m.all(DataPointer::prp(0x1800, 0x9000, 12, 8192)),
        Ok(vec![memory(0x1800, 2048), memory(0x20000, 4096), memory(0x30000, 2048)])
    );
    // A part of the command does not change what PRP2 is.
    let data = DataPointer::prp(0x1800, 0x9000, 12, 8192);
    assert_eq!(m.walk(data, Direction::FromHost, 2048, 4), Ok(vec![memory(0x20000, 4)]));
    assert_eq!(m.walk(data, Direction::FromHost, 2047, 2), Ok(vec![memory(0x1fff, 1), memory(0x20000, 1)]));
    // One page: PRP2 is not looked at.
    assert_eq!(m.all(DataPointer::prp(0x1000, 7, 12, 4096)), Ok(vec![memory(0x1000, 4096)]));
    // Pages are as large as CC.MPS says.
    assert_eq!(m.all(DataPointer::prp(0x1000, 7, 13, 4096)), Ok(vec![memory(0x1000, 4096)]));
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x4000, 13, 8192)), Ok(vec![memory(0x1000, 4096), memory(0x4000, 4096)]));
}

#[test]
fn the_last_slot_of_a_list_leads_on_only_if_more_than_one_entry_is_to_come() {
    let mut m = Words::default();
    // A list in the last two slots of its page: two entries fill it, three need a second list.
    m.put(0x9ff0, &[0x20000, 0x30000]);
    m.put(0x30000, &[0x50000, 0x60000]);
    let pieces = |pages: &[u64]| -> Vec<DataPiece> { pages.iter().map(|p| memory(*p, 4096)).collect() };
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x9ff0, 12, 3 * 4096)), Ok(pieces(&[0x1000, 0x20000, 0x30000])));
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x9ff0, 12, 4 * 4096)), Ok(pieces(&[0x1000, 0x20000, 0x50000, 0x60000])));
    // A list that begins in the last slot leads on at once.
    m.put(0xaff8, &[0x30000]);
    assert_eq!(m.all(DataPointer::prp(0x1000, 0xaff8, 12, 3 * 4096)), Ok(pieces(&[0x1000, 0x50000, 0x60000])));
}

#[test]
fn prps_out_of_place() {
    let mut m = Words::default();
    m.put(0x9000, &[0x20004, 0x30000]);
    m.put(0xa000, &[0x20000, 0x30000]);
    m.put(0xaff8, &[0x30008]);
    let bad = Err(Status::PRP_OFFSET_INVALID.dnr());
    assert_eq!(m.all(DataPointer::prp(0x1002, 0, 12, 512)), bad, "PRP1 is not a dword's address");
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x9004, 12, 8192)), bad, "the second page has an offset");
    assert_eq!(m.all(DataPointer::prp(0x1000, 0xa004, 12, 12288)), bad, "the list is not a qword's address");
    assert_eq!(m.all(DataPointer::prp(0x1000, 0x9000, 12, 12288)), bad, "an entry has an offset");
    assert_eq!(m.all(DataPointer::prp(0x1000, 0xaff8, 12, 12288)), bad, "the next list is not a page");
    let gone = Err(Status::DATA_TRANSFER_ERROR);
    assert_eq!(m.all(DataPointer::prp(0x1000, 0xb000, 12, 12288)), gone, "the list is nowhere");
    // The end of the address space.
    m.put(0xffff_ffff_ffff_fff8, &[0xffff_ffff_ffff_f000]);
    m.put(0xffff_ffff_ffff_f000, &[0x1000, 0x2000]);
    assert_eq!(
        m.all(DataPointer::prp(0x4000, 0xffff_ffff_ffff_fff8, 12, 12288)).map(|p| p.len()),
        Ok(2),
        "two pages that follow each other, behind the first one"
    );
}

#[test]
fn neighbours_come_as_one_piece() {
    let mut m = Words::default();
    m.put(0x9000, &[0x2000, 0x3000, 0x5000]);
    assert_eq!(
        m.all(DataPointer::prp(0x1010, 0x9000, 12, 3 * 4096)),
        Ok(vec![memory(0x1010, 0x2ff0), memory(0x5000, 16)])
    );
}

#[test]
fn descriptors_of_every_type() {
    let mut m = Words::default();
    let words = |list: &[D]| list.iter().flat_map(|d| d.words()).collect::<Vec<u64>>();
    m.put(0x9000, &words(&[D::new(0, 0x1003, 5), D::new(0, 0, 0), D::new(0x10, 0, 7), D::new(0x30, 0xa000, 32)]));
    m.put(0xa000, &words(&[D::new(0, 0x20000, 4), D::new(0, 0x30000, 100)]));
    // A segment that leads to the last segment; the list may be longer than the command.
    let data = sgl(D::SEGMENT, 0x9000, 64, 20);
    assert_eq!(
        m.all(data),
        Ok(vec![memory(0x1003, 5), DataPiece::Bucket { len: 7 }, memory(0x20000, 4), memory(0x30000, 4)])
    );
    // On the way from the host a bit bucket has no bytes.
    assert_eq!(
        m.walk(data, Direction::FromHost, 4, 8),
        Ok(vec![memory(0x1007, 1), memory(0x20000, 4), memory(0x30000, 3)])
    );
    assert_eq!(m.walk(data, Direction::ToHost, 6, 7), Ok(vec![DataPiece::Bucket { len: 6 }, memory(0x20000, 1)]));
    // The command itself holds the only one.
    assert_eq!(m.all(sgl(0, 0x77, 100, 20)), Ok(vec![memory(0x77, 20)]));
    assert_eq!(m.all(sgl(D::BIT_BUCKET, 0, 20, 20)), Ok(vec![DataPiece::Bucket { len: 20 }]));
}

#[test]
fn lists_that_are_wrong() {
    let mut m = Words::default();
    let words = |list: &[D]| list.iter().flat_map(|d| d.words()).collect::<Vec<u64>>();
    m.put(0x9000, &words(&[D::new(0x30, 0xa000, 16), D::new(0, 0x1000, 64)]));
    m.put(0xa000, &words(&[D::new(0x20, 0xa000, 16)]));
    m.put(0xb000, &words(&[D::new(0x40, 0, 64), D::new(0, 0, 10)]));
    m.put(0xb010, &words(&[D::new(0, 0x1000, 10)]));
    let short = Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    assert_eq!(m.all(sgl(0, 0x77, 19, 20)), short);
    assert_eq!(m.all(sgl(D::LAST_SEGMENT, 0xb010, 16, 11)), short);
    assert_eq!(m.all(sgl(D::SEGMENT, 0xb010, 16, 11)), short);
    assert_eq!(m.walk(sgl(D::BIT_BUCKET, 0, 20, 20), Direction::FromHost, 0, 20), short);
    let count = Err(Status::INVALID_SGL_COUNT.dnr());
    assert_eq!(m.all(sgl(D::SEGMENT, 0x9000, 32, 20)), count, "a segment descriptor before the end of its segment");
    let segment = Err(Status::INVALID_SGL_SEGMENT.dnr());
    assert_eq!(m.all(sgl(D::LAST_SEGMENT, 0xa000, 16, 20)), segment, "the last segment leads on");
    assert_eq!(m.all(sgl(D::LAST_SEGMENT, 0xa000, 0, 20)), segment);
    assert_eq!(m.all(sgl(D::SEGMENT, 0xa000, 24, 20)), segment);
    assert_eq!(m.all(sgl(D::SEGMENT, 0xa004, 16, 20)), segment);
    for kind in [D::DATA_BLOCK_OFFSET, D::KEYED_DATA_BLOCK, 0x41, 0x11, 0x21, 0x31, D::TRANSPORT_DATA_BLOCK, 0xf0, 0x60]
    {
        assert_eq!(m.all(sgl(kind, 0xa000, 32, 20)), Err(Status::SGL_TYPE_INVALID.dnr()), "{kind:#x}");
    }
    assert_eq!(m.all(sgl(D::LAST_SEGMENT, 0xb000, 32, 20)), Err(Status::SGL_TYPE_INVALID.dnr()));
    // A segment that leads to itself ends.
    assert_eq!(m.all(sgl(D::SEGMENT, 0xa000, 16, 20)), count);
    // A list of nothing ends as well.
    let nothing: Vec<u64> = words(&vec![D::new(0, 0, 0); DESCRIPTORS_MAX as usize + 1]);
    m.put(0x100_0000, &nothing);
    assert_eq!(m.all(sgl(D::LAST_SEGMENT, 0x100_0000, (DESCRIPTORS_MAX + 1) * 16, 20)), count);
}

/// Addresses of single bytes, as slowly as can be.
fn bytes(pieces: &[DataPiece]) -> Vec<Option<u64>> {
    let each = |p: &DataPiece| match *p {
        DataPiece::Memory { address, len } => (0..u64::from(len)).map(|i| Some(address + i)).collect::<Vec<_>>(),
        DataPiece::Bucket { len } => vec![None; len as usize],
    };
    pieces.iter().flat_map(each).collect()
}

proptest! {
    /// A host lays pages into lists that chain as the standard says; every part of the command is where the pages say.
    #[test]
    fn lists_of_any_length_and_place(
        shift in 12u8..15, first in 0u64..4096, slot in 0u64..512, seed in any::<u64>(), len in 1u32..5_000_000,
        cut in any::<(u32, u32)>(),
    ) {
        let (page, mut m, mut x) = (1u64 << shift, Words::default(), seed | 1);
        let mut fresh = || { x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17); (x >> 20) << shift };
        let prp1 = fresh() + first * 4 % page;
        let rest = u64::from(len).saturating_sub(page - prp1 % page);
        let pages: Vec<u64> = (0..rest.div_ceil(page)).map(|_| fresh()).collect();
        let prp2 = if pages.len() < 2 { pages.first().copied().unwrap_or(3) } else {
            let list = fresh() + slot * 8 % page;
            let (mut at, mut left) = (list, &pages[..]);
            loop {
                let slots = ((page - at % page) / 8) as usize;
                if left.len() <= slots {
                    m.put(at, left);
                    break;
                }
                let (here, more) = left.split_at(slots - 1);
                let next = fresh();
                m.put(at, here);
                m.put(at + here.len() as u64 * 8, &[next]);
                (at, left) = (next, more);
            }
            list
        };
        let place = |i: u64| match i.checked_sub(page - prp1 % page) {
            None => prp1 + i,
            Some(behind) => pages[(behind / page) as usize] + behind % page,
        };
        let offset = cut.0 % len;
        let part = (1 + cut.1 % 20_000).min(len - offset);
        let found = m.walk(DataPointer::prp(prp1, prp2, shift, len), Direction::ToHost, offset, part).unwrap();
        let expected: Vec<_> = (offset..offset + part).map(|i| Some(place(i.into()))).collect();
        prop_assert_eq!(bytes(&found), expected);
        m.all(DataPointer::prp(prp1, prp2, shift, len)).unwrap();
    }

    /// The same for descriptors in segments of any length.
    #[test]
    fn segments_of_any_length(
        blocks in prop::collection::vec((any::<u32>(), 0u32..300, 0u8..5), 1..120), segment in 2usize..40, cut in any::<(u32, u32)>(),
    ) {
        let mut m = Words::default();
        let descriptors: Vec<D> = blocks
            .iter()
            .map(|(address, len, kind)| D::new(if *kind == 0 { D::BIT_BUCKET } else { 0 }, u64::from(*address), *len))
            .collect();
        let expected: Vec<_> = blocks
            .iter()
            .flat_map(|(address, len, kind)| (0..*len).map(move |i| (*kind != 0).then_some(u64::from(*address) + u64::from(i))))
            .collect();
        let (mut left, mut at) = (&descriptors[..], 0x1_0000_0000u64);
        let lead = |at, left: &[D]| {
            let last = left.len() <= segment;
            let n = if last { left.len() } else { segment };
            D::new(if last { D::LAST_SEGMENT } else { D::SEGMENT }, at, n as u32 * 16)
        };
        let head = lead(at, left);
        while !left.is_empty() {
            let n = if left.len() <= segment { left.len() } else { segment - 1 };
            for (i, d) in left[..n].iter().enumerate() {
                m.put(at + i as u64 * 16, &d.words());
            }
            left = &left[n..];
            if !left.is_empty() {
                let next = at + 0x1000;
                m.put(at + n as u64 * 16, &lead(next, left).words());
                at = next;
            }
        }
        let total = expected.len() as u32;
        prop_assume!(total > 0);
        let offset = cut.0 % total;
        let part = 1 + cut.1 % (total - offset);
        let found = m.walk(DataPointer::sgl(head, total), Direction::ToHost, offset, part).unwrap();
        prop_assert_eq!(&bytes(&found)[..], &expected[offset as usize..][..part as usize]);
    }
}
