//! Packages as `cargo xtask dist` makes them: installed in a clean Debian, used, upgraded over themselves, removed. The programs of the
//! short tests are those that the other tests use; the static ones are built with `--full`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{libweir, long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::text;
use crate::process::{Process, run};
use crate::suites::bindings;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "packages";
    vec![
        long(S, "a_deb_is_the_same_twice", same_twice),
        test(S, "a_deb_is_installed_used_upgraded_and_purged", deb),
        test(S, "libweir_is_installed_and_linked", lib),
        test(S, "a_program_with_libraries_makes_no_tarball", needs_static),
        long(S, "a_deb_is_installed_used_upgraded_and_purged_on_debian_12", on_debian_12),
        long(S, "lintian_finds_no_error", lintian),
        long(S, "a_static_tarball_serves_in_an_empty_root", tarball),
        long(S, "an_image_serves_in_its_own_root", image),
    ]
}

/// Packages of programs that are there; what is done with them, where a bare system may have to be made first; a static program.
const PACKED: Duration = Duration::from_secs(120);
const IN_ROOT: Duration = Duration::from_secs(600);
const BUILT: Duration = Duration::from_secs(3600);

/// `cargo xtask dist ARGUMENTS --out DIR`.
fn dist(env: &Env, args: &[&str], out: &Path, limit: Duration) -> Outcome {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "cargo", "run", "-q", "--locked", "-p", "xtask", "--manifest-path"]);
    command.arg(bindings::root(env).join("Cargo.toml")).args(["--", "dist"]).args(args).arg("--out").arg(out);
    Process::spawn(&env.folder()?, "dist", command)?.wait(limit)?.success("cargo xtask dist").map(drop)
}

/// The packages of the program under test and of libweir, made once for all tests.
fn packages(env: &Env) -> Result<PathBuf, String> {
    let library = text(&libweir::prefix(env)?.join("lib/libweir.so"));
    env.shared("packages", |dir| {
        let args = ["--only", "deb,lib", "--binary", &text(&env.weir), "--library", &library];
        dist(env, &args, dir, PACKED)
    })
}

/// The tarball and the image, built once.
fn static_packages(env: &Env) -> Result<PathBuf, String> {
    env.shared("packages-static", |dir| dist(env, &["--only", "tar,oci"], dir, BUILT))
}

/// The one file of `dir` whose name begins and ends so.
fn find(dir: &Path, begin: &str, end: &str) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(dir).context(|| text(dir))?;
    let mut names = entries.filter_map(Result::ok).map(|entry| entry.path());
    let fits = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begin) && n.to_string_lossy().ends_with(end))
    };
    names.find(fits).ok_or_else(|| format!("{} has no {begin}*{end}", text(dir)))
}

/// `tests/package.sh KIND ROOT FOLDER`.
fn in_root(env: &Env, kind: &str, root: &Path, folder: &Path) -> Outcome {
    if !rustix::process::getuid().is_root() {
        env.skip("a root of its own needs root: run ./test as root");
        return Ok(());
    }
    let script = bindings::root(env).join("tests/package.sh");
    let said =
        run(&env.folder()?, &script, [kind, &text(root), &text(folder)], IN_ROOT)?.success("tests/package.sh")?;
    said.lines().filter(|line| line.starts_with("package: ")).for_each(|line| println!("    {line}"));
    Ok(())
}

fn same_twice(env: &Env) -> Outcome {
    let (first, again) = (packages(env)?, env.folder()?.join("again"));
    dist(env, &["--only", "deb", "--binary", &text(&env.weir)], &again, PACKED)?;
    let sum = |dir: &Path| {
        let path = dir.join("SHA256SUMS");
        let sums = std::fs::read_to_string(&path).context(|| text(&path))?;
        let line = sums.lines().find(|line| line.contains("  weir_")).map(str::to_owned);
        line.ok_or_else(|| format!("{} names no package: {sums}", text(&path)))
    };
    ensure(sum(&first)? == sum(&again)?, || format!("two builds differ: {:?}, {:?}", sum(&first), sum(&again)))?;
    let checked = Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&first).output();
    let checked = checked.context(|| "sha256sum".into())?;
    ensure(checked.status.success(), || String::from_utf8_lossy(&checked.stdout).into_owned())
}

fn deb(env: &Env) -> Outcome {
    in_root(env, "deb", &env.guest_dir, &packages(env)?)
}

/// Where the program was linked against a C library that Debian 12 has.
fn on_debian_12(env: &Env) -> Outcome {
    const GLIBC: u32 = 36;
    let made = packages(env)?;
    let deb = text(&find(&made, "weir_", ".deb")?);
    let field = ["--field", &deb, "Depends"];
    let depends = run(&env.folder()?, Path::new("dpkg-deb"), field, PACKED)?.success("dpkg-deb")?;
    let minor = depends.split("libc6 (>= 2.").nth(1).and_then(|rest| rest.split(')').next()?.parse::<u32>().ok());
    let minor = minor.ok_or_else(|| format!("no version of libc6: {depends}"))?;
    if minor > GLIBC {
        env.skip(format!("a program that was linked here needs glibc 2.{minor}; Debian 12 has 2.{GLIBC}"));
        return Ok(());
    }
    in_root(env, "deb", Path::new("bookworm"), &made)
}

/// Compiles a program against the files of `libweir-dev`, and runs it where `libweir0` is installed.
fn lib(env: &Env) -> Outcome {
    let (made, dir) = (packages(env)?, env.folder()?);
    let sysroot = dir.join("root");
    for package in ["libweir0_", "libweir-dev_"] {
        let deb = find(&made, package, ".deb")?;
        run(&dir, Path::new("dpkg-deb"), ["--extract", &text(&deb), &text(&sysroot)], PACKED)?.success("dpkg-deb")?;
        std::fs::copy(&deb, dir.join(deb.file_name().unwrap_or_default())).context(|| text(&deb))?;
    }
    let script = "cc -std=c11 -O1 -pthread \"$1\" $(pkg-config --cflags --libs weir) -o \"$2\"";
    let mut command = Command::new("sh");
    command
        .args(["-ec", script, "sh"])
        .arg(bindings::root(env).join("bindings/c/examples/mixed.c"))
        .arg(dir.join("mixed"));
    command.env("PKG_CONFIG_SYSROOT_DIR", &sysroot);
    command.env("PKG_CONFIG_LIBDIR", sysroot.join("usr/lib/x86_64-linux-gnu/pkgconfig"));
    Process::spawn(&dir, "cc", command)?.wait(PACKED)?.success("cc")?;
    in_root(env, "lib", &env.guest_dir, &dir)
}

fn needs_static(env: &Env) -> Outcome {
    let refused = dist(env, &["--only", "tar", "--binary", &text(&env.weir)], &env.folder()?, PACKED);
    ensure(refused.as_ref().is_err_and(|e| e.contains("is linked against") && e.contains("--only deb")), || {
        format!("{refused:?}")
    })
}

fn lintian(env: &Env) -> Outcome {
    let made = packages(env)?;
    let mut debs = Vec::new();
    for package in ["weir_", "libweir0_", "libweir-dev_"] {
        debs.push(text(&find(&made, package, ".deb")?));
    }
    let args = ["--fail-on", "error", "--allow-root"].map(String::from).into_iter().chain(debs);
    let finished = run(&env.folder()?, Path::new("lintian"), args, Duration::from_secs(300))?;
    ensure(finished.status.success(), || format!("lintian (apt-get install lintian): {}", finished.describe()))
}

/// The words of a command, for `tests/package.sh tree`.
fn command(dir: &Path, words: &[&str]) -> Outcome {
    let path = dir.join("command");
    std::fs::write(&path, words.join("\n") + "\n").context(|| text(&path))
}

fn unpack(dir: &Path, archive: &Path, root: &Path, more: &[&str]) -> Outcome {
    std::fs::create_dir_all(root).context(|| text(root))?;
    let args = ["-x", "-f", &text(archive), "-C", &text(root)].map(String::from).into_iter();
    run(dir, Path::new("tar"), args.chain(more.iter().map(|word| (*word).to_owned())), PACKED)?.success("tar").map(drop)
}

fn tarball(env: &Env) -> Outcome {
    let dir = env.folder()?;
    unpack(&dir, &find(&static_packages(env)?, "weir-", ".tar.gz")?, &dir.join("root"), &["--strip-components=1"])?;
    command(&dir, &["/bin/weir", "up", "-c", "/etc/weir/weir.toml"])?;
    in_root(env, "tree", &dir.join("root"), &dir)
}

fn image(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let layout = dir.join("layout");
    unpack(&dir, &find(&static_packages(env)?, "weir-", "-oci.tar")?, &layout, &[])?;
    let json = |path: PathBuf| -> Result<serde_json::Value, String> {
        serde_json::from_slice(&std::fs::read(&path).context(|| text(&path))?).context(|| text(&path))
    };
    let blob = |descriptor: &serde_json::Value| -> Result<PathBuf, String> {
        let digest = descriptor["digest"].as_str().ok_or_else(|| format!("no digest: {descriptor}"))?;
        Ok(layout.join("blobs").join(digest.replace(':', "/")))
    };
    let index = json(layout.join("index.json"))?;
    let manifest = json(blob(&index["manifests"][0])?)?;
    let config = json(blob(&manifest["config"])?)?;
    unpack(&dir, &blob(&manifest["layers"][0])?, &dir.join("root"), &[])?;
    let words = |key: &str| config["config"][key].as_array().cloned().unwrap_or_default();
    let words: Vec<_> = words("Entrypoint").into_iter().chain(words("Cmd")).collect();
    command(&dir, &words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>())?;
    in_root(env, "tree", &dir.join("root"), &dir)
}
