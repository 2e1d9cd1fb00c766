"""Victim policies of garbage collection against each other, one of them a Python function."""

import weir

DRIVE = {
    "kind": "flash",
    "capacity": "64MiB",
    "over_provisioning": 0.15,
    "channels": 2,
    "ways": 2,
    "planes": 1,
    "pages": 64,
    "page_size": "4KiB",
}
LOAD = {"device": DRIVE, "jobs": "rw=randwrite,qd=8,hot=80/20", "precondition": "steady", "requests": 40_000}


def spare_the_worn(plane):
    """Greedy, but a block that is more worn than others is spared for as many units as it has more erases."""
    score = plane.valid.astype(float) + plane.erases - plane.erases.min()
    return int(score.argmin())


def main():
    built_in = weir.sweep(**LOAD, over={"device.victim": ["greedy", "cost-benefit", "fifo"]})
    own = weir.sim(**LOAD, victim=spare_the_worn)
    amplification = {run.settings["device.victim"]: run.device["write_amplification"] for run in built_in}
    amplification["spare the worn"] = own.device["write_amplification"]
    for name, value in amplification.items():
        print(f"{name:16} {value:.2f}")
    return amplification


if __name__ == "__main__":
    main()
