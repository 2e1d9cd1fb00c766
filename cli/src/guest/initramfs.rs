//! A root of busybox, some modules and a script, as the kernel takes it: a cpio archive ("newc", Linux
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use super::kernel::Module;
use cpio::newc::{Builder, trailer};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Loads the modules, waits for a disk, runs the script or a shell, and ends the machine. The
/// script's exit status is written to the second serial port.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ PS1='guest# '
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module.ko" || echo "guest: module $module cannot be loaded"; done </modules/order
n=0
disk() { ls /sys/block | grep -E '^(nvme[0-9]+n|vd)' | head -n 1; }
while [ $n -lt 100 ] && [ -z "$(disk)" ]; do sleep 0.1; n=$((n + 1)); done
export DISK="/dev/$(disk)"
if [ -e /script ]; then
  sh /script
  echo $? >/dev/ttyS1
  sync
else
  echo
  echo 'Disks of this machine, in blocks of 1 KiB (Ctrl-A X ends it):'
  cat /proc/partitions
  setsid cttyhack sh
fi
poweroff -f
"#;

/// See the [module](self).
pub struct Initramfs {
    /// A program that needs no libraries.
    pub busybox: Vec<u8>,
    /// In the order in which they are loaded.
    pub modules: Vec<Module>,
    /// What is run instead of a shell.
    pub script: Option<Vec<u8>>,
}

impl Initramfs {
    /// Writes the archive.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write<W: Write>(&self, mut out: W) -> io::Result<()> {
        for (number, folder) in (1..).zip(["bin", "dev", "proc", "sys", "tmp", "modules"]) {
            out = entry(out, number, folder, FOLDER, &[])?;
        }
        out = entry(out, 10, "init", PROGRAM, INIT.as_bytes())?;
        out = entry(out, 11, "bin/busybox", PROGRAM, &self.busybox)?;
        let order: String = self.modules.iter().map(|module| module.name.clone() + "\n").collect();
        out = entry(out, 12, "modules/order", PROGRAM, order.as_bytes())?;
        if let Some(script) = &self.script {
            out = entry(out, 13, "script", PROGRAM, script)?;
        }
        for (number, module) in (20..).zip(&self.modules) {
            out = entry(out, number, &format!("modules/{}.ko", module.name), PROGRAM, &module.bytes)?;
        }
        trailer(out)?.flush()
    }
}

fn entry<W: Write>(out: W, number: u32, name: &str, mode: u32, bytes: &[u8]) -> io::Result<W> {
    let size = u32::try_from(bytes.len()).map_err(|_| io::Error::other(format!("{name} has 4 GiB or more")))?;
    let mut writer = Builder::new(name).ino(number).mode(mode).nlink(1).write(out, size);
    writer.write_all(bytes)?;
    writer.finish()
}

/// That program, or the one on PATH.
///
/// # Errors
/// There is none, or it needs libraries, which the machine does not have.
pub fn find_busybox(path: Option<&Path>) -> Result<Vec<u8>, String> {
    let advice = "install busybox-static, or name another one with --busybox";
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&paths).map(|folder| folder.join("busybox")).find(|file| file.is_file());
    let file: PathBuf =
        path.map(Path::to_owned).or_else(on_path).ok_or_else(|| format!("busybox: not found; {advice}"))?;
    let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    match needs_libraries(&bytes) {
        None => Err(format!("{}: no program of 64 bit (ELF); {advice}", file.display())),
        Some(true) => Err(format!("{}: needs libraries; {advice}", file.display())),
        Some(false) => Ok(bytes),
    }
}

/// Whether an ELF program of 64 bit names an interpreter (System V ABI, Program Header: PT_INTERP); none: it is no such program.
fn needs_libraries(elf: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, bytes: usize| {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte)))
    };
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (first, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    for header in 0..count {
        if number(first.checked_add(header * size)?, 4)? == u64::from(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_what_init_needs() {
        let module = |name: &str| Module { name: name.into(), bytes: name.repeat(3).into_bytes() };
        let modules = vec![module("nvme_core"), module("nvme")];
        let initramfs = Initramfs { busybox: vec![7; 1001], modules, script: Some(b"exit 3".to_vec()) };
        let mut archive = Vec::new();
        initramfs.write(&mut archive).unwrap();
        let mut left = &archive[..];
        let mut found = Vec::new();
        loop {
            let mut reader = cpio::NewcReader::new(left).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
            found.push((reader.entry().name().to_string(), reader.entry().mode(), bytes));
            left = reader.finish().unwrap();
        }
        let of = |name: &str| found.iter().find(|(n, _, _)| n == name).map(|(_, mode, bytes)| (*mode, bytes.clone()));
        assert_eq!(of("init"), Some((PROGRAM, INIT.into())));
        assert_eq!(of("bin/busybox"), Some((PROGRAM, vec![7; 1001])));
        assert_eq!(of("modules/order").unwrap().1, b"nvme_core\nnvme\n");
        assert_eq!(of("modules/nvme.ko").unwrap().1, b"nvmenvmenvme");
        assert_eq!(of("script").unwrap().1, b"exit 3");
        assert_eq!(of("dev"), Some((FOLDER, Vec::new())));
    }

    #[test]
    fn a_program_with_an_interpreter_needs_libraries() {
        // A header of 64 bytes and one program header behind it.
        let program = |kind: u32| {
            let mut elf = vec![0; 64 + 56];
            elf[..5].copy_from_slice(b"\x7fELF\x02");
            elf[32] = 64;
            elf[54] = 56;
            elf[56] = 1;
            elf[64..68].copy_from_slice(&kind.to_le_bytes());
            elf
        };
        assert_eq!((needs_libraries(&program(1)), needs_libraries(&program(3))), (Some(false), Some(true)));
        assert_eq!((needs_libraries(b"#!/bin/sh"), needs_libraries(&program(1)[..60])), (None, None));
        let mut hostile = program(1);
        hostile[32..40].fill(0xff);
        assert_eq!(needs_libraries(&hostile), None);
        assert!(find_busybox(Some(Path::new("/nowhere"))).unwrap_err().starts_with("/nowhere: "));
    }
}
