//! Programs on a mount that take longer than a command: a tree of C that make builds, and fio while the node is upgraded under the mount.

use std::time::Duration;

use super::{Mount, bash, bash_in, setup, with_fuse_of, with_mount};
use crate::harness::{Env, Outcome, ensure};
use crate::node::Setup;

/// A tree of `$1` sources of C in folders of ten, with a header for each folder and one for all, and a makefile that follows what includes what.
/// Each source has a function that adds its number to what it is given.
const TREE: &str = r#"
mkdir tree; cd tree
printf '#define BASE 1\n' >all.h
calls=""; declared=""
for i in $(seq "$1"); do
  d=d$((i / 10)); mkdir -p $d
  printf '#include "../all.h"\n#define FOLDER %d\n' $((i / 10)) >$d/folder.h
  printf '#include "folder.h"\nint f%d(int x) { return x + %d + FOLDER - FOLDER + BASE - 1; }\n' $i $i >$d/f$i.c
  calls="$calls x = f$i(x);"; declared="$declared int f$i(int);"
done
printf '#include <stdio.h>\n%s\nint main(void) { int x = 0; %s printf("%%d\\n", x); return 0; }\n' "$declared" "$calls" >main.c
cat >Makefile <<'END'
.RECIPEPREFIX := >
SOURCES := main.c $(sort $(wildcard d*/*.c))
OBJECTS := $(SOURCES:.c=.o)
program: main.o libtree.a
>$(CC) -o $@ main.o -L. -ltree
libtree.a: $(filter-out main.o,$(OBJECTS))
>rm -f $@; $(AR) rcs $@ $^
%.o: %.c
>@echo built $<
>@$(CC) -O1 -MMD -c $< -o $@
-include $(OBJECTS:.o=.d)
END
make -s -j2 | grep -c built; ./program
make -q && echo up to date
sleep 1; touch d1/folder.h; make -s -j2 | grep -c built; ./program
sleep 1; printf '#define BASE 2\n' >all.h; make -s -j2 | grep -c built; ./program
cd ..; rm -r tree; ls -A
"#;

pub(super) fn make(env: &Env, sources: u64) -> Outcome {
    with_mount(env, &[], |_, mount| {
        let script = format!("set -- {sources}\n{TREE}");
        let said = bash_in(env, mount, &script, 300)?;
        let sum = sources * (sources + 1) / 2;
        // All sources and main.c; those of one folder; all but main.c, which does not have the header.
        let expected = format!("{}\n{sum}\nup to date\n10\n{sum}\n{sources}\n{}\n", sources + 1, sum + sources);
        ensure(said == expected, || format!("{said}, not {expected}"))
    })
}

/// Blocks are verified a moment after they were written, and all of them at the end.
const FIO: &str = "--size=16m --rw=randwrite --verify=crc32c --verify_fatal=1 --verify_backlog=64 --time_based --fallocate=none \
     --verify_state_save=0 --minimal --ioengine=psync";

/// Other programs take over the node, again and again, while fio writes and reads: it sees no error.
pub(super) fn upgrades(env: &Env, upgrades: u32) -> Outcome {
    let whole = setup().whole.replace("cores = [0]", "cores = [0]\nkeeper = true");
    with_fuse_of(env, &Setup { whole, ..Setup::default() }, |node| {
        let mount = Mount::start(env, &node, &["--class", "flash"])?;
        let seconds = 2 + 2 * u64::from(upgrades);
        let direct = format!("fio --name=direct --bs=4k-64k --direct=1 --runtime={seconds} {FIO} | cut -d';' -f5");
        let synced = format!("fio --name=synced --bs=16k --fsync=8 --runtime={seconds} {FIO} | cut -d';' -f5");
        let script = format!("cd '{}'; ({direct}) & ({synced}); wait; ls -A", mount.dir.display());
        let folder = env.folder()?;
        let said = std::thread::scope(|scope| {
            let fio = scope.spawn(|| bash(&folder, &script, 60 + 10 * seconds));
            let upgraded = (0..upgrades).try_for_each(|_| {
                std::thread::sleep(Duration::from_secs(1));
                node.cli_ok(&["upgrade", "--probation", "0s"]).map(drop)
            });
            let said = fio.join().map_err(|_| "fio's thread panicked".to_owned())?;
            upgraded.and(said)
        });
        let said = said.map_err(|e| format!("{e}\nmount:\n{}\n{}", mount.process.stderr(), node.log()))?;
        ensure(said == "0\n0\ndirect.0.0\nsynced.0.0\n", || format!("{said}\n{}", mount.process.stderr()))?;
        mount.end()
    })
}
