"""A drive in this process."""

import threading

import pytest

import weir

BLOCK = 4096


def pattern(byte, blocks=1):
    return bytes([byte]) * (BLOCK * blocks)


def test_what_is_written_is_read():
    with weir.Device("flash", capacity="64MiB", block_size=BLOCK) as drive:
        assert (drive.capacity, drive.block_size) == (64 << 20, BLOCK)
        assert drive.read(0, BLOCK) == bytes(BLOCK)
        drive.write(BLOCK, pattern(1, 3))
        assert drive.read(2 * BLOCK, BLOCK) == pattern(1)
        drive.write_zeroes(2 * BLOCK, BLOCK)
        drive.trim(3 * BLOCK, BLOCK)
        assert drive.read(0, 5 * BLOCK) == bytes(BLOCK) + pattern(1) + bytes(3 * BLOCK)
        drive.flush()


def test_time_is_virtual():
    with weir.Device(capacity="16MiB", latency="80us") as drive:
        assert drive.now_ns == 0
        drive.read(0, 512)
        assert drive.latency_ns == 80_000
        before = drive.now_ns
        drive.advance(5_000_000_000)
        assert drive.now_ns == before + 5_000_000_000


def test_flash_takes_its_time_and_counts():
    with weir.Device("flash", capacity="64MiB", block_size=BLOCK) as drive:
        for block in range(64):
            drive.write(block * BLOCK, pattern(block), fua=True)
        drive.read(0, BLOCK)
        assert drive.latency_ns > 10_000
        assert drive.flash["page_programs"] > 0
    with weir.Device(capacity="1MiB") as plain:
        assert plain.flash is None


def test_wrong_places_and_statuses():
    with weir.Device(capacity="1MiB", block_size=BLOCK) as drive:
        with pytest.raises(ValueError, match="blocks of 4096 bytes"):
            drive.read(1, BLOCK)
        with pytest.raises(weir.NvmeError, match=r"^read of 4096 bytes at 1048576: .*\(SCT 0h, SC 80h") as raised:
            drive.read(1 << 20, BLOCK)
        assert raised.value.status == 0x080
        assert drive.command(0xFE).status == 0x001, "an opcode that there is not"
    with pytest.raises(ValueError, match="the drive is closed"):
        drive.read(0, BLOCK)
    with pytest.raises(weir.ConfigError, match="capacity"):
        weir.Device(capacity="1 parsec")


def test_identify_by_any_command():
    with weir.Device(capacity="1MiB", serial="PY1") as drive:
        identified = drive.command(0x06, cdw10=1, length=4096, admin=True, nsid=0)
        assert identified.status == 0 and identified.data[4:24].decode().strip() == "PY1"


def test_a_power_cut_takes_what_was_not_flushed():
    keys = {"capacity": "64MiB", "block_size": BLOCK, "buffer": "1MiB", "early_completion": True, "flush": "watermark"}
    with weir.Device("flash", power_cut=True, **keys) as drive:
        drive.write(0, pattern(1))
        drive.flush()
        drive.write(0, pattern(2))
        drive.write(BLOCK, pattern(3))
        assert drive.read(0, BLOCK) == pattern(2)
        cut = drive.power_cut()
        assert cut.lost_writes == 2 and cut.lost_units == 2 and cut.rebuild_s > 0
        assert drive.read(0, 2 * BLOCK) == pattern(1) + bytes(BLOCK)
        assert (cut.power_cycles, cut.unsafe_shutdowns) == (2, 1)
    with weir.Device("flash", **keys) as drive:
        with pytest.raises(weir.WeirError, match="power_cut = true"):
            drive.power_cut()


def test_zones():
    with weir.Device(capacity="16MiB", block_size=BLOCK, zoned={"zone_size": "1MiB", "zone_capacity": "512KiB"}) as drive:
        zones = drive.zones
        assert len(zones) == 16 and {zone.state for zone in zones} == {"empty"}
        assert zones[2].start == 2 << 20 and zones[2].capacity == 512 << 10
        assert [drive.append(1 << 20, pattern(n)) for n in (1, 2)] == [1 << 20, (1 << 20) + BLOCK]
        drive.write((1 << 20) + 2 * BLOCK, pattern(3))
        with pytest.raises(weir.NvmeError, match="(?i)invalid write"):
            drive.write((1 << 20) + 9 * BLOCK, pattern(4))
        assert drive.zones[1].write_pointer == (1 << 20) + 3 * BLOCK
        drive.zone("finish", 1 << 20)
        assert drive.zones[1].state == "full"
        drive.zone("reset", 1 << 20)
        assert drive.zones[1] == weir.Zone(1 << 20, 512 << 10, 1 << 20, "empty")
        with pytest.raises(ValueError, match="there is close, finish, open, reset, offline"):
            drive.zone("explode", 0)
    with weir.Device(capacity="1MiB") as plain, pytest.raises(weir.WeirError, match="no zones"):
        plain.zones


def test_faults_by_rule():
    with weir.Device(capacity="1MiB", block_size=BLOCK, faults="media-error lba=8-15") as drive:
        with pytest.raises(weir.NvmeError, match="(?i)unrecovered read error"):
            drive.read(8 * BLOCK, BLOCK)
        drive.read(16 * BLOCK, BLOCK)
        (number,) = drive.faults
        assert drive.remove_fault(number) and not drive.remove_fault(number)
        assert drive.read(8 * BLOCK, BLOCK) == bytes(BLOCK)
        drive.add_fault({"effect": "latency", "time": "5ms"})
        drive.read(0, BLOCK)
        assert drive.latency_ns >= 5_000_000
        with pytest.raises(ValueError, match="fault \"media-error lba=9000-9001\""):
            drive.add_fault("media-error lba=9000-9001")


def test_a_command_that_hangs_is_an_error_and_the_drive_goes_on():
    with weir.Device(capacity="1MiB", block_size=BLOCK) as drive:
        drive.write(0, pattern(1))
        number = drive.add_fault("hang")
        with pytest.raises(weir.WeirError, match="does not answer"):
            drive.read(0, BLOCK)
        drive.remove_fault(number)
        assert drive.read(0, BLOCK) == pattern(1)


def test_a_file_goes_on_where_it_was(tmp_path):
    keys = {"media": f"file:{tmp_path / 'ssd'}", "capacity": "16MiB", "block_size": BLOCK}
    with weir.Device(**keys) as drive:
        drive.write(0, pattern(7))
        drive.flush()
    with weir.Device(**keys) as drive:
        assert drive.read(0, BLOCK) == pattern(7)


def test_another_thread_is_refused():
    raised = []
    with weir.Device(capacity="1MiB") as drive:

        def use():
            try:
                drive.read(0, 512)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        drive.read(0, 512)
    assert len(raised) == 1
