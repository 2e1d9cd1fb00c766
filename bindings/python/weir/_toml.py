"""Configurations written in Python, as the TOML that the program reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def text(value: Any) -> str:
    """A value as ``--set KEY=VALUE`` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (int, float)):
        return repr(value)
    raise TypeError(f"{value!r} is no value of a configuration; give text, a number, True or False")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} is no key of a configuration; keys are text")
    plain = key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if plain else _quoted(key)


def _quoted(value: str) -> str:
    escaped = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in value)
    return f'"{escaped}"'


def _value(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return _quoted(os.fspath(value))
    if isinstance(value, Mapping):
        pairs = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return text(value)


def dumps(document: Mapping[str, Any]) -> str:
    """TOML of a mapping, whose lists of mappings become ``[[tables]]``. A key whose value is None is left out."""
    plain, tables = [], []
    for key, value in document.items():
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        if value is None:
            continue
        if is_list and value and all(isinstance(element, Mapping) for element in value):
            for element in value:
                tables.append(f"[[{_key(key)}]]")
                tables.extend(f"{_key(k)} = {_value(v)}" for k, v in element.items() if v is not None)
        else:
            plain.append(f"{_key(key)} = {_value(value)}")
    return "\n".join([*plain, *tables, ""])
