//! Floors, ceilings and what a writer's collection costs a reader: exact numbers, end to end through the file of `weir sim`.

use std::path::Path;
use weir_node::config::Document;
use weir_sim::{Outcome, Scenario};

/// 100,000 commands a second, 16:1 between high and low.
const DRIVE: &str = "seed = 1\nramp = \"100ms\"\ntime = \"1s\"\n[[device]]\ncapacity = \"1GiB\"\nlatency = \"100us\"\nslots = 10\n\
                     quanta = { high = \"256KiB\", low = \"16KiB\" }\n";

fn run(text: &str) -> Outcome {
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
