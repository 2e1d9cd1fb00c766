//! Flash drives in files: what a drive is when it is opened again.

use super::*;
use std::path::PathBuf;
use weir_controller::{Operation, TimingModel};
use weir_sys::media::NonvolatileFile;

const SMALL: &str = "capacity=64MiB";

fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-device-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn open(dir: &Path, keys: &str) -> Result<Device, OpenError> {
    let mut config = DeviceConfig::from_query("femu-bbssd", keys).unwrap_or_else(|e| panic!("{e}"));
    config.media = MediaConfig::File(dir.join("ssd"));
    let machine = MachineConfig::new("nqn.2026-01.test.weir:ssd0");
    Device::open(&config, machine, Nanos(0))
}

fn refused(dir: &Path, keys: &str) -> String {
    open(dir, keys).err().map(|e| e.to_string()).unwrap_or_default()
}

fn write(device: &mut Device, unit: u64) {
    let operation = Operation { op: Op::Write, offset: unit * 4096, len: 4096, fua: false, placement: 0 };
    inside::flash_of(&mut device.machine).unwrap().begin(Nanos(unit), operation);
}

fn mapped(device: &mut Device) -> u32 {
    let flash = inside::flash_of(&mut device.machine).unwrap().flash();
    flash.check();
    (0..flash.units()).filter(|i| flash.is_mapped(*i)).count() as u32
}

fn history(device: &Device) -> (u64, u64) {
    device.machine.power_history()
}

#[test]
fn a_flash_drive_in_a_file_goes_on_where_it_was() {
    let dir = folder("again");
    let mut device = open(&dir, SMALL).unwrap();
    (0..100).for_each(|i| write(&mut device, i));
    assert_eq!((mapped(&mut device), history(&device)), (100, (1, 0)));
    device.close(Nanos(1000));
    drop(device);
    let mut device = open(&dir, SMALL).unwrap();
    assert_eq!((mapped(&mut device), history(&device)), (100, (2, 0)), "stopped");
    (100..200).for_each(|i| write(&mut device, i));
    drop(device);
    let mut device = open(&dir, SMALL).unwrap();
    assert_eq!((mapped(&mut device), history(&device)), (200, (3, 1)), "not stopped");
    device.close(Nanos(0));
    drop(device);
    // What it was before it was made does not matter any more.
    let mut device = open(&dir, "capacity=64MiB&precondition=sequential&read=10us").unwrap();
    assert_eq!(mapped(&mut device), 200);
    drop(device);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_the_flash_did_is_counted_anew_and_what_it_holds_stays() {
    let dir = folder("anew");
    let mut device = open(&dir, SMALL).unwrap();
    (0..100).for_each(|i| write(&mut device, i));
    let written = |device: &Device| device.flash().unwrap().figures(Nanos(1000)).stats.host_writes;
    assert_eq!(written(&device), 100);
    device.reset_flash(Nanos(1000));
    assert_eq!((written(&device), mapped(&mut device)), (0, 100));
    write(&mut device, 0);
    assert_eq!(written(&device), 1);
    drop(device);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_volatile_buffer_is_written_when_a_drive_is_stopped() {
    let dir = folder("buffer");
    let buffered = "capacity=64MiB&buffer=1MiB&early_completion=true&flush=watermark";
    let mut device = open(&dir, buffered).unwrap();
    (0..10).for_each(|i| write(&mut device, i));
    drop(device);
    let mut device = open(&dir, buffered).unwrap();
    assert_eq!(mapped(&mut device), 0, "it was all in the buffer");
    (0..10).for_each(|i| write(&mut device, i));
    device.close(Nanos(1000));
    drop(device);
    assert_eq!(mapped(&mut open(&dir, buffered).unwrap()), 10);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_a_drive_remembers_is_written_as_soon_as_it_can_be() {
    let dir = folder("unwritten");
    let mut device = open(&dir, SMALL).unwrap();
    let written = || std::fs::metadata(dir.join("ssd.nvme")).unwrap().len() != 0;
    // It can be read and not be written.
    let unwritable = std::fs::File::open("/dev/null").unwrap();
    let (unwritable, _) = NonvolatileFile::in_memory(unwritable.into(), "/dev/null".into(), false).unwrap();
    let kept = device.remembered.as_mut().unwrap();
    let file = std::mem::replace(&mut kept.file, unwritable);
    device.machine.note_media_fault(false);
    device.write_remembered(Nanos(5));
    let again = device.remembered.as_ref().unwrap().again();
    assert_eq!(again, Nanos(1_000_000_005));
    device.write_remembered(Nanos(6));
    assert_eq!(device.remembered.as_ref().unwrap().again(), again, "nothing new");
    device.machine.note_media_fault(true);
    device.write_remembered(Nanos(7));
    let kept = device.remembered.as_mut().unwrap();
    let again = kept.again();
    assert_eq!(again, Nanos(1_000_000_007), "a change is tried at once");
    kept.file = file;
    device.write_remembered(again.saturating_sub(Nanos(1)));
    assert!(!written(), "too early");
    device.write_remembered(again);
    assert!(written() && device.remembered.as_ref().unwrap().again() == Nanos::NEVER);
    drop(device);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn another_drives_state_is_refused_and_nothing_half_made_stays() {
    let dir = folder("refused");
    open(&dir, SMALL).unwrap().close(Nanos(0));
    let e = refused(&dir, "capacity=64MiB&channels=4");
    assert!(e.contains("ssd.flash: is the state of a drive with channels = 8, the configuration says 4"), "{e}");
    let e = refused(&dir, "capacity=65MiB");
    assert!(e.contains("is 64MiB, but the drive's capacity is 65MiB"), "{e}");
    std::fs::remove_file(dir.join("ssd")).unwrap();
    let e = refused(&dir, SMALL);
    assert!(e.contains("ssd.flash: is the state of a drive whose") && e.contains("is missing or empty"), "{e}");
    assert!(!dir.join("ssd").exists());
    std::fs::remove_file(dir.join("ssd.flash")).unwrap();
    // What the drive remembered is as lone, and stays so however often it is tried.
    for _ in 0..2 {
        let e = refused(&dir, SMALL);
        assert!(e.contains("ssd.nvme: is the state of a drive whose") && e.contains("is missing or empty"), "{e}");
        assert!(!dir.join("ssd").exists() && !dir.join("ssd.flash").exists());
    }
    std::fs::remove_file(dir.join("ssd.nvme")).unwrap();
    // A folder is in the way of the state: the drive's file goes again.
    std::fs::create_dir(dir.join("ssd.flash.new")).unwrap();
    std::fs::write(dir.join("ssd.flash.new").join("x"), "").unwrap();
    let e = refused(&dir, SMALL);
    assert!(e.contains("ssd.flash: memory region"), "{e}");
    assert!(!dir.join("ssd").exists() && !dir.join("ssd.flash").exists());
    std::fs::remove_dir_all(dir).unwrap();
}
