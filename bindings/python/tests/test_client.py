"""The client for the API, against a node."""

import os
import signal
import socket
import subprocess
import time

import pytest

import weir

CONFIG = """\
[node]
name = "py"
keeper = false
faults = true
api = ["unix:api.sock", "127.0.0.1:API"]
[api]
tokens = [{ role = "read", file = "read.token" }, { role = "operate", file = "operate.token" }]
[door.nvme-tcp]
listen = ["127.0.0.1:PORT"]
[[tenant]]
name = "gold"
class = "medium"
[[device]]
name = "ssd0"
capacity = "16MiB"
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("node")
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, api_port = free.getsockname()[1], other.getsockname()[1]
    (folder / "weir.toml").write_text(CONFIG.replace("PORT", str(port)).replace("API", str(api_port)))
    for role in ("read", "operate"):
        token = folder / f"{role}.token"
        token.write_text(f"the-token-of-those-who-{role}\n")
        token.chmod(0o600)
    api = folder / "api.sock"
    with open(folder / "log", "w") as log:
        command = [program, "up", "-c", "weir.toml"]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
        client = weir.Client(api)
        for _ in range(600):
            try:
                client.status()
                break
            except weir.WeirError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        client.tcp, client.folder = f"127.0.0.1:{api_port}", folder
        yield client
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_reads(node):
    assert {"devices", "tenants"} <= node.status().keys()
    assert node.device("ssd0")["capacity_bytes"] == 16 << 20
    assert node.tenant("gold")["class"] == "medium"
    assert [device["name"] for device in node.get("/v1/devices")] == ["ssd0"]
    assert "weir_" in node.metrics() and "ssd0" in node.config()
    assert "/v1/status" in node.get("/openapi.json")["paths"]


def test_changes(node):
    node.set_tenant("gold", priority_class="high", weight=2)
    assert (node.tenant("gold")["class"], node.tenant("gold")["weight"]) == ("high", 2)
    node.add_fault("ssd0", "media-error", lba="8-15")
    (rule,) = node.faults("ssd0")
    node.remove_fault("ssd0", rule["id"])
    assert node.faults("ssd0") == []


def test_tokens_over_tcp(node, monkeypatch):
    monkeypatch.delenv("WEIR_TOKEN_FILE", raising=False)
    with pytest.raises(weir.ApiError) as raised:
        weir.Client(node.tcp).status()
    assert raised.value.status == 401
    reader = weir.Client(node.tcp, token_file=node.folder / "read.token")
    assert reader.tenant("gold")["name"] == "gold"
    with pytest.raises(weir.ApiError) as raised:
        reader.set_tenant("gold", weight=3)
    assert raised.value.status == 403
    monkeypatch.setenv("WEIR_TOKEN_FILE", str(node.folder / "operate.token"))
    weir.Client(node.tcp).set_tenant("gold", weight=3)
    assert node.tenant("gold")["weight"] == 3


def test_errors_are_the_nodes_words(node, tmp_path):
    with pytest.raises(weir.ApiError, match="silver") as raised:
        node.tenant("silver")
    assert raised.value.status == 404
    with pytest.raises(weir.ApiError):
        node.set_tenant("gold", priority_class="golden")
    with pytest.raises(weir.WeirError, match="start one by weir up"):
        weir.Client(tmp_path / "nowhere.sock").status()
    with pytest.raises(ValueError, match="no address of an API"):
        weir.Client("http://localhost:api")


def test_where_a_node_is(monkeypatch, node):
    monkeypatch.setenv("WEIR_API", f"unix:{node.address}")
    assert weir.Client().status() and os.fspath(node.address) in repr(weir.Client())


def test_the_end(node):
    node.shutdown()
    for _ in range(200):
        try:
            node.status()
        except weir.WeirError:
            return
        time.sleep(0.05)
    pytest.fail("the node goes on")
