use super::contents::DataRanges;
use super::file::{ImagePiece, ImageSource, ImageTarget, is_zero};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use weir_api::{DataRange, VolumeContents};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-image-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn zeroes_are_told_from_others_at_every_place() {
    assert!(is_zero(&[]) && is_zero(&[0; 10_000]));
    for at in [0, 1, 4095, 4096, 9999] {
        let mut bytes = [0; 10_000];
        bytes[at] = 1;
        assert!(!is_zero(&bytes), "{at}");
    }
}

#[test]
fn a_file_has_the_bytes_and_holes_for_zeroes_and_its_name_at_the_end() {
    let folder = folder("target");
    let path = folder.join("a.img");
    let name = path.to_str().unwrap();
    let mut target = ImageTarget::create(name, false).unwrap_or_else(|e| panic!("{}", e.text()));
    let mut piece = vec![0; 64 << 10];
    piece[5000] = 7;
    piece[60_000] = 8;
    assert_eq!(target.write(1 << 20, &piece).unwrap_or(0), 8192);
    assert!(!path.exists());
    target.finish(4 << 20).unwrap_or_else(|e| panic!("{}", e.text()));
    let bytes = std::fs::read(&path).unwrap();
    let mut expected = vec![0; 4 << 20];
    expected[1 << 20..][..piece.len()].copy_from_slice(&piece);
    assert!(bytes == expected);
    assert!(path.metadata().unwrap().blocks() * 512 <= 64 << 10, "zeroes take room");
    assert!(!folder.join("a.img.partial").exists());
    // It is there now, and what does not end leaves it as it was.
    assert!(ImageTarget::create(name, false).is_err_and(|e| e.text().contains("-f replaces it")));
    let mut target = ImageTarget::create(name, true).unwrap_or_else(|e| panic!("{}", e.text()));
    assert_eq!(target.write(0, &[1; 4096]).unwrap_or(0), 4096);
    drop(target);
    assert!(std::fs::read(&path).unwrap() == expected && !folder.join("a.img.partial").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_source_gives_what_is_no_hole_in_its_order() {
    let folder = folder("source");
    let path = folder.join("b.img");
    let file = File::create(&path).unwrap();
    file.set_len((8 << 20) + 100).unwrap();
    file.write_all_at(&[1; 10_000], 2 << 20).unwrap();
    file.write_all_at(&[2; 100], 8 << 20).unwrap();
    let mut source = ImageSource::open(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{}", e.text()));
    assert_eq!(source.len(), Some((8 << 20) + 100));
    let (mut buffer, mut seen, mut bytes) = (vec![0; 4096], Vec::new(), vec![0; (8 << 20) + 100]);
    while let Some(piece) = source.next(&mut buffer).unwrap_or_else(|e| panic!("{}", e.text())) {
        bytes[piece.at as usize..][..piece.len].copy_from_slice(&buffer[..piece.len]);
        seen.push(piece);
    }
    assert!(bytes == std::fs::read(&path).unwrap());
    assert!(seen.iter().all(|piece| piece.at % 4096 == 0), "{seen:?}");
    assert_eq!(seen.last(), Some(&ImagePiece { at: 8 << 20, len: 100, is_zero: false }));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn images_of_other_kinds_are_told_by_name() {
    let folder = folder("kinds");
    let open = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        ImageSource::open(path.to_str().unwrap()).map(|_| ()).map_err(|e| e.text().to_string())
    };
    let qcow2 = open("c.qcow2", b"QFI\xfb\0\0\0\x03").expect_err("it is no raw image");
    assert!(qcow2.contains("qcow2") && qcow2.contains("qemu-img convert"), "{qcow2}");
    let gzip = open("c.img.gz", b"\x1f\x8b\x08\0\0\0\0\0").expect_err("it is no raw image");
    assert!(gzip.contains("gzip -dc"), "{gzip}");
    assert_eq!(open("c.img", b"\xeb\x63\x90\0"), Ok(()));
    assert!(ImageSource::open(folder.to_str().unwrap()).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

fn contents(ranges: &[(u64, u64)], next_bytes: Option<u64>) -> VolumeContents {
    let range =
        |(offset_bytes, size_bytes): &(u64, u64)| DataRange { offset_bytes: *offset_bytes, size_bytes: *size_bytes };
    VolumeContents { ranges: ranges.iter().map(range).collect(), next_bytes }
}

#[test]
fn what_is_to_be_read_is_asked_for_part_by_part() {
    let mut asked = Vec::new();
    let mut ranges = DataRanges::new(|from| {
        asked.push(from);
        Ok(match from {
            0 => contents(&[(0, 10), (30, 5)], Some(40)),
            40 => contents(&[], Some(80)),
            _ => contents(&[(95, 5)], None),
        })
    });
    let mut parts = Vec::new();
    while let Some(part) = ranges.next(4, 100).unwrap_or_else(|e| panic!("{}", e.text())) {
        parts.push(part);
    }
    assert_eq!(parts, [0..4, 4..8, 8..10, 30..34, 34..35, 95..99, 99..100]);
    drop(ranges);
    assert_eq!(asked, [0, 40, 80]);
}

#[test]
fn what_a_node_cannot_mean_is_refused() {
    let wrong = [
        contents(&[(0, 101)], None),
        contents(&[(5, 5), (7, 1)], None),
        contents(&[(50, 20)], Some(60)),
        contents(&[(u64::MAX, 2)], None),
        contents(&[], Some(0)),
    ];
    for wrong in wrong {
        let mut ranges = DataRanges::new(|_| Ok(wrong.clone()));
        let why = ranges.next(4, 100).err().unwrap_or_else(|| panic!("{wrong:?}"));
        assert!(why.text().contains("out of order"), "{}", why.text());
    }
}
