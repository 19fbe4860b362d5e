"""Several thousand real texts without a download: what scientific packages say about themselves.

A docstring opens with a summary and goes on with a description. The description is a document of
the gallery, the summary a query to which that one document is relevant, and the part of the
package it stands in, such as `scipy.stats`, its label. Sources are read, never imported, so the
same versions of the packages give the same texts.

    python -m examples.texts texts.parquet
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import NAMESPACE_URL, uuid5

import numpy as np
from numpy.typing import NDArray

PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn", "sympy", "torch")
Part = Literal["train", "held", "rest"]

# numpy has distutils for some versions of Python only.
_NOT_OURS = {"externals", "_vendor", "array_api_compat", "array_api_extra", "distutils"}
_SHARES: dict[Part, int] = {"train": 30, "held": 20, "rest": 50}
_SMALLEST_CLASS = 10
_SUMMARY = range(20, 161)
_DESCRIPTION = 80
_LONGEST = 400

_SECTION = re.compile(r"^\s*[-=~*^]{3,}\s*$", re.M)
_OTHER = re.compile(
    r"\s*(>>>|\.\. |:\w+|[*-] |(Args|Arguments|Parameters|Returns|Examples?|Note)\b:?)"
)
_ROLE = re.compile(r":[\w:.+-]+:`[~!]?([^`<]+?)(?:\s*<[^`]*>)?`")
_TEMPLATE = re.compile(r"%\(|%s|\{\w*\}|\|\w+\|")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in the order of their ids; `queries[i]` asks for document i and no other."""

    ids: list[str]
    texts: list[str]
    labels: list[str]
    queries: list[str]
    parts: list[Part]

    def __len__(self) -> int:
        return len(self.ids)

    def with_uuids(self) -> Corpus:
        """The same documents by ids that are UUIDs, made of their names."""
        return replace(self, ids=[str(uuid5(NAMESPACE_URL, key)) for key in self.ids])

    def rows(self, *parts: Part) -> NDArray[np.int64]:
        """The documents to learn from (train), to measure and plan on (held), and all others."""
        return np.flatnonzero(np.isin(self.parts, parts))


def read_corpus(packages: tuple[str, ...] = PACKAGES, limit: int | None = None) -> Corpus:
    """All documents, or `limit` of them chosen by the hash of their ids."""
    found: dict[str, tuple[str, str, str]] = {}
    said: set[str] = set()
    for package in packages:
        for name, doc in _docstrings(package):
            summary, description = _split(doc)
            # Whole families of methods share a docstring: of those that begin alike one is kept.
            begins = {summary.casefold(), description[:120].casefold()}
            if summary and description and name not in found and not begins & said:
                said |= begins
                found[name] = (description, summary, _label(name))
    ids = sorted(sorted(found, key=_hash)[:limit])
    labels = [found[name][2] for name in ids]
    counts = Counter(labels)
    return Corpus(
        ids=ids,
        texts=[found[name][0] for name in ids],
        # A class of a few items says little: these count as of the package as a whole.
        labels=[
            label if counts[label] >= _SMALLEST_CLASS else label.split(".")[0] for label in labels
        ],
        queries=[found[name][1] for name in ids],
        parts=[_part(name) for name in ids],
    )


def _docstrings(package: str) -> Iterator[tuple[str, str]]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed: pip install 'crossfade[example]'")
    root = Path(spec.origin).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        hidden = parts[0].startswith("_") and parts[0] not in ("_core", "__init__")
        if not hidden and not any(part in _NOT_OURS or "test" in part for part in parts):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            inner = [part for part in parts if part != "__init__"]
            yield from _of_body(tree.body, ".".join([package, *inner]))


def _of_body(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}"
            doc = ast.get_docstring(node)
            if doc and not node.name.startswith("_"):
                yield name, doc
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from _of_body(node.body, name)


def _split(doc: str) -> tuple[str, str]:
    """Summary and description of a docstring, both empty unless they are prose of some length."""
    first, *others = re.split(r"\n\s*\n", doc)
    summary, said = _plain(first), []
    for paragraph in others:
        if _SECTION.search(paragraph) or _OTHER.match(paragraph):
            break
        said.append(_plain(paragraph))
    description = " ".join(said)
    if len(summary) not in _SUMMARY or len(description) < _DESCRIPTION:
        return "", ""
    if _SECTION.search(first) or _TEMPLATE.search(summary + description):
        return "", ""
    return summary, _cut(description)


def _plain(text: str) -> str:
    """Running text: no line breaks, no markup of names."""
    return " ".join(_ROLE.sub(r"\1", text).replace("`", "").split())


def _cut(text: str) -> str:
    """At most so many characters, whole sentences if the first of them fits."""
    if len(text) <= _LONGEST:
        return text
    cut = text[:_LONGEST]
    end = cut.rfind(". ")
    return cut[: end + 1] if end >= _DESCRIPTION else cut[: cut.rfind(" ")]


def _label(name: str) -> str:
    package, *inner = name.split(".")
    public = [part for part in inner[:-1] if not part.startswith("_")]
    return f"{package}.{public[0]}" if public else package


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _part(name: str) -> Part:
    place = _hash(name) // 7919 % 100
    for part, share in _SHARES.items():
        if place < share:
            return part
        place -= share
    raise AssertionError("the shares add up to 100")


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """As a Parquet table with the columns id, text, label, query and part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": corpus.ids, "text": corpus.texts, "label": corpus.labels}
    more = {"query": corpus.queries, "part": corpus.parts}
    pq.write_table(pa.table(columns | more), path)


def main() -> None:
    """Write all of them to the file named on the command line."""
    corpus = read_corpus()
    write_corpus(corpus, sys.argv[1])
    print(f"{len(corpus)} texts with {len(set(corpus.labels))} labels in {sys.argv[1]}")


if __name__ == "__main__":
    main()
