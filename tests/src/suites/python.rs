//! The Python package as its users have it: the wheel of `cargo xtask dist` installed in a virtual environment, and its own tests run there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Setup, text, with_node};
use crate::page::namespaces;
use crate::process::{Process, run};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "python";
    vec![
        long(S, "a_wheel_is_the_same_twice", same_twice),
        test(S, "simulations", |env| pytest(env, "test_sim.py")),
        test(S, "policies", |env| pytest(env, "test_policy.py")),
        test(S, "a_drive_in_the_process", |env| pytest(env, "test_device.py")),
        test(S, "plans_calibrations_and_reproductions", |env| pytest(env, "test_program.py")),
        test(S, "a_client_for_the_api", |env| pytest(env, "test_client.py")),
        test(S, "a_store_through_fsspec", |env| pytest_with_store(env, "test_fs.py")),
        test(S, "a_store_that_refuses_says_why", |env| pytest_with_store(env, "test_fs_errors.py")),
        test(S, "fsspecs_own_tests_pass_on_a_store", |env| pytest_with_store(env, "test_fs_abstract.py")),
        test(S, "pandas_pyarrow_and_polars_on_a_store", |env| pytest_with_store(env, "test_fs_data.py")),
        test(S, "examples", |env| pytest(env, "test_examples.py")),
        test(S, "notebooks", notebooks),
        test(S, "types_are_right", types),
    ]
}

/// The first build, and what pip receives; a file of tests.
const MADE: Duration = Duration::from_secs(900);
const TESTED: Duration = Duration::from_secs(300);

/// A command that ends with the test.
fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// The folder that cargo builds in, and the profile of the program under test, so that nothing is compiled twice.
fn built(env: &Env) -> Result<(PathBuf, &'static str), String> {
    let folder = env.weir.parent().ok_or("the program under test is in no folder")?;
    let profile = if folder.ends_with("debug") { "dev" } else { "release" };
    Ok((folder.to_path_buf(), profile))
}

/// `cargo xtask dist --only wheel` of the program under test and of a module that was built like it.
fn dist(env: &Env, module: &Path, out: &Path) -> Outcome {
    let mut cargo = command(Path::new("cargo"));
    cargo.args(["run", "-q", "--locked", "-p", "xtask", "--manifest-path"]).arg(bindings::root(env).join("Cargo.toml"));
    cargo.args(["--", "dist", "--only", "wheel", "--binary"]).arg(&env.weir).arg("--module").arg(module);
    cargo.arg("--out").arg(out);
    Process::spawn(&env.folder()?, "dist", cargo)?.wait(MADE)?.success("cargo xtask dist").map(drop)
}

/// The module of the package: the one that `WEIR_PYTHON_MODULE` names, or else built like the program.
fn module(env: &Env) -> Result<PathBuf, String> {
    if let Some(built) = std::env::var_os("WEIR_PYTHON_MODULE") {
        return Ok(built.into());
    }
    let (folder, profile) = built(env)?;
    let mut cargo = command(Path::new("cargo"));
    cargo.args(["build", "-q", "--locked", "-p", "weir-python", "--profile", profile, "--manifest-path"]);
    cargo.arg(bindings::root(env).join("Cargo.toml"));
    if let Some(target) = folder.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    Process::spawn(&env.folder()?, "cargo", cargo)?.wait(MADE)?.success("cargo build")?;
    Ok(folder.join("libweir_native.so"))
}

/// The wheel, made once for all tests.
fn wheel(env: &Env) -> Result<PathBuf, String> {
    let made = env.shared("wheel", |dir| dist(env, &module(env)?, dir))?;
    let entries = std::fs::read_dir(&made).context(|| text(&made))?.filter_map(Result::ok).map(|entry| entry.path());
    let mut wheels = entries.filter(|path| path.extension().is_some_and(|end| end == "whl"));
    wheels.next().ok_or_else(|| format!("{} has no wheel", text(&made)))
}

/// A virtual environment's python that finds the package. What the tests need beside it is in an environment that is kept in the target
/// folder; the package is installed in one of this run that has the other's packages as well.
fn python(env: &Env) -> Result<PathBuf, String> {
    let wheel = wheel(env)?;
    let kept = built(env)?.0.join("../python-venv");
    let folder = env.shared("python", |dir| {
        let here = env.folder()?;
        run(&here, &bindings::root(env).join("bindings/python/tests/setup.sh"), [text(&kept)], MADE)?
            .success("bindings/python/tests/setup.sh")?;
        run(&here, &kept.join("bin/python"), ["-m", "venv", "--without-pip", &text(dir)], MADE)?
            .success("python -m venv")?;
        let packages = run(&here, &kept.join("bin/python"), ["-c", PACKAGES], MADE)?.success("python")?;
        let own = run(&here, &dir.join("bin/python"), ["-c", PACKAGES], MADE)?.success("python")?;
        std::fs::write(Path::new(own.trim()).join("kept.pth"), packages).context(|| own.clone())?;
        let install =
            ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", &text(&wheel)];
        run(&here, &dir.join("bin/python"), install, MADE)?.success("pip install").map(drop)
    })?;
    Ok(folder.join("bin/python"))
}

/// Where an environment's packages are.
const PACKAGES: &str = "import sysconfig; print(sysconfig.get_path('purelib'))";

/// A file of the package's tests that needs a store: it gets one of its own, with the classes `dram` (128 MiB) and `flash`.
fn pytest_with_store(env: &Env, file: &str) -> Outcome {
    let device = |name: &str, media: &str, capacity: &str, class: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmedia = \"{media}\"\ncapacity = \"{capacity}\"\n\
             [[export]]\ndevice = \"{name}\"\ndoor = \"nvme-tcp\"\n\
             [[store.donate]]\ndevice = \"{name}\"\nclass = \"{class}\"\n"
        )
    };
    let address = format!("127.0.0.1:{}", env.free_port()?);
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = \"unix:weir.sock\"\ncores = [0]\n\
         [[tenant]]\nname = \"store\"\nclass = \"medium\"\nhosts = [\"*\"]\n\
         [door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n\
         [store]\nmeta = \"redb:store.redb\"\nlisten = \"{address}\"\n{}{}",
        device("ram0", "ram", "128MiB", "dram"),
        device("file0", "file:flash.img", "1GiB", "flash")
    );
    with_node(env, &Setup { whole, ..Setup::default() }, |_| pytest_with(env, file, &[("WEIR_STORE", &address)]))
}

/// Runs a file of the package's tests in a folder of its own.
fn pytest(env: &Env, file: &str) -> Outcome {
    pytest_with(env, file, &[])
}

fn pytest_with(env: &Env, file: &str, variables: &[(&str, &str)]) -> Outcome {
    run_pytest(env, command(&python(env)?), file, variables)
}

/// In a network of their own: one of them starts a node at the usual ports.
fn notebooks(env: &Env) -> Outcome {
    namespaces(env)?;
    let mut alone = command(Path::new("unshare"));
    if !rustix::process::geteuid().is_root() {
        alone.arg("--map-root-user");
    }
    alone.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]).arg(python(env)?);
    run_pytest(env, alone, "test_notebooks.py", &[])
}

/// Runs a file of the package's tests; `tests` is the interpreter, and what it is started by.
fn run_pytest(env: &Env, mut tests: Command, file: &str, variables: &[(&str, &str)]) -> Outcome {
    let here = env.folder()?;
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--rootdir"]).arg(&here);
    tests.arg(bindings::root(env).join("bindings/python/tests").join(file));
    tests.env("PYTHONDONTWRITEBYTECODE", "1").env("WEIR_BIN", &env.weir).current_dir(&here);
    tests.envs(variables.iter().copied());
    let said = Process::spawn(&here, "pytest", tests)?.wait(TESTED)?;
    let last = said.stdout.lines().last().unwrap_or_default().to_owned();
    ensure(said.status.success(), || said.describe() + &said.stdout)?;
    println!("    {last}");
    ensure(last.contains(" passed") && !last.contains("skipped"), || format!("{file}: {last}"))
}

fn same_twice(env: &Env) -> Outcome {
    let (first, again) = (wheel(env)?, env.folder()?.join("again"));
    dist(env, &module(env)?, &again)?;
    let second = again.join(first.file_name().unwrap_or_default());
    let read = |path: &Path| std::fs::read(path).context(|| text(path));
    ensure(read(&first)? == read(&second)?, || format!("{} differs the second time", text(&first)))
}

/// The package's own types, the strict way, and that the stub says what the module has.
fn types(env: &Env) -> Outcome {
    let (python, here) = (python(env)?, env.folder()?);
    let package = bindings::root(env).join("bindings/python");
    let config = text(&package.join("pyproject.toml"));
    let cache = ["--cache-dir", "mypy"];
    let strict = ["-m", "mypy", "--strict", "--config-file", &config, cache[0], cache[1], &text(&package.join("weir"))];
    run(&here, &python, strict, TESTED)?.success("mypy --strict")?;
    // Python 3.11 does not show the buffer protocol as a method.
    let known = text(&package.join("tests/stubtest.txt"));
    let stub = ["-m", "mypy.stubtest", "weir._native", "--ignore-unused-allowlist", "--allowlist", &known];
    run(&here, &python, stub, TESTED)?.success("mypy.stubtest").map(drop)
}
