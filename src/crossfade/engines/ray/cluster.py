"""Joining a Ray cluster, or starting one on this machine and stopping it in the end."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from types import ModuleType

from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.redaction import without_password
from crossfade.threads import cores

# Batches on their way between processes: a few for each worker, whatever the machine has.
_OBJECT_STORE_BYTES = 1 << 30
_SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
}


class Cluster:
    """A connection to Ray; made at the first `library`, ended by `close` or with its owner."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._ray: ModuleType | None = None
        self._lock = threading.Lock()
        self._end: weakref.finalize[[], Cluster] | None = None

    def library(self) -> ModuleType:
        """Ray itself, connected."""
        with self._lock:
            if self._ray is None:
                self._ray = self._connect()
            return self._ray

    def close(self) -> None:
        with self._lock:
            if self._end is not None:
                self._end()
            self._ray = self._end = None

    def _connect(self) -> ModuleType:
        for name, value in _SILENT.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("ray", extra="ray", need="the engine 'ray'") from error
        if ray.is_initialized():
            # The caller's own: it is used, and left alone in the end.
            return ray
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                # What Ray forks becomes another program at once: nothing of Lance is left in it.
                warnings.filterwarnings("ignore", "lance is not fork-safe")
                self._init(ray)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0][:200]
            at = "this machine" if self.address is None else without_password(self.address)
            if isinstance(error, ValueError):
                raise BadInput(said, where=at, step="give --address HOST:PORT") from None
            raise StoreError(
                f"no Ray there ({said})", where=at, step="see what `ray status` says"
            ) from None
        self._end = weakref.finalize(self, ray.shutdown)
        return ray

    def _init(self, ray: ModuleType) -> None:
        if self.address is not None:
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            return
        ray.init(
            # Or an address in the environment would be joined that nobody has named.
            address="local",
            num_cpus=max(2, cores()),
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
