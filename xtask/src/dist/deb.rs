//! A Debian binary package, format 2.0: deb(5), deb-control(5).

use ar::{Builder, Header};
use md5::{Digest, Md5};

use super::files::{Files, gzip, hex};

/// What a package says of itself, and what is in it.
#[derive(Clone, Debug, Default)]
pub struct Deb {
    /// Its name.
    pub package: &'static str,
    /// Its version.
    pub version: String,
    /// It is the same on every architecture.
    pub is_for_all: bool,
    /// The section of the archive it would be in.
    pub section: &'static str,
    /// Other packages that it needs, comma-separated; empty: none.
    pub depends: String,
    /// One line.
    pub synopsis: &'static str,
    /// Some lines, none of them empty.
    pub description: &'static str,
    /// What is installed.
    pub files: Files,
    /// Paths of `files` that the administrator edits.
    pub conffiles: Vec<&'static str>,
    /// `postinst` and the like, and their text.
    pub scripts: Vec<(&'static str, String)>,
    /// `triggers`, `shlibs`: more files of the control archive.
    pub control_files: Vec<(&'static str, String)>,
}

impl Deb {
    /// The file's name.
    pub fn name(&self) -> String {
        format!("{}_{}_{}.deb", self.package, self.version, self.architecture())
    }

    fn architecture(&self) -> &'static str {
        if self.is_for_all { "all" } else { "amd64" }
    }

    fn control(&self) -> String {
        let mut control = format!(
            "Package: {}\nSource: weir\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nInstalled-Size: {}\n",
            self.package,
            self.version,
            self.architecture(),
            self.files.installed_kib()
        );
        if self.package == "weir" {
            control = control.replace("Source: weir\n", "");
        }
        if !self.depends.is_empty() {
            control += &format!("Depends: {}\n", self.depends);
        }
        control += &format!("Section: {}\nPriority: optional\n", self.section);
        if self.package.starts_with("libweir") {
            control += "Multi-Arch: same\n";
        }
        control += &format!("Description: {}\n", self.synopsis);
        self.description.lines().for_each(|line| control += &format!(" {line}\n"));
        control
    }

    /// The package's bytes, the same for the same contents and `epoch` (seconds since 1970).
    ///
    /// # Errors
    /// What a tar archive cannot hold.
    pub fn bytes(&self, epoch: u64) -> Result<Vec<u8>, String> {
        let mut control = Files::default();
        control.data("control", self.control());
        control.data("md5sums", md5sums(&self.files));
        if !self.conffiles.is_empty() {
            control.data("conffiles", self.conffiles.iter().map(|path| format!("/{path}\n")).collect::<String>());
        }
        self.scripts.iter().for_each(|(name, text)| control.program(name, text.as_str()));
        self.control_files.iter().for_each(|(name, text)| control.data(name, text.as_str()));
        let mut archive = Builder::new(Vec::new());
        let members = [
            ("debian-binary", b"2.0\n".to_vec()),
            ("control.tar.gz", gzip(&control.tar("./", epoch)?)?),
            ("data.tar.gz", gzip(&self.files.tar("./", epoch)?)?),
        ];
        for (name, bytes) in members {
            let mut header = Header::new(name.into(), bytes.len() as u64);
            header.set_mtime(epoch);
            header.set_mode(0o100_644);
            archive.append(&header, bytes.as_slice()).map_err(|e| format!("{}: {name}: {e}", self.package))?;
        }
        archive.into_inner().map_err(|e| format!("{}: {e}", self.package))
    }
}

/// Who answers for a package.
pub const MAINTAINER: &str = "The Weir developers <weir@weir.example.org>";

/// What `dpkg --verify` compares with: conffiles are not among it, dpkg has their sums elsewhere.
fn md5sums(files: &Files) -> String {
    let shipped = files.contents().filter(|(path, _)| !path.starts_with("etc/"));
    shipped.map(|(path, bytes)| format!("{}  {path}\n", hex(&Md5::digest(bytes)))).collect()
}
