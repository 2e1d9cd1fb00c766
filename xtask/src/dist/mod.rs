//! Packages: `cargo xtask dist [--only deb,tar,oci,lib,wheel,doc,jar] [--out DIR] [--binary FILE] [--library FILE]
//! [--module FILE] [--java FILE]`. Without `--only`: all but `jar`, which needs Maven.
//!
//! | kind | files | from |
//! |---|---|---|
//! | `deb` | `weir_VERSION_amd64.deb` | a program linked against the C library |
//! | `tar` | `weir-VERSION-x86_64-linux.tar.gz` | a static program |
//! | `oci` | `weir-VERSION-oci.tar` | a static program |
//! | `lib` | `libweir0_VERSION_amd64.deb`, `libweir-dev_VERSION_amd64.deb` | `libweir.so` |
//! | `wheel` | `weir-VERSION-cp311-abi3-manylinux_2_N_x86_64.whl` | `libweir_native.so` and a program linked against the C library |
//! | `jar` | `weir-hadoop-VERSION.jar` | `libweir_java.so`, and classes that Maven compiles |
//! | `doc` | `weir-doc_VERSION_all.deb`, `weir-VERSION-site.tar.gz` | `docs/`, by mdBook |
//!
//! ```text
//! build (cargo) ──▶ elf (what it needs) ──▶ contents (what goes where) ──▶ deb, oci, wheel, jar ──▶ files (tar, gzip)
//!                   copyright (cargo metadata) ──▶┘
//! docs/ ──▶ site (mdBook) ────────────▶┘
//! ```
//!
//! The same commit gives the same bytes: entries are sorted and owned by root, times are those of the commit (or `SOURCE_DATE_EPOCH`),
//! and no path of the machine gets into a program. `SHA256SUMS` has what was made. Without `--out`: `dist-packages` in the target folder.

mod build;
mod contents;
mod copyright;
mod deb;
mod elf;
mod files;
mod jar;
mod oci;
mod site;
#[cfg(test)]
mod tests;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use build::{Commit, Kind};
use contents::Source;
use elf::Linked;

const USAGE: &str = "usage: cargo xtask dist [--only deb,tar,oci,lib,wheel,doc,jar] [--out DIR] [--binary FILE] [--library FILE] [--module FILE] [--java FILE]";

/// The kinds of packages.
const KINDS: [&str; 7] = ["deb", "tar", "oci", "lib", "wheel", "doc", "jar"];

/// The kind that is made only where it is asked for: it needs Maven, and the network where Maven has not been used.
const BY_NAME: &str = "jar";

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    only: Vec<String>,
    out: Option<PathBuf>,
    binary: Option<PathBuf>,
    library: Option<PathBuf>,
    module: Option<PathBuf>,
    java: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            only: KINDS.iter().filter(|kind| **kind != BY_NAME).map(|kind| (*kind).into()).collect(),
            ..Self::default()
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
            let mut value =
                || value.or_else(|| args.next().map(String::as_str)).ok_or_else(|| format!("{name} wants a value"));
            match name {
                "--only" => options.only = kinds(value()?)?,
                "--out" => options.out = Some(value()?.into()),
                "--binary" => options.binary = Some(value()?.into()),
                "--library" => options.library = Some(value()?.into()),
                "--module" => options.module = Some(value()?.into()),
                "--java" => options.java = Some(value()?.into()),
                _ => return Err(format!("unknown argument '{arg}'")),
            }
        }
        Ok(options)
    }

    fn wants(&self, kind: &str) -> bool {
        self.only.iter().any(|only| only == kind)
    }
}

fn kinds(list: &str) -> Result<Vec<String>, String> {
    let known = |kind: &str| {
        if KINDS.contains(&kind) {
            Ok(kind.to_owned())
        } else {
            Err(format!("--only: there is no kind '{kind}'; there is {}", KINDS.join(", ")))
        }
    };
    list.split(',').map(known).collect()
}

/// Exit status 2 for a wrong command line, 1 for a package that could not be made.
pub fn main(root: &Path, args: &[String]) -> u8 {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("dist: {message}\n{USAGE}");
            return 2;
        }
    };
    match run(root, &options) {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("dist: {message}");
            1
        }
    }
}

fn run(root: &Path, options: &Options) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|e| format!("Cargo.toml: {e}"))?;
    let release = manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    let release = release.ok_or("Cargo.toml: no version of the workspace")?;
    let out = options.out.clone().unwrap_or_else(|| build::target(root).join("dist-packages"));
    let scratch = out.join(".scratch");
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let commit = Commit::of(root, release);
    let source = Source { root, commit: &commit, scratch: &scratch };
    let made = make(&source, release, options);
    let _ = std::fs::remove_dir_all(&scratch);
    write(&out, &made?)
}

/// Names and bytes of all that was asked for.
fn make(source: &Source<'_>, release: &str, options: &Options) -> Result<Vec<(String, Vec<u8>)>, String> {
    let Source { root, commit, scratch } = *source;
    let mut metadata = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    metadata.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let metadata = build::output(metadata.current_dir(root))?;
    let metadata = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let ours = std::fs::read_to_string(root.join("LICENSE-MIT")).map_err(|e| format!("LICENSE-MIT: {e}"))?;
    let copyright = |package: &str, linked: &Linked| {
        copyright::file(&copyright::linked_crates(&metadata, package)?, &ours, linked.is_static())
    };
    let built = |given: &Option<PathBuf>, kind| given.clone().map_or_else(|| build::build(root, commit, kind), Ok);
    let mut made = Vec::new();
    if options.wants("deb") {
        let path = built(&options.binary, Kind::Program)?;
        let (bytes, linked) = build::stripped(&path, scratch)?;
        let deb = contents::deb(source, &path, &bytes, &linked, &copyright("weir-cli", &linked)?)?;
        made.push((deb.name(), deb.bytes(commit.epoch)?));
    }
    if options.wants("tar") || options.wants("oci") {
        let path = built(&options.binary, Kind::StaticProgram)?;
        let (bytes, linked) = build::stripped(&path, scratch)?;
        if !linked.is_static() {
            return Err(format!(
                "{}: is linked against {}; the tarball and the image want a static program: leave --binary out, or add --only deb",
                path.display(),
                linked.libraries.join(", ")
            ));
        }
        let copyright = copyright("weir-cli", &linked)?;
        if options.wants("tar") {
            let folder = format!("weir-{}", commit.version);
            let tar = contents::tarball(source, &path, &bytes, &copyright)?.tar(&format!("{folder}/"), commit.epoch)?;
            made.push((format!("{folder}-x86_64-linux.tar.gz"), files::gzip(&tar)?));
        }
        if options.wants("oci") {
            let created = build::date(commit.epoch, "+%Y-%m-%dT%H:%M:%SZ")?;
            let image = contents::image(source, &bytes, &copyright)?;
            made.push((format!("weir-{}-oci.tar", commit.version), image.bytes(commit.epoch, &created)?));
        }
    }
    if options.wants("lib") {
        let (bytes, linked) = build::stripped(&built(&options.library, Kind::Library)?, scratch)?;
        for deb in contents::library_debs(source, release, &bytes, &linked, &copyright("weir-capi", &linked)?)? {
            made.push((deb.name(), deb.bytes(commit.epoch)?));
        }
    }
    if options.wants("wheel") {
        let binary = |given, kind| {
            let (bytes, linked) = build::stripped(&built(given, kind)?, scratch)?;
            Ok::<_, String>(wheel::Binary { bytes, linked })
        };
        let (program, module) = (binary(&options.binary, Kind::Program)?, binary(&options.module, Kind::Module)?);
        let copyright = copyright("weir-cli", &program.linked)? + &copyright("weir-python", &module.linked)?;
        let parts = wheel::Parts { module: &module, program: &program, copyright: &copyright };
        made.push(wheel::wheel(source, &parts)?);
    }
    if options.wants("jar") {
        let (bytes, linked) = build::stripped(&built(&options.java, Kind::JavaLibrary)?, scratch)?;
        let copyright = copyright("weir-java", &linked)?;
        made.push(jar::jar(source, &wheel::Binary { bytes, linked }, &copyright)?);
    }
    if options.wants("doc") {
        let site = site::build(root, scratch)?;
        let tar = contents::site(&site)?.tar("weir-site/", commit.epoch)?;
        made.push((format!("weir-{}-site.tar.gz", commit.version), files::gzip(&tar)?));
        let deb = contents::site_deb(source, &site, &site::copyright(&ours))?;
        made.push((deb.name(), deb.bytes(commit.epoch)?));
    }
    Ok(made)
}

/// Writes each file as a whole, then `SHA256SUMS`.
fn write(out: &Path, made: &[(String, Vec<u8>)]) -> Result<(), String> {
    let sum = |bytes: &[u8]| files::hex(&Sha256::digest(bytes));
    let sums: String = made.iter().map(|(name, bytes)| format!("{}  {name}\n", sum(bytes))).collect();
    let put = |name: &str, bytes: &[u8]| {
        let (new, path) = (out.join(format!("{name}.new")), out.join(name));
        let done = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path));
        done.map_err(|e| format!("{}: {e}", path.display()))
    };
    for (name, bytes) in made {
        put(name, bytes)?;
        println!("{} {} bytes", out.join(name).display(), bytes.len());
    }
    put("SHA256SUMS", sums.as_bytes())
}
