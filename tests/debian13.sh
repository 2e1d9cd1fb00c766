#!/bin/bash
# debian13.sh: the two commands of the README in a clean Debian 13, with nothing but its own packages (its rustc is the oldest that
# is supported). Clones the committed state of this checkout into a fresh debootstrap root, lets ./weir install and build, starts
# a node, asks it, measures it, ends it. Five to fifteen minutes and 600 MB received; the bare root is kept in
# ~/.cache/weir/debian13 for the next time. Needs root. Mounts and processes live in namespaces of their own and end with the script.
set -euo pipefail

ROOT=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "tests/debian13.sh: $*" >&2; exit 1; }

inside() { # in the clean root, as its only process tree
  cd /src/weir
  local log=/tmp/up.log node took tool begun=$SECONDS
  for tool in cargo git cc; do
    if command -v "$tool" >/dev/null; then fail "this root is not clean: it has $tool"; fi
  done
  local listen=()
  # The network is the machine's: leave a node that serves there alone.
  (: </dev/tcp/127.0.0.1/4420) 2>/dev/null && listen=(--listen 127.0.0.1:0)
  ./weir up "${listen[@]}" >"$log" 2>&1 &
  node=$!
  until grep -q 'is serving' "$log"; do
    kill -0 "$node" 2>/dev/null || { cat "$log"; fail "./weir up ended"; }
    [ $((SECONDS - begun)) -lt 2400 ] || { tail -n 40 "$log"; fail "./weir up is not serving after 40 minutes"; }
    sleep 1
  done
  echo "installed, built and serving after $((SECONDS - begun)) s with $(rustc --version)"
  sed -n '/is serving/,$p' "$log"
  [ -z "$(git status --porcelain)" ] || fail "the build changed the checkout: $(git status --porcelain)"
  ./weir status
  ./weir tenant ls --json | grep -q '"name": "silver"' || fail "no tenant silver"
  ./weir tenant set silver --weight 2
  local target
  target=$(sed -n "s/.* bench '\?\(nvme-tcp:[^ ']*\).*/\1/p" "$log" | head -n 1)
  [ -n "$target" ] || fail "./weir up did not say how to measure"
  ./weir bench "$target" --rw randrw --bs 4KiB --qd 8 --time 1s --verify crc32c
  ./weir bench vhost-user:/run/weir/gold.sock --rw randread --bs 4KiB --qd 8 --time 1s
  took=$(date +%s%N)
  ./weir status --json >/dev/null
  took=$((($(date +%s%N) - took) / 1000000))
  echo "a later start of ./weir takes $took ms"
  [ "$took" -lt 1000 ] || fail "a later start of ./weir takes $took ms"
  ./weir shutdown
  wait "$node" || { tail -n 40 "$log"; fail "./weir up ended with status $?"; }
  echo "debian 13: ok"
}

if [ "${1:-}" = --inside ]; then
  inside
  exit
fi

[ "$(id -u)" = 0 ] || fail "needs root to make a root of its own; run:  sudo tests/debian13.sh"
for tool in debootstrap unshare chroot git; do
  command -v "$tool" >/dev/null && continue
  echo "tests/debian13.sh: $tool is missing: installing debootstrap util-linux coreutils git" >&2
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends debootstrap util-linux coreutils git </dev/null >&2 ||
    fail "apt failed; run:  apt-get update && apt-get install -y debootstrap git"
done

BASE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weir/debian13
if [ ! -e "$BASE/.complete" ]; then
  # The mirrors are the host's own, whatever they are.
  [ -n "$(apt-get indextargets --format '$(SITE)' 2>/dev/null)" ] || apt-get -qq update
  site() { apt-get indextargets --format '$(SITE)' | sort -u | grep "$1" | head -n 1; }
  mirror=${MIRROR:-$(site '/debian/*$')} || fail "no Debian mirror in apt's configuration; set MIRROR"
  security=${SECURITY:-$(site '/debian-security/*$' || true)}
  rm -rf "$BASE"
  mkdir -p "$BASE"
  echo "a bare Debian 13"
  debootstrap --variant=minbase trixie "$BASE" "$mirror" >"$BASE.log" 2>&1 || { tail "$BASE.log"; fail "debootstrap failed"; }
  {
    printf 'deb %s %s main\n' "$mirror" trixie "$mirror" trixie-updates
    [ -z "$security" ] || echo "deb $security trixie-security main"
  } >"$BASE/etc/apt/sources.list"
  printf 'Acquire::Languages "none";\nAPT::Sandbox::User "root";\n' >"$BASE/etc/apt/apt.conf.d/90test"
  echo force-unsafe-io >"$BASE/etc/dpkg/dpkg.cfg.d/unsafe"
  printf '#!/bin/sh\nexit 101\n' >"$BASE/usr/sbin/policy-rc.d"
  chmod +x "$BASE/usr/sbin/policy-rc.d"
  rm -f "$BASE"/var/cache/apt/archives/*.deb
  touch "$BASE/.complete"
fi

WORK=$(mktemp -d "${TMPDIR:-/tmp}/weir-debian13.XXXXXX")
trap 'rm -rf --one-file-system "$WORK"' EXIT
cp -a --reflink=auto "$BASE" "$WORK/root"
cp /etc/resolv.conf "$WORK/root/etc/resolv.conf"
[ -z "$(git -c safe.directory='*' -C "$ROOT" status --porcelain)" ] ||
  echo "tests/debian13.sh: uncommitted changes are not in this test" >&2
git -c safe.directory='*' clone -q --no-hardlinks "$ROOT" "$WORK/root/src/weir"
# Extra certificates that this machine's registries need, where an administrator has put some.
for file in "${SSL_CERT_FILE:-}" "${CARGO_HTTP_CAINFO:-}"; do
  [ -z "$file" ] || [ ! -r "$file" ] || install -D "$file" "$WORK/root$file"
done
unshare --mount --pid --fork --kill-child --propagation private bash -c '
  mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && mount -t tmpfs tmpfs "$1/run" || exit 1
  exec chroot "$1" /usr/bin/env -u CARGO_TARGET_DIR -u CARGO_HOME -u RUSTUP_HOME -u XDG_CACHE_HOME -u SUDO_USER HOME=/root \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    bash /src/weir/tests/debian13.sh --inside
' debian13 "$WORK/root"
