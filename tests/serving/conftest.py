"""An upgrade between two real models, their upstreams, and gateways between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.models import NEW, OLD, Upstream, embed_new, embed_old

from crossfade import Upgrade
from crossfade.demo.texts import load_texts
from crossfade.serving import Server

TEXTS = load_texts().texts
# One for all: every new one reads the certificates of the world anew.
CLIENT = httpx.Client(timeout=60)
QUERIES = ["how to read a file", "a matrix product", "plot a line"]


@pytest.fixture(scope="session", autouse=True)
def closed_client() -> Iterator[None]:
    yield
    CLIENT.close()


@pytest.fixture(scope="session")
def upgrade_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("serving") / "upgrade"
    some = TEXTS[:900]
    upgrade = Upgrade(solver="closed_form", old_model=OLD, new_model=NEW)
    upgrade.fit(embed_old(some), embed_new(some)).save(folder)
    return folder


@pytest.fixture(scope="session")
def upgrade(upgrade_folder) -> Upgrade:
    return Upgrade.load(upgrade_folder)


def _serving(model: Callable[[list[str]], Any]) -> Iterator[Upstream]:
    upstream = Upstream(model)
    upstream.start()
    yield upstream
    upstream.stop()


@pytest.fixture
def new_upstream() -> Iterator[Upstream]:
    yield from _serving(embed_new)


@pytest.fixture
def old_upstream() -> Iterator[Upstream]:
    yield from _serving(embed_old)


@pytest.fixture
def serve(upgrade_folder, new_upstream) -> Iterator[Callable[..., Server]]:
    """Starts gateways that end with the test."""
    with ExitStack() as running:

        def start(**options: Any) -> Server:
            given = {"upstream": new_upstream.url, "model": NEW, "port": 0} | options
            folder = given.pop("upgrade", upgrade_folder)
            return running.enter_context(Server(folder, **given))

        yield start


@pytest.fixture
def gateway(serve, old_upstream) -> Server:
    """One that knows both models."""
    return serve(upstream_old=old_upstream.url, model_old=OLD)


@pytest.fixture
def http(gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something that comes by itself; what has not come by then will not."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
