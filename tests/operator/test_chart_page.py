"""What the chart says of itself agrees with what it is."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from support.places import CHECKOUT
from tokenization_worker.api.job import TokenizationJob

CHART = CHECKOUT / "charts" / "tokenization-operator"
SCRIPT = CHECKOUT / "scripts" / "chart_readme.py"


def chart_of() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def annotation(name: str) -> Any:
    return yaml.safe_load(chart_of()["annotations"][f"artifacthub.io/{name}"])


def check(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)


def test_the_readme_of_the_chart_is_that_of_its_values() -> None:
    done = check(SCRIPT)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# The port of /metrics.", "# The port for Prometheus.", "README.md is out of date: make generate"),
        ("port: 8081", "port: 8082", "README.md is out of date: make generate"),
        ("  # The port of /metrics.\n", "", "metrics.port has no comment above it"),
    ],
    ids=["a comment that has changed", "a default that has changed", "a value without a comment"],
)
def test_a_readme_that_is_out_of_date_is_noticed(old: str, new: str, said: str, tmp_path: Path) -> None:
    copy = tmp_path / "charts" / CHART.name
    copy.mkdir(parents=True)
    script = tmp_path / "scripts" / SCRIPT.name
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("Chart.yaml", "README.md", "values.yaml"):
        (copy / name).write_text((CHART / name).read_text(encoding="utf-8"), encoding="utf-8")
    values = (copy / "values.yaml").read_text(encoding="utf-8")
    assert values.count(old) == 1
    (copy / "values.yaml").write_text(values.replace(old, new), encoding="utf-8")
    done = check(script)
    assert done.returncode
    assert said in done.stderr


def properties(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        node = schema["definitions"][node["$ref"].rpartition("/")[2]]
    found: dict[str, Any] = node.get("properties", {})
    return found


def test_the_schema_knows_exactly_the_values_that_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def compare(found: dict[str, Any], node: dict[str, Any], path: str) -> None:
        known = properties(schema, node)
        if not known or not found:  # an empty mapping is a value, of which the schema says what it may be
            return
        assert found.keys() == known.keys() - {"global"}, path
        for name, value in found.items():
            if isinstance(value, dict):
                compare(value, known[name], f"{path}.{name}")

    compare(values, schema, "values")


def test_the_chart_names_the_kinds_that_it_brings() -> None:
    brought = {}
    for path in (CHECKOUT / "crds").glob("*.yaml"):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        versions = [each["name"] for each in crd["spec"]["versions"]]
        brought[crd["metadata"]["name"]] = (crd["spec"]["names"]["kind"], versions)
    named = {each["name"]: (each["kind"], [each["version"]]) for each in annotation("crds")}
    assert named == brought


def test_the_example_of_the_chart_is_a_job() -> None:
    [example] = annotation("crdsExamples")
    assert TokenizationJob.from_object(example).metadata.name


def test_the_icon_of_the_chart_is_a_picture_that_nothing_has_to_fetch() -> None:
    kind, _, data = chart_of()["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
