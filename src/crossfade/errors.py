"""Every error a user can meet, in one tree.

    CrossfadeError
    ├── BadInput            exit 2   a file, an array or an option is wrong
    │   ├── MissingExtra    exit 2   an optional dependency is not installed
    │   └── BadUpgrade      exit 2   an upgrade folder is incomplete or was changed
    ├── NotCompatible       exit 1   a verdict failed
    └── StoreError          exit 3   a vector store or a service failed

A message reads `where: cause → next step`, so that the reader of a log knows what to do.
"""

from __future__ import annotations


class CrossfadeError(Exception):
    """Base of all errors raised on purpose.

    >>> str(CrossfadeError("row 17 of 'new' has a NaN", where="pairs.npz", step="re-embed it"))
    "pairs.npz: row 17 of 'new' has a NaN → re-embed it"
    """

    exit_code = 1

    def __init__(self, cause: str, *, where: object = None, step: str | None = None) -> None:
        self.cause = cause
        self.where = None if where is None else str(where)
        self.step = step
        message = cause if self.where is None else f"{self.where}: {cause}"
        super().__init__(message if step is None else f"{message} → {step}")


class BadInput(CrossfadeError):
    """A file, an array or an option that cannot be used."""

    exit_code = 2


class MissingExtra(BadInput):
    """An optional dependency that is not installed.

    >>> str(MissingExtra("torch", extra="train", need="the gradient solver"))
    "the gradient solver needs torch, which is not installed → pip install 'crossfade[train]'"
    """

    def __init__(self, package: str, *, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs {package}, which is not installed",
            step=f"pip install 'crossfade[{extra}]'",
        )
        self.package = package
        self.extra = extra


class BadUpgrade(BadInput):
    """An upgrade folder that is incomplete, was changed, or belongs to another version."""


class NotCompatible(CrossfadeError):
    """A required case does not meet the Empirical Compatibility Criterion."""

    exit_code = 1


class StoreError(CrossfadeError):
    """A vector store or a service did not do what was asked."""

    exit_code = 3
