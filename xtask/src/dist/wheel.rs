//! The Python package as a wheel: a zip archive that is the same bytes every time (PEP 427; the stable ABI: PEP 384).
//!
//! ```text
//! weir/…                    the package, with weir/_native.abi3.so
//! weir-VERSION.data/scripts/weir        the program, which pip puts beside python
//! weir-VERSION.dist-info/   METADATA, WHEEL, entry_points.txt, licenses, RECORD with the SHA-256 of all
//! ```

use std::io::Write;
use std::path::Path;

use flate2::{Compression, Crc, write::DeflateEncoder};
use sha2::{Digest, Sha256};

use super::build::date;
use super::contents::Source;
use super::elf::Linked;
use super::files::{Files, Node};

/// The folder of the package in the checkout.
const PACKAGE: &str = "bindings/python/weir";

/// The oldest C library that a `manylinux_2_…` tag can name.
const OLDEST_GLIBC: (u32, u32) = (2, 17);

/// A program or a library, and what it is linked against.
pub struct Binary {
    /// As it is packaged.
    pub bytes: Vec<u8>,
    /// What the loader needs for it.
    pub linked: Linked,
}

/// What is in a wheel beside the package's own files.
pub struct Parts<'a> {
    /// `weir/_native.abi3.so`.
    pub module: &'a Binary,
    /// The program.
    pub program: &'a Binary,
    /// Copyright of all that is linked.
    pub copyright: &'a str,
}

/// The wheel's name and its bytes.
///
/// # Errors
/// A file of the checkout that is missing, a library that not every Linux has, a time before 1980.
pub fn wheel(source: &Source<'_>, parts: &Parts<'_>) -> Result<(String, Vec<u8>), String> {
    let version = &source.commit.version;
    let tag = tag(parts)?;
    let info = format!("weir-{version}.dist-info");
    let mut files = Files::default();
    package(&mut files, source)?;
    files.program("weir/_native.abi3.so", parts.module.bytes.as_slice());
    files.program(&format!("weir-{version}.data/scripts/weir"), parts.program.bytes.as_slice());
    let read = |path: &str| std::fs::read_to_string(source.root.join(path)).map_err(|e| format!("{path}: {e}"));
    files.data(&format!("{info}/METADATA"), metadata(version, &read("bindings/python/README.md")?));
    files.data(
        &format!("{info}/WHEEL"),
        format!("Wheel-Version: 1.0\nGenerator: weir xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n"),
    );
    files.data(&format!("{info}/entry_points.txt"), entry_points(&read("bindings/python/pyproject.toml")?)?);
    for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.data(&format!("{info}/licenses/{license}"), read(license)?);
    }
    files.data(&format!("{info}/licenses/copyright"), parts.copyright);
    let record: String = files.contents().map(|(path, bytes)| recorded(path, bytes)).collect();
    files.data(&format!("{info}/RECORD"), format!("{record}{info}/RECORD,,\n"));
    Ok((format!("weir-{version}-{tag}.whl"), zip(&files, source.commit.epoch)?))
}

/// `cp311-abi3-manylinux_2_34_x86_64`: which Python and which C library load it.
fn tag(parts: &Parts<'_>) -> Result<String, String> {
    let mut newest = OLDEST_GLIBC;
    for (what, linked) in [("the module", &parts.module.linked), ("the program", &parts.program.linked)] {
        // Refuses what a distribution may not have.
        linked.depends().map_err(|e| format!("{what} {e}"))?;
        newest = newest.max(linked.glibc.unwrap_or(OLDEST_GLIBC));
    }
    Ok(format!("cp311-abi3-manylinux_{}_{}_x86_64", newest.0, newest.1))
}

/// The package's Python files, stubs and marker.
fn package(files: &mut Files, source: &Source<'_>) -> Result<(), String> {
    let folder = source.root.join(PACKAGE);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{PACKAGE}: {e}"))?;
    for entry in entries {
        let path = entry.map_err(|e| format!("{PACKAGE}: {e}"))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !is_packaged(&path) {
            continue;
        }
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        files.data(&format!("weir/{name}"), bytes);
    }
    Ok(())
}

fn is_packaged(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "py" || end == "pyi") || path.ends_with("py.typed")
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\n\
         Name: weir\n\
         Version: {version}\n\
         Summary: NVMe drives, their flash and the tenants that share them, simulated in process\n\
         License: Apache-2.0 OR MIT\n\
         Requires-Python: >=3.11\n\
         Provides-Extra: data\n\
         Requires-Dist: numpy; extra == \"data\"\n\
         Requires-Dist: pyarrow; extra == \"data\"\n\
         Requires-Dist: pandas; extra == \"data\"\n\
         Requires-Dist: polars; extra == \"data\"\n\
         Provides-Extra: fs\n\
         Requires-Dist: fsspec; extra == \"fs\"\n\
         Description-Content-Type: text/markdown\n\
         \n\
         {readme}"
    )
}

/// The entry points that `pyproject.toml` has, as `entry_points.txt` has them.
///
/// # Errors
/// A line of such a table that is not `name = "module:object"`.
fn entry_points(project: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut is_in = false;
    for line in project.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            let group = line.strip_prefix("[project.entry-points.\"").and_then(|rest| rest.strip_suffix("\"]"));
            is_in = group.is_some();
            group.iter().for_each(|group| text += &format!("[{group}]\n"));
        } else if is_in {
            let (name, object) = line.split_once(" = ").ok_or_else(|| format!("pyproject.toml: {line}"))?;
            text += &format!("{name} = {}\n", object.trim_matches('"'));
        }
    }
    Ok(text)
}

/// A line of RECORD.
fn recorded(path: &str, bytes: &[u8]) -> String {
    format!("{path},sha256={},{}\n", base64(&Sha256::digest(bytes)), bytes.len())
}

/// URL-safe base64 without padding (RFC 4648, section 5).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let wide = group.iter().fold(0u32, |wide, byte| wide << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        let digit = |place: usize| char::from(DIGITS[(wide >> (18 - 6 * place)) as usize & 63]);
        text.extend((0..=group.len()).map(digit));
    }
    text
}

/// A zip archive of the regular files: sorted, every time `epoch` (seconds since 1970), Unix permissions.
///
/// # Errors
/// A time before 1980, or a file that is too large for the format's 32 bits.
pub fn zip(files: &Files, epoch: u64) -> Result<Vec<u8>, String> {
    let DosTime { time, day } = dos_time(epoch)?;
    let (mut archive, mut directory, mut count) = (Vec::new(), Vec::new(), 0u16);
    for (path, node) in files.iter() {
        let Node::File { mode, bytes } = node else { continue };
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        let packed = encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|e| format!("{path}: {e}"))?;
        let size = |length: usize| u32::try_from(length).map_err(|_| format!("{path}: more than 4 GiB"));
        let offset = size(archive.len())?;
        // What the entry and the directory both say: version 2.0, no flags, deflate, time, checksum, sizes, length of the name, no extra.
        let mut common = Vec::new();
        [20u16, 0, 8, time, day].iter().for_each(|field| common.extend(field.to_le_bytes()));
        [crc.sum(), size(packed.len())?, size(bytes.len())?]
            .iter()
            .for_each(|field| common.extend(field.to_le_bytes()));
        [path.len() as u16, 0].iter().for_each(|field| common.extend(field.to_le_bytes()));
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(path.as_bytes());
        archive.extend(&packed);
        directory.extend(b"PK\x01\x02");
        // Made by version 2.0 on Unix.
        directory.extend((3u16 << 8 | 20).to_le_bytes());
        directory.extend(&common);
        // No comment, disk 0, no internal attributes, a regular file's mode.
        [0u16; 3].iter().for_each(|field| directory.extend(field.to_le_bytes()));
        directory.extend(((0o100_000 | mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(path.as_bytes());
        count += 1;
    }
    let size = |length: usize| u32::try_from(length).map_err(|_| "more than 4 GiB".to_owned());
    let (at, length) = (size(archive.len())?, size(directory.len())?);
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06");
    [0, 0, count, count].iter().for_each(|field| archive.extend(field.to_le_bytes()));
    [length, at].iter().for_each(|field| archive.extend(field.to_le_bytes()));
    archive.extend(0u16.to_le_bytes());
    Ok(archive)
}

/// A time as MS-DOS has it: two-second steps, years from 1980 on.
#[derive(Debug, PartialEq, Eq)]
struct DosTime {
    time: u16,
    day: u16,
}

/// Of seconds since 1970; those before 1980 are its first moment.
fn dos_time(epoch: u64) -> Result<DosTime, String> {
    const FIRST: u64 = 315_532_800;
    let text = date(epoch.max(FIRST), "+%Y %-m %-d %-H %-M %-S")?;
    let fields: Vec<u16> = text.split(' ').filter_map(|field| field.parse().ok()).collect();
    let [year, month, day, hour, minute, second] = fields[..] else { return Err(format!("date(1) says {text}")) };
    Ok(DosTime { time: hour << 11 | minute << 5 | (second / 2), day: (year - 1980) << 9 | month << 5 | day })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let said: Vec<String> = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| base64(t.as_bytes())).into();
        assert_eq!(said, ["", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff]), "-_8", "the digits for URLs");
    }

    #[test]
    fn entry_points_are_those_of_the_project() {
        let project = "[project]\nname = \"weir\"\n\n[project.entry-points.\"fsspec.specs\"]\nweir = \"weir.fs:X\"\n\n[tool.x]\na = 1\n";
        assert_eq!(entry_points(project).unwrap(), "[fsspec.specs]\nweir = weir.fs:X\n");
        assert_eq!(entry_points("[tool.x]\na = 1\n").unwrap(), "");
        assert!(entry_points("[project.entry-points.\"x\"]\nnothing\n").is_err());
    }

    #[test]
    fn times_of_the_archive() {
        assert_eq!(dos_time(0), Ok(DosTime { time: 0, day: 1 << 5 | 1 }), "1980-01-01");
        // 2026-11-28 12:34:56
        let (time, day) = (12 << 11 | 34 << 5 | 28, 46 << 9 | 11 << 5 | 28);
        assert_eq!(dos_time(1_795_869_296), Ok(DosTime { time, day }));
    }

    #[test]
    fn a_zip_has_each_file_once_and_ends_with_its_directory() {
        let mut files = Files::default();
        files.data("weir/__init__.py", "x = 1\n");
        files.program("weir/_native.abi3.so", vec![7; 10_000]);
        let archive = zip(&files, 0).unwrap();
        assert_eq!(archive, zip(&files, 0).unwrap());
        let found = |what: &[u8]| archive.windows(what.len()).filter(|window| window == &what).count();
        assert_eq!((found(b"PK\x03\x04"), found(b"PK\x01\x02"), found(b"PK\x05\x06")), (2, 2, 1));
        assert!(archive.len() < 1000, "packed: {}", archive.len());
        let end = &archive[archive.len() - 22..];
        let at = u32::from_le_bytes(end[16..20].try_into().unwrap()) as usize;
        assert_eq!(&archive[at..at + 4], b"PK\x01\x02");
    }
}
