//! The API by TLS, from the CLI and from curl: who is let in, and what is said to whoever is not.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Node, Setup, text, with_node};
use crate::process::{Finished, run};

const READ: &str = "read-0123456789abcdef";
const TIMEOUT: Duration = Duration::from_secs(20);

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "api-tls";
    vec![
        test(S, "who_trusts_the_authority_and_has_a_token_is_served", who_is_served),
        test(S, "certificates_that_are_wrong_are_said_to_be", wrong_certificates),
        test(S, "a_renewed_certificate_is_used_at_once", renewed),
        test(S, "a_configuration_that_cannot_be_encrypted_is_refused", refused),
    ]
}

/// An authority, which lasts as long as the test.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate's file.
    pub(super) file: PathBuf,
}

/// A certificate and its key.
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

pub(super) fn write(path: &Path, text: &str, mode: u32) -> Outcome {
    std::fs::write(path, text).context(|| path.display().to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).context(|| path.display().to_string())
}

impl Authority {
    pub(super) fn new(dir: &Path, name: &str) -> Result<Self, String> {
        let wrong = |e: rcgen::Error| format!("{name}: {e}");
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(wrong)?;
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = dir.join(format!("{name}.pem"));
        write(&file, &params.self_signed(&key).map_err(wrong)?.pem(), 0o644)?;
        Ok(Self { issuer: Issuer::new(params, key), file })
    }

    /// A certificate for these names, until the end of that year.
    pub(super) fn sign(&self, dir: &Path, file: &str, names: &[&str], until: i32) -> Result<Certificate, String> {
        let wrong = |e: rcgen::Error| format!("{file}: {e}");
        let key = KeyPair::generate().map_err(wrong)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(wrong)?;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        let made = params.signed_by(&key, &self.issuer).map_err(wrong)?;
        let found = Certificate { cert: dir.join(format!("{file}.pem")), key: dir.join(format!("{file}.key")) };
        write(&found.cert, &made.pem(), 0o644)?;
        write(&found.key, &key.serialize_pem(), 0o600)?;
        Ok(found)
    }
}

/// A node with TLS at an address.
pub(super) fn setup(dir: &Path, address: &str, certificate: &Certificate) -> Result<Setup, String> {
    let token = dir.join("read.token");
    write(&token, READ, 0o600)?;
    let whole = format!(
        "[node]\nname = \"e2e\"\napi = [\"unix:weir.sock\", \"{address}\"]\ncores = [0]\n\
         [api]\ntokens = [{{ role = \"read\", file = \"{}\" }}]\ntls = {{ cert = \"{}\", key = \"{}\" }}\n\
         [[device]]\nname = \"ssd0\"\ncapacity = \"64MiB\"\n[door.nvme-tcp]\nlisten = \"127.0.0.1:PORT\"\n",
        text(&token),
        text(&certificate.cert),
        text(&certificate.key)
    );
    Ok(Setup { whole, ..Setup::default() })
}

/// `weir status` at this address, with that authority, and with the token in this file.
fn status(env: &Env, node: &Node, api: &str, ca: Option<&Path>, token: Option<&Path>) -> Result<Finished, String> {
    let mut args = vec!["-u".to_owned(), "WEIR_TOKEN_FILE".into(), "-u".into(), "WEIR_CA".into()];
    args.extend(token.map(|file| format!("WEIR_TOKEN_FILE={}", text(file))));
    args.extend([text(&env.weir), "status".into(), "--api".into(), api.into()]);
    args.extend(ca.into_iter().flat_map(|file| ["--ca".into(), text(file)]));
    run(&node.dir, Path::new("/usr/bin/env"), &args, TIMEOUT)
}

fn told(finished: &Finished, what: &str) -> Outcome {
    ensure(!finished.status.success() && finished.stderr.contains(what), || {
        format!("\"{what}\" is not said: {}", finished.describe())
    })
}

fn who_is_served(env: &Env) -> Outcome {
    let (dir, port) = (env.folder()?, env.free_port()?);
    let (authority, stranger) = (Authority::new(&dir, "ca")?, Authority::new(&dir, "stranger")?);
    let certificate = authority.sign(&dir, "node", &["127.0.0.1", "localhost"], 2099)?;
    // Every address of the machine: what a plain port may not.
    with_node(env, &setup(&dir, &format!("0.0.0.0:{port}"), &certificate)?, |node| {
        let (by_ip, token) = (format!("https://127.0.0.1:{port}"), dir.join("read.token"));
        for api in [&by_ip, &format!("https://localhost:{port}/")] {
            let out = status(env, node, api, Some(&authority.file), Some(&token))?.success("weir status by TLS")?;
            ensure(out.contains("ssd0"), || out.clone())?;
        }
        told(&status(env, node, &by_ip, Some(&authority.file), None)?, "a token of this node is needed")?;
        let other = dir.join("other.token");
        write(&other, "other-0123456789abcdef", 0o600)?;
        told(&status(env, node, &by_ip, Some(&authority.file), Some(&other))?, "a token of this node is needed")?;
        told(
            &status(env, node, &by_ip, Some(&stranger.file), Some(&token))?,
            "not signed by an authority that is trusted",
        )?;
        told(&status(env, node, &format!("127.0.0.1:{port}"), None, Some(&token))?, "is it a node's API?")?;
        let curl = |more: &[&str]| {
            let url = format!("{by_ip}/metrics");
            let ca = text(&authority.file);
            let all = [&["-sS", "--max-time", "10", "--cacert", &ca, "-w", "%{http_code}"][..], more, &[url.as_str()]]
                .concat();
            run(&node.dir, Path::new("curl"), &all, TIMEOUT)?.success("curl")
        };
        let shown = format!("Authorization: Bearer {READ}");
        let page = curl(&["-H", &shown])?;
        ensure(page.contains("weir_up{node=\"e2e\"") && page.ends_with("200"), || page.clone())?;
        let refused = curl(&["-D", "-"])?;
        ensure(refused.contains("application/problem+json") && refused.ends_with("401"), || refused.clone())?;
        let foreign = curl(&["-H", &shown, "-H", "Origin: https://elsewhere.example"])?;
        ensure(foreign.ends_with("403"), || foreign.clone())
    })
}

fn wrong_certificates(env: &Env) -> Outcome {
    let (dir, port) = (env.folder()?, env.free_port()?);
    let authority = Authority::new(&dir, "ca")?;
    for (file, names, until, says) in [
        ("expired", "127.0.0.1", 2021, "its certificate has expired"),
        ("other", "weir.example", 2099, "its certificate is not for 127.0.0.1"),
    ] {
        let certificate = authority.sign(&dir, file, &[names], until)?;
        with_node(env, &setup(&dir, &format!("127.0.0.1:{port}"), &certificate)?, |node| {
            let token = dir.join("read.token");
            let api = format!("https://127.0.0.1:{port}");
            told(&status(env, node, &api, Some(&authority.file), Some(&token))?, says)?;
            let key = text(&certificate.key);
            told(&status(env, node, &api, Some(Path::new(&key)), Some(&token))?, "there is no certificate in it")
        })?;
    }
    Ok(())
}

fn renewed(env: &Env) -> Outcome {
    let (dir, port) = (env.folder()?, env.free_port()?);
    let authority = Authority::new(&dir, "ca")?;
    let certificate = authority.sign(&dir, "node", &["weir.example"], 2099)?;
    with_node(env, &setup(&dir, &format!("127.0.0.1:{port}"), &certificate)?, |node| {
        let (api, token) = (format!("https://127.0.0.1:{port}"), dir.join("read.token"));
        let ask = || status(env, node, &api, Some(&authority.file), Some(&token));
        told(&ask()?, "its certificate is not for 127.0.0.1")?;
        // Half of it is not used: the old certificate stays.
        write(&certificate.key, "no key", 0o600)?;
        told(&ask()?, "its certificate is not for 127.0.0.1")?;
        authority.sign(&dir, "node", &["127.0.0.1"], 2099)?;
        ask()?.success("weir status with the new certificate").map(drop)
    })
}

fn refused(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let authority = Authority::new(&dir, "ca")?;
    let (one, two) =
        (authority.sign(&dir, "one", &["127.0.0.1"], 2099)?, authority.sign(&dir, "two", &["127.0.0.1"], 2099)?);
    let up = |certificate: &Certificate| {
        let file = dir.join("weir.toml");
        let whole = setup(&dir, "127.0.0.1:0", certificate)?.whole.replace("PORT", "0");
        write(&file, &whole, 0o644)?;
        run(&dir, &env.weir, ["up", "-c", &text(&file)], TIMEOUT)
    };
    told(
        &up(&Certificate { cert: one.cert.clone(), key: two.key.clone() })?,
        "it is not the key of the certificate in",
    )?;
    told(&up(&Certificate { cert: one.key.clone(), key: one.key.clone() })?, "there is no certificate in it")?;
    let no_key = dir.join("no.key");
    write(&no_key, &std::fs::read_to_string(&one.cert).context(|| "certificate".to_string())?, 0o600)?;
    told(&up(&Certificate { cert: one.cert.clone(), key: no_key })?, "there is no private key in it")?;
    told(&up(&Certificate { cert: dir.join("none"), key: one.key.clone() })?, "No such file")?;
    write(&two.key, &std::fs::read_to_string(&one.key).context(|| "key".to_string())?, 0o644)?;
    told(
        &up(&Certificate { cert: one.cert.clone(), key: two.key.clone() })?,
        "its mode is 0644, so every user can read it; chmod 600",
    )?;
    let file = dir.join("plain.toml");
    write(&file, "[node]\napi = \"0.0.0.0:9400\"\n", 0o644)?;
    told(
        &run(&dir, &env.weir, ["up", "-c", &text(&file)], TIMEOUT)?,
        "plain.toml:2: node.api: 0.0.0.0:9400 is not loopback",
    )
}
