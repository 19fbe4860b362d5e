"""The packages of `crossfade` and who imports whom, read from the source.

python -m tests.architecture          # what docs/architecture.md shows
python -m tests.architecture --write  # write it there
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- packages: made by python -m tests.architecture -->", "<!-- /packages -->"
# From top to bottom; what stands in one line may not import each other either.
LAYERS = (
    ("cli",),
    ("demo", "testing"),
    ("migration", "lookups", "baselines"),
    ("search",),
    ("journal",),
    ("backfill",),
    ("compatibility",),
    ("stores", "embedders", "upgrade"),
    ("asking", "solvers"),
    ("pairs", "losses", "maps", "retrieval"),
    ("files", "spaces", "cases", "sketch", "threads"),
    ("badrows",),
    ("errors",),
    ("redaction", "_version"),
)
WHAT = {
    "cli": "commands: parse, call, print",
    "demo": "`crossfade demo`",
    "testing": "the contract of stores, as tests",
    "migration": "a file per step",
    "lookups": "pairs and lookups sampled from a store",
    "baselines": "the peers, under the same interface",
    "search": "`Searcher`, scores of two models on one scale",
    "journal": "what a migration keeps in its store, and its table of transitions",
    "backfill": "`Plan` and how it is made",
    "compatibility": "the table of cases and its verdicts",
    "stores": "the contract, the registry, a package per store",
    "embedders": "functions, endpoints, files of vectors",
    "upgrade": "`Upgrade`: learning, artefact, apply, ONNX",
    "asking": "ways of asking, and what each voice counts",
    "solvers": "closed form, fast, paper",
    "pairs": "reading and checking pairs",
    "losses": "alignment, contrastive, orthogonality",
    "maps": "one file per mathematical object",
    "retrieval": "exact ranking and metrics",
    "files": "file formats, writing by rename",
    "errors": "what can be wrong, with the next step",
}


def imports() -> dict[str, set[str]]:
    """For each package, or module that stands alone, those it imports."""
    found: dict[str, set[str]] = {}
    source = ROOT / "src" / "crossfade"
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        mine = found.setdefault(parts[0], set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crossfade"):
                _, *rest = str(node.module).split(".")
                mine |= {rest[0]} if rest else {alias.name for alias in node.names}
            elif isinstance(node, ast.Import):
                mine |= {
                    alias.name.split(".")[1]
                    for alias in node.names
                    if alias.name.startswith("crossfade.")
                }
        mine.discard(parts[0])
    return found


def drawn() -> str:
    """Layer by layer: each package, what it is, and what it imports of those below it."""
    found = imports()
    lines = ["| layer | package | what it is | imports |", "|---|---|---|---|"]
    for depth, names in enumerate(LAYERS, 1):
        for name in names:
            below = [other for layer in LAYERS for other in layer if other in found.get(name, ())]
            lines.append(f"| {depth} | `{name}` | {WHAT.get(name, '')} | {', '.join(below)} |")
    return "\n".join(lines)


def main() -> None:
    if "--write" not in sys.argv:
        print(drawn())
        return
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{drawn()}\n{END}{after}")


if __name__ == "__main__":
    main()
