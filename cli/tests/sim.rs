//! `weir sim` as its users meet it.

use std::path::PathBuf;
use std::process::{Command, Output};

const EXP: &str = "time = \"20ms\"\n[[device]]\ncapacity = \"1GiB\"\nlatency = \"80us\"\n[[tenant]]\nname = \"gold\"\n\
                   class = \"high\"\n[[tenant]]\nname = \"tin\"\nclass = \"low\"\n[[job]]\ntenant = \"gold\"\nqd = 8\n\
                   zipf = 0.9\n[[job]]\ntenant = \"tin\"\nrw = \"randrw:30\"\nrate = \"50k\"\narrival = \"poisson\"\n";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let dir = std::env::temp_dir().join(format!("weir-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("exp.toml"), EXP).unwrap();
        Folder(dir)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("sim").args(args).current_dir(&self.0).output().unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Fails with that status and a message that begins so, and prints nothing else.
    fn refused(&self, args: &[&str], status: i32, says: &str) {
        let out = self.run(args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(status), 0), "{args:?}: {error}");
        let before = if args.contains(&"--json") { "{\"error\":\"" } else { "weir: " };
        assert!(error.starts_with(&format!("{before}{says}")), "{args:?}: {error}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn runs_are_drawn() {
    let folder = Folder::new("plot");
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
    folder.good(&["exp.toml", "--plot", "one.svg"]);
    let one = read("one.svg");
    assert!(one.starts_with("<svg") && one.contains("Throughput") && one.contains("gold"), "{one}");
    let table = folder.good(&["exp.toml", "--set", "device.slots=1,8,64", "--plot", "sweep.html"]);
    let sweep = read("sweep.html");
    assert!(sweep.contains("device.slots") && sweep.matches("<figure").count() >= 3, "{sweep}");
    // What is drawn is what is printed: the last run's p99.
    let p99 = table.lines().nth(3).and_then(|line| line.split_whitespace().nth(5)).unwrap();
    assert!(sweep.contains(&format!("<td>{p99}</td>")), "{p99} of {table}");
    folder.refused(&["exp.toml", "--plot", "one.png"], 2, "--plot one.png: write .svg or .html");
    folder.refused(&["exp.toml", "--plot", "none/one.svg"], 1, "--plot none/one.svg: ");
}

#[test]
fn two_runs_print_the_same_bytes() {
    let folder = Folder::new("same");
    let args = ["exp.toml", "--json", "--series", "5ms"];
    let first = folder.good(&args);
    assert_eq!(first, folder.good(&args));
    assert_ne!(first, folder.good(&["exp.toml", "--json", "--series", "5ms", "--seed", "2"]));
    let json: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(json["jobs"][0]["name"], "gold");
    assert_eq!(json["jobs"][0]["iops"], 100_000.0);
    assert_eq!(json["jobs"][1]["class"], "low");
    assert_eq!(json["total"]["series"].as_array().unwrap().len(), 4);
    assert_eq!(json["device"]["slots"], 64);
    assert_eq!((json["run"]["seed"].as_u64(), json["run"]["time_s"].as_f64()), (Some(1), Some(0.02)));
    let sweep = ["exp.toml", "--set", "device.slots=4,8", "--set", "jobs[0].qd=1,2,4", "--csv"];
    assert_eq!(folder.good(&sweep), folder.good(&sweep));
}

#[test]
fn a_sweep_has_a_line_for_each_combination() {
    let folder = Folder::new("sweep");
    let sets = ["--set", "device.slots=4,64", "--set", "job.gold.qd=1,4", "--set", "job.tin.rate=1000"];
    let run = |how: &[&str]| folder.good(&[&["exp.toml"][..], &sets, how].concat());
    let csv = run(&["--csv"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 5, "{csv}");
    assert!(csv.starts_with("device.slots,job.gold.qd,job.tin.rate,iops,bandwidth_bytes_per_s,mean_ns,"), "{csv}");
    let combinations: Vec<&[&str]> = lines[1..].iter().map(|line| &line[..3]).collect();
    assert_eq!(combinations, [["4", "1", "1000"], ["4", "4", "1000"], ["64", "1", "1000"], ["64", "4", "1000"]]);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 4);
    assert_eq!(json[3]["set"]["job.gold.qd"], "4");
    let column = lines[0].iter().position(|name| *name == "gold.iops").unwrap();
    for (line, run) in lines[1..].iter().zip(json.as_array().unwrap()) {
        assert_eq!(line[column].parse::<f64>().ok(), run["jobs"][0]["iops"].as_f64(), "CSV and JSON agree");
    }
    let table = run(&[]);
    assert!(table.starts_with("device.slots  job.gold.qd  job.tin.rate"), "{table}");
}

#[test]
fn traces_come_from_where_the_user_is() {
    let folder = Folder::new("trace");
    let trace = "time_us,op,offset,length,tenant\n0,read,0,4096,gold\n50,write,4096,4096,tin\n";
    std::fs::write(folder.0.join("t.csv"), trace).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&folder.good(&["exp.toml", "--trace", "t.csv", "--json"])).unwrap();
    let names: Vec<&str> = json["jobs"].as_array().unwrap().iter().map(|j| j["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["gold", "tin", "gold-2", "tin-2"]);
    assert_eq!(json["tenants"].as_array().unwrap().len(), 2);
    let table = folder.good(&["exp.toml", "--trace", "t.csv,tenant=gold,timing=fast,qd=1,name=replay"]);
    let names = ["replay", "high"];
    assert!(table.lines().any(|line| line.split_whitespace().take(2).eq(names)), "{table}");
    std::fs::write(folder.0.join("bad.csv"), format!("{trace}1,2\n")).unwrap();
    let at = folder.0.join("bad.csv");
    folder.refused(
        &["exp.toml", "--trace", "bad.csv"],
        1,
        &format!("sim: {}:4: has 2 columns, and the header has 5", at.display()),
    );
    folder.refused(&["exp.toml", "--trace", "no.csv"], 1, "exp.toml: job#3.trace: ");
    folder.refused(&["exp.toml", "--trace", "t.csv,fast"], 2, "--trace t.csv,fast: \"fast\" is not KEY=VALUE");
}

#[test]
fn wrong_usage_is_2_and_a_wrong_file_is_1() {
    let folder = Folder::new("usage");
    std::fs::write(folder.0.join("bad.toml"), EXP.replace("qd = 8", "qd = 0")).unwrap();
    std::fs::write(folder.0.join("not.toml"), "[[device\n").unwrap();
    for (args, status, says) in [
        (&["bad.toml"][..], 1, "bad.toml:13: job#1.qd: 0 is out of range; 1 to 65535 is allowed"),
        (&["bad.toml", "--set", "seed=3"], 1, "bad.toml:13: job#1.qd: 0 is out of range"),
        (&["not.toml"], 1, "not.toml:1: not TOML"),
        (&["gone.toml"], 1, "gone.toml: cannot be read"),
        (&["exp.toml", "--json", "--csv"], 2, "sim: --json and --csv"),
        (&["exp.toml", "--set", "seed"], 2, "--set seed: is not KEY=VALUE"),
        (&["exp.toml", "--set", "seed=1,,2"], 2, "--set seed=1,,2: has a value that is empty"),
        (&["exp.toml", "--set", "jobs[7].qd=1"], 2, "--set jobs[7].qd=1: jobs[7].qd: there is no number 7"),
        (&["exp.toml", "--set", "jobs[0].dq=1"], 2, "--set jobs[0].dq=1: exp.toml: job#1.dq: unknown key; there is"),
        (&["exp.toml", "--set", "jobs[0].qd=1,x"], 2, "--set jobs[0].qd=x: exp.toml: job#1.qd: \"x\" where a number"),
        (&["exp.toml", "--series", "5"], 2, ""),
    ] {
        match says {
            "" => assert_ne!(folder.run(args).status.code(), Some(0), "{args:?}"),
            _ => folder.refused(args, status, says),
        }
    }
    assert_eq!(folder.run(&[]).status.code(), Some(2));
    // What is missing in the file may be set.
    std::fs::write(folder.0.join("part.toml"), EXP.replace("latency = \"80us\"\n", "")).unwrap();
    assert_eq!(folder.good(&["part.toml", "--set", "device.latency=10us,20us", "--csv"]).lines().count(), 3);
}
