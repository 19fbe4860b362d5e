"""The points of one collection: the calls to Qdrant that a migration needs, in pieces."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from crossfade.errors import StoreError
from crossfade.stores.contract import Id
from crossfade.stores.names import PREFIX
from crossfade.stores.qdrant.client import models_of, status_of, translate_errors
from crossfade.stores.qdrant.rows import UNNAMED, point_id, vector_of

# A request of a server may have 32 MB: this many vectors of 4,096 numbers fit.
PIECE = 256
# Ids alone are short.
_IDS = 10_000
_TRIES = 5
MARK = f"{PREFIX}mark"
Written = tuple[dict[str, Any], dict[str, Any]]


class Points:
    """The points of a collection, as the client sees them."""

    def __init__(self, client: Any, collection: str, name: str) -> None:
        self.client = client
        self.collection = collection
        self.name = name
        self.models = models_of(client)

    def vectors(self) -> dict[str, Any]:
        """The dense vectors there are: name → size and distance."""
        with translate_errors(self.name):
            found = self.client.get_collection(self.collection).config.params.vectors
        return dict(found) if isinstance(found, Mapping) else {UNNAMED: found}

    def count(self) -> int:
        with translate_errors(self.name):
            return int(self.client.count(self.collection, exact=True).count)

    def has_field(self, key: str) -> bool:
        """Whether any point has a payload field."""
        empty = self.models.IsEmptyCondition(is_empty=self.models.PayloadField(key=key))
        with translate_errors(self.name):
            found, _ = self.client.scroll(
                self.collection, self.models.Filter(must_not=[empty]), limit=1, with_payload=False
            )
        return bool(found)

    def after(
        self,
        key: Id | None,
        size: int,
        kept: Any = None,
        *,
        vectors: bool | list[str] = True,
        whole: bool = True,
    ) -> list[Any]:
        """The next points in order of id, at most `size`; those that meet the condition `kept`.

        `vectors` are the names of those that are read; without `whole` there are ids alone.
        """
        piece = PIECE if whole else _IDS
        only = None if kept is None else self.models.Filter(must=[kept])
        out: list[Any] = []
        while len(out) < size:
            # A scroll begins at its offset: that point was seen before, if it is still there.
            limit = min(piece, size - len(out)) + 1
            with translate_errors(self.name):
                page, _ = self.client.scroll(
                    self.collection,
                    only,
                    limit=limit,
                    offset=key,
                    with_payload=whole,
                    with_vectors=vectors if whole else False,
                )
            fresh = [record for record in page if record.id != key][: limit - 1]
            if not fresh:
                break
            out += fresh
            key = fresh[-1].id
        return out

    def all(self) -> Iterator[list[Any]]:
        """All points, in pieces."""
        key: Id | None = None
        while page := self.after(key, PIECE):
            yield page
            key = page[-1].id

    def given(self, ids: Sequence[Id], vectors: bool | list[str] = True) -> list[Any]:
        """The points of these ids that are there, in the order given, with these vectors."""
        known = [key for key in map(point_id, ids) if key is not None]
        found: dict[Id, Any] = {}
        for first in range(0, len(known), PIECE):
            with translate_errors(self.name):
                some = self.client.retrieve(
                    self.collection,
                    known[first : first + PIECE],
                    with_payload=True,
                    with_vectors=vectors,
                )
            found.update({record.id: record for record in some})
        return [found[key] for key in known if key in found]

    def create_vector(self, name: str, size: int, distance: Any) -> None:
        """Add a named vector; one that is there already is left alone."""
        dense = self.models.DenseVectorConfig(size=size, distance=distance)
        with translate_errors(self.name):
            try:
                self.client.create_vector_name(
                    self.collection, name, self.models.DenseVectorNameConfig(dense=dense)
                )
            except Exception as error:
                if status_of(error) not in (404, 405):
                    raise
                raise StoreError(
                    "this server cannot add a vector to a collection",
                    where=self.name,
                    step="upgrade it to Qdrant 1.18 or newer",
                ) from None

    def delete_vector(self, name: str) -> None:
        """Drop a vector; a server may keep the empty database of one without a name."""
        everything = self.models.FilterSelector(filter=self.models.Filter())
        with translate_errors(self.name):
            try:
                self.client.delete_vector_name(self.collection, name)
            except Exception as error:
                # Without a name there is no address to send the call to.
                if name != UNNAMED or status_of(error) not in (400, 404, 405):
                    raise
                self.client.delete_vectors(self.collection, [UNNAMED], everything)

    def drop_field(self, name: str, *, indexed: bool) -> None:
        """Take a payload field from all points."""
        with translate_errors(self.name):
            self.client.delete_payload(
                self.collection, [name], self.models.FilterSelector(filter=self.models.Filter())
            )
            if indexed:
                self.client.delete_payload_index(self.collection, name)

    def mark(self, ids: Sequence[Id]) -> str:
        """Put a mark on points, that only these have; gives it.

        An upsert replaces a point, and so takes the mark away: what is written on condition of the
        mark is not written to a point that was replaced since.
        """
        mark = secrets.token_hex(8)
        told = self.models.SetPayload(payload={MARK: mark}, filter=self._those(ids).filter)
        self._send([self.models.SetPayloadOperation(set_payload=told)])
        return mark

    def update(
        self,
        told: Mapping[Id, Written],
        mark: str | None = None,
        before: Collection[Id] = (),
        *,
        only: Any = None,
    ) -> int:
        """Set vectors and payload fields of points, those alone that have the mark, if one is
        given, or that meet `only`; those that are gone stay gone. Gives how many were written.

        A point has the fields while its vector is theirs: from those that have some already
        (`before`) they are taken away first, and they are set last. Each of these is on condition
        of the mark, for a point may be replaced before any of them.
        """
        models = self.models
        if mark is not None:
            match = models.FieldCondition(key=MARK, match=models.MatchValue(value=mark))
            only = models.Filter(must=[match])
        left = dict(told)
        for _ in range(_TRIES):
            if not left:
                return 0
            vectors = [
                models.PointVectors(id=key, vector=vector)
                for key, (vector, _) in left.items()
                if vector
            ]
            operations: list[Any] = []
            names = list({name: None for _, fields in left.values() for name in fields})
            if having := [key for key in left if key in before]:
                taken = models.DeletePayload(keys=names, **self._chosen(having, mark))
                operations.append(models.DeletePayloadOperation(delete_payload=taken))
            if vectors:
                update = models.UpdateVectors(points=vectors, update_filter=only)
                operations.append(models.UpdateVectorsOperation(update_vectors=update))
            for fields, keys in _alike(left):
                payload = models.SetPayload(payload=fields, **self._chosen(keys, mark))
                operations.append(models.SetPayloadOperation(set_payload=payload))
            try:
                self._send(operations)
            except StoreError:
                # A point that was deleted meanwhile fails the whole call.
                there = {record.id for record in self.given(list(left), vectors=False)}
                if there == set(left):
                    raise
                left = {key: value for key, value in left.items() if key in there}
                continue
            if mark is not None:
                return self._marked(left, mark)
            return len(left) - (self._take_back(left, names) if names else 0)
        raise StoreError("its points keep vanishing", where=self.name, step="try again later")

    def _chosen(self, ids: Sequence[Id], mark: str | None) -> dict[str, Any]:
        """Points for a change of their payload: by their ids, or those of them with the mark.

        Ids lead an engine to them, so the condition costs it some microseconds; local mode would
        look at all points for each.
        """
        if mark is None:
            return {"points": list(ids)}
        models = self.models
        match = models.FieldCondition(key=MARK, match=models.MatchValue(value=mark))
        return {"filter": models.Filter(must=[models.HasIdCondition(has_id=list(ids)), match])}

    def _marked(self, told: Mapping[Id, Written], mark: str) -> int:
        """How many have the mark still, and so what was written on condition of it."""
        with translate_errors(self.name):
            found = self.client.retrieve(
                self.collection, list(told), with_payload=[MARK], with_vectors=False
            )
        return sum((record.payload or {}).get(MARK) == mark for record in found)

    def _take_back(self, told: Mapping[Id, Written], names: Sequence[str]) -> int:
        """Take the fields from points that lost the vectors they were to go with: where there are
        no marks, one may have been replaced after it got these and before it got the fields. Gives
        how many there are, with those that are gone.
        """
        wanted = list({name: None for vectors, _ in told.values() for name in vectors})
        found = self.given(list(told), wanted)
        bare = [
            record.id
            for record in found
            if any(vector_of(record, name) is None for name in told[record.id][0])
        ]
        if bare:
            with translate_errors(self.name):
                self.client.delete_payload(self.collection, list(names), self._those(bare))
        return len(told) - len(found) + len(bare)

    def unmark(self, ids: Sequence[Id] | None = None) -> None:
        """Take the marks from these points, or from all: a killed process may have left some."""
        those = self.models.FilterSelector(filter=self.models.Filter())
        if ids is not None:
            those = self._those(ids)
        with translate_errors(self.name):
            self.client.delete_payload(self.collection, [MARK], those)

    def _send(self, operations: Sequence[Any]) -> None:
        if operations:
            with translate_errors(self.name):
                self.client.batch_update_points(self.collection, list(operations), wait=True)

    def _those(self, ids: Sequence[Id]) -> Any:
        """Points by their ids, as far as they are there."""
        only = self.models.HasIdCondition(has_id=list(ids))
        return self.models.FilterSelector(filter=self.models.Filter(must=[only]))

    def clear(self, ids: Sequence[Id], vectors: Sequence[str], fields: Sequence[str]) -> None:
        """Take vectors and payload fields from points."""
        for first in range(0, len(ids), PIECE):
            # Not by their ids: one that is gone meanwhile would fail the whole call.
            some = self._those(ids[first : first + PIECE])
            with translate_errors(self.name):
                # The bookkeeping first: a row counts as written while it has it.
                self.client.delete_payload(self.collection, list(fields), some)
                self.client.delete_vectors(self.collection, list(vectors), some)

    def move(self, source: str, target: str, fields: Sequence[str]) -> None:
        """Give all points with bookkeeping the vector `source` as `target`, and take that away.

        A vector without bookkeeping is what a write that was cut short has left; or it was moved
        before, and what the application has made of it since is not undone. A point that has a
        `target` was given it by the application, or by a run that was cut short; it may get it
        between the look and the write, so that is on condition too.
        """
        models = self.models
        still = models.Filter(
            must=[models.HasVectorCondition(has_vector=source)],
            must_not=[models.HasVectorCondition(has_vector=target)],
        )
        for page in self.all():
            due = [
                record
                for record in page
                if not fields or any(name in (record.payload or {}) for name in fields)
            ]
            given: dict[Id, Written] = {
                record.id: ({target: vector}, {})
                for record in due
                if (vector := vector_of(record, source)) is not None
                and vector_of(record, target) is None
            }
            self.update(given, only=still)
            if due and fields:
                with translate_errors(self.name):
                    those = self._those([record.id for record in due])
                    self.client.delete_payload(self.collection, list(fields), those)


def _alike(told: Mapping[Id, Written]) -> list[tuple[dict[str, Any], list[Any]]]:
    """Payload fields with the points that get them, so that equal ones go in one operation."""
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for key, (_, fields) in told.items():
        if fields:
            groups[tuple(fields.items())].append(key)
    return [(dict(fields), keys) for fields, keys in groups.items()]
