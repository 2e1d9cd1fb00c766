//! A store whose metadata are in an etcd as companies have it: with TLS, certificates of clients, and users with passwords whose tokens expire.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::api_tls::{Authority, Certificate, write};
use super::store_etcd::{Member, RECOVERY, etcd_at, file, has, program, put, setup, succeeds};
use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text};
use crate::process::{self, until};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_etcd_access";
    vec![test(S, "files_outlive_kills_and_tokens_of_an_etcd_with_tls_and_users", outlives)]
}

/// Of the user `weir`.
const PASSWORD: &str = "a-password-of-the-store";

/// How long a token is good, used or not.
const TOKEN: Duration = Duration::from_secs(2);

/// A member that lets in whom it knows.
struct Guarded {
    member: Member,
    ca: Authority,
    client: Certificate,
    /// The password of `weir` is in `right`, another one in `wrong`.
    passwords: [String; 2],
}

/// None where a program is missing.
fn guarded(env: &Env) -> Result<Option<Guarded>, String> {
    let Some(program) = program(env) else { return Ok(None) };
    let ctl = program.with_file_name("etcdctl");
    if !ctl.exists() {
        env.skip("there is no etcdctl beside etcd; install Debian's package etcd-client");
        return Ok(None);
    }
    let dir = env.folder()?;
    let ca = Authority::new(&dir, "ca")?;
    let server = ca.sign(&dir, "server", &["127.0.0.1"], 2099)?;
    let client = ca.sign(&dir, "client", &["client"], 2099)?;
    let secret = dir.join("hs");
    write(&secret, "0123456789abcdef0123456789abcdef", 0o600)?;
    let token = format!("jwt,sign-method=HS256,priv-key={},ttl={}s", text(&secret), TOKEN.as_secs());
    let (cert, key, trusted) = (text(&server.cert), text(&server.key), text(&ca.file));
    let more = ["--cert-file", &cert, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &trusted];
    let mut members = etcd_at(env, &program, "https", 1, &[&more[..], &["--auth-token", &token]].concat())?;
    let member = members.pop().ok_or("a member was asked for")?;
    let passwords = [("right", PASSWORD), ("wrong", "another")].map(|(name, password)| {
        let path = dir.join(name);
        write(&path, &format!("{password}\n"), 0o600).map(|()| text(&path))
    });
    let [right, wrong] = passwords;
    let found = Guarded { member, ca, client, passwords: [right?, wrong?] };
    let user = format!("user add weir:{PASSWORD}");
    for args in [
        "user add root:r",
        "user grant-role root root",
        "role add store",
        "role grant-permission store --prefix=true readwrite e2e",
        &user,
        "user grant-role weir store",
        "auth enable",
    ] {
        found.control(&ctl, args)?;
    }
    Ok(Some(found))
}

impl Guarded {
    fn control(&self, ctl: &Path, args: &str) -> Outcome {
        let mut said = String::new();
        let done = until(RECOVERY, &format!("etcdctl {args}"), || {
            let mut command = Command::new(ctl);
            command.env("ETCDCTL_API", "3").args(["--endpoints", &self.member.url]);
            command.arg("--cacert").arg(&self.ca.file);
            command.arg("--cert").arg(&self.client.cert).arg("--key").arg(&self.client.key);
            let output = command.args(args.split(' ')).output().context(|| ctl.display().to_string())?;
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            Ok(output.status.success().then_some(()))
        });
        done.map_err(|e| format!("{e}: {said}"))
    }

    fn setup(&self, password: &str) -> Setup {
        let (ca, cert, key) = (text(&self.ca.file), text(&self.client.cert), text(&self.client.key));
        let access = format!(
            "[store]\netcd = {{ ca = \"{ca}\", cert = \"{cert}\", key = \"{key}\", user = \"weir\", password_file = \"{password}\" }}\n"
        );
        let whole = setup(std::slice::from_ref(&self.member)).whole.replacen("[store]\n", &access, 1);
        Setup { whole, ..Setup::default() }
    }
}

/// The node is killed, etcd is, and tokens expire all the time: every file that was put is there, and the password is nowhere but in its file.
fn outlives(env: &Env) -> Outcome {
    let Some(mut guarded) = guarded(env)? else { return Ok(()) };
    let [right, wrong] = guarded.passwords.clone();
    let whole = guarded.setup(&wrong).whole.replace("keeper = true", "keeper = false");
    let said = super::pool::fails(env, &env.folder()?, &whole)?;
    ensure(said.contains("it does not know the user \"weir\" with the password in"), || said)?;

    let mut node = Node::start(env, &guarded.setup(&right))?;
    let from = file(&node, 1, 300_000)?;
    put(&node, &from, "/one")?;
    std::thread::sleep(TOKEN + Duration::from_secs(1));
    put(&node, &from, "/two")?;
    node.kill()?;
    node.start_again()?;
    has(&node, "/one", &from)?;
    guarded.member.kill()?;
    guarded.member.restart()?;
    has(&node, "/two", &from)?;
    succeeds(&node, &["mkdir", "/d"])?;
    ensure(!node.log().contains("etcd refuses") && !node.log().contains(PASSWORD), || node.log())?;
    node.kill()?;

    let meta = format!("etcd:{}/e2e", guarded.member.url);
    let (ca, cert, key) = (text(&guarded.ca.file), text(&guarded.client.cert), text(&guarded.client.key));
    let all = [
        "--etcd-ca",
        &ca,
        "--etcd-cert",
        &cert,
        "--etcd-key",
        &key,
        "--etcd-user",
        "weir",
        "--etcd-password-file",
        &right,
    ];
    for (options, status, words) in [
        (&all[..], 0, "records"),
        (&[], 1, "is not signed by an authority that is trusted here; name the authority's file with etcd.ca"),
        (&all[..2], 1, "it wants another certificate of this client"),
        (&all[..6], 1, "may not read and write the keys that begin with \"e2e\""),
        (&all[..4], 2, "--etcd-key"),
        (&all[..8], 2, "--etcd-password-file"),
    ] {
        // What is refused is tried for some seconds first.
        let args = [&["store", "fsck", &meta], options].concat();
        let finished = process::run(&node.dir, Path::new(node.command(&[]).get_program()), args, RECOVERY)?;
        let said = format!("{}{}", finished.stdout, finished.stderr);
        ensure(finished.status.code() == Some(status) && said.contains(words), || {
            format!("{options:?}, {words:?}: {said}")
        })?;
    }
    let plain = meta.replace("https:", "http:");
    let said = node.cli(&["store", "fsck", &plain, "--etcd-ca", &ca])?;
    ensure(said.status.code() == Some(2) && said.stderr.contains("is reached without TLS"), || said.describe())?;
    node.start_again()?;
    has(&node, "/two", &from)?;
    node.stop()
}
