"""A flash drive under two jobs."""

import weir

result = weir.sim(
    device={"kind": "flash", "capacity": "1GiB"},
    jobs=["name=db,rw=randrw:70,qd=32", "name=backup,rw=read,bs=128KiB"],
    precondition="steady",
    time="100ms",
    series="10ms",
)
p99_ns = result.jobs["db"].latency.p99
iops = result.jobs["db"].series["iops"]  # a numpy array, not copied
percentiles = result.jobs["db"].percentiles.to_polars()
amplification = result.device["write_amplification"]
table = result.to_pandas()  # a row for each job
