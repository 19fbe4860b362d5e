"""The gateway itself: model names, embeddings, searches, readiness and reloads, without HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crossfade.asking import WAYS, Asking
from crossfade.errors import BadInput, CrossfadeError
from crossfade.journal import Journal
from crossfade.serving.binding import Binding, Search
from crossfade.serving.counters import Counters, gauge, text_of
from crossfade.serving.limits import Limits
from crossfade.serving.loaded import Float, Loaded, fingerprint, untouched
from crossfade.serving.refusal import Refusal
from crossfade.serving.shadow import Answered, Shadow
from crossfade.serving.upstream import SEND_TEXTS, Inputs, Upstream
from crossfade.stores import Hit, Store

_LOG = logging.getLogger("crossfade.serving")
# Seconds between looks at the folders, and for which a word on readiness stands.
_LOOK, _READY = 2.0, 2.0
# From so many rows on a product is left to a thread, so that others are not held up.
_MANY = 64
Side = Literal["new", "old"]
Into = Literal["plain", "old", "new", "store"]


@dataclass(frozen=True)
class Name:
    """What a model's name asks for: whose vectors, and for which index."""

    side: Side
    into: Into


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors (n, d), what they took, and what else there is to say of them."""

    vectors: Float
    usage: dict[str, Any]
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, eq=False)
class Query:
    """A search: a text or vectors, and what is wanted of the rows."""

    text: str | None
    new: Float | None
    old: Float | None
    ask: Asking | None
    kept: dict[str, Any]
    """`k`, `where` and `columns`, as a searcher takes them."""


@dataclass(frozen=True, eq=False)
class Found:
    """The hits of a search, how it was asked, and in which stage."""

    hits: list[Hit]
    way: Asking
    stage: str | None
    usage: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Sources:
    """Where the upgrade and the plan lie, and what they were when they were loaded."""

    upgrade: Path
    plan: Path | None


class Gateway:
    """Embeds with one model or two, maps, and searches.

    Everything but `live` and `metrics` belongs to one event loop, which `start` is called in.
    """

    def __init__(
        self,
        sources: Sources,
        upstreams: Mapping[Side, Upstream],
        *,
        store: Store | None = None,
        limits: Limits,
        counters: Counters,
        shadow: Shadow | None = None,
        dimensions: Mapping[Side, int] | None = None,
        take_tokens: bool = True,
    ) -> None:
        self.limits, self.counters, self.shadow = limits, counters, shadow
        self.upstreams, self.sources = upstreams, sources
        self.binding = None if store is None else Binding(store, limits)
        self._print = fingerprint(sources.upgrade, sources.plan)
        self.loaded = Loaded.of(sources.upgrade, sources.plan)
        self.names = _names(upstreams, store is not None)
        self._dimensions = dimensions or {}
        self._take_tokens = take_tokens
        self._mapping = ThreadPoolExecutor(2, "map")
        self._ready: tuple[float, dict[str, Any]] = (-1e9, {})
        self._tasks: list[asyncio.Task[None]] = []
        self._told = ""
        self.stopping = asyncio.Event()
        """Set when no more requests are taken."""

    async def start(self) -> None:
        for upstream in self.upstreams.values():
            await upstream.start()
        if self.shadow is not None:
            self.shadow.start()
        self._tasks = [asyncio.get_running_loop().create_task(self._watch())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.shadow is not None:
            await self.shadow.close()
        for upstream in self.upstreams.values():
            await upstream.close()
        self._mapping.shutdown(wait=True)
        if self.binding is not None:
            # A thread may be waiting for a database that is away.
            await asyncio.get_running_loop().run_in_executor(None, self.binding.close)

    @property
    def usual(self) -> str:
        """The model of requests that name none: what the index there is can be asked with."""
        return f"{self.upstreams['new'].model}@{'old' if self.binding is None else 'store'}"

    async def embed(
        self,
        model: str,
        inputs: Inputs,
        count: int,
        *,
        dimensions: int | None,
        more: Mapping[str, Any],
        deadline: float,
    ) -> Embedded:
        """The vectors that a model's name asks for."""
        name = self.names.get(model)
        if name is None:
            raise Refusal(
                404,
                f"there is no model {model[:200]!r} → name one of {', '.join(self.names)}",
                param="model",
                code="model_not_found",
            )
        tokens = not isinstance(inputs, str) and not isinstance(inputs[0], str)
        if tokens and not self._take_tokens:
            raise Refusal(
                400,
                f"token arrays are refused here: their tokenizer is not the model's → {SEND_TEXTS}",
                param="input",
                code="token_arrays_not_supported",
            )
        loaded = self.loaded
        # A stage that cannot be read is known before anything is paid for.
        journal = await self._journal(loaded, deadline) if name.into == "store" else None
        plain = dimensions if name.into == "plain" else None
        found = await self._plain(loaded, name.side, inputs, count, plain, more, deadline)
        vectors = found.vectors
        if name.into != "plain":
            vectors = await self._mapped(loaded, name, vectors, journal)
            if dimensions is not None and dimensions != vectors.shape[1]:
                raise Refusal(
                    400,
                    f"{model} has {vectors.shape[1]} dimensions, as its index has → leave "
                    "'dimensions' out",
                    param="dimensions",
                )
        self.counters.vectors[model] += count
        told: tuple[tuple[bytes, bytes], ...] = ()
        if name.into == "store":
            stage = "none" if journal is None else journal.stage
            told = ((b"crossfade-stage", stage.encode()),)
        # A cut is a view, which no writer of JSON takes.
        return Embedded(np.ascontiguousarray(vectors), found.usage, told)

    async def search(self, query: Query, deadline: float) -> Found:
        """The best rows of the store, asked as the query says, or the plan."""
        binding = self._bound()
        loaded = self.loaded
        journal = await self._journal(loaded, deadline)
        way = await self._way(query, journal, loaded, deadline)
        usage: dict[str, dict[str, Any]] = {}
        new, old = await self._vectors(loaded, query, way, usage, deadline)
        begin = time.perf_counter()
        search = Search(loaded, journal, way, new, old, query.kept)
        hits = await binding.search(search, deadline)
        seconds = time.perf_counter() - begin
        if self.shadow is not None:
            known = Query(query.text, new, old, None, query.kept)

            async def again(other: Asking) -> tuple[list[Hit], float]:
                limit = time.monotonic() + self.limits.seconds
                new, old = await self._vectors(loaded, known, other, {}, limit)
                begin = time.perf_counter()
                asked = replace(search, way=other, new=new, old=old)
                found = await binding.search(asked, limit)
                return found, time.perf_counter() - begin

            self.shadow.offer(Answered(way, hits, seconds, again))
        return Found(hits, way, None if journal is None else journal.stage, usage)

    async def ready(self) -> dict[str, Any]:
        """Whether upstreams and store answer; a word on it stands for two seconds."""
        now = time.monotonic()
        if now - self._ready[0] > _READY:
            answers = await asyncio.gather(*(one.reachable() for one in self.upstreams.values()))
            told: dict[str, Any] = {
                "upstream": {
                    side: "ok" if good else "away"
                    for side, good in zip(self.upstreams, answers, strict=True)
                }
            }
            if self.binding is not None:
                try:
                    await self.binding.journal(now + _READY)
                    told["store"] = "away" if self.binding.down else "ok"
                except (Refusal, CrossfadeError):
                    told["store"] = "away"
            words = [*told["upstream"].values(), told.get("store", "ok")]
            self._ready = (now, {"ready": set(words) == {"ok"}} | told)
        return self._ready[1]

    def live(self) -> dict[str, Any]:
        """What the page shows of the traffic."""
        tokens = {side: asked.tokens for side, asked in self.counters.upstreams.items()}
        return self.counters.live() | {
            "upstream": {side: one.state for side, one in self.upstreams.items()},
            "shadow": None if self.shadow is None else self.shadow.live(),
            "spent": {"tokens_new": tokens.get("new", 0), "tokens_old": tokens.get("old", 0)},
        }

    def metrics(self) -> bytes:
        """In Prometheus' text format."""
        states = {str(side): float(one.state == "ok") for side, one in self.upstreams.items()}
        lines = [*self.counters.lines()]
        what = "Whether the last request was answered."
        lines += gauge("crossfade_upstream_up", what, states, "upstream")
        if self.binding is not None:
            up = float(not self.binding.down)
            lines += gauge("crossfade_store_up", "Whether the store told its stage.", up)
            at = {self.binding.stage() or "none": 1.0}
            lines += gauge("crossfade_store_stage", "The stage of the migration.", at, "stage")
        if self.shadow is not None:
            lines += self.shadow.lines()
        return text_of(lines)

    async def reload(self, *, always: bool = True) -> bool:
        """Load upgrade and plan anew; what is under way goes on with what it began with.

        False if they are as they were, or cannot be used: then everything stays as it is.
        """
        found = fingerprint(self.sources.upgrade, self.sources.plan)
        if found == self._print and not always:
            return False
        loop = asyncio.get_running_loop()
        try:
            loaded = await loop.run_in_executor(
                None, Loaded.of, self.sources.upgrade, self.sources.plan
            )
        except (CrossfadeError, OSError) as error:
            # Half a copy may be there: it is looked at again, and told once.
            if str(error) != self._told:
                self.counters.reloads["failed"] += 1
                _LOG.error("reload failed, the former upgrade goes on", extra={"why": str(error)})
            self._told = str(error)
            return False
        self.loaded, self._print, self._told = loaded, found, ""
        self.counters.reloads["good"] += 1
        _LOG.info("reloaded", extra={"upgrade": loaded.hash[:12]})
        return True

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            await self.reload(always=False)

    def _bound(self) -> Binding:
        if self.binding is None:
            raise Refusal(
                404, "the gateway is bound to no store → start it with --store", code="no_store"
            )
        return self.binding

    async def _journal(self, loaded: Loaded, deadline: float) -> Journal | None:
        journal = await self._bound().journal(deadline)
        loaded.check(journal)
        return journal

    async def _plain(
        self,
        loaded: Loaded,
        side: Side,
        inputs: Inputs,
        count: int,
        dimensions: int | None,
        more: Mapping[str, Any],
        deadline: float,
    ) -> Embedded:
        """A model's own vectors, of the dimension they should have."""
        upgrade = loaded.upgrade
        wanted = dimensions or (upgrade.new_dim_ if side == "new" else upgrade.old_dim_)
        asked = dimensions or self._dimensions.get(side)
        if asked is not None:
            more = {**more, "dimensions": asked}
        upstream = self.upstreams[side]
        answer = await upstream.embed(inputs, count, more, deadline)
        if answer.vectors.shape[1] != wanted:
            raise Refusal(
                502,
                f"the {side} model {upstream.model!r} gave vectors of {answer.vectors.shape[1]} "
                f"dimensions where {wanted} are wanted → is it the model of this upgrade?",
                code="upstream_error",
            )
        return Embedded(answer.vectors, answer.usage)

    async def _mapped(
        self, loaded: Loaded, name: Name, vectors: Float, journal: Journal | None
    ) -> Float:
        work: Callable[[Float], Float] = {
            "old": loaded.query_for_old,
            "new": loaded.lifted,
            "store": lambda new: loaded.query_for_store(new, journal),
        }[name.into]
        try:
            if len(vectors) == 1:
                # One query has a shorter way through a map.
                return work(np.ascontiguousarray(vectors[0], np.float32))[None]
            if len(vectors) < _MANY:
                return work(vectors)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._mapping, work, vectors)
        except BadInput as error:
            # The client sent texts: vectors that cannot be used are not its fault.
            raise Refusal(502, str(error), code="upstream_error") from None

    async def _way(
        self, query: Query, journal: Journal | None, loaded: Loaded, deadline: float
    ) -> Asking:
        """How to ask: as the query says, then the plan, and both models where both can be."""
        if query.ask is not None:
            if query.ask not in WAYS:
                raise Refusal(400, f"'ask' is one of {', '.join(WAYS)}", param="ask")
            return query.ask
        text = query.text is not None
        new = query.new is not None or text
        old = query.old is not None or (text and "old" in self.upstreams)
        if untouched(journal) or journal is None:
            # Today's search, as long as nothing has begun.
            return "old" if old else "new"
        if journal.finished:
            return "new" if new else "old"
        planned = await self._bound().planned(loaded, journal, deadline) or "both"
        needed = [new] if planned == "new" else [old] if planned == "old" else [new, old]
        if all(needed):
            return planned
        return "new" if new else "old"

    async def _vectors(
        self,
        loaded: Loaded,
        query: Query,
        way: Asking,
        usage: dict[str, dict[str, Any]],
        deadline: float,
    ) -> tuple[Float | None, Float | None]:
        """The vectors that a way needs, both models asked side by side."""
        needed: list[Side] = ["new", "old"] if way in ("both", "blend") else [way]  # type: ignore[list-item]

        async def of(side: Side) -> Float | None:
            given = query.new if side == "new" else query.old
            if given is not None or side not in needed:
                return given
            if query.text is None or side not in self.upstreams:
                raise Refusal(
                    400,
                    f"asking {way!r} needs the {side} model's vector → pass {side!r}"
                    + ("" if side in self.upstreams else ", or start the gateway with an upstream"),
                    param=side,
                )
            found = await self._plain(loaded, side, query.text, 1, None, {}, deadline)
            usage[side] = found.usage
            return np.asarray(found.vectors[0])

        new, old = await asyncio.gather(of("new"), of("old"))
        return new, old


def _names(upstreams: Mapping[Side, Upstream], bound: bool) -> dict[str, Name]:
    new = upstreams["new"].model
    names = {new: Name("new", "plain"), f"{new}@old": Name("new", "old")}
    if "old" in upstreams:
        old = upstreams["old"].model
        names |= {old: Name("old", "plain"), f"{old}@new": Name("old", "new")}
    if bound:
        names[f"{new}@store"] = Name("new", "store")
    return names
