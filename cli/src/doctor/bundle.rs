//! What somebody who is to help needs, in one file: the findings, what each node says of itself, and what machine it is.

use crate::failure::CommandFailure;
use crate::output;
use flate2::{Compression, write::GzEncoder};
use std::path::Path;

/// Files of the kernel that say what machine it is; none of them names a user or holds a secret.
const OF_MACHINE: [&str; 7] = [
    "/etc/os-release",
    "/proc/version",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
];

/// Files by name, all in one folder.
#[derive(Debug, Default)]
pub struct Bundle {
    files: Vec<(String, Vec<u8>)>,
}

impl Bundle {
    /// With what the machine says of itself.
    pub fn of_machine() -> Self {
        let mut bundle = Bundle::default();
        for path in OF_MACHINE {
            // Not every kernel has each of them.
            if let Ok(text) = std::fs::read(path) {
                bundle.add(format!("machine/{}", path.trim_start_matches('/').replace('/', "-")), text);
            }
        }
        bundle
    }

    /// One more file.
    pub fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.files.push((name.into(), bytes.into()));
    }

    /// Writes it whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CommandFailure> {
        let failed = |e: std::io::Error| CommandFailure::new(format_args!("{}: {e}", path.display()));
        output::file(path, self.archive().map_err(failed)?).map_err(failed)
    }

    /// As `.tar.gz`; everything lies in the folder `weir-bundle`.
    fn archive(&self) -> std::io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs());
        for (name, bytes) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now);
            tar.append_data(&mut header, Path::new("weir-bundle").join(name), bytes.as_slice())?;
        }
        tar.into_inner()?.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_put_in_comes_out() {
        let mut bundle = Bundle::default();
        bundle.add("doctor.json", "{}");
        bundle.add("nodes/n1-7/status.json", "[1]");
        let bytes = bundle.archive().unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let files: Vec<(String, String)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let name = entry.path().unwrap().display().to_string();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (name, text)
            })
            .collect();
        let expected = [("weir-bundle/doctor.json", "{}"), ("weir-bundle/nodes/n1-7/status.json", "[1]")];
        assert_eq!(files, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let failure = Bundle::default().write(Path::new("/nowhere/x.tar.gz")).unwrap_err();
        assert!(failure.text().starts_with("/nowhere/x.tar.gz: "), "{}", failure.text());
    }
}
