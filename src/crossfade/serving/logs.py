"""Logs as lines of JSON: what happened, and never a text, a key or a vector."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """One object for each record, with whatever it was given as `extra`.

    >>> record = logging.makeLogRecord({"msg": "reloaded", "levelname": "INFO", "hash": "ab12"})
    >>> sorted(orjson.loads(JsonLines().format(record)).items())[0]
    ('event', 'reloaded')
    """

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().strip(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info and record.exc_info[0] is not None:
            # The words of an error that nobody expected may quote anything, a text included.
            told["error"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])
            told["at"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return orjson.dumps(told, default=str).decode()


@contextmanager
def logging_to_stderr(level: int = logging.INFO) -> Iterator[None]:
    """For a process that is a gateway and nothing else, as long as it is one."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    # Uvicorn tells of its start and end what our own lines tell.
    wanted = {"crossfade": level, "uvicorn": max(level, logging.WARNING)}
    before = []
    for name, least in wanted.items():
        logger = logging.getLogger(name)
        before.append((logger, logger.handlers, logger.level, logger.propagate))
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
    try:
        yield
    finally:
        for logger, handlers, former, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(former)
