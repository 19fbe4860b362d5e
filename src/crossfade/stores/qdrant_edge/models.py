"""What calls of the Qdrant store are made of, as plain values, under the names that Qdrant's own
library for servers has for them: whoever has the engine alone need not install that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PayloadField:
    key: str


@dataclass(frozen=True)
class IsEmptyCondition:
    is_empty: PayloadField


@dataclass(frozen=True)
class HasVectorCondition:
    has_vector: str


@dataclass(frozen=True)
class HasIdCondition:
    has_id: list[Any]


@dataclass(frozen=True)
class MatchValue:
    value: Any


@dataclass(frozen=True)
class Range:
    gte: float | None = None
    lte: float | None = None


@dataclass(frozen=True)
class FieldCondition:
    key: str
    match: MatchValue | None = None
    range: Range | None = None


@dataclass(frozen=True)
class Filter:
    must: list[Any] = field(default_factory=list)
    must_not: list[Any] = field(default_factory=list)
    should: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class FilterSelector:
    filter: Filter


@dataclass(frozen=True)
class DenseVectorConfig:
    size: int
    distance: Any


@dataclass(frozen=True)
class DenseVectorNameConfig:
    dense: DenseVectorConfig


@dataclass(frozen=True)
class PointVectors:
    id: Any
    vector: dict[str, Any]


@dataclass(frozen=True)
class UpdateVectors:
    points: list[PointVectors]
    update_filter: Filter | None = None


@dataclass(frozen=True)
class UpdateVectorsOperation:
    update_vectors: UpdateVectors


@dataclass(frozen=True)
class SetPayload:
    payload: dict[str, Any]
    points: list[Any] | None = None
    filter: Filter | None = None


@dataclass(frozen=True)
class SetPayloadOperation:
    set_payload: SetPayload


@dataclass(frozen=True)
class DeletePayload:
    keys: list[str]
    points: list[Any] | None = None
    filter: Filter | None = None


@dataclass(frozen=True)
class DeletePayloadOperation:
    delete_payload: DeletePayload
