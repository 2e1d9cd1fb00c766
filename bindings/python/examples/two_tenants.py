"""How two tenants share a drive, over queue depths, as a data frame."""

import weir


def main():
    runs = weir.sweep(
        device={"capacity": "8GiB", "latency": "80us"},
        tenants=[{"name": "gold", "class": "high"}, {"name": "tin", "class": "low"}],
        jobs=["tenant=gold,qd=128", "tenant=tin,rw=write,bs=64KiB,qd=128"],
        time="50ms",
        over={"device.arbitration": ["rr", "drr"], "device.slots": [16, 64]},
    )
    share = [run.jobs["gold"].bandwidth_bytes_per_s / run.total.bandwidth_bytes_per_s for run in runs]
    table = runs.to_polars().select("device.arbitration", "device.slots", "iops", "p99_ns")
    print(table.with_columns(gold=share))
    return dict(zip(((run.settings["device.arbitration"], run.settings["device.slots"]) for run in runs), share))


if __name__ == "__main__":
    main()
