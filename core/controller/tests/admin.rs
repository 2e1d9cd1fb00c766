//! Admin commands, features and what a drive remembers.

mod common;

use common::{drive, fabric_with_queues, get_feature, identify_controller, set_feature};
use std::net::SocketAddr;
use weir_controller::testing::{Fabric, TestWorld, admin, io};
use weir_controller::{AnaScope, AnaState, Data, Op, SavedError, firmware_image};
use weir_spec::nvme::fdp::EnduranceGroup;
use weir_spec::nvme::feature::{async_config, fid, select};
use weir_spec::nvme::identify::{oacs, oncs};
use weir_spec::nvme::log::{
    Effects, FeatureEffects, FirmwareSlots, SanitizeStatus, SupportedLogPages, critical_warning, lid, sanitize_status,
};
use weir_spec::nvme::maintenance::{
    CommitDw10, LockdownDw10, PersistentHeader, SelfTestLog, TelemetryHeader, ana, commit, lockdown, persistent,
};
use weir_spec::nvme::register::ams;
use weir_spec::nvme::sanitize::{SanitizeDw10, action};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use weir_units::Nanos;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

const HOST: &str = "nqn.gold";

fn world() -> (TestWorld, Fabric) {
    let mut world = drive(|c| (c.volatile_write_cache, c.admin_rate) = (true, 1_000_000));
    let host = Fabric::ready(&mut world, HOST, 0, ams::RR);
    (world, host)
}

/// Get Log Page of `length` bytes from `offset` on.
fn get_log(lid: u8, offset: u32, length: u32) -> Sqe {
    let numd = length / 4 - 1;
    let sqe = admin(AdminOpcode::GET_LOG_PAGE, 63, u32::from(lid) | numd << 16, numd >> 16);
    Sqe { cdw12: offset.into(), ..sqe }
}

fn log<T: FromBytes>(world: &mut TestWorld, host: &mut Fabric, lid: u8) -> T {
    let (cqe, data) = host.admin_data(world, get_log(lid, 0, size_of::<T>() as u32));
    assert!(cqe.status().is_success(), "log page {lid:#x}: {}", cqe.status());
    T::read_from_bytes(&data[..size_of::<T>()]).expect("a whole page")
}

fn value(cqe: Cqe) -> u32 {
    assert!(cqe.status().is_success(), "{}", cqe.status());
    cqe.dw0.get()
}

fn saving(sqe: Sqe) -> Sqe {
    Sqe { cdw10: (sqe.cdw10.get() | 1 << 31).into(), ..sqe }
}

/// What is dispatched, what the effects log says and the bits of Identify are the same.
#[test]
fn the_effects_log_agrees_with_what_is_dispatched() {
    let (mut world, mut host) = world();
    let effects: Effects = log(&mut world, &mut host, lid::EFFECTS);
    let id = identify_controller(&mut world, &mut host);
    for opcode in (0..=0xff).filter(|o| *o != AdminOpcode::FABRICS.0 && *o != AdminOpcode::ASYNC_EVENT_REQUEST.0) {
        // On a drive of its own, so that what it does is nobody's affair; its namespace exists nowhere.
        let (mut world, mut host) = self::world();
        let sqe = Sqe { nsid: 77.into(), ..admin(AdminOpcode(opcode), 5, 0, 0) };
        let tag = host.tags + 1;
        world.host.data.insert((host.base, tag), vec![0; 1 << 16]);
        host.send(&mut world, 0, sqe);
        world.settle();
        let known = world.answer(weir_controller::Owner(host.base), tag).expect("an answer").status();
        let known = !known.same_code(Status::INVALID_OPCODE);
        assert_eq!(known, effects.admin[usize::from(opcode)].get() & 1 == 1, "admin opcode {opcode:#x}");
    }
    for opcode in (0..=0xff).filter(|o| *o != IoOpcode::FABRICS.0) {
        let mut world = drive(|_| {});
        let mut host = fabric_with_queues(&mut world, HOST, 0, 1);
        let tag = host.send(&mut world, 1, Sqe { nsid: 77.into(), ..io(opcode, 5, 0, 1) });
        world.settle();
        let status = host.answer(&mut world, 1, tag).expect("an answer").status();
        // I/O management and zones are known as opcodes wherever they are; what a drive has is seen when they start.
        let listed = effects.io[usize::from(opcode)].get() & 1 == 1;
        if listed {
            assert!(!status.same_code(Status::INVALID_OPCODE), "I/O opcode {opcode:#x}: {status}");
        } else {
            assert!(!status.is_success(), "I/O opcode {opcode:#x}");
        }
    }
    let bits = [
        (oacs::FORMAT, AdminOpcode::FORMAT_NVM),
        (oacs::SECURITY, AdminOpcode::SECURITY_SEND),
        (oacs::FIRMWARE, AdminOpcode::FIRMWARE_COMMIT),
        (oacs::FIRMWARE, AdminOpcode::FIRMWARE_DOWNLOAD),
        (oacs::NAMESPACES, AdminOpcode::NAMESPACE_MANAGEMENT),
        (oacs::NAMESPACES, AdminOpcode::NAMESPACE_ATTACHMENT),
        (oacs::SELF_TEST, AdminOpcode::DEVICE_SELF_TEST),
        (oacs::DIRECTIVES, AdminOpcode::DIRECTIVE_SEND),
        (oacs::DIRECTIVES, AdminOpcode::DIRECTIVE_RECEIVE),
        (oacs::MI, AdminOpcode::MI_SEND),
        (oacs::VIRTUALIZATION, AdminOpcode::VIRTUALIZATION_MANAGEMENT),
        (oacs::DOORBELL_BUFFERS, AdminOpcode::DOORBELL_BUFFER_CONFIG),
        (oacs::LBA_STATUS, AdminOpcode::GET_LBA_STATUS),
        (oacs::LOCKDOWN, AdminOpcode::LOCKDOWN),
    ];
    for (bit, opcode) in bits {
        let listed = effects.admin[usize::from(opcode.0)].get() & 1 == 1;
        assert_eq!(id.oacs.get() & bit != 0, listed, "OACS bit of {opcode:?}");
    }
    let bits = [
        (oncs::COMPARE, IoOpcode::COMPARE),
        (oncs::WRITE_UNCORRECTABLE, IoOpcode::WRITE_UNCORRECTABLE),
        (oncs::DATASET_MANAGEMENT, IoOpcode::DATASET_MANAGEMENT),
        (oncs::WRITE_ZEROES, IoOpcode::WRITE_ZEROES),
        (oncs::VERIFY, IoOpcode::VERIFY),
        (oncs::COPY, IoOpcode::COPY),
    ];
    for (bit, opcode) in bits {
        let listed = effects.io[usize::from(opcode.0)].get() & 1 == 1;
        assert_eq!(id.oncs.get() & bit != 0, listed, "ONCS bit of {opcode:?}");
    }
}

/// Every log page that is said to be supported is answered, and no other; the same of features.
#[test]
fn supported_pages_and_features_are_those_that_are_answered() {
    let (mut world, mut host) = world();
    let pages: SupportedLogPages = log(&mut world, &mut host, lid::SUPPORTED);
    let features: FeatureEffects = log(&mut world, &mut host, lid::FEATURE_EFFECTS);
    for lid in 0..=0xff {
        world.pass(Nanos::from_millis(2));
        let (cqe, _) = host.admin_data(&mut world, get_log(lid, 0, 512));
        let known = !cqe.status().same_code(Status::INVALID_LOG_PAGE);
        assert_eq!(known, pages.pages[usize::from(lid)].get() & 1 == 1, "log page {lid:#x}: {}", cqe.status());
    }
    for fid in 0..=0xffu8 {
        world.pass(Nanos::from_millis(2));
        let (cqe, _) = host.admin_data(&mut world, get_feature(fid, select::SUPPORTED));
        let supported = features.features[usize::from(fid)].get() & 1 == 1;
        assert_eq!(cqe.status().is_success(), supported, "feature {fid:#x}: {}", cqe.status());
        if supported && cqe.dw0.get() & 1 == 0 {
            let refused = host.admin(&mut world, saving(set_feature(fid, 0))).status();
            assert!(refused.same_code(Status::FEATURE_NOT_SAVEABLE) && refused.is_dnr(), "feature {fid:#x}: {refused}");
        }
    }
}

#[test]
fn a_saved_value_is_that_of_the_next_enable_and_survives_the_loss_of_power() {
    let (mut world, mut host) = world();
    let supported = value(host.admin(&mut world, get_feature(fid::ERROR_RECOVERY, select::SUPPORTED)));
    assert_eq!(supported, 0b101, "saveable, changeable");
    let before = world.drive.nonvolatile_generation();
    assert!(host.admin(&mut world, set_feature(fid::ERROR_RECOVERY, 7)).status().is_success());
    assert_eq!(world.drive.nonvolatile_generation(), before, "nothing was saved");
    assert_eq!(value(host.admin(&mut world, get_feature(fid::ERROR_RECOVERY, select::SAVED))), 0);
    assert!(host.admin(&mut world, saving(set_feature(fid::ERROR_RECOVERY, 9))).status().is_success());
    assert!(world.drive.nonvolatile_generation() > before);
    assert!(host.admin(&mut world, set_feature(fid::ERROR_RECOVERY, 11)).status().is_success());
    let values = |world: &mut TestWorld, host: &mut Fabric| {
        [select::CURRENT, select::DEFAULT, select::SAVED]
            .map(|sel| value(host.admin(world, get_feature(fid::ERROR_RECOVERY, sel))))
    };
    assert_eq!(values(&mut world, &mut host), [11, 0, 9]);
    // Another host's controller begins with the saved value.
    let mut other = Fabric::ready(&mut world, "nqn.silver", 100, ams::RR);
    assert_eq!(values(&mut world, &mut other), [9, 0, 9]);
    let blob = world.drive.save();
    let mut world = drive(|c| c.volatile_write_cache = true);
    world.drive.restore(&blob).expect("its own");
    let mut host = Fabric::ready(&mut world, HOST, 0, ams::RR);
    assert_eq!(values(&mut world, &mut host), [9, 0, 9]);
    assert_eq!(world.drive.power_history(), (2, 1), "it was not stopped");
    world.drive.stop(world.now);
    let blob = world.drive.save();
    let mut world = drive(|c| c.volatile_write_cache = true);
    world.drive.restore(&blob).expect("its own");
    assert_eq!(world.drive.power_history(), (3, 1));
}

#[test]
fn a_blob_that_was_damaged_is_refused() {
    let (world, _) = world();
    let blob = world.drive.save();
    let restore = |blob: &[u8]| drive(|_| {}).drive.restore(blob);
    assert_eq!(restore(&blob), Ok(()));
    for at in 0..blob.len() {
        let mut bad = blob.clone();
        bad[at] ^= 0x40;
        let error = restore(&bad).expect_err("a flipped bit");
        let expected = match at {
            0..8 => matches!(error, SavedError::Foreign(_)),
            8..12 => matches!(error, SavedError::Version { .. }),
            _ => error == SavedError::Damaged,
        };
        assert!(expected, "byte {at}: {error}");
        assert!(restore(&blob[..at]).is_err());
    }
}

#[test]
fn features_with_data_come_back() {
    let (mut world, mut host) = world();
    let mut send = |world: &mut TestWorld, sqe: Sqe, data: &[u8]| {
        let tag = host.tags + 1;
        let mut buffer = data.to_vec();
        buffer.resize(4096, 0);
        world.host.data.insert((host.base, tag), buffer);
        let cqe = host.admin(world, sqe);
        (cqe.status(), world.host.data.remove(&(host.base, tag)).unwrap_or_default(), cqe.dw0.get())
    };
    // APST: from state 0 to 3 after 100 ms, from 3 to 4 after a second.
    let mut table = [0u8; 256];
    for (state, entry) in [(0, 100u64 << 8 | 3 << 3), (3, 1000 << 8 | 4 << 3)] {
        table[state * 8..][..8].copy_from_slice(&entry.to_le_bytes());
    }
    assert!(send(&mut world, set_feature(fid::AUTONOMOUS_POWER, 1), &table).0.is_success());
    let (_, data, dw0) = send(&mut world, get_feature(fid::AUTONOMOUS_POWER, select::CURRENT), &[]);
    assert_eq!((&data[..256], dw0), (&table[..], 1));
    assert_eq!(send(&mut world, get_feature(fid::POWER, select::CURRENT), &[]).2 & 0x1f, 0);
    world.pass(Nanos::from_millis(150));
    assert_eq!(send(&mut world, get_feature(fid::POWER, select::CURRENT), &[]).2 & 0x1f, 3);
    world.pass(Nanos::from_millis(1000));
    assert_eq!(send(&mut world, get_feature(fid::POWER, select::CURRENT), &[]).2 & 0x1f, 4);
    // A state that serves I/O is not gone to, nor one that is not there.
    for state in [1u64, 9] {
        let entry = (100 << 8 | state << 3).to_le_bytes();
        assert!(send(&mut world, set_feature(fid::AUTONOMOUS_POWER, 1), &entry).0.same_code(Status::INVALID_FIELD));
    }
    // The timestamp goes on.
    assert!(send(&mut world, set_feature(fid::TIMESTAMP, 0), &1_000_000u64.to_le_bytes()).0.is_success());
    world.pass(Nanos::from_millis(250));
    let (_, data, _) = send(&mut world, get_feature(fid::TIMESTAMP, select::CURRENT), &[]);
    assert_eq!((data[..6].to_vec(), data[6]), (1_000_250u64.to_le_bytes()[..6].to_vec(), 2));
    // Host behaviour: what is not 0 or 1 is refused.
    assert!(send(&mut world, set_feature(fid::HOST_BEHAVIOR, 0), &[1, 0, 1]).0.is_success());
    assert_eq!(send(&mut world, get_feature(fid::HOST_BEHAVIOR, select::CURRENT), &[]).1[..4], [1, 0, 1, 0]);
    assert!(send(&mut world, set_feature(fid::HOST_BEHAVIOR, 0), &[2]).0.same_code(Status::INVALID_FIELD));
}

#[test]
fn a_drive_that_gets_hot_says_so_once() {
    let (mut world, mut host) = world();
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::TEMPERATURE)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    let again = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 10, 0, 0));
    world.run();
    world.drive.set_ambient(world.now, 360);
    world.pass(Nanos::from_secs(10));
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).map(|c| c.dw0.get()), None, "it warms up slowly");
    world.pass(Nanos::from_secs(600));
    world.run();
    let told = host.answer(&mut world, 0, event).expect("the temperature is above its threshold");
    assert_eq!(told.dw0.get(), 0x0002_0101);
    assert!(host.answer(&mut world, 0, again).is_none());
    let smart: weir_spec::nvme::log::Smart = log(&mut world, &mut host, lid::SMART);
    assert_eq!((smart.critical_warning, smart.temperature.get()), (2, 359));
    assert!(smart.critical_minutes.get() > 5 && smart.warning_minutes.get() <= 1);
}

#[test]
fn a_spare_that_is_used_up_warns_once() {
    let (mut world, mut host) = world();
    let spare = u32::from(critical_warning::SPARE);
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, spare)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    let again = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 10, 0, 0));
    let smart = |world: &mut TestWorld, host: &mut Fabric| {
        let smart: weir_spec::nvme::log::Smart = log(world, host, lid::SMART);
        (smart.available_spare, smart.spare_threshold, smart.critical_warning)
    };
    assert_eq!(smart(&mut world, &mut host), (100, 10, 0));
    world.drive.set_spare(10);
    world.run();
    assert!(host.answer(&mut world, 0, event).is_none(), "at its threshold it is not below");
    world.drive.set_spare(9);
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).expect("told").dw0.get(), 0x0002_0201);
    assert_eq!(smart(&mut world, &mut host), (9, 10, critical_warning::SPARE));
    world.drive.set_spare(8);
    world.run();
    assert!(host.answer(&mut world, 0, again).is_none(), "it knows");
    world.drive.set_spare(200);
    assert_eq!(smart(&mut world, &mut host), (100, 10, 0));
    world.drive.set_spare(0);
    world.run();
    assert!(host.answer(&mut world, 0, again).is_some(), "it is used up anew");
}

fn sanitize(dw10: SanitizeDw10, pattern: u32) -> Sqe {
    admin(AdminOpcode::SANITIZE, 70, dw10.0, pattern)
}

fn status_of(world: &mut TestWorld, host: &mut Fabric) -> SanitizeStatus {
    log(world, host, lid::SANITIZE)
}

#[test]
fn an_overwrite_goes_over_everything_and_io_waits_for_its_end() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, HOST, 0, 1);
    assert_eq!(status_of(&mut world, &mut host).sstat.get(), sanitize_status::NEVER);
    // A write that is in flight ends first.
    let write = host.send(&mut world, 1, io(IoOpcode::WRITE.0, 1, 0, 8));
    world.run();
    let dw10 = SanitizeDw10(0).with_sanact(action::OVERWRITE).with_owpass(2).with_oipbp(1);
    assert!(host.admin(&mut world, sanitize(dw10, 0xdead_beef)).status().is_success());
    assert_eq!(world.issued.len(), 1, "nothing is overwritten while a write is in flight");
    let late = host.send(&mut world, 1, io(IoOpcode::READ.0, 2, 0, 8));
    let flush = host.send(&mut world, 1, io(IoOpcode::FLUSH.0, 3, 0, 1));
    world.run();
    assert!(host.answer(&mut world, 1, late).expect("refused").status().same_code(Status::SANITIZE_IN_PROGRESS));
    world.done(0, Status::SUCCESS);
    assert!(host.answer(&mut world, 1, write).expect("it was before").status().is_success());
    world.run();
    world.done(0, Status::SUCCESS);
    assert!(host.answer(&mut world, 1, flush).expect("allowed").status().is_success());
    let (mut written, mut seen, mut last) = ([0u64; 2], Vec::new(), 0);
    let mut deallocated = 0;
    for step in 0.. {
        world.run();
        let Some(io) = world.issued.first().copied() else { break };
        assert_eq!(world.issued.len(), 1, "one piece at a time");
        match (io.op, io.data.get()) {
            (Op::Write, Data::Pattern(pattern)) => {
                if seen.last() != Some(&pattern) {
                    seen.push(pattern);
                }
                written[seen.len() - 1] += u64::from(io.len);
            }
            (Op::Deallocate, _) => deallocated += u64::from(io.len),
            other => panic!("{other:?}"),
        }
        world.done(0, Status::SUCCESS);
        if step % 4096 == 0 {
            let status = status_of(&mut world, &mut host);
            assert_eq!(status.sstat.get() & 7, sanitize_status::IN_PROGRESS);
            assert!(status.sprog.get() >= last);
            last = status.sprog.get();
            // Most admin commands have to wait.
            let again = host.admin(&mut world, sanitize(dw10, 0)).status();
            assert!(again.same_code(Status::SANITIZE_IN_PROGRESS));
            let (cqe, _) = host.admin_data(&mut world, get_log(lid::FIRMWARE, 0, 512));
            assert!(cqe.status().same_code(Status::SANITIZE_IN_PROGRESS));
            let smart = host.admin_data(&mut world, get_log(lid::SMART, 0, 512)).0;
            assert!(smart.status().is_success());
        }
    }
    // The media ends behind namespace 3.
    assert_eq!((seen, written, deallocated), (vec![0xdead_beef, !0xdead_beef], [3 << 30; 2], 3 << 30));
    let status = status_of(&mut world, &mut host);
    assert_eq!(status.sstat.get(), sanitize_status::DONE | 2 << 3 | sanitize_status::ERASED);
    assert_eq!((status.sprog.get(), status.scdw10.get()), (0xffff, dw10.0));
    let write = host.send(&mut world, 1, io(IoOpcode::WRITE.0, 4, 0, 8));
    world.settle();
    assert!(host.answer(&mut world, 1, write).expect("as before").status().is_success());
    assert_eq!(status_of(&mut world, &mut host).sstat.get() & sanitize_status::ERASED, 0);
}

#[test]
fn sanitizing_survives_resets_and_the_loss_of_power_and_its_failure_is_sticky() {
    let (mut world, mut host) = world();
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    let erase = SanitizeDw10(0).with_sanact(action::BLOCK_ERASE);
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
    world.run();
    world.done(0, Status::SUCCESS);
    let blob = world.drive.save();
    // The controller goes, and the operation does not.
    world.disconnect(weir_controller::Owner(0), host.queues[0]);
    world.run();
    assert_eq!(world.issued.len(), 1);
    let _ = event;
    // The power goes, and the operation begins anew.
    let mut world = drive(|c| c.volatile_write_cache = true);
    world.drive.restore(&blob).expect("its own");
    let mut host = fabric_with_queues(&mut world, HOST, 0, 1);
    assert_eq!(status_of(&mut world, &mut host).sstat.get(), sanitize_status::IN_PROGRESS);
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    world.run();
    assert_eq!(world.issued[0].offset, 0);
    world.done(0, Status::WRITE_FAULT);
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).expect("it has ended").dw0.get(), 0x0081_0106);
    assert_eq!(status_of(&mut world, &mut host).sstat.get(), sanitize_status::FAILED);
    let read = host.send(&mut world, 1, io(IoOpcode::READ.0, 2, 0, 8));
    world.run();
    let status = host.answer(&mut world, 1, read).expect("refused").status();
    assert!(status.same_code(Status::SANITIZE_FAILED) && status.is_dnr());
    // It was restricted: neither can it be left, nor by an unrestricted one.
    for dw10 in [SanitizeDw10(0).with_sanact(action::EXIT_FAILURE), erase.with_ause(1)] {
        assert!(host.admin(&mut world, sanitize(dw10, 0)).status().same_code(Status::SANITIZE_FAILED));
    }
    assert!(
        host.admin(&mut world, sanitize(SanitizeDw10(0).with_sanact(7), 0)).status().same_code(Status::INVALID_FIELD)
    );
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
    world.settle();
    assert_eq!(status_of(&mut world, &mut host).sstat.get(), sanitize_status::DONE | sanitize_status::ERASED);
    // An unrestricted one that fails can be left.
    assert!(host.admin(&mut world, sanitize(erase.with_ause(1), 0)).status().is_success());
    world.run();
    world.done(0, Status::WRITE_FAULT);
    let exit = SanitizeDw10(0).with_sanact(action::EXIT_FAILURE);
    assert!(host.admin(&mut world, sanitize(exit, 0)).status().is_success());
    let read = host.send(&mut world, 1, io(IoOpcode::READ.0, 2, 0, 8));
    world.settle();
    assert!(host.answer(&mut world, 1, read).expect("served").status().is_success());
}

/// Half of the drive's time is its hosts': a piece is followed by a pause as long as it took.
#[test]
fn long_work_rests_as_long_as_it_works() {
    let (mut world, mut host) = world();
    let erase = SanitizeDw10(0).with_sanact(action::BLOCK_ERASE);
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
    world.run();
    for _ in 0..5 {
        let begun = world.now;
        world.pass(Nanos::from_micros(300));
        world.done(0, Status::SUCCESS);
        world.run();
        assert!(world.issued.is_empty());
        assert_eq!(world.drive.next_deadline(), Some(begun.saturating_add(Nanos::from_micros(600))));
        world.pass(Nanos::from_micros(300));
        world.run();
        assert_eq!(world.issued.len(), 1);
    }
}

/// Sends an admin command with data.
fn with_data(world: &mut TestWorld, host: &mut Fabric, sqe: Sqe, data: &[u8]) -> Status {
    world.host.data.insert((host.base, host.tags + 1), data.to_vec());
    host.admin(world, sqe).status()
}

fn download(world: &mut TestWorld, host: &mut Fabric, image: &[u8], at: usize, length: usize) -> Status {
    let dwords = |bytes: usize| bytes as u32 / 4;
    let sqe = admin(AdminOpcode::FIRMWARE_DOWNLOAD, 80, dwords(length) - 1, dwords(at));
    with_data(world, host, sqe, &image[at..at + length])
}

fn commit(world: &mut TestWorld, host: &mut Fabric, slot: u32, action: u32) -> Status {
    host.admin(world, admin(AdminOpcode::FIRMWARE_COMMIT, 81, CommitDw10(0).with_fs(slot).with_ca(action).0, 0))
        .status()
}

fn revision(world: &mut TestWorld, host: &mut Fabric) -> String {
    String::from_utf8_lossy(&identify_controller(world, host).fr).trim().into()
}

#[test]
fn firmware_is_downloaded_in_pieces_committed_and_activated() {
    let (mut world, mut host) = world();
    let factory = revision(&mut world, &mut host);
    let image = firmware_image("2.0.1", &[0x5a; 9000]).expect("a good revision");
    assert_eq!(image.len(), 12288);
    assert!(firmware_image("much too long", &[]).is_none() && firmware_image("", &[]).is_none());
    // Pieces of another size, and such that overlap, are refused; order does not matter.
    for (at, length, want) in [(0, 512, Status::INVALID_FIELD), (2048, 4096, Status::INVALID_FIELD)] {
        assert!(download(&mut world, &mut host, &image, at, length).same_code(want));
    }
    assert!(download(&mut world, &mut host, &image, 8192, 4096).is_success());
    assert!(download(&mut world, &mut host, &image, 4096, 8192).same_code(Status::OVERLAPPING_RANGE));
    assert!(commit(&mut world, &mut host, 2, commit::REPLACE).same_code(Status::INVALID_FIRMWARE_IMAGE), "it was lost");
    for at in [8192, 0, 4096] {
        assert!(download(&mut world, &mut host, &image, at, 4096).is_success());
    }
    assert!(commit(&mut world, &mut host, 1, commit::REPLACE).same_code(Status::INVALID_FIRMWARE_SLOT), "read only");
    assert!(commit(&mut world, &mut host, 4, commit::REPLACE).same_code(Status::INVALID_FIRMWARE_SLOT));
    assert!(commit(&mut world, &mut host, 2, 6).same_code(Status::INVALID_FIELD), "no boot partitions");
    assert!(commit(&mut world, &mut host, 3, commit::ACTIVATE).same_code(Status::INVALID_FIRMWARE_IMAGE), "empty");
    assert!(commit(&mut world, &mut host, 0, commit::REPLACE_AND_ACTIVATE).is_success());
    let slots: FirmwareSlots = log(&mut world, &mut host, lid::FIRMWARE);
    assert_eq!((slots.afi, &slots.revisions[1]), (0x21, b"2.0.1   "));
    assert_eq!(revision(&mut world, &mut host), factory, "not before a reset");
    let erase = SanitizeDw10(0).with_sanact(action::BLOCK_ERASE);
    let refused = host.admin(&mut world, sanitize(erase, 0)).status();
    assert!(refused.same_code(Status::FIRMWARE_NEEDS_CONTROLLER_RESET));
    let blob = world.drive.save();
    let mut other = Fabric::ready(&mut world, "nqn.silver", 100, ams::RR);
    assert_eq!(revision(&mut world, &mut other), "2.0.1");
    assert_eq!(log::<FirmwareSlots>(&mut world, &mut host, lid::FIRMWARE).afi, 2);
    // At once, with an event.
    let image = firmware_image("3", &[]).expect("good");
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::FIRMWARE)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    assert!(download(&mut world, &mut host, &image, 0, 4096).is_success());
    assert!(commit(&mut world, &mut host, 3, commit::ACTIVATE_NOW).is_success());
    assert_eq!(revision(&mut world, &mut host), "3");
    assert_eq!(host.answer(&mut world, 0, event).expect("told").dw0.get(), 0x0003_0102);
    assert!(commit(&mut world, &mut host, 1, commit::ACTIVATE_NOW).is_success());
    assert_eq!(revision(&mut world, &mut host), factory);
    // A bit that is wrong.
    let mut bad = firmware_image("4", &[1; 100]).expect("good");
    bad[50] ^= 1;
    assert!(download(&mut world, &mut host, &bad, 0, 4096).is_success());
    assert!(commit(&mut world, &mut host, 2, commit::REPLACE).same_code(Status::INVALID_FIRMWARE_IMAGE));
    // What was to be activated is, when the power comes back.
    let mut world = drive(|_| {});
    world.drive.restore(&blob).expect("its own");
    let mut host = Fabric::ready(&mut world, HOST, 0, ams::RR);
    assert_eq!(revision(&mut world, &mut host), "2.0.1");
}

fn test_log(world: &mut TestWorld, host: &mut Fabric) -> SelfTestLog {
    log(world, host, lid::SELF_TEST)
}

fn self_test(nsid: u32, code: u8) -> Sqe {
    Sqe { nsid: nsid.into(), ..admin(AdminOpcode::DEVICE_SELF_TEST, 82, code.into(), 0) }
}

#[test]
fn self_tests_read_the_media_and_leave_their_results() {
    let (mut world, mut host) = world();
    assert!(test_log(&mut world, &mut host).results.iter().all(|r| r.status == 0xf));
    assert!(host.admin(&mut world, self_test(77, 1)).status().same_code(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert!(host.admin(&mut world, self_test(1, 5)).status().same_code(Status::INVALID_FIELD));
    assert!(host.admin(&mut world, self_test(u32::MAX, 2)).status().is_success());
    assert!(host.admin(&mut world, self_test(1, 1)).status().same_code(Status::SELF_TEST_IN_PROGRESS));
    let mut read = 0;
    for step in 0.. {
        world.run();
        let Some(io) = world.issued.first() else { break };
        assert_eq!(io.op, Op::Verify);
        read += u64::from(io.len);
        if step == 8192 {
            let page = test_log(&mut world, &mut host);
            assert_eq!((page.current, page.completion), (2, 50));
        }
        world.done(0, Status::SUCCESS);
    }
    assert_eq!(read, 2 << 30, "all of both namespaces");
    let page = test_log(&mut world, &mut host);
    assert_eq!((page.current, page.results[0].status, page.results[1].status), (0, 2 << 4, 0xf));
    // Of one namespace, which fails.
    assert!(host.admin(&mut world, self_test(3, 1)).status().is_success());
    world.run();
    world.done(0, Status::UNRECOVERED_READ_ERROR);
    let result = test_log(&mut world, &mut host).results[0];
    assert_eq!((result.status, result.segment, result.nsid.get(), result.valid), (1 << 4 | 7, 6, 3, 0b1101));
    assert_eq!((result.sct, result.sc), (2, 0x81));
    // Aborted by a command, and by a reset where it is short.
    assert!(host.admin(&mut world, self_test(1, 2)).status().is_success());
    assert!(host.admin(&mut world, self_test(0, 0xf)).status().is_success());
    assert_eq!(test_log(&mut world, &mut host).results[0].status, 2 << 4 | 1);
    world.settle();
    for (code, ends) in [(1, true), (2, false)] {
        let mut other = Fabric::ready(&mut world, "nqn.silver", 100, ams::RR);
        assert!(other.admin(&mut world, self_test(u32::MAX, code)).status().is_success());
        world.run();
        assert!(other.set_cc(&mut world, 0).is_success());
        assert_eq!(test_log(&mut world, &mut host).current == 0, ends, "code {code}");
        world.disconnect(weir_controller::Owner(100), other.queues[0]);
    }
    assert_eq!(test_log(&mut world, &mut host).results[0].status, 1 << 4 | 2);
    // The power goes: it begins anew.
    let blob = world.drive.save();
    let erase = SanitizeDw10(0).with_sanact(action::CRYPTO_ERASE);
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
    world.settle();
    assert_eq!(test_log(&mut world, &mut host).results[0].status, 2 << 4 | 9);
    let mut world = drive(|_| {});
    world.drive.restore(&blob).expect("its own");
    let mut host = Fabric::ready(&mut world, HOST, 0, ams::RR);
    assert_eq!(test_log(&mut world, &mut host).current, 2);
    world.settle();
    let page = test_log(&mut world, &mut host);
    assert_eq!((page.current, page.results[0].status, page.results[1].status), (0, 2 << 4, 1 << 4 | 2));
}

#[test]
fn telemetry_is_what_it_was_when_it_was_asked_for() {
    let (mut world, mut host) = world();
    let read = |world: &mut TestWorld, host: &mut Fabric, lid, lsp: u32| {
        let mut sqe = get_log(lid, 0, 8192);
        sqe.cdw10 |= U32::new(lsp << 8);
        let (cqe, data) = host.admin_data(world, sqe);
        assert!(cqe.status().is_success());
        (TelemetryHeader::read_from_bytes(&data[..512]).expect("a head"), data[512..].to_vec())
    };
    let (head, _) = read(&mut world, &mut host, lid::TELEMETRY_HOST, 0);
    assert_eq!((head.area3.get(), head.host_generation), (0, 0), "nobody has asked");
    assert!(!host.admin(&mut world, self_test(77, 1)).status().is_success());
    let (head, data) = read(&mut world, &mut host, lid::TELEMETRY_HOST, 1);
    let [one, two, three] = [head.area1, head.area2, head.area3].map(|area| usize::from(area.get()) * 512);
    assert!(0 < one && one < two && two < three, "{one} {two} {three}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
    assert!(text(&data[..one]).contains("subsystem=nqn.2026-01.io.weir:test"), "{}", text(&data[..one]));
    assert_eq!(data[one..][..8], 1u64.to_le_bytes(), "the first entry of the error log");
    assert!(text(&data[two..three]).contains("controller=1 host=nqn.gold ready=true"));
    let (again, _) = read(&mut world, &mut host, lid::TELEMETRY_HOST, 0);
    assert_eq!((again, again.host_generation), (head, 1));
    let odd = host.admin_data(&mut world, get_log(lid::TELEMETRY_HOST, 4, 512)).0.status();
    assert!(odd.same_code(Status::INVALID_FIELD));
    // Of its own accord.
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::TELEMETRY)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    world.drive.note_media_fault(true);
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).expect("told").dw0.get(), 0x0008_0202);
    let keeping = 1 << 15;
    let mut sqe = get_log(lid::TELEMETRY_CONTROLLER, 0, 512);
    sqe.cdw10 |= U32::new(keeping);
    let (_, data) = host.admin_data(&mut world, sqe);
    assert_eq!((data[382], data[383]), (1, 1));
    assert_eq!(text(&data[384..512]), "the media has failed");
    let (head, _) = read(&mut world, &mut host, lid::TELEMETRY_CONTROLLER, 0);
    assert_eq!(head.available, 1);
    let (head, _) = read(&mut world, &mut host, lid::TELEMETRY_CONTROLLER, 0);
    assert_eq!(head.available, 0, "it was read");
}

#[test]
fn the_persistent_event_log_is_read_in_a_context_and_survives_the_loss_of_power() {
    let (mut world, mut host) = world();
    let read = |world: &mut TestWorld, host: &mut Fabric, action: u32| {
        let mut sqe = get_log(lid::PERSISTENT_EVENTS, 0, 8192);
        sqe.cdw10 |= U32::new(action << 8);
        let (cqe, data) = host.admin_data(world, sqe);
        let mut kinds = Vec::new();
        if cqe.status().is_success() {
            let head = PersistentHeader::read_from_bytes(&data[..512]).expect("a head");
            let (mut at, end) = (512, head.tll.get() as usize);
            while at < end && at < data.len() {
                kinds.push(data[at]);
                at += 24 + usize::from(u16::from_le_bytes([data[at + 22], data[at + 23]]));
            }
            if end > 0 {
                assert_eq!((at, kinds.len()), (end, head.tnev.get() as usize));
            }
        }
        (cqe.status(), kinds)
    };
    assert!(read(&mut world, &mut host, 0).0.same_code(Status::COMMAND_SEQUENCE_ERROR), "no context");
    assert_eq!(read(&mut world, &mut host, 1).1, [persistent::RESET]);
    assert!(read(&mut world, &mut host, 1).0.same_code(Status::COMMAND_SEQUENCE_ERROR), "there is one");
    let erase = SanitizeDw10(0).with_sanact(action::BLOCK_ERASE);
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
    world.settle();
    assert_eq!(read(&mut world, &mut host, 0).1, [persistent::RESET], "as it was");
    assert!(read(&mut world, &mut host, 2).0.is_success());
    let want = [persistent::SANITIZE_END, persistent::SANITIZE_START, persistent::RESET];
    assert_eq!(read(&mut world, &mut host, 1).1, want, "newest first");
    world.drive.stop(world.now);
    let blob = world.drive.save();
    let mut world = drive(|_| {});
    world.drive.restore(&blob).expect("its own");
    let mut host = Fabric::ready(&mut world, HOST, 0, ams::RR);
    let kinds = read(&mut world, &mut host, 1).1;
    assert_eq!(kinds[..2], [persistent::RESET, persistent::SMART]);
    assert_eq!(kinds[2..], want);
    // It is bounded.
    for _ in 0..5000 {
        world.drive.stop(world.now);
    }
    assert!(world.drive.save().len() < 80 << 10);
}

#[test]
fn access_that_is_lost_is_told_and_refused() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, HOST, 0, 1);
    let mut other = fabric_with_queues(&mut world, "nqn.silver", 100, 1);
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::ANA)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    let id = identify_controller(&mut world, &mut host);
    assert_eq!((id.cmic & ana::CMIC, id.anagrpmax.get(), id.anacap & 0x1f), (ana::CMIC, 1, 0x1f));
    let (_, data) = host.admin_data(&mut world, get_log(lid::ANA, 0, 56));
    assert_eq!((data[8], data[16], data[20], data[32]), (1, 1, 2, ana::OPTIMIZED));
    assert_eq!((data[48], data[52]), (1, 3), "the namespaces of the group");
    let controller = host.add_queue(&mut world, 64, 0).expect("another").controller;
    world.drive.set_ana_state(controller, AnaState::Inaccessible).expect("it is");
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).expect("told").dw0.get(), 0x000c_0302);
    let (_, data) = host.admin_data(&mut world, get_log(lid::ANA, 0, 48));
    assert_eq!((data[0], data[32]), (1, ana::INACCESSIBLE));
    let read = |world: &mut TestWorld, host: &mut Fabric| {
        let tag = host.send(world, 1, io(IoOpcode::READ.0, 2, 0, 8));
        world.settle();
        host.answer(world, 1, tag).expect("answered").status()
    };
    let status = read(&mut world, &mut host);
    assert!(status.same_code(Status::ANA_INACCESSIBLE) && !status.is_dnr(), "another path may do");
    assert!(read(&mut world, &mut other).is_success());
    world.drive.set_ana_state(controller, AnaState::NonOptimized).expect("it is");
    assert!(read(&mut world, &mut host).is_success());
    // Said of a host, and of all: of controllers that come later as well.
    world.drive.set_ana(AnaScope::Host("nqn.silver"), AnaState::PersistentLoss);
    let mut late = fabric_with_queues(&mut world, "nqn.silver", 200, 1);
    for silver in [&mut other, &mut late] {
        assert!(read(&mut world, silver).same_code(Status::ANA_PERSISTENT_LOSS));
    }
    assert!(read(&mut world, &mut host).is_success());
    let states: Vec<_> = world.drive.controllers().iter().map(|c| c.ana).collect();
    assert_eq!(states, [AnaState::NonOptimized, AnaState::PersistentLoss, AnaState::PersistentLoss]);
    world.drive.set_ana(AnaScope::All, AnaState::Change);
    let mut last = fabric_with_queues(&mut world, "nqn.new", 300, 1);
    for any in [&mut host, &mut other, &mut late, &mut last] {
        assert!(read(&mut world, any).same_code(Status::ANA_TRANSITION));
    }
    world.drive.set_ana(AnaScope::All, AnaState::Optimized);
    for any in [&mut host, &mut other, &mut late, &mut last] {
        assert!(read(&mut world, any).is_success());
    }
    world.drive.check();
}

/// Two ports, one optimized: as it is configured, and when the operator fails over.
#[test]
fn access_is_said_of_a_port() {
    let [first, second]: [SocketAddr; 2] =
        ["10.0.0.1:4420", "10.0.0.1:4421"].map(|text| text.parse().expect("an address"));
    let any: SocketAddr = "[::]:4421".parse().expect("an address");
    let mut world = drive(|c| c.ana_ports = vec![(any, AnaState::Inaccessible)]);
    let connect = |world: &mut TestWorld, host: &str, base: u32, local: SocketAddr| {
        world.local = Some(local);
        let mut host = fabric_with_queues(world, host, base, 1);
        assert!(host.admin(world, set_feature(fid::ASYNC_EVENTS, async_config::ANA)).status().is_success());
        let event = host.send(world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
        (host, event)
    };
    let (mut one, told_one) = connect(&mut world, HOST, 0, first);
    let (mut two, told_two) = connect(&mut world, HOST, 100, second);
    let state = |world: &mut TestWorld, host: &mut Fabric| {
        let tag = host.send(world, 1, io(IoOpcode::READ.0, 2, 0, 8));
        world.settle();
        let read = host.answer(world, 1, tag).expect("answered").status();
        let (_, data) = host.admin_data(world, get_log(lid::ANA, 0, 48));
        assert_eq!(read.same_code(Status::ANA_INACCESSIBLE), data[32] == ana::INACCESSIBLE, "{read}");
        data[32]
    };
    assert_eq!((state(&mut world, &mut one), state(&mut world, &mut two)), (ana::OPTIMIZED, ana::INACCESSIBLE));
    assert_eq!((host_told(&mut world, &one, told_one), host_told(&mut world, &two, told_two)), (false, false));
    // The first goes, the second comes: each host is told once on each path.
    world.drive.set_ana(AnaScope::Port(first), AnaState::Inaccessible);
    world.drive.set_ana(AnaScope::Port(any), AnaState::Optimized);
    world.run();
    assert_eq!((state(&mut world, &mut one), state(&mut world, &mut two)), (ana::INACCESSIBLE, ana::OPTIMIZED));
    assert_eq!((host_told(&mut world, &one, told_one), host_told(&mut world, &two, told_two)), (true, true));
    // Whoever comes later, and what is said of a host, which counts more.
    let (mut late, _) = connect(&mut world, "nqn.silver", 200, first);
    assert_eq!(state(&mut world, &mut late), ana::INACCESSIBLE);
    world.drive.set_ana(AnaScope::Host("nqn.silver"), AnaState::NonOptimized);
    world.drive.set_ana(AnaScope::Port(first), AnaState::PersistentLoss);
    assert_eq!(state(&mut world, &mut late), ana::NON_OPTIMIZED);
    // What is said of all is said of ports too.
    world.drive.set_ana(AnaScope::All, AnaState::Optimized);
    let (mut last, _) = connect(&mut world, "nqn.silver", 300, first);
    for host in [&mut one, &mut two, &mut late, &mut last] {
        assert_eq!(state(&mut world, host), ana::OPTIMIZED);
    }
    world.drive.check();
}

/// Whether the event request was completed.
fn host_told(world: &mut TestWorld, host: &Fabric, event: u32) -> bool {
    host.answer(world, 0, event).is_some()
}

#[test]
fn lockdown_prohibits_until_it_is_lifted() {
    let (mut world, mut host) = world();
    let lock = |world: &mut TestWorld, host: &mut Fabric, scope, id: u8, prohibit| {
        let dw10 = LockdownDw10(0).with_scp(scope).with_ofi(id.into()).with_prhbt(prohibit);
        host.admin(world, admin(AdminOpcode::LOCKDOWN, 90, dw10.0, 0)).status()
    };
    let listed = |world: &mut TestWorld, host: &mut Fabric, contents: u32, scope: u32| {
        let mut sqe = get_log(lid::LOCKDOWN, 0, 512);
        sqe.cdw10 |= U32::new((contents << 4 | scope) << 8);
        let data = host.admin_data(world, sqe).1;
        data[4..4 + usize::from(data[3])].to_vec()
    };
    let erase = SanitizeDw10(0).with_sanact(action::BLOCK_ERASE);
    assert!(listed(&mut world, &mut host, 0, 0).contains(&AdminOpcode::SANITIZE.0));
    assert!(listed(&mut world, &mut host, 1, 0).is_empty());
    let never = lock(&mut world, &mut host, lockdown::ADMIN, AdminOpcode::IDENTIFY.0, 1);
    assert!(never.same_code(Status::LOCKDOWN_NOT_SUPPORTED));
    assert!(lock(&mut world, &mut host, 5, 0, 1).same_code(Status::INVALID_FIELD));
    assert!(lock(&mut world, &mut host, lockdown::ADMIN, AdminOpcode::SANITIZE.0, 1).is_success());
    assert_eq!(listed(&mut world, &mut host, 1, 0), [AdminOpcode::SANITIZE.0]);
    let status = host.admin(&mut world, sanitize(erase, 0)).status();
    assert!(status.same_code(Status::PROHIBITED_BY_LOCKDOWN));
    assert!(lock(&mut world, &mut host, lockdown::ADMIN, AdminOpcode::SANITIZE.0, 0).is_success());
    assert!(lock(&mut world, &mut host, lockdown::FEATURE, fid::ERROR_RECOVERY, 1).is_success());
    let set = |world: &mut TestWorld, host: &mut Fabric, fid| host.admin(world, set_feature(fid, 0)).status();
    assert!(set(&mut world, &mut host, fid::ERROR_RECOVERY).same_code(Status::PROHIBITED_BY_LOCKDOWN));
    assert!(set(&mut world, &mut host, fid::WRITE_ATOMICITY).is_success());
    assert!(host.admin(&mut world, sanitize(erase, 0)).status().is_success());
}

#[test]
fn the_endurance_group_counts_and_its_events_are_told() {
    let mut world = drive(|_| {});
    let mut host = fabric_with_queues(&mut world, HOST, 0, 1);
    host.send(&mut world, 1, io(IoOpcode::WRITE.0, 1, 0, 8));
    world.settle();
    let group = |lsi: u32| Sqe { cdw11: (lsi << 16).into(), ..get_log(lid::ENDURANCE_GROUP, 0, 512) };
    let (cqe, data) = host.admin_data(&mut world, group(1));
    assert!(cqe.status().is_success());
    let page = EnduranceGroup::read_from_bytes(&data[..512]).expect("a page");
    assert_eq!((page.host_writes.get(), page.written.get(), page.media_written.get()), (1, 1, 1));
    assert!(host.admin_data(&mut world, group(2)).0.status().same_code(Status::INVALID_FIELD));
    assert!(host.admin(&mut world, set_feature(fid::ASYNC_EVENTS, async_config::ENDURANCE)).status().is_success());
    let warnings = u32::from(critical_warning::RELIABILITY) << 16 | 1;
    assert!(host.admin(&mut world, set_feature(fid::ENDURANCE_EVENTS, warnings)).status().is_success());
    let event = host.send(&mut world, 0, admin(AdminOpcode::ASYNC_EVENT_REQUEST, 9, 0, 0));
    world.drive.note_media_fault(false);
    world.run();
    assert_eq!(host.answer(&mut world, 0, event).expect("told").dw0.get(), 0x000f_0602);
    let aggregate = |world: &mut TestWorld, host: &mut Fabric| {
        host.admin_data(world, get_log(lid::ENDURANCE_AGGREGATE, 0, 12)).1[..10].to_vec()
    };
    assert_eq!(aggregate(&mut world, &mut host), [1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(aggregate(&mut world, &mut host), [0; 10]);
}
