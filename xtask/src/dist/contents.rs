//! Which file goes where: in the packages, the tarball and the image.

use std::path::Path;
use std::process::Command;

use super::build::{Commit, date, output};
use super::deb::{Deb, MAINTAINER};
use super::elf::Linked;
use super::files::{Files, gzip};
use super::oci::Image;

/// What all packages are made of.
pub struct Source<'a> {
    /// The checkout.
    pub root: &'a Path,
    /// Its commit.
    pub commit: &'a Commit,
    /// A folder for what is made on the way.
    pub scratch: &'a Path,
}

/// A file of the checkout.
fn read(source: &Source<'_>, path: &str) -> Result<String, String> {
    std::fs::read_to_string(source.root.join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Where programs of one kind of installation look for what comes with a program.
struct Places {
    prefix: &'static str,
    zsh: &'static str,
}

/// What Debian's packages have.
const DEBIAN: Places = Places { prefix: "usr/", zsh: "share/zsh/vendor-completions" };
/// What is unpacked to `/usr/local`.
const LOCAL: Places = Places { prefix: "", zsh: "share/zsh/site-functions" };

/// The program, and what it prints of itself: manual pages and completions. `program` is one that runs here.
fn program(
    files: &mut Files,
    source: &Source<'_>,
    places: &Places,
    program: &Path,
    bytes: &[u8],
) -> Result<(), String> {
    let prefix = places.prefix;
    files.program(&format!("{prefix}bin/weir"), bytes);
    let completions = [
        ("bash", "share/bash-completion/completions".to_owned(), "weir"),
        ("zsh", places.zsh.to_owned(), "_weir"),
        ("fish", "share/fish/vendor_completions.d".to_owned(), "weir.fish"),
    ];
    for (shell, folder, name) in completions {
        files.data(
            &format!("{prefix}{folder}/{name}"),
            output(Command::new(program).args(["completions", shell]))? + "\n",
        );
    }
    let pages = source.scratch.join("man");
    std::fs::create_dir_all(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
    output(Command::new(program).args(["man", "--out"]).arg(&pages))?;
    for (name, text) in folder_of(&pages)? {
        files.data(&format!("{prefix}share/man/man1/{name}.gz"), gzip(&text)?);
    }
    for folder in ["grafana", "prometheus"] {
        for (name, text) in folder_of(&source.root.join("dist").join(folder))? {
            files.data(&format!("{prefix}share/weir/{folder}/{name}"), text);
        }
    }
    Ok(())
}

/// Names and bytes of the files in a folder.
fn folder_of(path: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(at)? {
        let entry = entry.map_err(at)?;
        found.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).map_err(at)?));
    }
    Ok(found)
}

/// `changelog.gz` and `copyright` of a Debian package.
fn debian_docs(files: &mut Files, source: &Source<'_>, package: &str, copyright: &str) -> Result<(), String> {
    let Commit { id, epoch, version } = source.commit;
    let changelog = format!(
        "weir ({version}) unstable; urgency=medium\n\n  * Commit {id}.\n\n -- {MAINTAINER}  {}\n",
        date(*epoch, "+%a, %d %b %Y %T +0000")?
    );
    files.data(&format!("usr/share/doc/{package}/changelog.gz"), gzip(changelog.as_bytes())?);
    files.data(&format!("usr/share/doc/{package}/copyright"), copyright);
    Ok(())
}

/// `weir_VERSION_amd64.deb`.
///
/// # Errors
/// A file of the checkout that is missing, a program that does not run, a library whose package is not known.
pub fn deb(source: &Source<'_>, path: &Path, bytes: &[u8], linked: &Linked, copyright: &str) -> Result<Deb, String> {
    let mut files = Files::default();
    program(&mut files, source, &DEBIAN, path, bytes)?;
    debian_docs(&mut files, source, "weir", copyright)?;
    files.data("usr/share/doc/weir/README.md", read(source, "README.md")?);
    files.data("usr/lib/systemd/system/weir.service", read(source, "dist/systemd/weir.service")?);
    files.data("etc/weir/weir.toml", read(source, "dist/weir.toml")?);
    let libraries = linked.depends().map_err(|e| format!("the program {e}"))?;
    let script = |name: &'static str| read(source, &format!("dist/debian/{name}")).map(|text| (name, text));
    Ok(Deb {
        package: "weir",
        version: source.commit.version.clone(),
        is_for_all: false,
        section: "admin",
        depends: [libraries.as_str(), "passwd"]
            .iter()
            .filter(|d| !d.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(", "),
        synopsis: "NVMe drives that tenants share with guarantees",
        description: "Weir serves NVMe drives in memory, in files, on block devices and of modelled\n\
                      flash to Linux hosts (NVMe/TCP) and QEMU guests (vhost-user, vfio-user). Each\n\
                      tenant gets the share, the floor and the latency that it was promised.\n.\n\
                      The service is not started at installation: edit /etc/weir/weir.toml, then run\n\
                      systemctl enable --now weir.",
        files,
        conffiles: vec!["etc/weir/weir.toml"],
        scripts: vec![script("postinst")?, script("prerm")?, script("postrm")?],
        control_files: Vec::new(),
    })
}

/// Where Debian keeps libraries for x86-64.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// `libweir0` and `libweir-dev`.
///
/// # Errors
/// As [`deb`].
pub fn library_debs(
    source: &Source<'_>,
    release: &str,
    bytes: &[u8],
    linked: &Linked,
    copyright: &str,
) -> Result<[Deb; 2], String> {
    let version = source.commit.version.clone();
    let mut run = Files::default();
    run.data(&format!("{LIBRARIES}/libweir.so.{release}"), bytes);
    run.link(&format!("{LIBRARIES}/libweir.so.0"), &format!("libweir.so.{release}"));
    debian_docs(&mut run, source, "libweir0", copyright)?;
    let mut dev = Files::default();
    dev.link(&format!("{LIBRARIES}/libweir.so"), "libweir.so.0");
    for header in ["weir.h", "weir_store.h", "weir_policy.h"] {
        dev.data(&format!("usr/include/{header}"), read(source, &format!("bindings/c/include/{header}"))?);
    }
    let pc = read(source, "bindings/c/weir.pc.in")?;
    let pc = pc.replace("@PREFIX@", "/usr").replace("@VERSION@", release).replace("@PRIVATE@", "");
    let pc = pc.replace("${prefix}/lib\n", "${prefix}/lib/x86_64-linux-gnu\n").replace("Libs.private: \n", "");
    dev.data(&format!("{LIBRARIES}/pkgconfig/weir.pc"), pc);
    debian_docs(&mut dev, source, "libweir-dev", copyright)?;
    let library = Deb {
        package: "libweir0",
        version: version.clone(),
        section: "libs",
        depends: linked.depends().map_err(|e| format!("libweir {e}"))?,
        synopsis: "NVMe drives behind a URL: library",
        description: "libweir opens a drive by its URL (in this process, over NVMe/TCP, vhost-user or\n\
                      vfio-user) and submits commands to it from C, and it\n\
                      reads and writes the files of a store.",
        files: run,
        control_files: vec![
            ("triggers", "activate-noawait ldconfig\n".into()),
            ("shlibs", "libweir 0 libweir0\n".into()),
        ],
        ..Deb::default()
    };
    let development = Deb {
        package: "libweir-dev",
        section: "libdevel",
        depends: format!("libweir0 (= {version})"),
        version,
        synopsis: "NVMe drives behind a URL: development files",
        description: "What programs that use libweir are compiled with: the headers, the name for the\n\
                      linker and the file for pkg-config.",
        files: dev,
        ..Deb::default()
    };
    Ok([library, development])
}

/// What `tar -C /usr/local --strip-components=1 -xf` installs.
///
/// # Errors
/// As [`deb`].
pub fn tarball(source: &Source<'_>, path: &Path, bytes: &[u8], copyright: &str) -> Result<Files, String> {
    let mut files = Files::default();
    program(&mut files, source, &LOCAL, path, bytes)?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        files.data(&format!("share/doc/weir/{name}"), read(source, name)?);
    }
    files.data("share/doc/weir/copyright", copyright);
    files.data("share/weir/weir.toml", read(source, "dist/weir.toml")?);
    let unit = read(source, "dist/systemd/weir.service")?;
    files.data("share/weir/weir.service", unit.replace("/usr/bin/weir", "/usr/local/bin/weir"));
    Ok(files)
}

/// The image: the program, a configuration, and the folders that a node writes to.
///
/// # Errors
/// As [`deb`].
pub fn image(source: &Source<'_>, bytes: &[u8], copyright: &str) -> Result<Image, String> {
    let mut root = Files::default();
    root.program("usr/bin/weir", bytes);
    root.data("etc/weir/weir.toml", read(source, "dist/weir.toml")?);
    root.data("usr/share/doc/weir/copyright", copyright);
    ["run/weir", "tmp", "var/lib/weir"].iter().for_each(|path| root.folder(path));
    Ok(Image {
        root,
        entrypoint: "/usr/bin/weir",
        cmd: vec!["up", "-c", "/etc/weir/weir.toml", "--listen", "0.0.0.0:4420"],
        ports: vec!["4420/tcp"],
        // A tag has no plus sign.
        tag: source.commit.version.replace('+', "-"),
        labels: vec![
            ("title", "weir".into()),
            ("version", source.commit.version.clone()),
            ("revision", source.commit.id.clone()),
            ("licenses", "Apache-2.0 OR MIT".into()),
        ],
    })
}

/// The site's files.
///
/// # Errors
/// One of them cannot be read.
pub fn site(html: &Path) -> Result<Files, String> {
    let mut files = Files::default();
    site_into(&mut files, html, "")?;
    Ok(files)
}

fn site_into(files: &mut Files, folder: &Path, prefix: &str) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(at)? {
        let path = entry.map_err(at)?.path();
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            site_into(files, &path, &format!("{name}/"))?;
        } else {
            files.data(&name, std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
    }
    Ok(())
}

/// `weir-doc_VERSION_all.deb`.
///
/// # Errors
/// A file that cannot be read.
pub fn site_deb(source: &Source<'_>, html: &Path, copyright: &str) -> Result<Deb, String> {
    let mut files = Files::default();
    site_into(&mut files, html, "usr/share/doc/weir-doc/html/")?;
    debian_docs(&mut files, source, "weir-doc", copyright)?;
    Ok(Deb {
        package: "weir-doc",
        version: source.commit.version.clone(),
        is_for_all: true,
        section: "doc",
        synopsis: "NVMe drives that tenants share with guarantees (documentation)",
        description: "Tutorials, guides and reference of Weir, as pages for a browser:\n\
                      file:///usr/share/doc/weir-doc/html/index.html",
        files,
        ..Deb::default()
    })
}
