#!/bin/bash
# setup.sh: builds a folder for Linux guests under QEMU ($GUEST_DIR, default ~/.cache/weir/guest) from Debian packages alone:
# QEMU >= 10.1 (vfio-user client, libblkio block driver), a cloud kernel, fio, nvme-cli, smartmontools, e2fsprogs. About 90 s, 150 MB received,
# 750 MB on disk. Returns at once when the folder is complete and was built by these scripts.
# Runs on Debian 12 and 13, as root or with sudo; says which command to give where it has neither.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
G=${GUEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/weir/guest}
STAMP=$(cat "$HERE"/{setup.sh,extract.py,init,mkinitramfs.sh,qemu} | sha256sum | cut -d' ' -f1)

complete() {
  [ "$(cat "$G/stamp" 2>/dev/null)" = "$STAMP" ] && [ -s "$G/boot/vmlinux" ] && [ -s "$G/boot/initramfs.cpio" ] &&
    [ -x "$G/host/qemu" ] && [ -x "$G/usr/bin/qemu-system-x86_64" ]
}
complete && exit 0

fail() { echo "tests/guests/setup.sh: $*" >&2; exit 1; }
command -v apt-get >/dev/null || fail "needs Debian's apt-get to build the guest"
[ "$(uname -m)" = x86_64 ] || fail "builds x86-64 guests only; this is $(uname -m)"
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || fail "debootstrap and chroot want root; run: su -c 'GUEST_DIR=$G $HERE/setup.sh'"
  echo "tests/guests/setup.sh: builds $G with sudo (debootstrap and chroot want root)" >&2
  mkdir -p "$G"
  exec sudo GUEST_DIR="$G" ${MIRROR:+MIRROR="$MIRROR"} ${SECURITY:+SECURITY="$SECURITY"} "$HERE/setup.sh"
fi

mkdir -p "$G"
exec 9>"$G.lock"
flock 9
complete && exit 0
rm -f "$G/stamp"

export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 GUEST_DIR=$G G
t0=$SECONDS
say() { echo "guest: [$((SECONDS - t0)) s] $*"; }
# Runs a command quietly; its output is shown when it fails.
quietly() {
  local log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; fail "failed: $*"; }
  rm -f "$log"
}

# What the host itself lacks.
missing=()
for pair in debootstrap:debootstrap python3:python3 xz:xz-utils sha256sum:coreutils; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
quietly apt-get -qq update
if [ ${#missing[@]} != 0 ]; then
  say "installs ${missing[*]}"
  quietly apt-get -qq -y install --no-install-recommends "${missing[@]}"
fi

# The mirrors are the host's own, whatever they are.
site() { apt-get indextargets --format '$(SITE)' | sort -u | grep "$1" | head -1; }
MIRROR=${MIRROR:-$(site '/debian/\?$' || true)}
SECURITY=${SECURITY:-$(site '/debian-security/\?$' || true)}
[ -n "$MIRROR" ] || fail "apt knows no Debian mirror; run: MIRROR=http://…/debian $HERE/setup.sh"

# A folder that an interrupted debootstrap left behind is of no use.
[ ! -d "$G/debootstrap" ] || rm -rf "${G:?}"/*
[ -x "$G/usr/bin/apt-get" ] || quietly debootstrap --variant=minbase trixie "$G" "$MIRROR"
say "debootstrap of trixie"
{
  for s in trixie trixie-updates trixie-backports; do echo "deb $MIRROR $s main"; done
  [ -z "$SECURITY" ] || echo "deb $SECURITY trixie-security main"
} >"$G/etc/apt/sources.list"
cp /etc/resolv.conf "$G/etc/resolv.conf"
echo force-unsafe-io >"$G/etc/dpkg/dpkg.cfg.d/unsafe"
{
  printf 'Acquire::Languages "none";\nAPT::Sandbox::User "root";\nAPT::Install-Recommends "0";\n'
  apt-config dump Acquire::http::Proxy
  apt-config dump Acquire::https::Proxy
} >"$G/etc/apt/apt.conf.d/90guest"
printf '#!/bin/sh\nexit 101\n' >"$G/usr/sbin/policy-rc.d"
chmod +x "$G/usr/sbin/policy-rc.d"
ch() { chroot "$G" "$@"; }
quietly ch apt-get -qq update
quietly ch apt-get -qq -y install -t trixie-backports qemu-system-x86 qemu-utils qemu-block-extra
say "$(ch qemu-system-x86_64 --version | head -1)"
quietly ch apt-get -qq -y install nvme-cli smartmontools fio busybox-static kmod zstd e2fsprogs util-linux zonefs-tools
say "nvme-cli, smartmontools, fio, e2fsprogs, zonefs-tools"

K=$(ch apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/{print $2}' | head -1)
rm -rf "$G/kern"
mkdir -p "$G/kern/root" "$G/build" "$G/boot" "$G/host"
quietly ch sh -c "cd /kern && apt-get -qq download $K"
(cd "$G/kern" && dpkg-deb -x ./"$K"*.deb root && rm ./*.deb)
ch depmod -b /kern/root/usr "$(basename "$G"/kern/root/usr/lib/modules/*)"
cp -f "$HERE/init" "$HERE/mkinitramfs.sh" "$G/build/"
cp -f "$HERE/qemu" "$G/host/"
for p in qemu-storage-daemon qemu-img qemu-io qemu-nbd; do ln -sf qemu "$G/host/$p"; done
"$G/host/qemu-img" --version >/dev/null || fail "the guest folder's QEMU does not run on this host"
# The host's own zstd may be missing: the folder's runs through its own loader, as QEMU does.
"$G/lib64/ld-linux-x86-64.so.2" --library-path "$G/lib/x86_64-linux-gnu" "$G/usr/bin/zstd" --version >/dev/null
python3 "$HERE/extract.py" "$G" "$G"/kern/root/boot/vmlinuz-* "$G/boot/vmlinux"
say "kernel $K"
quietly "$G/build/mkinitramfs.sh" "$G/boot/initramfs.cpio"
rm -f "$G"/var/cache/apt/archives/*.deb
chmod -R a+rX "$G/boot" "$G/host" "$G/build"
echo "$STAMP" >"$G/stamp"
say "done: $(du -shx "$G" | cut -f1) in $G"
