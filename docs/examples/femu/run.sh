#!/bin/bash
# A black-box SSD of FEMU, as its run scripts write it.
nchs=8
luns_per_ch=8
pg_rd_lat=40000

FEMU_OPTIONS="-device femu"
FEMU_OPTIONS=${FEMU_OPTIONS}",devsz_mb=12288"
FEMU_OPTIONS=${FEMU_OPTIONS}",femu_mode=1"
FEMU_OPTIONS=${FEMU_OPTIONS}",nchs=${nchs},luns_per_ch=${luns_per_ch}"
FEMU_OPTIONS=${FEMU_OPTIONS}",pg_rd_lat=${pg_rd_lat}"
FEMU_OPTIONS=${FEMU_OPTIONS}",gc_thres_pcent=75"

qemu-system-x86_64 -m 4G ${FEMU_OPTIONS} -nographic
