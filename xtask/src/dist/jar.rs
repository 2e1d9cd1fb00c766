//! The store for Hadoop as one jar, the same bytes every time: a zip archive with a manifest (Java's "JAR File Specification").
//!
//! ```text
//! META-INF/MANIFEST.MF, META-INF/services/…, META-INF/licenses/…
//! io/weir/hadoop/…                              classes, which Maven compiles
//! io/weir/native/linux-x86_64/libweir_java.so   the native part, which the classes unpack and load
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::output;
use super::contents::Source;
use super::files::Files;
use super::wheel::{Binary, zip};

/// The Maven project in the checkout.
const PROJECT: &str = "bindings/java/hadoop";

/// Where the native part lies in the jar: `Native.java` looks there.
const LIBRARY: &str = "io/weir/native/linux-x86_64/libweir_java.so";

/// The jar's name and its bytes.
///
/// # Errors
/// Maven fails, a file cannot be read, or the native part is linked against what not every Linux has.
pub fn jar(source: &Source<'_>, library: &Binary, copyright: &str) -> Result<(String, Vec<u8>), String> {
    library.linked.depends().map_err(|e| format!("the native part {e}"))?;
    let version = &source.commit.version;
    let mut files = Files::default();
    files.data("META-INF/MANIFEST.MF", manifest(version));
    add(&mut files, &compiled(source)?, "")?;
    files.program(LIBRARY, library.bytes.as_slice());
    for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let text = std::fs::read_to_string(source.root.join(license)).map_err(|e| format!("{license}: {e}"))?;
        files.data(&format!("META-INF/licenses/{license}"), text);
    }
    files.data("META-INF/licenses/copyright", copyright);
    Ok((format!("weir-hadoop-{version}.jar"), zip(&files, source.commit.epoch)?))
}

/// Lines end as the specification says; they are shorter than its 72 bytes.
fn manifest(version: &str) -> String {
    let lines = ["Manifest-Version: 1.0", "Implementation-Title: weir-hadoop", "Build-Jdk-Spec: 17"];
    let mut text: String = lines.map(|line| format!("{line}\r\n")).concat();
    text += &format!("Implementation-Version: {version}\r\n");
    text
}

/// The folder of the classes and resources that Maven has made.
fn compiled(source: &Source<'_>) -> Result<PathBuf, String> {
    let made = source.scratch.join("java");
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(source.root.join(PROJECT).join("pom.xml"));
    maven.arg(format!("-Dweir.build={}", made.display())).arg("compile");
    let failed =
        |e: String| format!("{e}\nMaven and a JDK of Java 17 are needed: apt install maven openjdk-17-jdk-headless");
    output(&mut maven).map_err(failed)?;
    Ok(made.join("classes"))
}

/// Adds what lies in a folder, under its path in there.
fn add(files: &mut Files, folder: &Path, under: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if path.is_dir() {
            add(files, &path, &format!("{under}{name}/"))?;
        } else {
            files.data(&format!("{under}{name}"), std::fs::read(&path).map_err(failed)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_has_its_version_and_short_lines() {
        let text = manifest("0.1.0+git20260102030405.0123456789ab.changed");
        assert!(text.ends_with("Implementation-Version: 0.1.0+git20260102030405.0123456789ab.changed\r\n"), "{text}");
        assert!(text.split("\r\n").all(|line| line.len() <= 70 && !line.contains('\n')), "{text}");
    }

    #[test]
    fn files_of_folders_keep_their_paths() {
        let dir = std::env::temp_dir().join(format!("weir-jar-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("io/weir")).unwrap();
        std::fs::write(dir.join("io/weir/A.class"), b"A").unwrap();
        let mut files = Files::default();
        add(&mut files, &dir, "").unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let found: Vec<_> = files.contents().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
        assert_eq!(found, [("io/weir/A.class".to_owned(), b"A".to_vec())]);
    }
}
