"""The packages of `crossfade` and who imports whom, read from the source.

python -m tests.architecture          # what docs/architecture.md shows
python -m tests.architecture --write  # write it there
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "architecture.svg"
BEGIN, END = "<!-- packages: made by python -m tests.architecture -->", "<!-- /packages -->"
# From top to bottom; what stands in one line may not import each other either.
LAYERS = (
    ("cli",),
    ("demo", "testing", "serving", "assessment"),
    ("report", "integrations"),
    ("migration", "lookups", "baselines"),
    ("search",),
    ("journal",),
    ("backfill",),
    ("compatibility",),
    ("engines",),
    ("stores", "embedders", "upgrade"),
    ("asking", "solvers"),
    ("pairs", "losses", "maps", "retrieval"),
    ("files", "spaces", "cases", "sketch", "threads"),
    ("badrows", "distance", "remote"),
    ("errors",),
    ("redaction", "_version"),
)
WHAT = {
    "cli": "commands: parse, call, print",
    "demo": "`crossfade demo`",
    "serving": "the HTTP gateway and its dashboard",
    "assessment": "from a store to an answer in one call",
    "report": "one self-contained HTML page",
    "integrations": "LangChain, LlamaIndex, sentence-transformers, FAISS",
    "testing": "the contract of stores, as tests",
    "migration": "a file per step",
    "lookups": "pairs and lookups sampled from a store",
    "baselines": "the peers, under the same interface",
    "search": "`Searcher`, scores of two models on one scale",
    "journal": "what a migration keeps in its store, and its table of transitions",
    "backfill": "`Plan` and how it is made",
    "compatibility": "the table of cases and its verdicts",
    "engines": "the same work by the workers of Ray",
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
    "remote": "paths of object stores",
    "distance": "how vectors are compared",
    "errors": "what can be wrong, with the next step",
}


@cache
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


def arrows(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Who imports whom, less what follows: an arrow is left out where others lead there too."""

    def reached(name: str) -> set[str]:
        return found[name].union(*(reached(other) for other in found[name]))

    return [
        (name, other)
        for layer in LAYERS
        for name in layer
        for other in sorted(found[name])
        if not any(other in reached(between) for between in found[name] - {other})
    ]


def picture() -> str:
    """The packages as boxes, layer by layer, and an arrow from each to what it imports."""
    wide, high, gap, row = 900, 30, 44, 64
    boxes: dict[str, tuple[float, float, float]] = {}
    for depth, names in enumerate(LAYERS):
        widths = [22 + 8.2 * len(name) for name in names]
        x = (wide - sum(widths) - gap * (len(names) - 1)) / 2
        for name, width in zip(names, widths, strict=True):
            boxes[name] = (x, 10 + depth * row, width)
            x += width + gap
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {len(LAYERS) * row}" '
        'font-family="ui-monospace, monospace" font-size="13" role="img">',
        "<title>The packages of crossfade; arrows point at what is imported</title>",
        f'<rect width="{wide}" height="{len(LAYERS) * row}" fill="#fff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>',
    ]
    for name, other in arrows(imports()):
        (x, y, width), (to_x, to_y, to_width) = boxes[name], boxes[other]
        begin, end, bend = y + high, to_y - 1, (to_y - y - high) / 2
        x, to_x = x + width / 2, to_x + to_width / 2
        out.append(
            f'<path d="M{x:.0f} {begin}C{x:.0f} {begin + bend:.0f} {to_x:.0f} {end - bend:.0f} '
            f'{to_x:.0f} {end}" fill="none" stroke="#94a3b8" marker-end="url(#tip)"/>'
        )
    for name, (x, y, width) in boxes.items():
        out.append(
            f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{high}" rx="6" '
            'fill="#f1f5f9" stroke="#475569"/>'
            f'<text x="{x + width / 2:.0f}" y="{y + 20}" text-anchor="middle">{name}</text>'
        )
    return "\n".join([*out, "</svg>\n"])


def main() -> None:
    if "--write" not in sys.argv:
        print(drawn())
        return
    PICTURE.write_text(picture())
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{drawn()}\n{END}{after}")


if __name__ == "__main__":
    main()
