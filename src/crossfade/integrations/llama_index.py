"""LlamaIndex: an embedding that fits whatever a vector store holds at present, and a retriever.

`CrossfadeEmbedding` stands where the old model's embedding stood in an index.
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
    from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError:
    raise MissingExtra(
        "llama-index-core", extra="llama-index", need="crossfade.integrations.llama_index"
    ) from None


class CrossfadeEmbedding(BaseEmbedding):
    """The new model's embedding, as an index that was built with the old model takes it.

    Parameters
    ----------
    new : the new model's embedding, any of LlamaIndex's.
    upgrade : the upgrade, or its folder.
    old : the old model's embedding, for nodes that are added before a migration is finished.
    store : the store that is migrated, open or by its address; without it the index is taken for
        one of old vectors that stays so.
    refresh : seconds for which the stage last seen of the store is trusted.
    """

    _new: BaseEmbedding = PrivateAttr()
    _old: BaseEmbedding | None = PrivateAttr()
    _column: OwnColumn = PrivateAttr()

    def __init__(
        self,
        new: BaseEmbedding,
        upgrade: Upgrade | str | Path,
        *,
        old: BaseEmbedding | None = None,
        store: Store | str | Path | None = None,
        refresh: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**{"model_name": new.model_name} | options)
        self._new, self._old = new, old
        self._column = OwnColumn(upgrade, store, refresh)

    @classmethod
    def class_name(cls) -> str:
        return "CrossfadeEmbedding"

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._query(self._new.get_query_embedding(query))

    async def _aget_query_embedding(self, query: str) -> Embedding:
        new = await self._new.aget_query_embedding(query)
        # The store may be asked for its stage, which waits.
        return await asyncio.to_thread(self._query, new)

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> Embedding:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        if self._column.holds_new():
            return self._items(self._new.get_text_embedding_batch(texts))
        return self._given_old().get_text_embedding_batch(texts)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        if await asyncio.to_thread(self._column.holds_new):
            return self._items(await self._new.aget_text_embedding_batch(texts))
        return await self._given_old().aget_text_embedding_batch(texts)

    def _query(self, new: Embedding) -> Embedding:
        found: Embedding = self._column.query(new).tolist()
        return found

    def _items(self, new: list[Embedding]) -> list[Embedding]:
        # A finished column holds what it is asked with.
        found: list[Embedding] = self._column.query(new).tolist()
        return found

    def _given_old(self) -> BaseEmbedding:
        if self._old is None:
            raise self._column.need_old()
        return self._old


class CrossfadeRetriever(BaseRetriever):
    """Retrieves through a `Searcher`: at every stage, with both models where `old` is given.

    `text` names the column that becomes a node's text, `columns` those that become its metadata.
    `where` filters, and `ask` says how to ask, as for `Searcher.search`.
    """

    def __init__(
        self,
        searcher: Searcher,
        new: BaseEmbedding,
        *,
        text: str,
        old: BaseEmbedding | None = None,
        columns: Sequence[str] = (),
        k: int = 10,
        where: dict[str, Any] | None = None,
        ask: Asking | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.searcher, self.new, self.old = searcher, new, old
        self.text, self.columns, self.k, self.where, self.ask = text, columns, k, where, ask

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        old = None if self.old is None else self.old.get_query_embedding(query)
        return self._search(self.new.get_query_embedding(query), old)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        models = [self.new] if self.old is None else [self.new, self.old]
        asked = (model.aget_query_embedding(query_bundle.query_str) for model in models)
        new, *old = await asyncio.gather(*asked)
        return await asyncio.to_thread(self._search, new, old[0] if old else None)

    def _search(self, new: Embedding, old: Embedding | None) -> list[NodeWithScore]:
        columns = [self.text, *(name for name in self.columns if name != self.text)]
        hits = self.searcher.search(
            new, self.k, old=old, ask=self.ask, where=self.where, columns=columns
        )
        return [self._node(hit) for hit in hits]

    def _node(self, hit: Hit) -> NodeWithScore:
        content = hit.values[self.text]
        node = TextNode(
            text="" if content is None else str(content),
            id_=str(hit.id),
            metadata={name: hit.values[name] for name in self.columns},
        )
        return NodeWithScore(node=node, score=hit.score)
