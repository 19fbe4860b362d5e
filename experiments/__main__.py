"""`python -m experiments list`, `run NAME`, `render FOLDER`, `extract` and `train`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

from crossfade.errors import CrossfadeError, MissingExtra
from experiments.outcome import Outcome

# Command → module. Those of the second kind need no features.
ON_FEATURES = {
    "extending-classes": "extending_classes",
    "pretrained": "pretrained",
    "downstream": "downstream",
    "backfilling": "backfilling",
    "lambda": "lambda_ablation",
    "regularizers": "regularizers",
    "losses": "losses",
    "order-metric": "order_metric",
    "equal-terms": "equal_terms",
    "peers": "peers",
}
BY_THEMSELVES = {"regularization": "regularization_figure", "mnist": "mnist"}
MODULES = ON_FEATURES | BY_THEMSELVES


def module(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.{MODULES[name]}")


def write(found: Outcome, folder: Path) -> None:
    """JSON, Markdown and, with matplotlib, PNG."""
    from experiments import markdown, pictures

    found.write(folder)
    picture: str | None = f"{found.experiment}.png"
    try:
        pictures.draw(found, folder / f"{found.experiment}.png")
    except MissingExtra as error:
        print(f"no picture: {error}", file=sys.stderr)
        picture = None
    (folder / f"{found.experiment}.md").write_text(markdown.page(found, picture))
    print(folder / f"{found.experiment}.md")


def seeds(text: str) -> range:
    """
    >>> seeds("3"), seeds("1:2")
    (range(0, 3), range(1, 2))
    """
    first, _, end = text.rpartition(":")
    return range(int(first or 0), int(end))


def list_all() -> None:
    for name in MODULES:
        found = module(name)
        print(f"{name:20} {found.PAPER:45} {(found.__doc__ or '').splitlines()[0]}")


def run(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in MODULES:
        raise SystemExit(f"usage: python -m experiments run {{{'|'.join(MODULES)}}} [options]")
    name, found = arguments[0], module(arguments[0])
    parser = argparse.ArgumentParser(prog=f"python -m experiments run {name}")
    parser.add_argument(
        "--seeds", type=seeds, default=range(3), help="how many, or FIRST:END for some of them"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("-o", "--out", type=Path, default=Path("results"))
    if name in ON_FEATURES:
        from experiments.given import add_options, given

        add_options(parser)
        found.options(parser)
        args = parser.parse_args(arguments[1:])
        made = given(args)
        outcome = found.run(made, args)
    else:
        found.options(parser)
        args = parser.parse_args(arguments[1:])
        outcome = found.run(args)
    write(outcome, args.out)


def render(arguments: list[str]) -> None:
    """Pages and pictures again, from the JSON of earlier runs, and a page of all claims."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments render", description=render.__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="by default the same folder")
    args = parser.parse_args(arguments)
    from experiments import markdown

    out = args.out or args.folder
    found = [Outcome.read(path) for path in sorted(args.folder.glob("*.json"))]
    for one in found:
        write(one, out)
    (out / "claims.md").write_text(markdown.overview(found))


def main(arguments: list[str]) -> None:
    commands = {"run": run, "render": render, "list": lambda _: list_all()}
    for name in ("extract", "train"):
        commands[name] = lambda rest, name=name: importlib.import_module(
            f"experiments.images.{name}"
        ).main(rest)
    if not arguments or arguments[0] not in commands:
        raise SystemExit(f"usage: python -m experiments {{{'|'.join(commands)}}} [options]")
    try:
        commands[arguments[0]](arguments[1:])
    except CrossfadeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main(sys.argv[1:])
