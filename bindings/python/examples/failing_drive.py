"""A drive that loses its power and has blocks that cannot be read."""

import weir

with weir.Device("flash", capacity="64MiB", block_size=4096, power_cut=True, faults="media-error lba=8-15") as drive:
    drive.write(0, b"kept" * 1024, fua=True)
    drive.power_cut()
    assert drive.read(0, 4096) == b"kept" * 1024
    try:
        drive.read(8 * 4096, 4096)
    except weir.NvmeError as error:
        print(f"{error} after {drive.latency_ns} ns")
