"""The texts that `crossfade demo` ships, made once: documents, lookups, and both models' vectors.

    python -m examples.demo_data src/crossfade/demo/texts/texts.npz

Documents are descriptions out of docstrings of packages under the BSD licence, their titles the
summaries that stand above them, and lookups some of these titles. A vector is kept as int8 with
one scale for its row.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossfade.demo.models import embed_new, embed_old
from examples.texts import Corpus, read_corpus

PACKAGES = ("networkx", "numpy", "scipy", "sklearn")
DOCUMENTS, LOOKUPS = 2000, 600


def quantized(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from -127 to 127, and what to multiply each row by."""
    scales = np.abs(vectors).max(axis=1) / 127
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def arrays_of(corpus: Corpus, asked: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    """What the file holds; `asked` are the documents whose summaries are lookups."""
    lookups = [corpus.queries[i] for i in asked]
    out: dict[str, NDArray[np.generic]] = {"wanted": asked.astype(np.int32)}
    kept = {"ids": corpus.ids, "titles": corpus.queries, "texts": corpus.texts, "lookups": lookups}
    for name, lines in kept.items():
        if any("\n" in line for line in lines):
            raise ValueError(f"a line break in {name}")
        out[name] = np.frombuffer("\n".join(lines).encode(), np.uint8)
    for name, texts in (("document", corpus.texts), ("lookup", lookups)):
        for side, embed in (("old", embed_old), ("new", embed_new)):
            out[f"{name}_{side}"], out[f"{name}_{side}_scale"] = quantized(embed(texts))
    return out


def main() -> None:
    corpus = read_corpus(PACKAGES, limit=DOCUMENTS)
    drawn = np.random.default_rng(0).choice(len(corpus), LOOKUPS, replace=False)
    path = Path(sys.argv[1])
    np.savez_compressed(path, **arrays_of(corpus, drawn))
    print(f"{len(corpus)} documents, {LOOKUPS} lookups, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
