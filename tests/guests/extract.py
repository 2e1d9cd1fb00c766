"""extract.py GUEST_DIR VMLINUZ OUT: the uncompressed kernel inside a bzImage (zstd), for QEMU's PVH boot."""

import struct
import subprocess
import sys

guest, image, out = sys.argv[1:]
data = open(image, "rb").read()
# The boot protocol's setup header: setup_sects at 0x1f1; payload_offset and payload_length at 0x248, relative to the
# protected-mode code that follows the setup sectors.
sectors = data[0x1F1] or 4
base = (sectors + 1) * 512
offset, length = struct.unpack_from("<II", data, 0x248)
payload = data[base + offset : base + offset + length]
# The kernel's build appends the uncompressed size to the payload.
payload = payload[:-4]
loader = f"{guest}/lib64/ld-linux-x86-64.so.2"
zstd = [loader, "--library-path", f"{guest}/lib/x86_64-linux-gnu", f"{guest}/usr/bin/zstd", "-dc"]
kernel = subprocess.run(zstd, input=payload, stdout=subprocess.PIPE, check=True).stdout
if kernel[:4] != b"\x7fELF":
    sys.exit(f"{image}: no kernel inside")
open(out, "wb").write(kernel)
