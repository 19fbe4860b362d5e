"""What is kept beside a store that lies in an object store: its values, and who may change them.

A disk has locks that go with their owner and files that are renamed; an object store has neither.
What it has is a conditional put: of two who write the same name, one is told that it is taken.
Lance commits by it, on every service it speaks to, so the ledger is a tiny Lance dataset: each
change is a version, and only who has read the last one can write the next. The same client, and the
same keys, as for the tables; no service beside the store.

The lock is a lease: a name and an hour in the ledger, moved on while its holder lives. Whoever
finds it run out takes it. A holder that has slept so long and wakes up cannot tell by itself, and
need not: its next change names a lease that is no longer there, and is refused (fencing). Clocks
that differ cost a wait, or a holder its lease; never what was written.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossfade.errors import MissingExtra, StoreBusy, StoreError
from crossfade.remote import to_path, without_keys
from crossfade.threads import every

LEASE_SECONDS = 60.0
_LEASE, _NONCE = "lease", "nonce"
_TRIES = 20
# Versions that are over are removed now and then; nobody reads one for so long.
_CLEAN_EACH, _KEPT = 50, timedelta(minutes=10)
_CONFLICTS = ("conflict", "already exists", "preempted", "concurrent")
Values = dict[str, str]


class Ledger:
    """Texts by name, and one lease."""

    def __init__(self, path: str | Path, name: str, *, seconds: float | None = None) -> None:
        self.uri, self.name = str(to_path(path)), name
        self.seconds = LEASE_SECONDS if seconds is None else seconds
        self._known: Values | None = None
        """What it holds as long as nobody else may change it."""
        self._last: tuple[Any, int, Values] | None = None
        self._holder: str | None = None
        self._renewed = 0.0
        self._changes = 0
        # A thread renews the lease while another writes values.
        self._turn = threading.RLock()

    def get(self, key: str) -> str | None:
        known = self._known
        if known is not None and self._holder is not None and self._fresh:
            return known.get(key)
        return self._read()[1].get(key)

    def put(self, key: str, value: str | None) -> None:
        def change(values: Values) -> Values:
            rest = {k: v for k, v in values.items() if k != key}
            return rest if value is None else rest | {key: value}

        self.change(change)

    def change(self, act: Callable[[Values], Values]) -> None:
        """Change all values at once, unless the lease has gone to another meanwhile."""
        with self._turn:
            for attempt in range(_TRIES):
                time.sleep(0.02 * attempt)
                version, values = self._read()
                self._check_holder(values)
                nonce = secrets.token_hex(8)
                after = act(values) | {_NONCE: nonce}
                if self._commit(version, after, nonce):
                    self._known = after
                    self._changes += 1
                    self._clean()
                    return
            raise StoreError(
                "others change what is kept beside it all the time",
                where=self.name,
                step="see who does, then resume",
            )

    def check(self) -> None:
        """Raise if the lease that is held may have run out, and has gone to another.

        It costs a request only for who has not renewed it in time.
        """
        if self._holder is not None and not self._fresh:
            self._check_holder(self._read()[1])

    @property
    def _fresh(self) -> bool:
        """Whether the lease was renewed not long ago, so that it cannot be another's yet."""
        return time.time() < self._renewed + self.seconds / 2

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the ledger; `StoreBusy` if another process does."""
        holder = secrets.token_hex(8)
        self.change(lambda values: self._taken(values, holder))
        self._holder, self._renewed = holder, time.time()
        try:
            with every(self.seconds / 4, self._renew):
                yield
        finally:
            # Who has lost it has nothing to give back, and an unreachable store waits it out.
            with suppress(StoreError):
                self.put(_LEASE, None)
            self._holder = self._known = None

    def _renew(self) -> None:
        begin = time.time()
        # Whoever writes next is told of a failure; until then it may only have been the network.
        with suppress(StoreError):
            self.put(_LEASE, self._written(str(self._holder)))
            self._renewed = begin

    def _taken(self, values: Values, holder: str) -> Values:
        lease = self._lease(values)
        if lease is not None and lease["holder"] != holder and time.time() < lease["until"]:
            left = max(1.0, lease["until"] - time.time())
            raise StoreBusy(
                "another process is migrating this store",
                where=self.name,
                step=f"wait for it; if it was killed, its lease ends in {left:.0f} s",
            )
        return values | {_LEASE: self._written(holder)}

    def _written(self, holder: str) -> str:
        return json.dumps({"holder": holder, "until": time.time() + self.seconds})

    def _lease(self, values: Mapping[str, str]) -> dict[str, Any] | None:
        try:
            found = json.loads(values.get(_LEASE, "null"))
            if found is None:
                return None
            return {"holder": str(found["holder"]), "until": float(found["until"])}
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(str(error)) from None

    def _check_holder(self, values: Mapping[str, str]) -> None:
        if self._holder is None:
            return
        lease = self._lease(values)
        if lease is None or lease["holder"] != self._holder:
            raise StoreError(
                "this process was away for longer than its lease, and another has taken over",
                where=self.name,
                step="see: crossfade migrate status",
            )

    def _read(self) -> tuple[int, Values]:
        """The last version, and what it holds; 0 and nothing where there is none yet."""
        lance = _library()
        for attempt in range(_TRIES):
            try:
                if self._last is not None and self._last[0].latest_version == self._last[1]:
                    # Most often nothing has changed, and this was one request.
                    return self._last[1], dict(self._last[2])
                dataset = lance.dataset(self.uri)
                table = dataset.to_table()
                break
            except (ValueError, OSError, RuntimeError) as error:
                if "not found" in str(error).lower() and not self._there(lance):
                    return 0, {}
                if attempt + 1 == _TRIES:
                    raise self._failed(error) from None
                time.sleep(0.05 * (attempt + 1))
        if table.schema.names != ["key", "value"]:
            raise self._damaged("it has other columns")
        keys, texts = (column.to_pylist() for column in table.columns)
        version, values = int(dataset.version), dict(zip(keys, texts, strict=True))
        self._last = dataset, version, values
        return version, dict(values)

    def _there(self, lance: Any) -> bool:
        try:
            lance.dataset(self.uri)
        except (ValueError, OSError, RuntimeError) as error:
            return "not found" not in str(error).lower()
        return True

    def _commit(self, version: int, values: Values, nonce: str) -> bool:
        """Whether what is written is the version after `version`."""
        lance = _library()
        from lance.fragment import write_fragments

        columns = [pa.array(list(part), pa.string()) for part in (values, values.values())]
        table = pa.table(columns, names=["key", "value"])
        try:
            if version == 0:
                lance.write_dataset(table, self.uri, mode="create")
            else:
                overwrite = lance.LanceOperation.Overwrite(
                    table.schema, write_fragments(table, self.uri)
                )
                lance.LanceDataset.commit(self.uri, overwrite, read_version=version, max_retries=0)
        except (OSError, ValueError, RuntimeError) as error:
            # An answer may be lost after the put was done, and the second try finds its own work.
            if self._read()[1].get(_NONCE) == nonce:
                return True
            if any(word in str(error).lower() for word in _CONFLICTS):
                return False
            raise self._failed(error) from None
        return True

    def _clean(self) -> None:
        if self._changes % _CLEAN_EACH == 0:
            with suppress(OSError, ValueError, RuntimeError):
                _library().dataset(self.uri).cleanup_old_versions(older_than=_KEPT)

    def _failed(self, error: Exception) -> StoreError:
        said = without_keys((str(error).splitlines() or [type(error).__name__])[0])[:300]
        return StoreError(said, where=self.name, step="check the address, the keys and the network")

    def _damaged(self, cause: str) -> StoreError:
        return StoreError(
            f"what Crossfade keeps beside the store is damaged ({cause})",
            where=self.uri,
            step="restore it from a backup: it says how far a migration has come",
        )


def _library() -> Any:
    try:
        import lance
    except ImportError as error:
        raise MissingExtra("pylance", extra="lance", need="an object store") from error
    return lance
