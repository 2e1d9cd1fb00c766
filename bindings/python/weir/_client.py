"""A client for a node's API, over its UNIX socket or a loopback port."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ._native import WeirError


class ApiError(WeirError):
    """An answer that is no success; the words are the node's."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        #: The HTTP status.
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _usual() -> str:
    uid = os.geteuid()
    if uid == 0:
        return "/run/weir/weir.sock"
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{folder}/weir/weir.sock" if folder.startswith("/") else f"/tmp/weir-{uid}/weir.sock"


class Client:
    """A node's API.

    ``address`` is ``unix:PATH``, a path, ``IP:PORT`` or ``http://IP:PORT``; by default ``$WEIR_API``, else the socket of a node that
    was started without one. Over TCP it shows the token on the first line of ``token_file``, by default of ``$WEIR_TOKEN_FILE``. ``get``, ``post``, ``patch`` and ``delete`` take any path of docs/reference/api.md and return what JSON
    says; the other methods are the frequent ones by name.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        timeout: float = 10.0,
        token_file: str | os.PathLike[str] | None = None,
    ) -> None:
        text = os.fspath(address) if address is not None else os.environ.get("WEIR_API") or _usual()
        #: Where the node answers.
        self.address = text
        #: Seconds until a node that does not answer is an error.
        self.timeout = timeout
        self._path: str | None = None
        self._token_file = token_file if token_file is not None else os.environ.get("WEIR_TOKEN_FILE")
        self._host, self._port = "", 0
        if text.startswith("unix:"):
            self._path = text.removeprefix("unix:")
        elif text.startswith(("/", ".")) or ":" not in text:
            self._path = text
        else:
            self._host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
            if not port.isdigit():
                raise ValueError(f"{text!r} is no address of an API; write unix:PATH or IP:PORT")
            self._port = int(port)

    def _token(self) -> str:
        """What is on the first line of the file."""
        with open(self._token_file or "", encoding="ascii") as file:
            token = file.readline().strip()
        if not token:
            raise WeirError(f"{os.fspath(self._token_file or '')}: its first line is no token")
        return token

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """One request; the bytes of the answer."""
        connection = (
            _UnixConnection(str(Path(self._path).absolute()), self.timeout)
            if self._path is not None
            else http.client.HTTPConnection(self._host.strip("[]"), self._port, timeout=self.timeout)
        )
        headers = {"Connection": "close"}
        if self._path is None and self._token_file:
            headers["Authorization"] = f"Bearer {self._token()}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            received = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise WeirError(f"{self.address}: no node answers: {error}; start one by weir up") from error
        finally:
            connection.close()
        if 200 <= answer.status < 300:
            return received
        try:
            what = json.loads(received)["error"]
        except (ValueError, KeyError, TypeError):
            what = f"{method} {path}: status {answer.status}"
        raise ApiError(answer.status, what)

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        received = self.request(method, path, body)
        return json.loads(received) if received else None

    def get(self, path: str) -> Any:
        """``GET``: ``client.get("/v1/devices")``."""
        return self._json("GET", path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """``POST``."""
        return self._json("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """``PATCH``."""
        return self._json("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """``DELETE``."""
        return self._json("DELETE", path)

    def status(self) -> Any:
        """Everything that ``weir status`` shows."""
        return self.get("/v1/status")

    def device(self, name: str) -> Any:
        """A drive."""
        return self.get(f"/v1/devices/{quote(name, safe='')}")

    def set_device(self, name: str, **changes: Any) -> Any:
        """Changes a drive: mechanism, weights, burst, capacity_bytes …; what is left out stays."""
        return self.patch(f"/v1/devices/{quote(name, safe='')}", changes)

    def stats(self, name: str, *, reset: bool = False) -> Any:
        """How well a drive keeps its modelled times, and what its flash did; ``reset`` starts the counts at zero."""
        path = f"/v1/devices/{quote(name, safe='')}/stats"
        return self.post(f"{path}/reset") if reset else self.get(path)

    def tenant(self, name: str) -> Any:
        """A tenant."""
        return self.get(f"/v1/tenants/{quote(name, safe='')}")

    def set_tenant(self, name: str, **changes: Any) -> Any:
        """Changes a tenant; ``class`` is a word of Python, so ``priority_class`` stands for it: ``set_tenant("gold",
        priority_class="high", floor={"iops": 20000})``."""
        if "priority_class" in changes:
            changes["class"] = changes.pop("priority_class")
        return self.patch(f"/v1/tenants/{quote(name, safe='')}", changes)

    def faults(self, device: str) -> Any:
        """A drive's rules of failures."""
        return self.get(f"/v1/devices/{quote(device, safe='')}/faults")

    def add_fault(self, device: str, effect: str, **keys: Any) -> Any:
        """Adds a rule: ``add_fault("ssd0", "media-error", lba="8-15")``."""
        return self.post(f"/v1/devices/{quote(device, safe='')}/faults", {"effect": effect, **keys})

    def remove_fault(self, device: str, number: int) -> Any:
        """Removes a rule."""
        return self.delete(f"/v1/devices/{quote(device, safe='')}/faults/{number}")

    def config(self) -> str:
        """The configuration as TOML, with what was changed since the start."""
        return self.request("GET", "/v1/config").decode()

    def metrics(self) -> str:
        """What Prometheus reads."""
        return self.request("GET", "/metrics").decode()

    def shutdown(self) -> None:
        """Has the node finish what is in flight and end."""
        self.request("POST", "/v1/shutdown")

    def __repr__(self) -> str:
        return f"Client({self.address!r})"
