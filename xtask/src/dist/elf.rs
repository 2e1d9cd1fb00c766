//! What a program or a library is linked against.

use goblin::elf::Elf;
use std::collections::BTreeSet;

/// What the loader needs for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// `libc.so.6` and the like.
    pub libraries: Vec<String>,
    /// The newest `GLIBC_` version of its symbols: (2, 34).
    pub glibc: Option<(u32, u32)>,
    /// It has a symbol table or debug information that `strip` removes.
    pub symbols: bool,
}

impl Linked {
    /// Of an ELF file's bytes.
    ///
    /// # Errors
    /// It is no ELF file for x86-64.
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        let elf = Elf::parse(bytes).map_err(|e| format!("is no ELF file: {e}"))?;
        if elf.header.e_machine != goblin::elf::header::EM_X86_64 {
            return Err("is not for x86-64".into());
        }
        let versions = elf.verneed.iter().flat_map(|section| section.iter());
        let names = versions.flat_map(|need| need.iter().map(|aux| aux.vna_name).collect::<Vec<_>>());
        let names: BTreeSet<&str> = names.filter_map(|at| elf.dynstrtab.get_at(at)).collect();
        Ok(Self {
            libraries: elf.libraries.iter().map(|name| (*name).to_owned()).collect(),
            glibc: names.iter().filter_map(|name| glibc_version(name)).max(),
            symbols: !elf.syms.is_empty(),
        })
    }

    /// It needs neither a loader nor a library.
    pub fn is_static(&self) -> bool {
        self.libraries.is_empty()
    }

    /// Debian's packages of its libraries, as a `Depends` line has them.
    ///
    /// # Errors
    /// A library whose package is not known.
    pub fn depends(&self) -> Result<String, String> {
        let mut packages = BTreeSet::new();
        for library in &self.libraries {
            let package = match library.as_str() {
                "libc.so.6"
                | "libm.so.6"
                | "libdl.so.2"
                | "libpthread.so.0"
                | "librt.so.1"
                | "libutil.so.1"
                | "ld-linux-x86-64.so.2" => self.glibc.map_or("libc6".into(), |(a, b)| format!("libc6 (>= {a}.{b})")),
                "libgcc_s.so.1" => "libgcc-s1 (>= 4.2)".to_owned(),
                other => return Err(format!("is linked against {other}, whose Debian package is not known here")),
            };
            packages.insert(package);
        }
        Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
    }
}

fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}
