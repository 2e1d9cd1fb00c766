//! Libraries that the C compiler makes of a few lines each, around the header as it is shipped.

use super::PolicyLibrary;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_controller::{COST_MAX, ChargedCommand, Op};
use weir_flash::{Flash, FlashDriveConfig, FlashOp, Precondition, Preset};
use weir_units::{Bytes, Nanos};

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-policy-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The library that the source makes.
    fn library(&self, name: &str, source: &str) -> PathBuf {
        let (c, so) = (self.0.join(format!("{name}.c")), self.0.join(format!("{name}.so")));
        std::fs::write(&c, format!("#include <stdio.h>\n#include <stdlib.h>\n#include <weir_policy.h>\n{source}"))
            .unwrap();
        compile(&c, &so);
        so
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the temporary folder's.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bindings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/c")
}

fn compile(source: &Path, library: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o"]).arg(library).arg(source);
    let made = cc.arg("-I").arg(bindings().join("include")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn drive() -> Flash {
    let mut config = FlashDriveConfig::preset(Preset::FemuBbssd, false);
    (config.geometry.channels, config.geometry.ways, config.geometry.planes) = (2, 1, 1);
    (config.geometry.blocks, config.geometry.pages) = (40, 16);
    config.ftl.capacity = Some(Bytes(2 * 32 * 16 * u64::from(config.geometry.page_bytes)));
    Flash::new(&config, Nanos(0)).unwrap()
}

/// Random writes of whole units until every block has been collected some times.
fn written(flash: &mut Flash) -> f64 {
    flash.precondition(Precondition::Sequential);
    let (mut now, mut at) = (Nanos(0), 1u64);
    for _ in 0..6 * flash.units() {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (at >> 33) % u64::from(flash.units());
        now = flash.submit(now, FlashOp::Write { fua: false }, unit as u32, 1);
    }
    flash.check();
    flash.write_amplification()
}

/// A library with these functions, and `members` of the structure.
fn source(functions: &str, members: &str) -> String {
    format!(
        "{functions}\nstatic const struct weir_policy policy = {{ .version = WEIR_POLICY_VERSION, .size = sizeof policy, {members} }};\n\
         const struct weir_policy *weir_policy(void) {{ return &policy; }}\n"
    )
}

const GREEDY: &str =
    "static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {
    int64_t best = WEIR_POLICY_NONE; (void)s; (void)r;
    for (size_t b = 0; b < p->blocks; b++)
        if (p->valid[b] <= p->block_units && (best < 0 || p->valid[b] < p->valid[best])) best = (int64_t)b;
    return best; }";

#[test]
fn a_greedy_library_does_what_the_drives_own_does() {
    let folder = Folder::new("greedy");
    let library =
        PolicyLibrary::open(&folder.library("greedy", &source(GREEDY, ".name = \"mine\", .victim = victim"))).unwrap();
    assert_eq!(library.name(), "mine");
    let (mut own, mut theirs) = (drive(), drive());
    let installed = library.install("", &mut theirs).unwrap();
    assert_eq!(written(&mut own), written(&mut theirs));
    assert_eq!((own.stats().erases, installed.failure()), (theirs.stats().erases, None));
}

#[test]
fn what_others_decide_is_decided_by_them() {
    let folder = Folder::new("others");
    // Any block, drawn by the drive's generator; the block freed first; two streams by the unit's number.
    let functions = "static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {
            (void)s;
            for (;;) { size_t b = r->next(r->state) % p->blocks; if (p->valid[b] <= p->block_units) return (int64_t)b; } }
        static int64_t take(void *s, const uint32_t *f, size_t n, const uint32_t *e, int cold) {
            (void)s; (void)f; (void)n; (void)e; (void)cold; return 0; }
        static int64_t rotate(void *s, const struct weir_policy_plane *p, uint32_t target) {
            (void)s; (void)p; (void)target; return WEIR_POLICY_NONE; }
        static int64_t stream(void *s, uint32_t u, uint8_t hint, uint8_t n) { (void)s; (void)hint; return u % n; }
        static int64_t moved(void *s, uint32_t u, uint8_t from, uint8_t n) { (void)s; (void)u; (void)n; return from; }";
    let members = ".victim = victim, .take = take, .rotate = rotate, .stream = stream, .moved = moved";
    let library = PolicyLibrary::open(&folder.library("any", &source(functions, members))).unwrap();
    let (mut own, mut theirs, mut again) = (drive(), drive(), drive());
    library.install("", &mut theirs).unwrap();
    library.install("", &mut again).unwrap();
    let (greedy, any, repeated) = (written(&mut own), written(&mut theirs), written(&mut again));
    assert!(any > 1.1 * greedy, "any block amplifies more: {any} and {greedy}");
    assert_eq!(any, repeated, "the drive's seed decides");
}

#[test]
fn answers_that_are_no_place_are_the_drives_to_replace() {
    let folder = Folder::new("wild");
    let functions = "static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {
            (void)s; (void)r; return (int64_t)p->blocks + 7; }
        static int64_t take(void *s, const uint32_t *f, size_t n, const uint32_t *e, int cold) {
            (void)s; (void)f; (void)n; (void)e; (void)cold; return INT64_MAX; }
        static int64_t stream(void *s, uint32_t u, uint8_t hint, uint8_t n) { (void)s; (void)u; (void)hint; return n; }";
    let path = folder.library("wild", &source(functions, ".victim = victim, .take = take, .stream = stream"));
    let (mut own, mut theirs) = (drive(), drive());
    let installed = PolicyLibrary::open(&path).unwrap().install("", &mut theirs).unwrap();
    assert_eq!(written(&mut own), written(&mut theirs));
    assert_eq!(installed.failure(), None);
}

#[test]
fn a_state_is_made_of_the_arguments_and_ended() {
    let folder = Folder::new("state");
    let functions = format!(
        "{GREEDY}
        static void *create(const char *a, const struct weir_policy_drive *d, char *error, size_t size) {{
            if (*a != '/') {{ snprintf(error, size, \"%s is no path, of %u streams\", a, d->streams); return NULL; }}
            FILE *f = fopen(a, \"w\"); fprintf(f, \"%u %u %u\\n\", d->planes, d->blocks, d->block_units); return f; }}
        static void destroy(void *s) {{ fputs(\"ended\", s); fclose(s); }}"
    );
    let path = folder.library("state", &source(&functions, ".create = create, .destroy = destroy, .victim = victim"));
    let library = PolicyLibrary::open(&path).unwrap();
    let refused = library.install("x", &mut drive()).unwrap_err().to_string();
    assert_eq!(refused, format!("policy library {}: x is no path, of 1 streams", path.display()));
    let note = folder.0.join("note");
    let mut flash = drive();
    let (planes, blocks, units) =
        (flash.shape().planes(), flash.shape().blocks_per_plane(), flash.shape().units_per_block());
    let installed = library.install(&note.to_string_lossy(), &mut flash).unwrap();
    drop(flash);
    drop(installed);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), format!("{planes} {blocks} {units}\nended"));
}

#[test]
fn a_function_that_fails_is_not_asked_again() {
    let folder = Folder::new("fails");
    let functions = "static int64_t asked;
        static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {
            (void)s; (void)p; (void)r; if (++asked > 1) abort(); return WEIR_POLICY_FAILED; }";
    let path = folder.library("fails", &source(functions, ".victim = victim"));
    let (mut own, mut theirs) = (drive(), drive());
    let installed = PolicyLibrary::open(&path).unwrap().install("", &mut theirs).unwrap();
    assert_eq!(written(&mut own), written(&mut theirs), "the drive decides by itself");
    assert_eq!(installed.failure(), Some(format!("policy library {}: its victim() has failed", path.display())));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("refused");
    let refused = |path: &Path| PolicyLibrary::open(path).unwrap_err().to_string();
    let says = |path: &Path, what: &str| {
        let error = refused(path);
        assert!(error.starts_with(&format!("policy library {}: ", path.display())) && error.contains(what), "{error}");
    };
    says(Path::new("policy.so"), "not absolute");
    says(&folder.0.join("none.so"), "No such file");
    says(&folder.0, "it is no file");
    let text = folder.0.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    says(&text, "file too short");
    says(&folder.library("empty", "int other(void); int other(void) { return 0; }"), "no function weir_policy");
    says(&folder.library("null", "const struct weir_policy *weir_policy(void) { return NULL; }"), "answers with NULL");
    let of = |name: &str, version: &str, size: &str, members: &str| {
        let text = format!(
            "{GREEDY} static const struct weir_policy policy = {{ .version = {version}, .size = {size}, {members} }};\n\
             const struct weir_policy *weir_policy(void) {{ (void)victim; return &policy; }}\n\
             void *create(const char *a, const struct weir_policy_drive *d, char *e, size_t n) {{ (void)a; (void)d; (void)e; (void)n; return NULL; }}"
        );
        let before = "void *create(const char *a, const struct weir_policy_drive *d, char *e, size_t n);\n";
        folder.library(name, &format!("{before}{text}"))
    };
    let (version, size) = ("WEIR_POLICY_VERSION", "sizeof policy");
    says(&of("newer", "3", size, ".victim = victim"), "version 3 of weir_policy.h, this program has 2; build it again");
    says(&of("older", "1", size, ".victim = victim"), "version 1 of weir_policy.h, this program has 2; build it again");
    says(&of("short", version, "16", ".victim = victim"), "has 16 bytes, not");
    says(&of("nothing", version, size, ".name = \"x\""), "decides nothing");
    says(&of("half", version, size, ".victim = victim, .create = create"), "only one of create and destroy");
    let open = of("open", version, size, ".victim = victim");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    says(&open, "chmod o-w");
}

/// The test below, in a process of its own, dies there.
const DIES: &str = "WEIR_TEST_POLICY_DIES";

#[test]
fn a_process_that_dies_inside_says_where() {
    if let Some(path) = std::env::var_os(DIES) {
        let mut flash = drive();
        PolicyLibrary::open(Path::new(&path)).unwrap().install("", &mut flash).unwrap();
        written(&mut flash);
        return;
    }
    let folder = Folder::new("dies");
    for (name, death, signal) in
        [("aborts", "abort();", libc::SIGABRT), ("reads", "return *(volatile int64_t *)16;", libc::SIGSEGV)]
    {
        let functions = format!(
            "static int64_t victim(void *s, const struct weir_policy_plane *p, const struct weir_policy_random *r) {{
                (void)s; (void)p; (void)r; {death} }}"
        );
        let path = folder.library(name, &source(&functions, ".victim = victim"));
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "policy_library::tests::a_process_that_dies_inside_says_where", "--nocapture"]);
        let ended = again.env(DIES, &path).output().unwrap();
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(ended.status.signal(), Some(signal), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let wanted = format!("weir: the process dies inside the policy library {}, in its victim()\n", path.display());
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn the_example_spares_worn_blocks() {
    let folder = Folder::new("example");
    let path = folder.0.join("spare_the_worn.so");
    compile(&bindings().join("examples/spare_the_worn.c"), &path);
    let library = PolicyLibrary::open(&path).unwrap();
    let error = library.install("much", &mut drive()).unwrap_err().to_string();
    assert!(error.contains("policy_arguments is the weight of an erase, a number of 0 or more, not 'much'"), "{error}");
    let (mut greedy, mut spared) = (drive(), drive());
    library.install("0", &mut greedy).unwrap();
    library.install("4", &mut spared).unwrap();
    let (least, more) = (written(&mut greedy), written(&mut spared));
    assert!(more >= least, "sparing costs writes: {more} and {least}");
    let spread = |flash: &Flash| flash.wear().max - flash.wear().min;
    assert!(spread(&spared) < spread(&greedy), "{:?} and {:?}", spared.wear(), greedy.wear());
}

fn charged(op: Op, len: u32) -> ChargedCommand {
    ChargedCommand { tenant: 3, op, offset: 8192, len, fua: true, own: len.max(4096) }
}

#[test]
fn a_library_says_what_commands_cost() {
    let folder = Folder::new("cost");
    let functions = "static int64_t cost(void *s, const struct weir_policy_command *c) { (void)s;
        if (c->offset != 8192 || c->tenant != 3 || c->fua != 1 || c->reserved != 0) abort();
        switch (c->opcode) {
        case WEIR_POLICY_READ: return (int64_t)c->bytes + c->own;
        case WEIR_POLICY_WRITE: return WEIR_POLICY_NONE;
        case WEIR_POLICY_COMPARE: return (int64_t)WEIR_POLICY_COST_MAX + 1;
        case WEIR_POLICY_VERIFY: return WEIR_POLICY_COST_MAX;
        case WEIR_POLICY_WRITE_ZEROES: return INT64_MIN;
        case WEIR_POLICY_DEALLOCATE: return 0;
        case WEIR_POLICY_COPY: return WEIR_POLICY_FAILED;
        default: return c->opcode == WEIR_POLICY_FLUSH ? 7 : INT64_MAX;
        } }";
    let library = PolicyLibrary::open(&folder.library("costs", &source(functions, ".cost = cost"))).unwrap();
    let mut costs = library.cost_policy("", None).unwrap();
    let answers = [
        (Op::Read, Some(12_288)),
        (Op::Write, None),
        (Op::Compare, None),
        (Op::Verify, Some(COST_MAX)),
        (Op::WriteZeroes { deallocate: true }, None),
        (Op::Deallocate, Some(0)),
        (Op::Flush, Some(7)),
    ];
    for (op, wanted) in answers {
        assert_eq!(costs.cost(charged(op, 6144)), wanted, "{op:?}");
    }
    assert_eq!(costs.failure(), None);
    assert_eq!(costs.cost(charged(Op::Copy, 6144)), None);
    let why = costs.failure().unwrap();
    assert!(why.contains("costs.so: its cost() has failed"), "{why}");
    assert_eq!(costs.cost(charged(Op::Read, 6144)), None, "it is not asked again");
}

#[test]
fn a_library_is_refused_where_it_has_no_function_for_what_it_is_named_for() {
    let folder = Folder::new("elsewhere");
    let victim = PolicyLibrary::open(&folder.library("victim", &source(GREEDY, ".victim = victim"))).unwrap();
    let why = victim.cost_policy("", None).unwrap_err().to_string();
    assert!(why.contains("victim.so: it does not say what commands cost: cost is NULL"), "{why}");
    let functions = "static int64_t cost(void *s, const struct weir_policy_command *c) { (void)s; (void)c; return WEIR_POLICY_NONE; }";
    let costs = PolicyLibrary::open(&folder.library("costs", &source(functions, ".cost = cost"))).unwrap();
    let why = costs.install("", &mut drive()).unwrap_err().to_string();
    assert!(why.contains("costs.so: it decides nothing of flash") && why.contains("cost_library"), "{why}");
}

#[test]
fn the_example_makes_writes_dear() {
    let folder = Folder::new("dear");
    let path = folder.0.join("dear_writes.so");
    compile(&bindings().join("examples/dear_writes.c"), &path);
    let library = PolicyLibrary::open(&path).unwrap();
    let flash = drive();
    let error = library.cost_policy("much", Some(&flash)).unwrap_err().to_string();
    assert!(error.contains("cost_arguments is how dear writes are, a number from 1 to 64, not 'much'"), "{error}");
    let mut costs = library.cost_policy("2.5", Some(&flash)).unwrap();
    assert_eq!(costs.cost(charged(Op::Write, 8192)), Some(20_480));
    assert_eq!(costs.cost(charged(Op::Read, 8192)), None);
}
