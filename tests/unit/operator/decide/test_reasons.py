"""Every reason that the operator gives stands in the documentation, with what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tokenization_operator
from support.places import CHECKOUT

OF_KUBERNETES = {
    *("True", "False", "Complete", "PodScheduled", "Mi"),
    *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "UnexpectedAdmissionError"),
    *("TriggeredScaleUp", "NotTriggerScaleUp", "Nominated"),
}


def camel_case_words(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {word for word in words if re.fullmatch(r"([A-Z][a-z]+)+", word)}


def test_every_reason_has_its_next_step() -> None:
    package = Path(tokenization_operator.__file__).parent
    deciding = [*(package / "decide").glob("*.py"), package / "observe" / "pod_diagnosis.py"]
    reasons = set().union(*map(camel_case_words, deciding)) - OF_KUBERNETES
    assert {"HeadLost", "StartupDeadline", "ClusterRequested", "NotUnderstood"} <= reasons
    text = (CHECKOUT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()
