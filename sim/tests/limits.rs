//! Floors, ceilings and what a writer's collection costs a reader: exact numbers, end to end through the file of `weir sim`.

use std::path::Path;
use weir_config::Document;
use weir_flash::{Flash, FlashOp};
use weir_sim::{Scenario, SimulationResult};
use weir_units::Nanos;

/// 100,000 commands a second, 16:1 between high and low.
const DRIVE: &str = "seed = 1\nramp = \"100ms\"\ntime = \"1s\"\n[[device]]\ncapacity = \"1GiB\"\nlatency = \"100us\"\nslots = 10\n\
                     quanta = { high = \"256KiB\", low = \"16KiB\" }\n";

fn run(text: &str) -> SimulationResult {
    let document = Document::parse(text, "limits.toml", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    let scenario = Scenario::read(&document).unwrap_or_else(|e| panic!("{e}"));
    scenario.run(|_| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn tenant(name: &str, class: &str, keys: &str) -> String {
    let job = format!("[[job]]\nname = \"{name}\"\ntenant = \"{name}\"\nrw = \"randread\"\nbs = \"4KiB\"\nqd = 64\n");
    format!("[[tenant]]\nname = \"{name}\"\nclass = \"{class}\"\n{keys}\n{job}")
}

/// Commands a second of each job.
fn iops(tenants: &[String]) -> Vec<f64> {
    let outcome = run(&(DRIVE.to_string() + &tenants.concat()));
    outcome.jobs.iter().map(|job| job.summary.iops).collect()
}

fn near(got: f64, want: f64, within: f64, what: &str) {
    assert!((got / want - 1.0).abs() <= within, "{what}: {got} instead of {want}");
}

#[test]
fn a_ceiling_holds_to_the_command_and_leaves_the_rest_to_others() {
    let got = iops(&[tenant("a", "high", "ceiling = { iops = 30000, burst = 8 }"), tenant("b", "low", "")]);
    near(got[0], 30_000.0, 0.0005, "the ceiling");
    near(got[1], 70_000.0, 0.0005, "the rest");
    let got = iops(&[tenant("a", "high", "ceiling = { bandwidth = \"40960KB/s\" }"), tenant("b", "low", "")]);
    near(got[0], 10_000.0, 0.0005, "in bytes");
    near(got[1], 90_000.0, 0.0005, "the rest");
    // An idle drive does not lift it.
    near(iops(&[tenant("a", "high", "ceiling = { iops = 1000, burst = 1 }")])[0], 1_000.0, 0.001, "alone");
}

#[test]
fn a_floor_is_the_least_and_no_more() {
    let floor = |n: u32| format!("floor = {{ iops = {n} }}");
    let plain = iops(&[tenant("a", "high", ""), tenant("b", "low", ""), tenant("c", "low", "")]);
    near(plain[1], 100_000.0 / 17.0 / 2.0, 0.01, "half of a seventeenth");
    // Its floor, and the others as they share a drive without it: 16 to a half.
    let got = iops(&[tenant("a", "high", ""), tenant("b", "low", &floor(50_000)), tenant("c", "low", "")]);
    near(got[1], 50_000.0, 0.005, "the floor");
    near(got[0], 50_000.0 * 16.0 / 16.5, 0.01, "high");
    near(got[2], 50_000.0 * 0.5 / 16.5, 0.02, "low without a floor");
    // Two of them, of which one has more by its share.
    let got = iops(&[tenant("a", "high", &floor(30_000)), tenant("b", "low", &floor(40_000)), tenant("c", "low", "")]);
    near(got[0], 60_000.0 * 16.0 / 16.5, 0.01, "above its floor");
    near(got[1], 40_000.0, 0.005, "at its floor");
    // Bytes, beside larger commands of class high.
    let large = tenant("a", "high", "").replace("bs = \"4KiB\"", "bs = \"128KiB\"");
    let drive = DRIVE.replace("slots = 10", "slots = 10\nslot_bytes = \"256KiB\"");
    let small = tenant("b", "low", "floor = { bandwidth = \"200MB/s\" }");
    let got = run(&(drive + &large + &small));
    near(got.jobs[1].summary.bandwidth_bytes_per_s, 200e6, 0.01, "bytes");
}

/// What a floor and a ceiling cost who has neither: nothing, to the last command.
#[test]
fn who_has_none_is_served_as_ever() {
    let jobs = [tenant("a", "high", ""), tenant("b", "low", "")];
    let idle = tenant("c", "low", "floor = { iops = 1000 }\nceiling = { iops = 2000 }\nsla = { p99 = \"1ms\" }");
    let idle = idle.split("[[job]]").next().unwrap().to_string();
    let (plain, beside) =
        (run(&(DRIVE.to_string() + &jobs.concat())), run(&(DRIVE.to_string() + &jobs.concat() + &idle)));
    assert_eq!(plain.digest, beside.digest);
}

/// A reader beside a writer that makes the drive collect, both of class high: reads a second, and writes.
fn mixed(cost: &str, reader: &str) -> [f64; 2] {
    let text = format!(
        "seed = 1\nramp = \"1s\"\ntime = \"3s\"\n[[device]]\nprofile = \"femu-bbssd\"\ncapacity = \"128MiB\"\nslots = 4\n\
         block_size = 4096\ncost = \"{cost}\"\n[device.flash]\nover_provisioning = 0.4\nchannels = 2\nways = 2\npages = 64\n\
         precondition = \"steady\"\n{}{}",
        tenant("reader", "high", reader),
        tenant("writer", "high", "").replace("randread", "randwrite"),
    );
    let outcome = run(&text);
    let flash = outcome.flash.expect("flash inside");
    assert!(flash.stats.gc_moves > 0, "collection is at work");
    [0, 1].map(|i| outcome.jobs[i].summary.iops)
}

#[test]
fn a_reader_keeps_its_share_beside_a_writer_that_makes_the_drive_collect() {
    let bytes = mixed("bytes", "");
    near(bytes[0], bytes[1], 0.03, "as many bytes for each");
    let time = mixed("device-time", "");
    // And by a floor of twice what bytes gave it, which has to make up for the pauses in which the drive collects.
    let floor = mixed("bytes", &format!("floor = {{ iops = {}, catch_up = \"200ms\" }}", (2.0 * bytes[0]) as u64));
    println!("reads and writes a second: bytes {bytes:.0?}, device-time {time:.0?}, bytes with a floor {floor:.0?}");
    assert!(time[0] > 2.0 * bytes[0], "{time:?} {bytes:?}");
    near(floor[0], 2.0 * bytes[0], 0.02, "the floor of a reader");
}

/// A full drive of 8 GiB with small blocks, so that many of them are collected: 32 random reads and 32 random writes of 4 KiB in flight.
fn shared(profile: &str, time: &str, keys: &str, classes: [&str; 2]) -> SimulationResult {
    run(&format!(
        "seed = 1\nramp = \"2s\"\ntime = \"{time}\"\n[[device]]\nprofile = \"{profile}\"\ncapacity = \"8GiB\"\ncost = \"device-time\"\n{keys}\n\
         [device.flash]\npages = 16\nprecondition = \"steady\"\n{}{}",
        tenant("reader", classes[0], "").replace("qd = 64", "qd = 32"),
        tenant("writer", classes[1], "").replace("randread", "randwrite").replace("qd = 64", "qd = 32"),
    ))
}

/// Drives, and the least that 32 reads in flight give a second; p3700's programs are not suspended.
const DRIVES: [(&str, f64); 4] = [("p3600", 150e3), ("p3700", 15e3), ("pm963", 100e3), ("960pro", 80e3)];

/// All of them fit into the drive's slots: there is nothing to arbitrate, and reads pass the programs that buffered writes and collection
/// have waiting at each die.
#[test]
fn reads_do_not_starve_behind_buffered_programs() {
    for (profile, least) in DRIVES {
        let outcome = shared(profile, "1s", "slots = 64", ["high", "high"]);
        let [reads, writes] = [0, 1].map(|i| outcome.jobs[i].summary.iops);
        let p99 = outcome.jobs[0].summary.latency.p99;
        println!("{profile}: {reads:.0} reads a second, 99 % within {p99} ns, beside {writes:.0} writes");
        assert!(outcome.flash.expect("flash").stats.gc_moves > 0, "{profile}: collection is at work");
        assert!(reads > least && p99 < 5_000_000, "{profile}: {reads} reads a second, 99 % within {p99} ns");
        assert!(writes > 10_000.0, "{profile}: and writes are not passed for ever: {writes}");
    }
}

/// With the slots that a profile has where tenants share it, fewer than each has in flight, the drive's time is shared by weight, collection included.
#[test]
fn device_time_is_shared_by_weight_while_the_drive_collects() {
    for (profile, time) in [("p3700", "30s"), ("960pro", "8s")] {
        let text = "capacity=8GiB&pages=16";
        let device = weir_config::DeviceConfig::from_query(profile, text).unwrap_or_else(|e| panic!("{e}"));
        let drive = Flash::new(&device.flash.expect("flash").config, Nanos(0)).unwrap_or_else(|e| panic!("{e}"));
        for (classes, wanted) in [(["medium", "high"], 0.5), (["high", "high"], 1.0)] {
            let outcome = shared(profile, time, "", classes);
            let stats = outcome.flash.as_ref().expect("flash").stats;
            let moved = stats.gc_moves * 1000 / stats.host_writes;
            let cost = |op| drive.cost(op, 1, moved).0 as f64;
            let [reads, writes] = [0, 1].map(|i| outcome.jobs[i].summary.iops);
            let share = reads * cost(FlashOp::Read) / (writes * cost(FlashOp::Write { fua: false }));
            println!(
                "{profile} {classes:?}: {reads:.0} reads, {writes:.0} writes, {moved} moved: {share:.3} of {wanted}"
            );
            assert!(moved > 500, "{profile}: collection is at work: {moved}");
            near(share, wanted, 0.02, profile);
        }
    }
}
