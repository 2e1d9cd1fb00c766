//! TLS and users, against a real etcd with etcdctl beside it; without them they say that they were left out.

use super::WaitingEtcdKv;
use super::tests::{Etcd, key, opened, put};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_config::{EtcdAccess, EtcdMeta, EtcdUser, PemPair};
use weir_store::kv::{CommitOutcome, Kv as _, conformance};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-etcd-access-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("it is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    fn user(&self, name: &str, password: &str) -> Option<EtcdUser> {
        let password_file = self.write(&format!("{name}.{password}"), &format!("{password}\nits owner\n"), 0o600);
        Some(EtcdUser { name: name.into(), password_file })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Folder, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = folder.write(&format!("{name}.pem"), &params.self_signed(&key).expect("a certificate").pem(), 0o644);
        Self { issuer: Issuer::new(params, key), file }
    }

    /// For 127.0.0.1 and until the end of that year.
    fn sign(&self, folder: &Folder, name: &str, until: i32) -> PemPair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 12, 31));
        let made = params.signed_by(&key, &self.issuer).expect("a certificate");
        let cert = folder.write(&format!("{name}.pem"), &made.pem(), 0o644);
        PemPair { cert, key: folder.write(&format!("{name}.key"), &key.serialize_pem(), 0o600) }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// An etcd with TLS that wants clients' certificates and, once [`with_users`](Guarded::with_users), a user.
struct Guarded {
    etcd: Etcd,
    folder: Folder,
    authority: Authority,
    client: PemPair,
}

impl Guarded {
    fn start(name: &str, until: i32, more: &[&str]) -> Option<Self> {
        let folder = Folder::new(name);
        let authority = Authority::new(&folder, "ca");
        let (server, client) = (authority.sign(&folder, "server", until), authority.sign(&folder, "weir", 2099));
        let tls = [
            "--cert-file",
            text(&server.cert),
            "--key-file",
            text(&server.key),
            "--client-cert-auth",
            "--trusted-ca-file",
        ];
        let etcd = Etcd::start_at("https", name, &[&tls, &[text(&authority.file)][..], more].concat())?;
        Some(Self { etcd, folder, authority, client })
    }

    fn control(&self, args: &[&str]) -> Option<()> {
        let client = [
            "--cacert",
            text(&self.authority.file),
            "--cert",
            text(&self.client.cert),
            "--key",
            text(&self.client.key),
        ];
        self.etcd.control(&[&client, args].concat())
    }

    /// `weir` may use what begins with "weir", `other` may not.
    fn with_users(self) -> Option<Self> {
        for args in [
            "user add root:r",
            "user grant-role root root",
            "role add weir",
            "role grant-permission weir --prefix=true readwrite weir",
            "user add weir:secret",
            "user grant-role weir weir",
            "user add other:secret",
            "auth enable",
        ] {
            self.control(&args.split(' ').collect::<Vec<_>>())?;
        }
        Some(self)
    }

    fn meta(&self, prefix: &str, user: Option<EtcdUser>) -> EtcdMeta {
        let access = EtcdAccess { ca: Some(self.authority.file.clone()), identity: Some(self.client.clone()), user };
        EtcdMeta { access, ..self.etcd.meta(prefix) }
    }
}

/// What is wrong, once something is.
fn trouble(meta: &EtcdMeta) -> String {
    let mut kv = WaitingEtcdKv::open(meta).expect("it begins");
    let begun = Instant::now();
    loop {
        assert!(kv.get(&key("x")).is_err(), "it is let in");
        let trouble = kv.trouble().expect("something is wrong");
        // etcd may still be on its way.
        if !trouble.contains("refused (os error") || begun.elapsed() > Duration::from_secs(30) {
            return trouble;
        }
        kv = WaitingEtcdKv::open(meta).expect("it begins");
    }
}

/// Tokens that last for a second expire all the time, and nobody sees it.
#[test]
fn with_tls_and_a_user_every_rule_holds_while_tokens_expire() {
    let folder = Folder::new("token");
    let secret = folder.write("hs", "0123456789abcdef0123456789abcdef", 0o600);
    let token = format!("jwt,sign-method=HS256,priv-key={},ttl=1s", text(&secret));
    let Some(guarded) = Guarded::start("tokens", 2099, &["--auth-token", &token]).and_then(Guarded::with_users) else {
        return;
    };
    let user = || guarded.folder.user("weir", "secret");
    static STORES: AtomicUsize = AtomicUsize::new(0);
    let open = || opened(&guarded.meta(&format!("weir{}", STORES.fetch_add(1, Ordering::Relaxed)), user()));
    conformance(open).unwrap_or_else(|failure| panic!("{failure}"));
    let mut kv = opened(&guarded.meta("weir", user()));
    let (begun, mut commits) = (Instant::now(), 0u32);
    while begun.elapsed() < Duration::from_millis(3500) {
        commits += 1;
        let outcome = kv.commit(&put("x", &commits.to_be_bytes()));
        assert!(matches!(outcome, CommitOutcome::Done(_)), "{commits}: {outcome:?}: {:?}", kv.trouble());
        let found = kv.get(&key("x")).expect("an answer").expect("a value").value;
        assert_eq!((found, kv.trouble()), (commits.to_be_bytes().to_vec(), None));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The name in the certificate is the user where none is given.
#[test]
fn the_certificate_may_be_the_user() {
    let Some(guarded) = Guarded::start("name", 2099, &[]).and_then(Guarded::with_users) else { return };
    let mut kv = opened(&guarded.meta("weir/a", None));
    assert!(matches!(kv.commit(&put("x", b"1")), CommitOutcome::Done(_)), "{:?}", kv.trouble());
}

#[test]
fn whatever_keeps_the_store_out_is_named() {
    let Some(mut guarded) = Guarded::start("refused", 2099, &[]).and_then(Guarded::with_users) else { return };
    let (folder, url) = (Folder::new("others"), guarded.etcd.url.clone());
    let stranger = Authority::new(&folder, "stranger");
    let right = guarded.meta("weir", guarded.folder.user("weir", "secret"));
    opened(&right);
    let with = |change: &dyn Fn(&mut EtcdMeta)| {
        let mut meta = right.clone();
        change(&mut meta);
        trouble(&meta)
    };
    let other_name = url.replace("127.0.0.1", "localhost");
    let plain = url.replace("https:", "http:");
    let of_stranger = stranger.sign(&folder, "strange", 2099);
    let (wrong, other) = (folder.user("weir", "wrong"), folder.user("other", "secret"));
    let nobody = guarded.authority.sign(&folder, "nobody", 2099);
    let said = [
        (
            with(&|m| m.access.ca = Some(stranger.file.clone())),
            "not signed by an authority that is trusted here; name the authority's file with etcd.ca",
        ),
        (
            with(&|m| m.endpoints = vec![other_name.clone()]),
            "its certificate is not for that name; names in it: IpAddress(127.0.0.1)",
        ),
        (with(&|m| m.access.identity = None), "it wants another certificate of this client"),
        (with(&|m| m.access.identity = Some(of_stranger.clone())), "it wants another certificate of this client"),
        (with(&|m| m.access.user = wrong.clone()), "etcd refuses a request: https://127.0.0.1"),
        (with(&|m| m.access.user = wrong.clone()), "it does not know the user \"weir\" with the password in /"),
        (
            with(&|m| m.access.user = other.clone()),
            "the user \"other\" may not read and write the keys that begin with \"weir\"; etcdctl role",
        ),
        (
            with(&|m| m.prefix = "elsewhere".into()),
            "the user \"weir\" may not read and write the keys that begin with \"elsewhere\"",
        ),
        (
            with(&|m| (m.access.user, m.access.identity) = (None, Some(nobody.clone()))),
            "the user of the certificate may not",
        ),
        (with(&|m| (m.endpoints, m.access) = (vec![plain.clone()], EtcdAccess::default())), "write https://"),
    ];
    let missing: Vec<_> = said.iter().filter(|(said, words)| !said.contains(words)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    // An etcd that begins anew knows no token of before.
    let mut kv = opened(&right);
    guarded.etcd.kill();
    guarded.etcd.start_again();
    let begun = Instant::now();
    while kv.get(&key("x")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", kv.trouble());
    }
}

#[test]
fn an_expired_certificate_and_ports_without_tls_are_named() {
    let Some(guarded) = Guarded::start("expired", 2021, &[]) else { return };
    let said = trouble(&guarded.meta("weir", None));
    assert!(said.contains("its certificate has expired"), "{said}");
    let Some(plain) = Etcd::start("plain", &[]) else { return };
    let ctl = plain.control(&["get", "x"]);
    let endpoints = vec![plain.url.replace("http:", "https:")];
    let said = trouble(&EtcdMeta { endpoints, ..guarded.meta("weir", None) });
    assert!(said.contains("write http://"), "{said}");
    // A password for an etcd that asks for none is no obstacle; whoever asks for one is not reached without.
    let user = guarded.folder.user("weir", "secret");
    opened(&EtcdMeta { access: EtcdAccess { user, ..EtcdAccess::default() }, ..plain.meta("weir") });
    if ctl.is_none() {
        return;
    }
    for args in ["user add root:r", "user grant-role root root", "auth enable"] {
        plain.control(&args.split(' ').collect::<Vec<_>>());
    }
    let said = trouble(&plain.meta("weir"));
    assert!(said.contains("it wants a user; give user and password_file"), "{said}");
}

#[test]
fn files_that_cannot_be_used_are_named_at_once() {
    let folder = Folder::new("files");
    let authority = Authority::new(&folder, "ca");
    let (one, two) = (authority.sign(&folder, "one", 2099), authority.sign(&folder, "two", 2099));
    let open_key = folder.write("open.key", &std::fs::read_to_string(&one.key).expect("a key"), 0o644);
    let open_password = folder.write("open", "secret\n", 0o640);
    let no_key = folder.write("no.key", &std::fs::read_to_string(&one.cert).expect("a certificate"), 0o600);
    let empty = folder.write("empty", "\n", 0o600);
    let none = folder.0.join("none");
    let pair = |cert: &Path, key: &Path| EtcdAccess {
        identity: Some(PemPair { cert: cert.into(), key: key.into() }),
        ca: Some(authority.file.clone()),
        user: None,
    };
    let user = |password_file: &Path| EtcdAccess {
        user: Some(EtcdUser { name: "weir".into(), password_file: password_file.into() }),
        ca: Some(authority.file.clone()),
        identity: None,
    };
    for (access, words) in [
        (EtcdAccess { ca: Some(none.clone()), ..EtcdAccess::default() }, "etcd.ca /"),
        (EtcdAccess { ca: Some(one.key.clone()), ..EtcdAccess::default() }, "there is no certificate in it, in PEM"),
        (pair(&one.cert, &two.key), "it is not the key of the certificate in /"),
        (pair(&one.cert, &open_key), "open.key: its mode is 0644, so every user can read it; chmod 600"),
        (pair(&one.cert, &no_key), "there is no private key in it"),
        (pair(&none, &one.key), "etcd.cert /"),
        (user(&none), "etcd.password_file /"),
        (user(&open_password), "open: its mode is 0640, so others can read it; chmod 600"),
        (user(&empty), "its first line is empty; write the password there"),
        (user(&folder.0), "is no file"),
    ] {
        let meta = EtcdMeta { endpoints: vec!["https://127.0.0.1:1".into()], prefix: "weir".into(), access };
        let said = WaitingEtcdKv::open(&meta).expect_err(words).to_string();
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
    let access = user(&folder.write("right", "secret", 0o600));
    let endpoints = vec!["http://10.0.0.1:2379".into()];
    let meta = EtcdMeta { endpoints, prefix: "weir".into(), access: EtcdAccess { ca: None, ..access } };
    let said = WaitingEtcdKv::open(&meta).expect_err("no password in the clear").to_string();
    assert!(said.contains("the network would see the password"), "{said}");
}
