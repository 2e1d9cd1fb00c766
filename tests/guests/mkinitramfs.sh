#!/bin/bash
# mkinitramfs.sh OUT.cpio : uncompressed initramfs: busybox, fio, nvme, smartctl, e2fsprogs with their libraries, modules
set -euo pipefail
: "${G:?}"; OUT=$1
MODS=${MODS:-"virtio_blk virtio_net nvme_tcp loop zonefs"}
R=$(mktemp -d -p $G/tmp); chmod 755 $R; trap 'rm -rf "$R"' EXIT
mkdir -p $R/{bin,sbin,dev,proc,sys,tmp,t,etc,root,run,lib,lib64,usr/lib,usr/share}
ln -s ../bin $R/usr/bin; ln -s ../sbin $R/usr/sbin
cp $G/usr/bin/busybox $R/bin/busybox
for a in $($R/bin/busybox --list); do [ $a = busybox ] || ln -s busybox $R/bin/$a; done
rm -f $R/bin/modprobe; ln -s busybox $R/bin/modprobe; ln -s ../bin/busybox $R/sbin/modprobe
# dynamic programs with their libraries
addprog() { # path in chroot
  cp -L $G$1 $R$2
  chroot $G ldd $1 | awk '/=> \//{print $3} /^\t\/lib64/{print $1}' | while read l; do
    mkdir -p $R$(dirname $l); [ -e $R$l ] || cp -L $G$l $R$l; done; }
addprog /usr/sbin/nvme /bin/nvme
addprog /usr/sbin/smartctl /bin/smartctl
addprog /usr/bin/fio /bin/fio # 62 libraries, 56 MB
addprog /usr/sbin/mkzonefs /bin/mkzonefs
for p in mke2fs e2fsck; do rm -f $R/bin/$p; addprog /usr/sbin/$p /bin/$p; done; ln -sf mke2fs $R/bin/mkfs.ext4
echo nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555 > $R/etc/hostnqn_
mkdir -p $R/etc/nvme; mv $R/etc/hostnqn_ $R/etc/nvme/hostnqn; echo 11111111-2222-3333-4444-555555555555 > $R/etc/nvme/hostid
echo root:x:0:0:root:/root:/bin/sh > $R/etc/passwd; echo root:x:0: > $R/etc/group
KV=$(basename $G/kern/root/usr/lib/modules/*); M=$G/kern/root/usr/lib/modules/$KV
mkdir -p $R/lib/modules/$KV
for m in $MODS; do chroot $G modprobe -d /kern/root/usr -S $KV --show-depends $m; done | awk '/^insmod/{print $2}' | sort -u |
while read f; do f=${f#/kern/root/usr/lib/modules/$KV/}; mkdir -p $R/lib/modules/$KV/$(dirname $f)
  case $f in *.xz) xz -dc $M/$f > $R/lib/modules/$KV/${f%.xz};; *) cp $M/$f $R/lib/modules/$KV/$f;; esac; done
cp $M/modules.builtin $M/modules.order $R/lib/modules/$KV/
chroot $G depmod -b ${R#$G} $KV
install -m755 $G/build/init $R/init
mkdir -p $R/etc; : > $R/etc/mdev.conf
find $R -print0 | xargs -0 touch -h -d @0
(cd $R && find . | LC_ALL=C sort | $G/usr/bin/busybox cpio -o -H newc -R 0:0 2>/dev/null) > $OUT
ls -la $OUT
