"""An option of a fit is declared once: constructor and command are made of that declaration."""

from __future__ import annotations

import inspect
from dataclasses import fields

import typer

from crossfade import Upgrade
from crossfade.cli.fit import fit
from crossfade.solvers.settings import Options, declared

OWN = {
    *("pairs", "output", "old", "new", "labels", "no_labels", "drop_bad_rows"),
    *("force", "overwrite", "json_file"),
}


def command() -> dict[str, object]:
    app = typer.Typer(add_completion=False)
    app.command()(fit)
    return {one.name: one for one in typer.main.get_command(app).params}


def test_the_constructor_has_a_keyword_for_every_option_with_its_default():
    found = inspect.signature(Upgrade).parameters
    assert {name: p.default for name, p in found.items()} == {
        one.name: one.default for one in fields(Options)
    }
    assert all(p.kind is p.KEYWORD_ONLY for p in found.values())


def test_the_command_has_a_parameter_for_every_option_and_no_other_of_its_own():
    options = command()
    assert options.keys() - OWN == {one.name for one in declared()}
    for one in declared():
        made = options[one.name]
        assert one.shown.help
        assert made.help.startswith(one.shown.help)
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        assert made.default == ([] if one.name == "hidden" else default)


def test_names_on_the_command_line_are_those_that_scripts_use():
    names = {flag for one in command().values() for flag in one.opts if flag.startswith("--")}
    assert names == {
        *("--output", "--old", "--new", "--labels", "--no-labels", "--drop-bad-rows", "--force"),
        *("--overwrite", "--json", "--backward", "--lambda", "--forward", "--hidden", "--solver"),
        *("--seed", "--device", "--normalize-old", "--normalize-new", "--rotate-old"),
        *("--old-model", "--new-model", "--epochs", "--batch-size", "--lr", "--weight-decay"),
        *("--temperature", "--validation", "--select-case", "--select-metric", "--alpha"),
        *("--regularizer", "--regularizer-weight", "--w1", "--w2", "--w3", "--w4"),
    }


def test_advanced_options_have_the_last_panel_to_themselves():
    panels = list(dict.fromkeys(one.rich_help_panel for one in command().values()))
    assert panels[-1] == "Advanced"
    assert {one.name for one in declared() if one.shown.panel == "Advanced"} == {
        *("alpha", "regularizer", "regularizer_weight", "w1", "w2", "w3", "w4"),
    }


def test_the_docstring_of_the_constructor_explains_every_option():
    explained = inspect.getdoc(Upgrade)
    assert [one.name for one in declared() if one.name not in explained] == []
