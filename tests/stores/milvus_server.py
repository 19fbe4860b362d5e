"""The Milvus server of a test session."""

from __future__ import annotations

from examples.milvus_server import Server

_running: list[Server] = []


def session_server() -> Server:
    """Started when it is first asked for, and stopped with the session."""
    if not _running:
        _running.append(Server(quick=True))
    return _running[0]
