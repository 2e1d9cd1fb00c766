//! Commands find the node: by `--api`, by name, by `WEIR_API`, and by themselves where one runs. What `config --check` finds.
//!
//! Written as a page ([`crate::page`]), because `/run/weir` has to be the test's own.

use super::test;
use crate::harness::{Env, Outcome, Test};
use crate::page::{Needs, namespaces, try_text};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "finding";
    vec![
        test(S, "up_takes_every_form_of_an_address", |env| page(env, ADDRESSES)),
        test(S, "one_node_is_found_and_several_are_listed", |env| page(env, SEVERAL)),
        test(S, "a_killed_node_is_forgotten", |env| page(env, KILLED)),
        test(S, "config_check_looks_at_the_machine", |env| page(env, CHECK)),
        test(S, "errors_say_what_to_do", |env| page(env, WHAT_TO_DO)),
    ]
}

fn page(env: &Env, text: &str) -> Outcome {
    namespaces(env)?;
    try_text(env, "finding", text, &Needs::default())
}

const ADDRESSES: &str = r#"
```sh
weir up --api ./a.sock && weir shutdown --api unix:a.sock
weir up --api b.sock && weir shutdown --api $PWD/b.sock
weir up --api 127.0.0.1:9401
weir status --api http://127.0.0.1:9401/ | grep "^node n1 "
(weir shutdown --api 127.0.0.1:9401 2>&1 || true) | grep "over TCP nothing is changed without a token"
weir shutdown --api 127.0.0.1:9401       # exit status 1
kill $(weir status --api 127.0.0.1:9401 --json | grep -o '"pid": *[0-9]*' | grep -o '[0-9]*')
while weir status --api 127.0.0.1:9401 >status.out 2>&1; do sleep 0.05; done
WEIR_API=$PWD/c.sock weir up && WEIR_API=unix:$PWD/c.sock weir shutdown
echo >empty.toml
WEIR_API=$PWD/d.sock weir up -c empty.toml
[ -S d.sock ] && [ ! -e weir.sock ]
WEIR_API=$PWD/d.sock weir shutdown
printf '[node]\napi = "unix:own.sock"\n' >own.toml
WEIR_API=$PWD/elsewhere.sock weir up -c own.toml
[ -S own.sock ] && [ ! -e elsewhere.sock ]
weir shutdown --api own.sock
WEIR_API=elsewhere.sock weir up -c own.toml --api given.sock
[ -S given.sock ] && [ ! -e own.sock ] && [ ! -e elsewhere.sock ]
weir shutdown --api given.sock
weir up --node n2                        # exit status 2
weir up --api localhost:9401             # exit status 2
WEIR_API=localhost:9401 weir status      # exit status 2
WEIR_API= weir status                    # exit status 1
```
"#;

const SEVERAL: &str = r#"
```sh
mkdir a b c
printf '[node]\nname = "n1"\n' >a/weir.toml
printf '[node]\nname = "n2"\n[door.nvme-tcp]\nlisten = "127.0.0.1:4421"\n' >b/weir.toml
(umask 077 && echo 0123456789abcdef0123 >c/admin.token)
printf '[node]\nname = "n2"\napi = "127.0.0.1:9403"\n[api]\ntokens = [{ role = "admin", file = "admin.token" }]\n[door.nvme-tcp]\nlisten = "127.0.0.1:4422"\n' >c/weir.toml
weir status                              # exit status 1
weir up -c a/weir.toml
weir status | grep "^node n1 "
(cd / && weir tenant ls) | grep default
weir status --node n2                    # exit status 1
weir up -c b/weir.toml | grep "weir status --api unix:$PWD/b/weir.sock"
weir status                              # exit status 1
weir status 2>&1 | grep "^weir: 2 nodes run; name one by --node or --api$"   # exit status 1
weir status 2>&1 | grep "^weir: n1 .*unix:$PWD/a/weir.sock .*/a/weir.toml$"  # exit status 1
weir status --node n1 | grep "^node n1 "
weir status --node n2 | grep "^node n2 "
WEIR_API=$PWD/a/weir.sock weir status --node n2 | grep "^node n2 "
WEIR_API=$PWD/a/weir.sock weir status | grep "^node n1 "
weir up -c c/weir.toml
weir status --node n2 2>&1 | grep "^weir: 2 nodes run; they have one name: name one by --api$" # exit status 1
weir status --api 127.0.0.1:9403          # exit status 1
export WEIR_TOKEN_FILE=$PWD/c/admin.token
weir status --api 127.0.0.1:9403 | grep "^node n2 "
weir shutdown --api 127.0.0.1:9403
weir shutdown --node n2
weir status | grep "^node n1 "
weir shutdown
weir status                              # exit status 1
[ -z "$(ls /run/weir/nodes)" ]
```
"#;

const KILLED: &str = r#"
```sh
weir up
kill -KILL $(weir status --json | jq .pid) $(pgrep -f "weir (up|worker)" || true)
until ! weir status; do sleep 0.1; done
ls /run/weir/nodes | grep n1-
mkdir other
echo >other/weir.toml
weir up -c other/weir.toml
weir status | grep "^node n1 "
[ "$(ls /run/weir/nodes | wc -l)" = 1 ]
weir shutdown
```
"#;

const CHECK: &str = r#"
```sh
truncate -s 64MiB a.img
ln a.img hard.img
ln -s a.img soft.img
two() { printf '[[device]]\nmedia = "file:a.img"\n[[device]]\nmedia = "file:%s"\n' $1 >two.toml; weir config -c two.toml --check; }
two hard.img                             # exit status 1
two soft.img                             # exit status 1
two ../page/a.img                        # exit status 1
two a.img                                # exit status 1
two hard.img 2>&1 | grep '^weir: two.toml:3: device.ssd1.media: "file:.*/hard.img" is the medium of line 1 by another path; ' # exit status 1
two b.img
printf '[node]\ncores = [0, 4095]\n' >cores.toml
weir config -c cores.toml --check        # exit status 1
weir config -c cores.toml --check 2>&1 | grep '^weir: cores.toml:2: node.cores: this process cannot run on core 4095; ' # exit status 1
weir up -c cores.toml 2>&1 | grep '^weir: cores.toml:2: node.cores: ' # exit status 1
printf '[[device]]\nmedia = "file:a.img"\n[[volume]]\nname = "v"\nsize = "%s"\n' 63MiB >large.toml
weir config -c large.toml --check 2>&1 | grep '^weir: large.toml:5: volume.v.size: 63MiB is more than pool "pool0" has for volumes, 62MiB; ' # exit status 1
sed -i s/63MiB/62MiB/ large.toml
weir config -c large.toml --check
printf '[[volume]]\nname = "w"\nsize = "1MiB"\n' | cat large.toml - >two.toml
weir config -c two.toml --check 2>&1 | grep '^weir: two.toml:8: volume.w.size: with 62MiB for the volumes before it that is 63MiB, and pool "pool0" has 62MiB ' # exit status 1
weir up -c large.toml
weir shutdown
printf '[[device]]\nmedia = "file:none/a.img"\n' >folder.toml
weir config -c folder.toml --check | grep '^folder.toml: OK, 1 drive, 1 tenant, 1 export$'
weir config -c folder.toml --check | grep 'there is no folder .*/none here; make it before the node starts (mkdir -p '
weir config -c folder.toml --check --json | grep 'there is no folder'
mkdir none
[ "$(weir config -c folder.toml --check)" = 'folder.toml: OK, 1 drive, 1 tenant, 1 export' ]
```
"#;

const WHAT_TO_DO: &str = r#"
```sh
says() { (eval "$1" 2>&1 || true) | grep -F "$2"; }
says 'weir bench vhost-user:none.sock --time 100ms' '; `weir export ls` lists the sockets of a node that runs'
weir up
nqn=$(weir device ls --json | grep -o 'nqn[^"]*:ssd0' | head -n 1)
says 'weir bench "nvme-tcp://127.0.0.1:4420/$nqn?ns=2" --time 100ms' 'namespace 2 does not exist; leave ?ns= out'
says 'weir export rm none.sock' '/none.sock; there is /run/weir/gold.sock, /run/weir/silver.sock, '
says 'weir volume create v 1MiB --tenant gold' 'this node has no pool: write [[pool]] with '
weir shutdown
```
"#;
