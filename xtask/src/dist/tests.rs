use std::io::Read;

use super::files::{Files, gzip, hex};
use super::*;
use serde_json::Value;

fn sample() -> Files {
    let mut files = Files::default();
    files.program("usr/bin/weir", "program");
    files.data("etc/weir/weir.toml", "[node]\n");
    files.link("usr/lib/libweir.so.0", "libweir.so.0.1.0");
    files
}

/// Name, kind, mode and times of each entry.
fn entries(tar: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let line = |entry: tar::Entry<'_, &[u8]>| {
        let header = entry.header();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
        format!("{name} {:?} {:o} {owner:?}", header.entry_type(), header.mode().unwrap())
    };
    entries.map(line).collect()
}

#[test]
fn a_tar_is_sorted_and_roots() {
    let tar = sample().tar("./", 7).unwrap();
    let expected = [
        "./ Directory 755 (0, 0, 7)",
        "./etc/ Directory 755 (0, 0, 7)",
        "./etc/weir/ Directory 755 (0, 0, 7)",
        "./etc/weir/weir.toml Regular 644 (0, 0, 7)",
        "./usr/ Directory 755 (0, 0, 7)",
        "./usr/bin/ Directory 755 (0, 0, 7)",
        "./usr/bin/weir Regular 755 (0, 0, 7)",
        "./usr/lib/ Directory 755 (0, 0, 7)",
        "./usr/lib/libweir.so.0 Symlink 777 (0, 0, 7)",
    ];
    assert_eq!(entries(&tar), expected);
    let mut long = Files::default();
    long.data(&"x".repeat(99), "");
    assert!(long.tar("./", 0).unwrap_err().contains("longer than 100 bytes"));
}

#[test]
fn gzip_tells_no_time() {
    let zipped = gzip(b"text").unwrap();
    assert_eq!(zipped[..10][4..8], [0; 4]);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&zipped[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
}

fn sample_deb() -> deb::Deb {
    deb::Deb {
        package: "weir",
        version: "1.2".into(),
        is_for_all: false,
        section: "admin",
        depends: "libc6 (>= 2.34)".into(),
        synopsis: "one line",
        description: "more\nlines",
        files: sample(),
        conffiles: vec!["etc/weir/weir.toml"],
        scripts: vec![("postinst", "#!/bin/sh\n".into())],
        control_files: Vec::new(),
    }
}

#[test]
fn a_deb_has_its_three_members() {
    let deb = sample_deb();
    assert_eq!(deb.name(), "weir_1.2_amd64.deb");
    let bytes = deb.bytes(7).unwrap();
    let mut archive = ar::Archive::new(bytes.as_slice());
    let mut members = Vec::new();
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8_lossy(entry.header().identifier()).into_owned();
        assert_eq!((entry.header().mtime(), entry.header().uid()), (7, 0));
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        members.push((name, contents));
    }
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    assert_eq!(members[0].1, b"2.0\n");
    let mut control = tar::Archive::new(flate2::read::GzDecoder::new(&members[1].1[..]));
    let mut texts = std::collections::BTreeMap::new();
    for entry in control.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        texts.insert(name, text);
    }
    assert_eq!(texts["./conffiles"], "/etc/weir/weir.toml\n");
    // printf program | md5sum
    assert_eq!(texts["./md5sums"], "a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/weir\n");
    assert!(texts["./control"].contains("Installed-Size: 8\nDepends: libc6 (>= 2.34)\n"), "{}", texts["./control"]);
    assert!(texts["./control"].ends_with("Description: one line\n more\n lines\n"), "{}", texts["./control"]);
    assert_eq!(bytes, sample_deb().bytes(7).unwrap());
    assert_ne!(bytes, sample_deb().bytes(8).unwrap());
}

/// Reads the archive as a client of the image specification does: by digests alone.
#[test]
fn an_image_is_found_by_its_digests() {
    let image = oci::Image {
        root: sample(),
        entrypoint: "/usr/bin/weir",
        cmd: vec!["up"],
        ports: vec!["4420/tcp"],
        tag: "1.2".into(),
        labels: vec![("version", "1.2".into())],
    };
    let bytes = image.bytes(7, "1970-01-01T00:00:07Z").unwrap();
    let mut files = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        files.insert(String::from_utf8_lossy(&entry.path_bytes()).into_owned(), contents);
    }
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let bytes = &files[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(digest, format!("sha256:{}", hex(&Sha256::digest(bytes))));
        assert_eq!(descriptor["size"], bytes.len());
        bytes.clone()
    };
    assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"]);
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1.2");
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/weir");
    assert_eq!(config["config"]["ExposedPorts"]["4420/tcp"], serde_json::json!({}));
    let mut layer = Vec::new();
    flate2::read::GzDecoder::new(&blob(&manifest["layers"][0])[..]).read_to_end(&mut layer).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&Sha256::digest(&layer))));
    assert_eq!(layer, sample().tar("", 7).unwrap());
    assert_eq!(bytes, image.bytes(7, "1970-01-01T00:00:07Z").unwrap());
}

/// This very test is linked against the C library.
#[test]
fn what_a_program_is_linked_against() {
    let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let linked = Linked::of(&this).unwrap();
    assert!(linked.libraries.contains(&"libc.so.6".into()) && !linked.is_static() && linked.symbols, "{linked:?}");
    assert!(linked.depends().unwrap().starts_with("libc6 (>= 2."), "{linked:?}");
    assert!(linked.glibc.is_some_and(|version| version >= (2, 14)), "{linked:?}");
    let odd = Linked { libraries: vec!["libodd.so.1".into()], ..Linked::default() };
    assert!(odd.depends().unwrap_err().contains("libodd.so.1"));
    assert!(Linked::of(b"#!/bin/sh\n").is_err());
}

#[test]
fn the_command_line() {
    let parse = |line: &str| Options::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
    let all = parse("").unwrap();
    // The jar needs Maven, and is made where it is asked for.
    assert!(KINDS.iter().all(|kind| all.wants(kind) == (*kind != "jar")));
    assert!(parse("--only jar").unwrap().wants("jar"));
    let some = parse("--only deb,lib --out=o --binary b").unwrap();
    assert!(some.wants("deb") && some.wants("lib") && !some.wants("oci"));
    assert_eq!((some.out, some.binary), (Some("o".into()), Some("b".into())));
    assert!(parse("--only rpm").unwrap_err().contains("deb, tar, oci, lib"));
    assert!(parse("--out").unwrap_err().contains("wants a value"));
    assert!(parse("--odd").is_err());
}
