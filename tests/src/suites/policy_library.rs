//! A drive whose policies, or what commands cost there, are in a shared library of somebody else, in a simulation and in a live node: it decides, it is asked again after a
//! crash and an upgrade, and one that does not fit, fails or dies is named.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::bindings::root;
use super::test;
use crate::bench::{bench, number};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup};
use crate::process::{self, Finished, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "policy_library";
    vec![
        test(S, "it_decides_in_a_simulation", simulated),
        test(S, "what_does_not_fit_ends_the_start", refused),
        test(S, "it_decides_in_a_node_and_after_its_crash_and_upgrade", live),
        test(S, "it_says_what_commands_cost_in_a_simulation", charged),
        test(S, "costs_that_do_not_fit_end_the_start", refused_costs),
        test(S, "it_says_what_commands_cost_in_a_node_and_after_its_crash_and_upgrade", charged_live),
    ]
}

/// The library that the compiler makes of the example of that name, or of these lines.
fn library(env: &Env, name: &str, lines: Option<&str>) -> Result<PathBuf, String> {
    let (bindings, dir) = (root(env).join("bindings/c"), env.folder()?);
    let source = match lines {
        None => bindings.join(format!("examples/{name}.c")),
        Some(lines) => {
            let source = dir.join(format!("{name}.c"));
            std::fs::write(&source, lines).context(|| source.display().to_string())?;
            source
        }
    };
    let made = dir.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-fPIC", "-shared", "-o"])
        .arg(&made)
        .arg(source)
        .arg("-I")
        .arg(bindings.join("include"));
    let ended = cc.output().context(|| "cc".into())?;
    ensure(ended.status.success(), || String::from_utf8_lossy(&ended.stderr).into_owned())?;
    Ok(made)
}

/// A library whose `victim` does that.
fn victim(body: &str) -> String {
    format!(
        "#include <stdlib.h>\n#include <weir_policy.h>\n\
         static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {{ (void)s; (void)p; (void)r; {body} }}\n\
         static const struct weir_policy policy = {{ .version = WEIR_POLICY_VERSION, .size = sizeof policy, .victim = victim }};\n\
         const struct weir_policy *weir_policy(void) {{ return &policy; }}\n"
    )
}

const DRIVE: &str = "kind = \"flash\"\ncapacity = \"512MiB\"\nprecondition = \"steady\"";

fn sim(env: &Env, keys: &[String]) -> Result<Finished, String> {
    let dir = env.folder()?;
    let text = format!("requests = 100000\nseed = 7\n[[device]]\n{DRIVE}\n[[job]]\nrw = \"randwrite\"\n");
    std::fs::write(dir.join("exp.toml"), text).context(|| "exp.toml".into())?;
    let set = keys.iter().flat_map(|key| ["--set".to_string(), key.clone()]);
    let args: Vec<String> = ["sim".into(), "exp.toml".into(), "--json".into()].into_iter().chain(set).collect();
    process::run(&dir, &env.weir, args, Duration::from_secs(120))
}

fn simulated(env: &Env) -> Outcome {
    let amplification = |keys: &[String]| {
        let text = sim(env, keys)?.success("weir sim")?;
        let result: Value = serde_json::from_str(&text).context(|| text)?;
        number(&result["device"], "write_amplification")
    };
    let spared = format!("device.policy_library={}", library(env, "spare_the_worn", None)?.display());
    let own = amplification(&[])?;
    let none = amplification(&[spared, "device.policy_arguments=0".into()])?;
    ensure(own == none, || format!("a weight of 0 is greedy, as the drive is: {none} and {own}"))?;
    let any =
        "for (;;) { size_t b = r->next(r->state) % p->blocks; if (p->valid[b] <= p->block_units) return (int64_t)b; }";
    let any = [format!("device.policy_library={}", library(env, "any", Some(&victim(any)))?.display())];
    let (worse, again) = (amplification(&any)?, amplification(&any)?);
    ensure(worse > 1.1 * own && worse == again, || format!("any block: {worse} and {again}, greedy {own}"))
}

fn refused(env: &Env) -> Outcome {
    let spared = library(env, "spare_the_worn", None)?;
    let says = |ended: Finished, what: &str| {
        // 2 where `--set` is what is wrong.
        let is_refused = matches!(ended.status.code(), Some(1 | 2));
        ensure(is_refused && ended.stderr.contains(what) && ended.stdout.is_empty(), || {
            format!("{what} is not in {}", ended.describe())
        })
    };
    let named = |path: &str| format!("device.policy_library={path}");
    says(sim(env, &[named("spare.so")])?, "policy_library: is the absolute path of a shared library")?;
    says(sim(env, &[named("/nowhere/spare.so")])?, "policy library /nowhere/spare.so: No such file")?;
    let arguments = "device.policy_arguments=much".to_string();
    says(sim(env, &[named(&spared.display().to_string()), arguments.clone()])?, "the weight of an erase")?;
    says(sim(env, &[arguments])?, "policy_arguments: is for a policy_library")?;
    let fails = library(env, "fails", Some(&victim("return WEIR_POLICY_FAILED;")))?;
    says(sim(env, &[named(&fails.display().to_string())])?, &format!("{}: its victim() has failed", fails.display()))?;
    let dies = library(env, "dies", Some(&victim("abort();")))?;
    let ended = sim(env, &[named(&dies.display().to_string())])?;
    let wanted = format!("weir: the process dies inside the policy library {}, in its victim()", dies.display());
    ensure(!ended.status.success() && ended.stderr.contains(&wanted) && ended.stdout.is_empty(), || ended.describe())?;
    // A node says it as well, and does not begin.
    let keys = format!("{DRIVE}\npolicy_library = \"/nowhere/spare.so\"").replace("capacity = \"512MiB\"\n", "");
    let setup = Setup { capacity: "512MiB".into(), ..Setup::default() }.device(&keys);
    let started = Node::start(env, &setup).map(|_| "it starts".to_string());
    let why = started.unwrap_or_else(|e| e);
    ensure(why.contains("policy library /nowhere/spare.so: No such file"), || why.clone())
}

/// A library that writes a line for each state and each victim, and chooses as the drive would.
const NOTES: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <weir_policy.h>\n\
    static void *create(const char *a, const struct weir_policy_drive *d, char *e, size_t n) {\n\
        (void)d; FILE *f = fopen(a, \"a\"); if (!f) snprintf(e, n, \"cannot write %s\", a); else { setvbuf(f, NULL, _IOLBF, 0); fputs(\"begins\\n\", f); } return f; }\n\
    static void destroy(void *s) { fclose(s); }\n\
    static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {\n\
        (void)p; (void)r; fputs(\"chooses\\n\", s); return WEIR_POLICY_NONE; }\n\
    static const struct weir_policy policy = { .version = WEIR_POLICY_VERSION, .size = sizeof policy, .create = create, .destroy = destroy, .victim = victim };\n\
    const struct weir_policy *weir_policy(void) { return &policy; }\n";

fn live(env: &Env) -> Outcome {
    let library = library(env, "notes", Some(NOTES))?;
    let notes = env.folder()?.join("notes");
    let keys = format!(
        "kind = \"flash\"\nprecondition = \"steady\"\npolicy_library = \"{}\"\npolicy_arguments = \"{}\"",
        library.display(),
        notes.display()
    );
    let setup = Setup { capacity: "512MiB".into(), node: "keeper = true".into(), ..Setup::default() }.device(&keys);
    let mut node = Node::start(env, &setup)?;
    let lines = |wanted: &str| {
        let text = std::fs::read_to_string(&notes).context(|| notes.display().to_string())?;
        Ok::<usize, String>(text.lines().filter(|line| *line == wanted).count())
    };
    let write = |node: &Node| {
        let before = lines("chooses")?;
        let args = [
            "--rw",
            "randwrite",
            "--bs",
            "4KiB",
            "--qd",
            "8",
            "--region",
            "32MiB",
            "--verify",
            "crc32c",
            "--time",
            "1s",
        ];
        // A machine that does other things as well writes little in a second.
        for _ in 0..20 {
            bench(env, &node.tcp_target(), &args)?.clean()?;
            if lines("chooses")? > before {
                return Ok(());
            }
        }
        Err("the library chose no block".to_string())
    };
    write(&node)?;
    let (begun, worker) = (lines("begins")?, node.worker()?);
    node.kill_worker()?;
    until(Duration::from_secs(20), "another worker", || Ok((node.worker()? != worker).then_some(())))?;
    write(&node)?;
    let restarted = lines("begins")?;
    ensure(restarted > begun, || "the library was not asked for a state after the crash".into())?;
    node.cli_ok(&["upgrade", "--probation", "0s"])?;
    write(&node)?;
    ensure(lines("begins")? > restarted, || "the library was not asked for a state after the upgrade".into())?;
    node.alive()?;
    node.stop()
}

/// A library whose `cost` does that.
fn cost(body: &str) -> String {
    format!(
        "#include <stdlib.h>\n#include <weir_policy.h>\n\
         static int64_t cost(void *s, const struct weir_policy_command *c) {{ (void)s; (void)c; {body} }}\n\
         static const struct weir_policy policy = {{ .version = WEIR_POLICY_VERSION, .size = sizeof policy, .cost = cost }};\n\
         const struct weir_policy *weir_policy(void) {{ return &policy; }}\n"
    )
}

/// A reader and a writer of one class on a drive without flash, for a while of virtual time.
fn shared(env: &Env, keys: &[String]) -> Result<Finished, String> {
    let dir = env.folder()?;
    let text = "time = \"200ms\"\nseed = 7\n[[device]]\ncapacity = \"1GiB\"\nlatency = \"80us\"\nslots = 4\n\
                [[tenant]]\nname = \"reader\"\n[[tenant]]\nname = \"writer\"\n\
                [[job]]\ntenant = \"reader\"\nrw = \"randread\"\nqd = 32\n[[job]]\ntenant = \"writer\"\nrw = \"randwrite\"\nqd = 32\n";
    std::fs::write(dir.join("shared.toml"), text).context(|| "shared.toml".into())?;
    let set = keys.iter().flat_map(|key| ["--set".to_string(), key.clone()]);
    let args: Vec<String> = ["sim".into(), "shared.toml".into(), "--json".into()].into_iter().chain(set).collect();
    process::run(&dir, &env.weir, args, Duration::from_secs(120))
}

fn charged(env: &Env) -> Outcome {
    let ratio = |keys: &[String]| {
        let text = shared(env, keys)?.success("weir sim")?;
        let result: Value = serde_json::from_str(&text).context(|| text)?;
        Ok::<f64, String>(number(&result["jobs"][0], "iops")? / number(&result["jobs"][1], "iops")?)
    };
    let dear = library(env, "dear_writes", None)?;
    let with =
        |factor: &str| [format!("device.cost_library={}", dear.display()), format!("device.cost_arguments={factor}")];
    let (own, same, third) = (ratio(&[])?, ratio(&with("1"))?, ratio(&with("3"))?);
    ensure(own == same, || format!("writes that are once as dear: {same}, and {own} without a library"))?;
    ensure((0.98..1.02).contains(&own) && (2.9..3.1).contains(&third), || {
        format!("{own}, and {third} where writes are dear")
    })
}

fn refused_costs(env: &Env) -> Outcome {
    let says = |keys: &[String], what: &str| {
        let ended = shared(env, keys)?;
        let is_refused = matches!(ended.status.code(), Some(1 | 2));
        ensure(is_refused && ended.stderr.contains(what) && ended.stdout.is_empty(), || {
            format!("{what} is not in {}", ended.describe())
        })
    };
    let named = |path: &str| format!("device.cost_library={path}");
    says(&[named("cost.so")], "cost_library: is the absolute path of a shared library")?;
    says(&[named("/nowhere/cost.so")], "policy library /nowhere/cost.so: No such file")?;
    says(&["device.cost_arguments=much".into()], "cost_arguments: is for a cost_library")?;
    let dear = named(&library(env, "dear_writes", None)?.display().to_string());
    says(&[dear, "device.cost_arguments=much".into()], "cost_arguments is how dear writes are")?;
    let worn = library(env, "spare_the_worn", None)?;
    says(&[named(&worn.display().to_string())], &format!("{}: it does not say what commands cost", worn.display()))?;
    let older =
        library(env, "older", Some(&cost("return 0;").replace(".version = WEIR_POLICY_VERSION", ".version = 1")))?;
    let what = format!("{}: it is of version 1 of weir_policy.h, this program has 2; build it again", older.display());
    says(&[named(&older.display().to_string())], &what)?;
    let fails = library(env, "fails", Some(&cost("return WEIR_POLICY_FAILED;")))?;
    says(&[named(&fails.display().to_string())], &format!("{}: its cost() has failed", fails.display()))?;
    let dies = library(env, "dies", Some(&cost("abort();")))?;
    let ended = shared(env, &[named(&dies.display().to_string())])?;
    let wanted = format!("weir: the process dies inside the policy library {}, in its cost()", dies.display());
    ensure(!ended.status.success() && ended.stderr.contains(&wanted) && ended.stdout.is_empty(), || ended.describe())?;
    // Nonsense leaves it to the drive.
    let nonsense = library(env, "nonsense", Some(&cost("return INT64_MAX - (int64_t)c->offset;")))?;
    let (without, with) = (shared(env, &[])?, shared(env, &[named(&nonsense.display().to_string())])?);
    let digest = |ended: Finished| {
        let text = ended.success("weir sim")?;
        let result: Value = serde_json::from_str(&text).context(|| text.clone())?;
        Ok::<Value, String>(result["jobs"].clone())
    };
    ensure(digest(without)? == digest(with)?, || "costs that are none change something".into())?;
    let keys = "cost_library = \"/nowhere/cost.so\"";
    let started = Node::start(env, &Setup::default().device(keys)).map(|_| "it starts".to_string());
    let why = started.unwrap_or_else(|e| e);
    ensure(why.contains("policy library /nowhere/cost.so: No such file"), || why.clone())
}

/// A library that writes a line for each state and for its first command, and charges as the drive would.
const CHARGES: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <weir_policy.h>\n\
    struct state { FILE *file; int said; };\n\
    static void *create(const char *a, const struct weir_policy_drive *d, char *e, size_t n) {\n\
        struct state *s = calloc(1, sizeof *s); s->file = fopen(a, \"a\");\n\
        if (!s->file || d->units != 0) { snprintf(e, n, \"cannot write %s\", a); return NULL; }\n\
        setvbuf(s->file, NULL, _IOLBF, 0); fputs(\"begins\\n\", s->file); return s; }\n\
    static void destroy(void *state) { struct state *s = state; fclose(s->file); free(s); }\n\
    static int64_t cost(void *state, const struct weir_policy_command *c) {\n\
        struct state *s = state; if (c->opcode == WEIR_POLICY_WRITE && !s->said++) fputs(\"charges\\n\", s->file); return c->own; }\n\
    static const struct weir_policy policy = { .version = WEIR_POLICY_VERSION, .size = sizeof policy, .create = create, .destroy = destroy, .cost = cost };\n\
    const struct weir_policy *weir_policy(void) { return &policy; }\n";

fn charged_live(env: &Env) -> Outcome {
    let library = library(env, "charges", Some(CHARGES))?;
    let notes = env.folder()?.join("charges.txt");
    let keys = format!("cost_library = \"{}\"\ncost_arguments = \"{}\"", library.display(), notes.display());
    let mut node = Node::start(env, &Setup { node: "keeper = true".into(), ..Setup::default() }.device(&keys))?;
    let lines = |wanted: &str| {
        let text = std::fs::read_to_string(&notes).context(|| notes.display().to_string())?;
        Ok::<usize, String>(text.lines().filter(|line| *line == wanted).count())
    };
    let write = |node: &Node| {
        let before = lines("charges")?;
        let args = ["--rw", "randwrite", "--bs", "4KiB", "--qd", "8", "--verify", "crc32c", "--time", "300ms"];
        bench(env, &node.tcp_target(), &args)?.clean()?;
        ensure(lines("charges")? == before + 1, || "the library was not asked what a command costs".into())
    };
    write(&node)?;
    let worker = node.worker()?;
    node.kill_worker()?;
    until(Duration::from_secs(20), "another worker", || Ok((node.worker()? != worker).then_some(())))?;
    write(&node)?;
    node.cli_ok(&["upgrade", "--probation", "0s"])?;
    write(&node)?;
    let begun = lines("begins")?;
    ensure(begun >= 3, || format!("{begun} states for three workers"))?;
    node.alive()?;
    node.stop()
}
