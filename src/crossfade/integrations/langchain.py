"""LangChain: embeddings that fit whatever a vector store holds at present, and a retriever.

`CrossfadeEmbeddings` stands where the old model's embeddings stood in a vector store.
`CrossfadeRetriever` asks the store itself, with both models, as the plan says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossfade.asking import Asking
from crossfade.errors import MissingExtra
from crossfade.integrations.own_column import OwnColumn
from crossfade.search import Searcher
from crossfade.stores import Hit, Store
from crossfade.upgrade import Upgrade

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
except ImportError:
    raise MissingExtra(
        "langchain-core", extra="langchain", need="crossfade.integrations.langchain"
    ) from None


class CrossfadeEmbeddings(Embeddings):
    """The new model's embeddings, as a vector store that was built with the old model takes them.

    Parameters
    ----------
    new : the new model's embeddings, any of LangChain's.
    upgrade : the upgrade, or its folder.
    old : the old model's embeddings, for items that are added before a migration is finished.
    store : the store that is migrated, open or by its address; without it the vector store is taken
        for one of old vectors that stays so.
    refresh : seconds for which the stage last seen of the store is trusted.

    Examples
    --------
    >>> import numpy as np
    >>> class Model(Embeddings):
    ...     def __init__(self, numbers):
    ...         self.numbers = numbers
    ...     def embed_documents(self, texts):
    ...         return [[float(text.count(c)) + 1 for c in "abcdef"[: self.numbers]]
    ...             for text in texts]
    ...     def embed_query(self, text):
    ...         return self.embed_documents([text])[0]
    >>> rng = np.random.default_rng(0)
    >>> texts = ["".join(rng.choice(list("abcdef"), 20)) for _ in range(200)]
    >>> old, new = Model(4), Model(6)
    >>> pairs = np.array(old.embed_documents(texts)), np.array(new.embed_documents(texts))
    >>> upgrade = Upgrade(solver="closed_form").fit(*pairs)
    >>> embeddings = CrossfadeEmbeddings(new, upgrade, old=old)
    >>> len(embeddings.embed_query("abba")), len(embeddings.embed_documents(["cab"])[0])
    (4, 4)
    """

    def __init__(
        self,
        new: Embeddings,
        upgrade: Upgrade | str | Path,
        *,
        old: Embeddings | None = None,
        store: Store | str | Path | None = None,
        refresh: float = 1.0,
    ) -> None:
        self.new, self.old = new, old
        self.column = OwnColumn(upgrade, store, refresh)

    def embed_query(self, text: str) -> list[float]:
        """The new model's query, as the vector store takes it at present."""
        return self._queries(self.new.embed_query(text))

    async def aembed_query(self, text: str) -> list[float]:
        """As `embed_query`."""
        new = await self.new.aembed_query(text)
        # The store may be asked for its stage, which waits.
        return await asyncio.to_thread(self._queries, new)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """What items are to be stored as at present: the old model's vectors until the migration
        is finished, the new model's from then on."""
        if not texts:
            return []
        if self.column.holds_new():
            return self._items(self.new.embed_documents(texts))
        return self._old().embed_documents(texts)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As `embed_documents`."""
        if not texts:
            return []
        if await asyncio.to_thread(self.column.holds_new):
            return self._items(await self.new.aembed_documents(texts))
        return await self._old().aembed_documents(texts)

    def _queries(self, new: list[float]) -> list[float]:
        found: list[float] = self.column.query(new).tolist()
        return found

    def _items(self, new: list[list[float]]) -> list[list[float]]:
        # A finished column holds what it is asked with.
        found: list[list[float]] = self.column.query(new).tolist()
        return found

    def _old(self) -> Embeddings:
        if self.old is None:
            raise self.column.need_old()
        return self.old


class CrossfadeRetriever(BaseRetriever):
    """Retrieves through a `Searcher`: at every stage, with both models where `old` is given.

    `text` names the column that becomes a document's content, `columns` those that become its
    metadata, beside `score`. `where` filters, and `ask` says how to ask, as for `Searcher.search`.
    """

    searcher: Searcher
    new: Embeddings
    old: Embeddings | None = None
    text: str
    columns: Sequence[str] = ()
    k: int = 4
    where: dict[str, Any] | None = None
    ask: Asking | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        old = None if self.old is None else self.old.embed_query(query)
        return self._search(self.new.embed_query(query), old)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        models = [self.new] if self.old is None else [self.new, self.old]
        new, *old = await asyncio.gather(*(model.aembed_query(query) for model in models))
        return await asyncio.to_thread(self._search, new, old[0] if old else None)

    def _search(self, new: list[float], old: list[float] | None) -> list[Document]:
        hits = self.searcher.search(
            new, self.k, old=old, ask=self.ask, where=self.where, columns=self._columns()
        )
        return [self._document(hit) for hit in hits]

    def _columns(self) -> list[str]:
        return [self.text, *(name for name in self.columns if name != self.text)]

    def _document(self, hit: Hit) -> Document:
        metadata = {name: hit.values[name] for name in self.columns}
        content = hit.values[self.text]
        return Document(
            "" if content is None else str(content),
            id=str(hit.id),
            metadata={**metadata, "score": hit.score},
        )
