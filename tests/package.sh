#!/bin/bash
# package.sh KIND ROOT FOLDER: installs and uses packages of FOLDER in a clean root, as root, in namespaces of its own; nothing of it stays.
#   deb   ROOT is a Debian system, or the name of a release, whose bare system is kept in ~/.cache/weir; it is not changed. The package
#         weir is installed, used, upgraded over itself under load, removed, purged
#   lib   the same for libweir0 and libweir-dev; FOLDER has a program "mixed" that is linked against libweir
#   tree  ROOT is a folder with an unpacked tarball or image and nothing else; FOLDER has the command line in "command", a word a line
set -Eeuo pipefail

say() { echo "package: $*"; }
fail() { echo "tests/package.sh: $*" >&2; exit 1; }
kind=$1
trap 'echo "tests/package.sh: line $LINENO: $BASH_COMMAND" >&2' ERR

# wait_for FILE TEXT PID: until a node has printed it.
wait_for() {
  local begun=$SECONDS
  until grep -qs "$2" "$1"; do
    kill -0 "$3" 2>/dev/null || { cat "$1" >&2; fail "the node ended"; }
    [ $((SECONDS - begun)) -lt 30 ] || { cat "$1" >&2; fail "no '$2' within 30 s"; }
    sleep 0.05
  done
}

# processes NAME: the ids of the processes that ps shows so.
processes() {
  local comm
  for comm in /proc/[0-9]*/comm; do
    [ "$(cat "$comm" 2>/dev/null)" != "$1" ] || basename "$(dirname "$comm")"
  done
}

# Everything but what dpkg itself keeps.
listing() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o \
    ! -path '/etc/*-' ! -path /etc/ld.so.cache ! -name '.pwd.lock' -print | sort
}

# systemctl as the maintainer scripts need it: a reload runs the unit's ExecReload as its user.
put_systemctl() {
  mkdir -p /run/systemd/system
  cat >/usr/local/bin/systemctl <<'END'
#!/bin/bash
echo "$*" >>/tmp/systemctl.log
if [ "$1" = reload ]; then
  unit=/usr/lib/systemd/system/$2
  user=$(sed -n 's/^User=//p' "$unit") reload=$(sed -n 's/^ExecReload=//p' "$unit")
  # shellcheck disable=SC2086
  exec setpriv --reuid "$user" --regid "$user" --init-groups $reload
fi
END
  chmod +x /usr/local/bin/systemctl
}

start_node() {
  install -d -o weir -g weir /run/weir
  # As the unit says.
  (cd /var/lib/weir && exec env XDG_RUNTIME_DIR="$(sed -n 's/^Environment=XDG_RUNTIME_DIR=//p' /usr/lib/systemd/system/weir.service)" \
    setpriv --reuid weir --regid weir --init-groups /usr/bin/weir up -c /etc/weir/weir.toml) >/tmp/up.log 2>&1 &
  node=$!
  wait_for /tmp/up.log 'is serving' "$node"
}

in_place() {
  weir --version
  gzip -dc /usr/share/man/man1/weir.1.gz | grep -c '^\.TH WEIR 1' >/dev/null
  bash -c '. /usr/share/bash-completion/completions/weir && complete -p weir' >/dev/null
  [ -s /usr/share/zsh/vendor-completions/_weir ] && [ -s /usr/share/fish/vendor_completions.d/weir.fish ]
  grep -q '^Files: serde-' /usr/share/doc/weir/copyright
  [ "$(stat -c '%U:%G %a' /var/lib/weir)" = "weir:weir 750" ] || fail "/var/lib/weir is $(stat -c '%U:%G %a' /var/lib/weir)"
  weir config -c /etc/weir/weir.toml --check
  [ ! -e /etc/systemd/system/multi-user.target.wants/weir.service ] || fail "the service is enabled"
  [ -z "$(processes weir-keeper)$(processes weir-worker)" ] || fail "the installation started a node"
  [ -z "$(dpkg --verify weir)" ] || fail "dpkg --verify: $(dpkg --verify weir)"
  say "in place"
}

used() {
  local target
  start_node
  weir status | grep -c 'api unix:/run/weir/weir.sock' >/dev/null || fail "weir status does not find the node: $(weir status 2>&1)"
  target=$(sed -n "s/.* bench '\?\(nvme-tcp:[^ ']*\).*/\1/p" /tmp/up.log | head -n 1)
  [ -n "$target" ] || { cat /tmp/up.log >&2; fail "weir up did not say how to measure"; }
  weir bench "$target" --rw randrw --bs 4KiB --qd 8 --time 500ms --verify crc32c >/dev/null
  say "a node as the user weir serves what is measured and verified"
  # The same package over itself, as apt does it with a newer one: I/O goes on.
  put_systemctl
  echo '# mine' >>/etc/weir/weir.toml
  local before after bench dpkg
  before=$(processes weir-worker)
  weir bench "$target" --rw randrw --bs 4KiB --qd 8 --time 12s --verify crc32c >/tmp/bench.log 2>&1 &
  bench=$!
  sleep 0.5
  dpkg -i /packages/weir_*.deb >/tmp/dpkg.log 2>&1 &
  dpkg=$!
  wait_for /tmp/up.log 'the new program serves' "$dpkg"
  kill -0 "$bench" || { cat /tmp/bench.log >&2; fail "the load ended before the new program served"; }
  # The new program is on probation for ten seconds.
  wait "$dpkg" || { cat /tmp/dpkg.log >&2; fail "the upgrade failed"; }
  grep -qx 'reload weir.service' /tmp/systemctl.log || fail "the upgrade did not reload the service: $(cat /tmp/systemctl.log)"
  ! grep -q 'still runs the old program' /tmp/dpkg.log || { cat /tmp/dpkg.log /tmp/up.log >&2; fail "the node was not upgraded"; }
  wait "$bench" || { cat /tmp/bench.log /tmp/up.log >&2; fail "the upgrade was seen by the load"; }
  after=$(processes weir-worker)
  [ -n "$before" ] && [ "$before" != "$after" ] || fail "the worker is the same one: $before, $after"
  kill -0 "$node" || fail "the node ended"
  grep -qx '# mine' /etc/weir/weir.toml || fail "the upgrade lost a change of weir.toml"
  say "upgraded over itself under load"
  weir shutdown --api unix:/run/weir/weir.sock
  wait "$node" || { cat /tmp/up.log >&2; fail "weir up ended with status $?"; }
}

deb() {
  local stays
  listing >/tmp/before
  cp /etc/passwd /tmp/passwd
  dpkg -i /packages/weir_*.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; fail "the installation failed"; }
  in_place
  used
  : >/tmp/systemctl.log
  dpkg --remove weir >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; fail "the removal failed"; }
  grep -qx 'stop weir.service' /tmp/systemctl.log || fail "the removal stopped no service"
  [ -e /etc/weir/weir.toml ] && [ ! -e /usr/bin/weir ] || fail "a removal leaves the configuration and no program"
  dpkg --purge weir >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; fail "the purge failed"; }
  rm -r /usr/local/bin/systemctl /run/systemd
  stays=$(listing | diff /tmp/before - || true)
  [ -z "$stays" ] || fail "a purge leaves: $stays"
  cmp -s /etc/passwd /tmp/passwd || fail "a purge leaves the user"
  say "purged, nothing is left"
  dpkg -i /packages/weir_*.deb >/tmp/dpkg.log 2>&1
  touch /var/lib/weir/ssd0.img
  dpkg --purge weir >/tmp/dpkg.log 2>&1
  [ -e /var/lib/weir/ssd0.img ] && getent passwd weir >/dev/null || fail "a purge took a drive or its owner"
  grep -q '/var/lib/weir is not empty and stays' /tmp/dpkg.log || fail "a purge does not say that a drive stays"
  say "a drive outlives a purge"
}

lib() {
  listing >/tmp/before
  dpkg -i /packages/libweir0_*.deb /packages/libweir-dev_*.deb >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log >&2; fail "the installation failed"; }
  [ -z "$(dpkg --verify libweir0)$(dpkg --verify libweir-dev)" ] || fail "dpkg --verify"
  ldconfig -p | grep -c 'libweir.so.0 .*/lib/x86_64-linux-gnu/libweir.so.0' >/dev/null || fail "the loader does not know libweir.so.0"
  /packages/mixed local:ram 1 8 4096
  dpkg --purge libweir-dev libweir0 >/tmp/dpkg.log 2>&1
  [ -z "$(listing | diff /tmp/before - || true)" ] || fail "a purge leaves: $(listing | diff /tmp/before -)"
  say "libweir was loaded, and is gone"
}

# Of the host's programs none is in the root: each command is a chroot of its own.
tree() {
  local root=$2 command node target
  mapfile -t command <"$3/command"
  mkdir -p "$root"/{proc,run/weir,tmp,etc/weir}
  mount -t proc proc "$root/proc"
  [ ! -e "$root/share/weir/weir.toml" ] || cp "$root/share/weir/weir.toml" "$root/etc/weir/weir.toml"
  chroot "$root" "${command[0]}" --version
  chroot "$root" "${command[@]}" >"$3/up.log" 2>&1 &
  node=$!
  wait_for "$3/up.log" 'is serving' "$node"
  chroot "$root" "${command[0]}" status --api unix:/run/weir/weir.sock >/dev/null
  target=$(sed -n "s/.* bench '\?\(nvme-tcp:[^ ']*\).*/\1/p" "$3/up.log" | head -n 1)
  [ -n "$target" ] || { cat "$3/up.log" >&2; fail "weir up did not say how to measure"; }
  chroot "$root" "${command[0]}" bench "${target/0.0.0.0/127.0.0.1}" --rw randrw --bs 4KiB --qd 8 --time 500ms --verify crc32c >/dev/null
  chroot "$root" "${command[0]}" shutdown --api unix:/run/weir/weir.sock
  wait "$node" || { cat "$3/up.log" >&2; fail "weir up ended with status $?"; }
  say "served, measured and ended in a root of its own"
}

# bare RELEASE: a bare Debian system, made once; its path.
bare() {
  local place mirror
  place=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weir/bare-$1
  mkdir -p "$(dirname "$place")"
  exec 8>"$place.lock"
  flock 8
  if [ ! -e "$place/.complete" ]; then
    command -v debootstrap >/dev/null || fail "debootstrap is missing; run:  apt-get install -y debootstrap"
    # The mirrors are the host's own, whatever they are.
    mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' | sort -u | grep '/debian/*$' | head -n 1)}
    rm -rf "$place"
    debootstrap --variant=minbase "$1" "$place" "$mirror" >"$place.log" 2>&1 || { tail "$place.log" >&2; fail "debootstrap failed"; }
    echo force-unsafe-io >"$place/etc/dpkg/dpkg.cfg.d/unsafe"
    touch "$place/.complete"
  fi
  exec 8>&-
  echo "$place"
}

case $kind in
  --inside)
    "$2"
    exit
    ;;
  --mounted)
    shift
    ip link set lo up
    if [ "$1" = tree ]; then
      tree "$@"
      exit
    fi
    root=$(mktemp -d)
    # In memory: the overlay's upper folder may not lie on another overlay.
    mount -t tmpfs tmpfs "$root"
    mkdir "$root"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$root/upper,workdir=$root/work" "$root/root"
    mkdir -p "$root/root/packages" "$root/root/tests"
    mount --bind "$3" "$root/root/packages"
    mount -t proc proc "$root/root/proc"
    mount --rbind /dev "$root/root/dev"
    mount -t tmpfs tmpfs "$root/root/tmp"
    mount -t tmpfs tmpfs "$root/root/run"
    cp "$(readlink -f "$0")" "$root/root/tests/package.sh"
    exec chroot "$root/root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      bash /tests/package.sh --inside "$1"
    ;;
  deb | lib | tree)
    [ "$(id -u)" = 0 ] || fail "needs root for a root of its own"
    root=$2
    case $root in /*) ;; *) root=$(bare "$root") ;; esac
    set -- "$1" "$root" "$3"
    exec unshare --mount --pid --net --fork --kill-child --propagation private bash "$(readlink -f "$0")" --mounted "$@"
    ;;
  *) fail "usage: tests/package.sh deb|lib|tree ROOT FOLDER" ;;
esac
