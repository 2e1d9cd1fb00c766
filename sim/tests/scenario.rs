//! The file of `weir sim`, from its text to its results.

use std::path::{Path, PathBuf};
use weir_config::Document;
use weir_drive::FlashFigures;
use weir_sim::{Scenario, SimulationResult};
use weir_units::{Class, Nanos};

const DRIVE: &str = "[[device]]\ncapacity = \"1GiB\"\nlatency = \"100us\"\nslots = 8\n";
const TENANTS: &str = "[[tenant]]\nname = \"gold\"\nclass = \"high\"\n[[tenant]]\nname = \"tin\"\nclass = \"low\"\n";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

fn read(text: &str) -> Result<Scenario, String> {
    let document = Document::parse(text, "exp.toml", &folder()).map_err(|e| e.to_string())?;
    Scenario::read(&document).map_err(|e| e.to_string())
}

fn run(text: &str) -> SimulationResult {
    let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
    scenario.run(|_| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn with_drive(jobs: &str) -> String {
    format!("time = \"100ms\"\n{DRIVE}{jobs}")
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let text = format!(
        "{}{TENANTS}[[job]]\ntenant = \"gold\"\nrw = \"randrw:70\"\nbs = \"4KiB:50/8KiB:50\"\nqd = 4\nzipf = 0.99\n\
         [[job]]\ntenant = \"tin\"\nrate = \"20k\"\narrival = \"poisson\"\nhot = \"80/20\"\n",
        with_drive("").replace("time", "seed = 5\nseries = \"10ms\"\ntime")
    );
    let (one, two) = (run(&text), run(&text));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    assert_eq!(one.jobs[0].series.len(), 10);
    let other = run(&text.replace("seed = 5", "seed = 6"));
    assert_ne!(one.digest, other.digest, "another seed draws something else");
    assert!(one.jobs.iter().all(|j| j.summary.errors == 0 && j.summary.iops > 1000.0));
}

#[test]
fn a_closed_loop_has_the_drives_rate_and_an_open_one_its_own() {
    let closed = run(&with_drive("[[job]]\nqd = 4\n"));
    assert_eq!(closed.total.summary.iops, 40_000.0, "four at a time, 100 us each");
    assert_eq!((closed.total.summary.latency.p50, closed.total.summary.latency.max), (100_000, 100_000));
    let open = run(&with_drive("[[job]]\nrate = 20000\nname = \"x\"\n"));
    let s = &open.total.summary;
    // The last ones are still in flight when time is over.
    assert!((19_900.0..=20_000.0).contains(&s.iops), "{}", s.iops);
    assert_eq!(s.latency.max, 100_000);
    // Twice what eight slots can do: half of it piles up, and latencies say so.
    let flood = run(&with_drive("[[job]]\nrate = \"160k\"\nname = \"x\"\n"));
    assert!((79_900.0..=80_000.0).contains(&flood.total.summary.iops), "{:?}", flood.total.summary);
    assert!(flood.total.summary.latency.max > 10_000_000, "{:?}", flood.total.summary);
}

#[test]
fn requests_or_time_end_a_run() {
    let counted = run(&format!("requests = 1000\n{DRIVE}[[job]]\nqd = 8\n"));
    assert_eq!((counted.requests, counted.time), (1000, Nanos::from_micros(12_500)));
    assert_eq!(counted.total.summary.iops, 80_000.0, "over the time that it took");
    let timed = run(&format!("time = \"1s\"\nrequests = 5000000\n{DRIVE}[[job]]\nqd = 8\nstart = \"500ms\"\n"));
    assert_eq!((timed.requests, timed.time), (40_000, Nanos::from_secs(1)));
    assert_eq!(timed.jobs[0].summary.iops, 80_000.0, "from its start on");
    let ramp = run(&format!("time = \"10ms\"\nramp = \"90ms\"\n{DRIVE}[[job]]\nqd = 8\n"));
    assert_eq!((ramp.requests, ramp.time), (8_000, Nanos::from_millis(100)));
    assert!((ramp.total.summary.iops / 80_000.0 - 1.0).abs() < 0.02, "only what comes after the ramp counts");
}

#[test]
fn jobs_find_their_tenants() {
    let jobs = "[[job]]\nname = \"gold\"\n[[job]]\ntenant = \"tin\"\n[[job]]\ntenant = \"gold\"\nclass = \"low\"\n";
    let scenario = read(&with_drive(&format!("{TENANTS}{jobs}"))).unwrap();
    let found: Vec<(&str, u16, Option<Class>)> =
        scenario.clients.iter().map(|c| (c.job.name.as_str(), c.tenant, c.wish)).collect();
    assert_eq!(found, [("gold", 0, None), ("tin", 1, None), ("gold-2", 0, Some(Class::Low))]);
    let outcome = scenario.run(|_| {}).unwrap();
    let classes: Vec<Option<Class>> = outcome.jobs.iter().map(|j| j.class).collect();
    assert_eq!(classes, [Some(Class::High), Some(Class::Low), Some(Class::Low)]);
    assert_eq!(outcome.tenants.len(), 2);
    let both = outcome.jobs[0].summary.iops + outcome.jobs[2].summary.iops;
    assert!((outcome.tenants[0].summary.iops - both).abs() < 1e-6, "a tenant has what its jobs have");
    let own = read(&with_drive("[[job]]\nclass = \"high\"\n[[job]]\nname = \"x\"\n")).unwrap();
    let own: Vec<(&str, Class)> = own.tenants.iter().map(|t| (t.name.as_str(), t.class)).collect();
    assert_eq!(own, [("job1", Class::High), ("x", Class::Medium)]);
}

#[test]
fn traces_are_replayed() {
    // Six requests in 5 ms, two tenants; see tests/traces/two.csv.
    let text = format!("{DRIVE}{TENANTS}[[job]]\ntrace = \"two.csv\"\n");
    let both = run(&text);
    let counts: Vec<(String, f64)> = both.jobs.iter().map(|j| (j.name.clone(), j.summary.iops)).collect();
    assert_eq!(both.requests, 6);
    assert_eq!(both.time, Nanos::from_micros(5_100), "the last one comes at 5 ms and takes 100 us");
    assert_eq!(counts[0].0, "gold");
    assert!((counts[0].1 - 4.0 / 0.005_1).abs() < 1.0, "{counts:?}");
    let fast = run(&(text.clone() + "timing = \"fast\"\nqd = 1\nstream = \"gold\"\ntenant = \"gold\"\n"));
    assert_eq!((fast.requests, fast.time), (4, Nanos::from_micros(400)));
    let twice = run(&(text.clone() + "speed = 2\ntenant = \"tin\"\n"));
    assert_eq!((twice.requests, twice.time), (6, Nanos::from_micros(2_600)));
    assert_eq!(twice.jobs.len(), 1, "a job with a tenant takes all of it");
    // Beyond the end of a smaller drive.
    let small = text.replace("1GiB", "1MiB");
    let error = read(&small).unwrap().run(|_| {}).unwrap_err().to_string();
    assert!(error.contains("two.csv:6: a request ends at byte 524292096, behind the 1MiB there are"), "{error}");
    assert_eq!(run(&(small.clone() + "fit = \"wrap\"\n")).requests, 6);
    assert_eq!(run(&(small + "fit = \"scale\"\n")).requests, 6);
    for name in ["v2.fio", "v3.fio", "sda.blkparse", "usr_0.msr"] {
        let outcome = run(&format!("{DRIVE}[[job]]\ntrace = \"{name}\"\nfit = \"wrap\"\n"));
        assert_eq!((outcome.requests, outcome.total.summary.errors), (4, 0), "{name}");
        assert_eq!(outcome.drive.work.reads, 2, "{name}");
    }
}

#[test]
fn a_bad_line_ends_the_run_without_a_result() {
    let error = read(&format!("{DRIVE}[[job]]\ntrace = \"bad.csv\"\n")).unwrap().run(|_| {}).unwrap_err().to_string();
    assert!(error.ends_with("bad.csv:4: \"many\" where its length is wanted, a whole number"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_key() {
    for (text, says) in [
        ("", "exp.toml:1: device: missing; add a [[device]]"),
        ("[[job]]\nqd = 1\n", "device: missing"),
        (DRIVE, "job: missing; add a [[job]]"),
        ("[[device]]\n[[job]]\nqd = 1\n", "exp.toml:1: device.ssd0.latency: missing, and a drive that takes no time"),
        ("[[device]]\nlatency = \"1us\"\nmedia = \"file:x\"\n[[job]]\nqd = 1\n", "device.ssd0.capacity: missing"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(says), "{text:?}: {error}");
    }
    for (job, says) in [
        ("qd = 0", "exp.toml:7: job#1.qd: 0 is out of range"),
        ("qd = 2000", "job#1.qd: 2000 is more than the device's queue_depth, 1024"),
        ("depth = 4", "exp.toml:7: job#1.depth: unknown key; there is "),
        ("rw = \"randraed\"", "job#1.rw: \"randraed\" is none of read"),
        ("bs = \"4K\"", "job#1.bs: \"4K\" is not a size"),
        ("rate = \"5MB\"", "job#1.rate: \"5MB\" is neither"),
        ("zipf = 7", "job#1.zipf: 7 is out of range"),
        ("zipf = 1\nhot = \"80/20\"", "job#1.hot: zipf says already"),
        ("zipf = 0.9\nrw = \"write\"", "job#1.zipf: spreads random requests, and rw = \"write\""),
        ("arrival = \"poisson\"", "job#1.arrival: without a rate"),
        ("start = 5", "job#1.start: 5 where a time like"),
        ("start = \"1s\"", "job#1.start: 1s is not before the end of the run, 100ms"),
        ("class = \"top\"", "job#1.class: \"top\" is none of urgent"),
        ("tenant = \"x\"", "job#1.tenant: there is no [[tenant]]"),
        ("format = \"msr\"", "job#1.format: only a job with a trace has this"),
        ("trace = \"no.csv\"", "job#1.trace: "),
        ("trace = \"two.csv\"", "job#1.trace: the trace names tenants; add a [[tenant]]"),
        ("trace = \"v3.fio\"\nrw = \"read\"", "job#1.rw: the trace says what is asked for"),
        ("trace = \"v3.fio\"\nformat = \"vhs\"", "job#1.format: \"vhs\" is no format"),
        ("trace = \"v3.fio\"\ntiming = \"fast\"\nspeed = 2", "job#1.speed: timing = \"fast\" does not"),
        ("trace = \"v3.fio\"\nspan = \"1GiB\"", "job#1.span: belongs to fit"),
        ("trace = \"v3.fio\"\nregion = \"2GiB\"", "job#1.region: is no part of the drive (1GiB)"),
    ] {
        let error = read(&with_drive(&format!("[[job]]\n{job}\n"))).expect_err(job);
        assert!(error.contains(says), "{job:?}: {error}");
    }
    for (top, says) in [
        ("time = \"0ms\"", "exp.toml:1: time: 0 would simulate nothing"),
        ("requests = 0", "requests: 0 is out of range"),
        ("series = \"10ns\"", "series: an interval of 10ns is too short"),
        ("precondition = \"steady\"", "precondition: this drive has no flash that could be steady"),
        ("sead = 1", "sead: unknown key; did you mean seed?"),
        ("[node]\nname = \"n\"", "node: unknown key"),
        ("seed = -1", "seed: -1 is out of range"),
    ] {
        let text = match top.starts_with('[') {
            true => format!("{DRIVE}[[job]]\nqd = 1\n{top}\n"),
            false => format!("{top}\n{DRIVE}[[job]]\nqd = 1\n"),
        };
        let error = read(&text).expect_err(top);
        assert!(error.contains(says), "{top:?}: {error}");
    }
    let two = read(&format!("{DRIVE}{DRIVE}[[job]]\nqd = 1\n")).unwrap_err();
    assert!(two.contains("2 drives where one is simulated"), "{two}");
    let lost = read(&with_drive(&format!("{TENANTS}[[job]]\nqd = 1\n"))).unwrap_err();
    assert!(
        lost.contains("exp.toml:12: job#1.tenant: missing, and there are several; write one of gold, tin"),
        "{lost}"
    );
}

fn read_all(text: &str) -> Result<Vec<Scenario>, String> {
    let document = Document::parse(text, "exp.toml", &folder()).map_err(|e| e.to_string())?;
    Scenario::read_all(&document).map_err(|e| e.to_string())
}

fn drive(name: &str, latency: &str) -> String {
    format!("[[device]]\nname = \"{name}\"\ncapacity = \"1GiB\"\nlatency = \"{latency}\"\nslots = 8\n")
}

/// A file of several drives is as many files of one: the same answers, one after the other.
#[test]
fn drives_of_a_file_are_not_coupled() {
    let (fast, slow) = (drive("fast", "50us"), drive("slow", "400us"));
    let job = |name: &str, device: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\ntenant = \"gold\"\nrw = \"randrw:70\"\nqd = 16\nrate = \"15k\"\narrival = \"poisson\"\n{device}"
        )
    };
    let of = |name: &str| format!("device = \"{name}\"\n");
    let both = format!(
        "time = \"100ms\"\n{fast}{slow}{TENANTS}{}{}{}",
        job("a", &of("slow")),
        job("b", &of("fast")),
        job("c", &of("slow"))
    );
    let both = read_all(&both).unwrap_or_else(|e| panic!("{e}"));
    let alone = [
        format!("time = \"100ms\"\n{fast}{TENANTS}{}", job("b", "")),
        format!("time = \"100ms\"\n{slow}{TENANTS}{}{}", job("a", &of("slow")), job("c", "")),
    ];
    assert_eq!(both.iter().map(|s| s.device.name.as_str()).collect::<Vec<_>>(), ["fast", "slow"]);
    for (scenario, alone) in both.iter().zip(alone) {
        let (one, other) = (scenario.run(|_| {}).unwrap(), run(&alone));
        assert!(one.requests > 1000);
        assert_eq!((one.digest, one.requests), (other.digest, other.requests), "{}", scenario.device.name);
    }
}

#[test]
fn a_job_names_its_drive_where_there_are_several() {
    let drives = drive("fast", "50us") + &drive("slow", "400us");
    for (jobs, says) in [
        ("[[job]]\nqd = 1\n", "exp.toml:11: job#1.device: missing, and there are several; write one of fast, slow"),
        ("[[job]]\ndevice = \"fats\"\n", "job#1.device: there is no drive \"fats\"; there is fast, slow"),
        (
            "[[job]]\ndevice = \"fast\"\n",
            "device.slow: no job uses it; name it as the device of a [[job]], or leave it out",
        ),
    ] {
        let error = read_all(&format!("{drives}{jobs}")).expect_err(jobs);
        assert!(error.contains(says), "{jobs:?}: {error}");
    }
}

const FLASH: &str = "[[device]]\nkind = \"flash\"\ncapacity = \"256MiB\"\n";

#[test]
fn flash_decides_how_long_commands_take() {
    // 64 dies read a page in 40 us and program one in 200 us (femu-bbssd).
    let fresh = run(&format!("time = \"10ms\"\n{FLASH}[[job]]\nrw = \"write\"\nqd = 1\n"));
    assert_eq!(fresh.total.summary.iops, 5_000.0);
    let flash = fresh.flash.expect("a flash drive");
    assert_eq!((flash.stats.page_programs, flash.stats.erases, flash.write_amplification), (51, 0, 51.0 / 51.0));
    assert_eq!((flash.capacity, flash.dies.len(), flash.channels.len()), (256 << 20, 64, 8));
    let read =
        run(&format!("time = \"10ms\"\nprecondition = \"sequential\"\n{FLASH}[[job]]\nrw = \"read\"\nqd = 64\n"));
    assert_eq!(read.total.summary.iops, 1_600_000.0, "a page a die each 40 us");
    assert!(read.flash.expect("flash").dies.iter().all(|busy| (*busy - 1.0).abs() < 0.01));
}

#[test]
fn a_steady_drive_collects_and_counts_after_the_ramp() {
    let text = format!(
        "time = \"300ms\"\nramp = \"200ms\"\nprecondition = \"steady\"\nseed = 3\n{FLASH}pages = 64\nover_provisioning = 1\n\
         [[job]]\nrw = \"randwrite\"\nqd = 32\n"
    );
    let (one, two) = (run(&text), run(&text));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    let flash = one.flash.expect("flash");
    assert!(flash.write_amplification > 1.0 && flash.stats.erases > 0, "{flash:?}");
    // What is submitted is counted by the flash, what is answered by the drive.
    let (begun, answered) = (flash.stats.host_writes, one.drive.work.writes);
    assert!(begun.abs_diff(answered) <= 32, "{begun} {answered}");
    assert!((one.total.summary.iops * 0.3 - answered as f64).abs() < 1.0, "{:?} {answered}", one.total.summary);
    assert!(flash.dies.iter().all(|busy| (0.0..=1.0).contains(busy)), "{:?}", flash.dies);
    let blocks: Vec<u64> = ["plane", "controller"]
        .map(|gc| run(&text.replace("[[job]]", &format!("gc = \"{gc}\"\n[[job]]"))))
        .map(|outcome| outcome.requests)
        .to_vec();
    assert!(blocks[0] > blocks[1], "collection that blocks the controller costs more: {blocks:?}");
}

#[test]
fn by_device_time_a_writer_pays_for_what_it_makes_the_flash_do() {
    let flash = FLASH.replace("256MiB", "128MiB");
    let share = |cost: &str| {
        run(&format!(
            "time = \"9s\"\nramp = \"1s\"\nprecondition = \"steady\"\nseed = 3\n{flash}channels = 2\nways = 2\npages = 64\nover_provisioning = 0.4\nslots = 4\ncost = \"{cost}\"\n\
             [[tenant]]\nname = \"reader\"\nclass = \"high\"\n[[tenant]]\nname = \"writer\"\nclass = \"high\"\n\
             [[job]]\ntenant = \"reader\"\nrw = \"randread\"\nqd = 32\n[[job]]\ntenant = \"writer\"\nrw = \"randwrite\"\nqd = 32\n"
        ))
    };
    let rates = |outcome: &SimulationResult| [0, 1].map(|job| outcome.jobs[job].summary.iops);
    let bytes = rates(&share("bytes"));
    assert!((bytes[0] / bytes[1] - 1.0).abs() < 0.02, "as many bytes for each: {bytes:?}");
    let outcome = share("device-time");
    let ([reads, writes], stats) = (rates(&outcome), outcome.flash.expect("flash").stats);
    // 40 us a page read, 200 us a page programmed, 2 ms for 64 pages erased; what collection moves is copied back in its plane.
    let moved = stats.gc_moves as f64 / stats.host_writes as f64;
    let (read, program) = (40.0, 200.0 + 2000.0 / 64.0);
    let ratio = reads * read / (writes * (program + moved * (read + program)));
    assert!(
        moved > 0.05 && (0.9..1.1).contains(&ratio),
        "as much time for each: {ratio}, {moved} units moved for each written"
    );
    assert!(reads > 2.0 * bytes[0], "{reads} reads instead of {}", bytes[0]);
}

#[test]
fn a_cost_library_that_is_not_there_ends_the_start() {
    let text = "requests = 10\n[[device]]\ncapacity = \"1GiB\"\nlatency = \"80us\"\ncost_library = \"/nowhere/cost.so\"\n[[job]]\nqd = 1\n";
    let document = Document::parse(text, "test.toml", Path::new(".")).unwrap();
    let why = Scenario::read(&document).unwrap().run(|_| {}).unwrap_err().to_string();
    assert_eq!(why, "policy library /nowhere/cost.so: No such file or directory (os error 2)");
}

#[test]
fn jobs_write_through_their_handles() {
    let file = |handles: [u8; 2]| {
        let [log, random] = handles;
        format!(
            "time = \"400ms\"\nramp = \"400ms\"\nprecondition = \"sequential\"\n[[device]]\nkind = \"flash\"\n\
             capacity = \"16MiB\"\nchannels = 4\nways = 1\npages = 16\nprogram = \"10us\"\nread = \"5us\"\nerase = \"50us\"\n\
             over_provisioning = 0.25\n[device.fdp]\nhandles = 2\n\
             [[job]]\nname = \"log\"\nrw = \"write\"\nrate = 20000\nregion = \"8MiB\"\nplacement = {log}\n\
             [[job]]\nname = \"random\"\nrw = \"randwrite\"\nrate = 20000\nregion = \"8MiB+8MiB\"\nplacement = {random}\n"
        )
    };
    let (apart, together) = (run(&file([0, 1])).flash.expect("flash"), run(&file([0, 0])).flash.expect("flash"));
    let written = |flash: &FlashFigures| flash.handles.iter().map(|h| h.written).collect::<Vec<_>>();
    let (two, one) = (written(&apart), written(&together));
    assert!(two[0] >= 8_000 && two[0] == two[1] && two[0] + two[1] == apart.stats.host_writes, "{two:?}");
    assert_eq!(one, [together.stats.host_writes, 0]);
    assert!(apart.handles[0].moved * 4 < apart.handles[1].moved, "{:?}", apart.handles);
    assert!(apart.write_amplification < together.write_amplification, "{apart:?} {together:?}");
    for (text, says) in [
        (file([0, 2]), "placement: 2 is none of the drive's 2 handles"),
        (file([0, 1]).replace("[device.fdp]\nhandles = 2\n", ""), "placement: the drive has no placement handles"),
        (file([0, 1]) + "[[tenant]]\nname = \"log\"\n[[tenant]]\nname = \"random\"\n", "is its tenant's to say"),
    ] {
        let error = read(&text).expect_err("refused");
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_power_goes_and_comes_back() {
    let drive = "[[device]]\nkind = \"flash\"\ncapacity = \"64MiB\"\nbuffer = \"1MiB\"\nearly_completion = true\n\
                 flush = \"watermark\"\nbuffer_latency = \"5us\"\npower_cut = true\n";
    let jobs = "[[job]]\nrw = \"randwrite\"\nqd = 8\n[[job]]\nname = \"late\"\nrw = \"randread\"\nrate = \"20k\"\n";
    let text =
        format!("time = \"50ms\"\npower_cuts = [\"10ms\", \"20ms\"]\nprecondition = \"sequential\"\n{drive}{jobs}");
    let (one, two) = (run(&text), run(&text));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    let [first, second] = one.power_cuts[..] else { panic!("{:?}", one.power_cuts) };
    assert_eq!((first.at, second.at), (Nanos::from_millis(10), Nanos::from_millis(20)));
    // The buffer was dirty to its lower mark at least, and 64 planes read 256 pages each.
    assert!(first.lost_units >= 128 && first.lost_writes >= first.lost_units && first.unanswered > 0, "{first:?}");
    assert!(first.pages_read >= 16_384 && first.rebuild >= Nanos(256 * 40_000), "{first:?}");
    let whole = run(&text.replace("power_cuts = [\"10ms\", \"20ms\"]\n", ""));
    assert!(whole.power_cuts.is_empty());
    // Half of the time the drive was down, and it went on afterwards.
    let part = one.total.summary.iops / whole.total.summary.iops;
    assert!((0.3..0.8).contains(&part), "{part}");
    let e = read(&text.replace("power_cut = true\n", "")).unwrap_err();
    assert!(e.contains("exp.toml:2: power_cuts: the drive does not keep what that needs"), "{e}");
    let e = read(&text.replace("\"20ms\"", "\"50ms\"")).unwrap_err();
    assert!(e.contains("power_cuts: 50ms is not before the end"), "{e}");
}

#[test]
fn the_guide_s_example_runs_and_shows_what_it_says() {
    let guide = include_str!("../../docs/guides/coming-from.md");
    let example = guide.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let worst = |gc: &str| {
        let mut document = Document::parse(example, "flows.toml", Path::new("/")).unwrap();
        document.set("device.flash.gc", gc).unwrap();
        let scenario = Scenario::read(&document).unwrap_or_else(|e| panic!("{e}"));
        let outcome = scenario.run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((outcome.jobs.len(), outcome.jobs[0].summary.errors), (2, 0));
        outcome.jobs[0].summary.latency.p99
    };
    let (plane, preemptive) = (worst("plane"), worst("preemptive"));
    assert!(preemptive * 2 < plane, "the reader's p99: {preemptive} ns, {plane} where planes stand still");
}

#[test]
fn chips_that_differ_wear_and_forget_are_seen_by_readers() {
    let mean = |keys: &str| {
        let outcome = run(&format!("time = \"50ms\"\nprecondition = \"sequential\"\n{FLASH}{keys}\n[[job]]\nqd = 1\n"));
        assert_eq!(outcome.jobs[0].summary.errors, 0, "{keys}");
        outcome.jobs[0].summary.latency.mean
    };
    let alike = mean("");
    assert_eq!(mean("errors = true"), alike, "a fresh chip needs no retry");
    let worn = mean("errors = true\ninitial_cycles = 4000");
    assert!(worn > 1.1 * alike, "worn out: {worn}, fresh {alike}");
    assert!(mean("errors = true\ninitial_cycles = 4000\nretry = \"5us\"") < worn, "shorter retries");
    assert!(mean("rber = 0.004\nbad_chips = 500\nbad_chip_errors = 3.0") > 1.1 * alike, "bad chips have more errors");
    let slow = mean("bad_chips = 500\nbad_chip_slowdown = 1000");
    assert!((1.2..1.8).contains(&(slow / alike)), "half of the chips take twice as long: {slow}, {alike}");
    let disturbed = mean("initial_cycles = 3000\nrber_worn = 0.001\nread_disturb = 0.001");
    assert!(disturbed > mean("initial_cycles = 3000\nrber_worn = 0.001"), "reads disturb: {disturbed}");
    // Two hours pass, a read every second.
    let aged = |keys: &str| {
        let worn = "initial_cycles = 3000\nrber_worn = 0.001";
        let head = format!("time = \"7200s\"\nprecondition = \"sequential\"\n{FLASH}{worn}\n{keys}");
        let outcome = run(&format!("{head}\n[[job]]\nrate = 1\n"));
        outcome.jobs[0].summary.latency.mean
    };
    let (kept, forgotten) = (aged(""), aged("retention = 0.05"));
    assert!(forgotten > 1.05 * kept, "cells forget: {forgotten}, {kept} where they do not");
}

/// Log blocks that take a logical block in order become it; what is written at random is merged.
#[test]
fn a_hybrid_map_suits_who_writes_in_order() {
    let amplification = |mapping: &str, rw: &str| {
        let keys = "channels = 1\nways = 2\nover_provisioning = 0.25";
        let head = format!("time = \"4s\"\nprecondition = \"sequential\"\n{FLASH}{keys}\nmapping = \"{mapping}\"");
        let outcome = run(&format!("{head}\n[[job]]\nqd = 4\nrw = \"{rw}\"\nbs = \"16KiB\"\n"));
        assert_eq!(outcome.jobs[0].summary.errors, 0);
        outcome.flash.expect("flash").write_amplification
    };
    let [ordered, random] = ["write", "randwrite"].map(|rw| amplification("hybrid", rw));
    assert_eq!(ordered, 1.0, "nothing moves");
    let page = amplification("page", "randwrite");
    assert!(page > 1.5 && random > 3.0 * page, "at random {random}, with a page map {page}");
}

#[test]
fn rules_of_failures_are_part_of_an_experiment() {
    let text = |rules: &str| format!("{}{rules}", with_drive("[[job]]\nqd = 4\n"));
    let plain = run(&text(""));
    let late = run(&text("[[fault]]\neffect = \"latency\"\ntime = \"900us\"\n"));
    let (plain, late) = (plain.total.summary.iops, late.total.summary.iops);
    assert!(plain > 9.0 * late && late > 3_500.0, "1 ms instead of 100 us: {plain}, {late}");
    let rule = "[[fault]]\neffect = \"status\"\ncode = \"0/06h\"\nprobability = \"10%\"\nseed = 3\n";
    let failing = run(&text(rule));
    let part = failing.total.summary.errors as f64 / failing.requests as f64;
    assert!((0.08..0.12).contains(&part), "{part}");
    assert_eq!(run(&text(rule)).digest, failing.digest, "the same commands fail in every run");
    let once = run(&text("[[fault]]\neffect = \"hang\"\ncount = 1\n"));
    assert!(
        once.total.summary.iops < 31_000.0,
        "three at a time, when one never comes back: {}",
        once.total.summary.iops
    );
    let paused = run(&text("[[fault]]\neffect = \"link-loss\"\nfrom = \"20ms\"\nlasts = \"50ms\"\n"));
    assert!((1_900..2_100).contains(&paused.requests), "half of the time nobody is served: {}", paused.requests);
    for (rule, says) in [
        ("[[fault]]\neffect = \"hang\"\ndie = 3\n", "die: the drive has no flash inside"),
        ("[[fault]]\neffect = \"hang\"\ntenant = \"x\"\n", "tenant: the drive has no tenant \"x\""),
    ] {
        let error = read(&text(rule)).expect("it is read").run(|_| {}).expect_err("it cannot be").to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(read(&text("[[fault]]\neffect = \"melt\"\n")).expect_err("no effect").contains("fault#1.effect"));
}
