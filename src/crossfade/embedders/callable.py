"""New vectors from a function of the user's own, named as `module:function`."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossfade.embedders.contract import BaseEmbedder, Id, Vectors
from crossfade.errors import BadInput, CrossfadeError, EmbedderError, shortened

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
FORM = re.compile(rf"({_NAME}):({_NAME})")
_EXPLAIN = "name a function that takes a list of texts, as module:function"


Embed = Callable[[list[str]], Any]
"""Takes a list of texts, gives a row of numbers for each."""


class CallableEmbedder(BaseEmbedder):
    """Calls a function with a list of texts; it returns one row for each.

    >>> embedder = CallableEmbedder(lambda texts: [[len(text)] for text in texts], "lengths")
    >>> embedder.embed(["a", "b"], ["one", "three"])
    [[3], [5]]
    """

    def __init__(self, function: Embed, name: str) -> None:
        self.name = name
        self._function = function

    def __repr__(self) -> str:
        return f"CallableEmbedder({self.name!r})"

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        """What the function returns; `embed_checked` makes an array of it."""
        try:
            answer: Vectors = self._function(list(sources or ()))
        except CrossfadeError:
            raise
        except Exception as error:
            first = f", the first of them {shortened(ids[0])}" if len(ids) else ""
            raise EmbedderError(
                f"raised {_described(error)} on {len(ids)} items{first}",
                where=self.name,
                step="call it with these texts to see why, then resume",
            ) from error
        return answer


def open_callable(text: str) -> CallableEmbedder:
    """The function named by `module:function`, looked for in the working directory too.

    >>> open_callable("json:dumps")
    CallableEmbedder('json:dumps')
    >>> open_callable("json:dump_all")
    Traceback (most recent call last):
    crossfade.errors.BadInput: json:dump_all: the module 'json' has no 'dump_all' → name a ...
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise BadInput("is not of the form module:function", where=shortened(text), step=_EXPLAIN)
    module, path = found.groups()
    value: Any = _imported(module, text)
    for part in path.split("."):
        if not hasattr(value, part):
            raise BadInput(
                f"the module '{module}' has no '{path}'", where=text, step="name a function of it"
            )
        value = getattr(value, part)
    if isinstance(value, type):
        raise BadInput("is a class, not a function", where=text, step=_EXPLAIN)
    if not callable(value):
        raise BadInput(f"is of type {type(value).__name__}", where=text, step=_EXPLAIN)
    if inspect.iscoroutinefunction(value):
        raise BadInput("is an async function", where=text, step="name one that is not")
    return CallableEmbedder(value, text)


def _imported(module: str, text: str) -> Any:
    # As `python -m` does: a command that was installed does not see the working directory else.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_of(error.name, module):
            raise BadInput(
                f"there is no module '{error.name}' here or among the installed packages",
                where=text,
                step="check the name, or run the command in the folder that holds it",
            ) from error
        raise BadInput(
            f"importing '{module}' raised {_described(error)}",
            where=text,
            step=f"see what `python -c 'import {module}'` says",
        ) from error


def _is_of(missing: str | None, module: str) -> bool:
    """Whether it is the module or a package around it that is missing, not what it imports."""
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _described(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
