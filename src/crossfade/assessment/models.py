"""The two models as they were named, so that the commands to go on with name them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossfade.embedders import CallableEmbedder, Embedder, Endpoint, open_embedder
from crossfade.lookups.models import Model

UNNAMED = "EMBEDDER"
"""Stands in a command for a function that a shell cannot name."""


@dataclass(frozen=True)
class Named:
    """An embedder, and the words of the command line that mean it."""

    embedder: Embedder
    text: str

    @classmethod
    def of(cls, given: Model | Named, text: str | None = None) -> Named:
        """`text` is what was typed, where the embedder is open already.

        >>> def model(texts):
        ...     return [[len(text)] for text in texts]
        >>> Named.of(model).text.endswith(":model")
        True
        >>> Named.of(lambda texts: texts).text
        'EMBEDDER'
        """
        if isinstance(given, Named):
            return given
        if isinstance(given, str):
            return cls(open_embedder(given), text or given)
        if isinstance(given, Embedder):
            return cls(given, text or given.name)
        function: Any = given
        module = getattr(function, "__module__", "__main__")
        path = getattr(function, "__qualname__", "<unnamed>")
        found = UNNAMED if module == "__main__" or "<" in path else f"{module}:{path}"
        return cls(CallableEmbedder(given, path), text or found)

    @property
    def model(self) -> str:
        """Its name for the card of the upgrade."""
        asked = self.embedder
        return asked.settings.model if isinstance(asked, Endpoint) else self.text

    @property
    def words(self) -> list[str]:
        """As `crossfade migrate backfill` takes them."""
        if not isinstance(self.embedder, Endpoint):
            return ["--embed", self.text]
        settings = self.embedder.settings
        out = ["--embed", self.embedder.name, "--model", settings.model]
        if settings.key_env is not None:
            out += ["--key-env", settings.key_env]
        if settings.requests_per_second is not None:
            out += ["--requests-per-second", f"{settings.requests_per_second:g}"]
        return out

    @property
    def inputs(self) -> str:
        """What tells it from another model."""
        asked = self.embedder
        return f"{asked.name} {asked.settings.model}" if isinstance(asked, Endpoint) else self.text
