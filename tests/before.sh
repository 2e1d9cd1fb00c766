#!/bin/bash
# before.sh: builds the program as it was before the newest change to what ships, for a live upgrade from it to the one under test
# (upgrade::from_the_program_before_the_last_change). `before/weir` in the target folder, or `before/none`, which says why there is none.
#
# Cheap, because only the crates that the change touched are compiled: the tree before it is laid over the repository in a mount namespace,
# with unchanged files as old as they are, together with a copy of the release build. cargo sees the same paths and the same times.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT"
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
W=$TARGET/before
SHIPPED=(Cargo.toml Cargo.lock spec core sys node sim cli)

git() { command git -c safe.directory='*' "$@"; }
none() {
  rm -rf "$W"
  mkdir -p "$W"
  echo "$1" | tee "$W/none"
  exit 0
}

git rev-parse -q --verify HEAD >/dev/null 2>&1 || none "this is no git repository: the program before the last change is not known"
if [ -n "$(git status --porcelain -- "${SHIPPED[@]}")" ]; then
  before=$(git rev-parse HEAD)
else
  last=$(git log -1 --format=%H -- "${SHIPPED[@]}")
  before=$(git rev-parse -q --verify "$last^1" 2>/dev/null) || none "the history of this clone does not reach back before $last, the last change to what ships"
fi
about="the program of commit $(git log -1 --format='%h (%s)' "$before")"
if [ -x "$W/weir" ] && [ "$(cat "$W/commit" 2>/dev/null)" = "$before" ]; then
  echo "$about is there"
  exit 0
fi

map=() && [ "$(id -u)" = 0 ] || map=(--map-root-user)
unshare "${map[@]}" --mount true 2>/dev/null || none "$about is built in a namespace of its own: run ./test as root, or allow user namespaces"
[ -d "$TARGET/release/deps" ] || { echo "before.sh: $TARGET has no release build; run: cargo build --release -p weir-cli" >&2; exit 1; }

echo "building $about"
rm -rf "$W"
mkdir -p "$W/tree" "$W/target/release"
trap 'rm -rf "$W/tree" "$W/target"' EXIT
# tar: times are kept, to the second below.
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -C "$W/tree" -xf -
git diff -z --name-only --no-renames --diff-filter=A "$before" | (cd "$W/tree" && xargs -0r rm -f --)
changed=$(git diff --name-only --no-renames --diff-filter=MDT "$before")
if [ -n "$changed" ]; then
  git diff -z --name-only --no-renames --diff-filter=MDT "$before" | xargs -0 git -c safe.directory='*' archive "$before" -- | tar -C "$W/tree" -xmif -
fi
# What the build needs of the one that is there; programs are not among it.
(cd "$TARGET/release" && find .fingerprint build deps -type f \( ! -path 'deps/*' -o -name '*.rlib' -o -name '*.rmeta' -o -name '*.d' -o -name '*.so' \) -print0 |
  xargs -0 cp -a --parents -t "$W/target/release")

case $TARGET/ in
  "$ROOT"/*) inside=${TARGET#"$ROOT"/} && mkdir -p "$W/tree/$inside" ;;
  *) inside="" ;;
esac
export ROOT TARGET W inside CARGO_TARGET_DIR=$TARGET
unshare "${map[@]}" --mount bash -euc '
  [ -z "$inside" ] || mount --bind "$W/target" "$W/tree/$inside"
  exec 3<"$W/target"
  mount --rbind "$W/tree" "$ROOT"
  [ -n "$inside" ] || mount --bind /proc/self/fd/3 "$TARGET"
  cd "$ROOT"
  cargo build --release --locked -p weir-cli
  cp "$TARGET/release/weir" "$TARGET/weir.built"' </dev/null
mv "$W/target/weir.built" "$W/weir"
echo "$before" >"$W/commit"
