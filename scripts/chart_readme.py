#!/usr/bin/env python3
"""Write the README of the chart from its Chart.yaml and the comments of its values.yaml.

    python scripts/chart_readme.py          write it
    python scripts/chart_readme.py --check  exit with 1 where it is out of date

Every value has a comment above it. A mapping in block style is a section of values; one that is written on one line is
a value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "tokenization-operator"

_TEXT = """# {name}

{description}

Chart {version} for operator {app_version}. Needs Kubernetes {kubernetes}.

```
helm install tokenization charts/tokenization-operator --namespace tokenization-system --create-namespace \\
  --set operator.image.repository=REGISTRY/tokenization-operator \\
  --set worker.image.repository=REGISTRY/tokenization-worker \\
  --set-json 'jobNamespaces=[{{"name": "team"}}]'
helm test tokenization --namespace tokenization-system
```

| page | content |
|---|---|
| [Kubernetes](../../docs/kubernetes.md) | requirements, a first job, upgrades |
| [operations](../../docs/operations.md) | metrics, dashboard, alerts |
| [images](../../docs/images.md) | how to build, pin and sign them |

## Values

| value | default | meaning |
|---|---|---|
{rows}

`scripts/chart_readme.py` generates this page from `values.yaml`: edit the comments there, then run `make generate`.
"""


class NoComment(Exception):
    """A value has no comment."""


@dataclass(frozen=True)
class Value:
    """A value that can be set; `words`: its comment."""

    path: str
    default: str
    words: str


def read_values(text: str) -> Iterator[Value]:
    """All values of a values.yaml, in its order; raises `NoComment`."""
    lines = text.splitlines()
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _values(root, lines, "")


def _values(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _values(value, lines, f"{path}.")
            continue
        words = _comment_above(lines, key.start_mark.line)
        if not words:
            raise NoComment(f"values.yaml, line {key.start_mark.line + 1}: {path} has no comment above it")
        yield Value(path, json.dumps(yaml.SafeLoader("").construct_document(value)), words)


def _comment_above(lines: list[str], number: int) -> str:
    found: list[str] = []
    while number and lines[number - 1].strip().startswith("#"):
        number -= 1
        found.insert(0, lines[number].strip().removeprefix("#").strip())
    return " ".join(found)


def make_readme(chart: dict[str, Any], values: str) -> str:
    """The whole page."""
    rows = "\n".join(
        f"| `{each.path}` | `{each.default}` | {each.words.replace('|', chr(92) + '|')} |"
        for each in read_values(values)
    )
    return _TEXT.format(
        name=chart["name"],
        description=chart["description"],
        version=chart["version"],
        app_version=chart["appVersion"],
        kubernetes=chart["kubeVersion"].replace(">=", "").removesuffix(".0-0") + " or newer",
        rows=rows,
    )


def main(words: list[str]) -> int:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    page = make_readme(chart, (CHART / "values.yaml").read_text(encoding="utf-8"))
    path = CHART / "README.md"
    if words != ["--check"]:
        path.write_text(page, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == page:
        return 0
    print(f"{path} is out of date: make generate", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
