"""One file with the answer, and what it rests on."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from tests.report.conftest import HOSTILE

from crossfade import BadInput, Held, Pairs, Plan, Upgrade, plan, write_report
from crossfade.report.chart import CurveChart, Level
from crossfade.report.sentences import CASES


def plain(path) -> str:
    """The page's text, one space between words."""
    body = path.read_text().split("<body", 1)[1]
    body = re.sub(r"<(script|style)>.*?</\1>", "", body, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.fixture(scope="module")
def of_labelled(labelled, tmp_path_factory):
    return write_report([labelled], tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def of_lookups(lookups, tmp_path_factory):
    return write_report([lookups], tmp_path_factory.mktemp("report") / "report.html")


def test_the_answer_is_the_plans(lookups, of_lookups):
    made = Plan.load(lookups / "plan").record
    assert made.recommendation != "do not upgrade"
    assert of_lookups.answer.startswith("Upgrade: ask with")
    assert f"re-embed {made.stop:.0%} of the gallery" in of_lookups.answer
    quality = made.quality["mrr@10"]
    assert f"from today's {quality['old/old']:.1f} to {quality['at the stop']:.1f}" in (
        of_lookups.answer
    )
    assert of_lookups.answer in plain(of_lookups.path)


def test_the_answer_has_the_price(labelled, of_labelled):
    stop = Plan.load(labelled / "plan").record.stop
    items = int(stop * 50_000 + 1e-9)
    assert f"({items:,} items, at a cost of {items / 1000 * 2:,.2f}, in" in of_labelled.answer


def test_every_case_is_explained_and_has_its_numbers(labelled, of_labelled):
    told = plain(of_labelled.path)
    found = json.loads((labelled / "evaluation.json").read_text())
    assert set(found["cases"]) == set(CASES)
    for case, numbers in found["cases"].items():
        asks, searched = CASES[case]
        low, high = numbers["ci95"]["mAP"]
        assert f"{case} {asks} {searched}" in told
        assert f"{numbers['mAP']:.1f} {low:.1f} to {high:.1f}" in told
    for verdict in found["verdicts"].values():
        assert f"mAP {verdict['metrics']['mAP']['difference']:+.1f} [" in told


def test_without_today_or_judgement_it_says_so(labelled, tmp_path):
    text = json.loads((labelled / "evaluation.json").read_text())
    text |= {"judged": False, "verdicts": {}, "asking": None, "failed": []}
    (tmp_path / "evaluation.json").write_text(json.dumps(text))
    made = write_report([tmp_path / "evaluation.json"], tmp_path / "report.html")
    assert made.answer.startswith("Not known: nothing could be judged")
    assert "Nothing was judged" in plain(made.path)


def test_what_was_measured_on_a_store_is_shown_beside_what_was_on_held_out_rows(labelled, tmp_path):
    text = json.loads((labelled / "evaluation.json").read_text())
    on_store = text | {"cases": {"old/old": text["cases"]["old/old"]}, "sample": text}
    (tmp_path / "evaluation.json").write_text(json.dumps(on_store))
    made = write_report([tmp_path / "evaluation.json"], tmp_path / "report.html")
    before, after = plain(made.path).split("The cases on rows held out of the fit")
    assert "new/new the new model" not in before
    assert "new/new the new model" in after


def test_warnings_of_all_parts_are_among_the_risks(lookups, of_lookups):
    warned = json.loads((lookups / "evaluation.json").read_text())["warnings"]
    warned += Plan.load(lookups / "plan").record.warnings
    assert warned
    told = plain(of_lookups.path)
    for warning in warned:
        assert warning[1:] in told


def test_what_is_missing_is_named_with_the_command_that_makes_it(labelled, tmp_path):
    made = write_report([labelled / "upgrade"], tmp_path / "report.html")
    told = plain(made.path)
    assert [name.split(":")[0] for name in made.missing] == [
        "the evaluation",
        "the plan",
        "the store",
    ]
    assert f"crossfade evaluate {labelled / 'upgrade'} PAIRS --json evaluation.json" in told
    assert f"crossfade plan {labelled / 'upgrade'} PAIRS -o PLAN" in told


def test_the_commands_to_go_on_with_name_what_was_given(labelled, of_labelled):
    told = plain(of_labelled.path)
    assert (
        f"crossfade migrate start STORE {labelled / 'upgrade'} --evaluation "
        f"{labelled / 'evaluation.json'} --plan {labelled / 'plan'}" in told
    )


def test_a_plan_against_it_is_an_answer_too(made, tmp_path):
    data = made(rows=360, seed=3)
    # The new model is the old one, hard of hearing.
    worse = data.old + 6 * np.random.default_rng(0).normal(size=data.old.shape).astype("f4")
    upgrade = Upgrade(solver="closed_form")
    upgrade.fit(data.old[:180], worse[:180], data.labels[:180], force=True)
    held = Held.of(Pairs.from_arrays(data.old[180:], worse[180:], data.labels[180:]))
    found = plan(upgrade, held, optimize=["mAP"], ask=["new"], orders=["random"], blends=[1.0])
    found.save(tmp_path / "plan")
    answered = write_report([tmp_path / "plan"], tmp_path / "report.html")
    assert answered.answer == f"Do not upgrade: {found.record.reason}."
    assert "crossfade migrate start" not in plain(answered.path)


def test_names_are_text(of_labelled):
    html = of_labelled.path.read_text()
    assert HOSTILE not in html
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in html


def test_a_migration_is_a_part_of_it(labelled, tmp_path, made):
    import lance
    import pyarrow as pa

    from crossfade import Migration
    from crossfade.files.arrow import to_arrow
    from crossfade.migration.live_quality import Queries

    data = made(rows=90, seed=3)
    columns = {"id": range(90), "kind": data.labels, "vector": to_arrow(data.old)}
    table = pa.table(columns)
    lance.write_dataset(table, tmp_path / "items.lance")
    none = write_report([tmp_path / "items.lance"], tmp_path / "none.html")
    assert "None was started on" in plain(none.path)
    migration = Migration(tmp_path / "items.lance", labelled / "upgrade")
    migration.start(force=True, plan=labelled / "plan")
    migration.forward()
    # A model that has understood nothing.
    deaf = np.random.default_rng(0).normal(size=data.new.shape).astype("f4")
    migration.verify(queries=Queries(data.old, deaf, data.labels.tolist(), "kind"))
    low, high = migration.status().measured["difference"]["mAP"]
    assert high < 0
    wanted = migration.status().next
    migration.close()
    done = write_report([labelled, tmp_path / "items.lance"], tmp_path / "report.html")
    told = plain(done.path)
    assert not done.missing
    assert "Every row is lifted" in told
    assert "lifted 90 100.0%" in told
    assert wanted in told
    assert "you are here: 0.0%" in told
    assert f"below old ones in mAP, by {low:+.1f} to {high:+.1f} points" in told


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("empty", "holds no upgrade, evaluation or plan, and is no store"),
        ("note.json", "is no evaluation"),
        ("nowhere", "no such store"),
    ],
)
def test_what_is_none_of_these_is_refused(tmp_path, wrong, cause):
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.json").write_text('{"cases": 3}')
    with pytest.raises(BadInput, match=cause):
        write_report([tmp_path / wrong], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_parts_of_different_upgrades_make_no_report(labelled, lookups, tmp_path):
    with pytest.raises(BadInput, match="parts of different upgrades"):
        write_report([labelled / "upgrade", lookups / "plan"], tmp_path / "report.html")
    with pytest.raises(BadInput, match="is a second plan"):
        write_report([labelled / "plan", lookups / "plan"], tmp_path / "report.html")


def test_a_changed_upgrade_makes_no_report(labelled, tmp_path):
    shutil.copytree(labelled / "upgrade", tmp_path / "upgrade")
    config = tmp_path / "upgrade" / "config.json"
    config.write_text(config.read_text().replace("fine", "poor"))
    with pytest.raises(BadInput, match="does not match its content hash"):
        write_report([tmp_path / "upgrade"], tmp_path / "report.html")


def test_the_command_writes_it_and_does_not_write_over_it(crossfade, labelled, tmp_path):
    page = tmp_path / "report.html"
    ran = crossfade("report", labelled, "-o", page, "--json", "-")
    record = json.loads(ran.out)
    assert (ran.code, record["written"]) == (0, str(page))
    assert record["answer"] in plain(page)
    before = page.read_bytes()
    again = crossfade("report", labelled, "-o", page)
    assert again.code == 2
    assert "already exists" in again.err
    assert page.read_bytes() == before
    assert crossfade("report", labelled / "plan", "-o", page, "--overwrite").code == 0
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_a_curve_is_drawn_where_its_numbers_are():
    shares, means = np.linspace(0, 1, 11), 40 + 20 * np.linspace(0, 1, 11) ** 2
    chart = CurveChart("t", shares.tolist(), means.tolist(), levels=[Level("today", 42.0, "today")])
    for drawn in chart.draw():
        ticks, levels = {}, []
        for one in drawn.children:
            where = {k: float(v) for k, v in one.attributes.items() if k in ("x", "y", "y1")}
            if one.attributes["class"] == "tick end":
                ticks[float(one.children[0])] = where["y"] - 4
            elif one.attributes["class"] == "level today":
                levels.append(where["y1"])
            elif one.attributes["class"] == "curve":
                points = np.array(re.findall(r"([\d.]+) ([\d.]+)", one.attributes["d"]), float)
        slope, offset = np.polyfit(list(ticks.values()), list(ticks), 1)
        assert np.allclose(slope * points[:, 1] + offset, means, atol=0.02)
        assert np.allclose(slope * levels[0] + offset, 42.0, atol=0.02)
        along = (points[:, 0] - points[0, 0]) / (points[-1, 0] - points[0, 0])
        assert np.allclose(along, shares, atol=0.001)


def test_the_report_needs_no_extra(labelled, tmp_path):
    import subprocess
    import sys

    script = (
        "import sys\n"
        "for name in ('torch', 'matplotlib', 'starlette', 'uvicorn', 'numba', 'lance'):\n"
        "    sys.modules[name] = None\n"
        "from crossfade import write_report\n"
        "write_report([sys.argv[1]], sys.argv[2])\n"
    )
    target = tmp_path / "report.html"
    ran = subprocess.run(
        [sys.executable, "-c", script, str(labelled), str(target)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert target.exists()


def test_an_upgrade_alone_says_that_nothing_was_measured(made, tmp_path):
    data = made()
    Upgrade(solver="closed_form").fit(data.old, data.new).save(tmp_path / "upgrade")
    found = write_report([tmp_path / "upgrade"], tmp_path / "report.html")
    assert found.answer.startswith("Not known yet")
