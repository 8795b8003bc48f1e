"""The example's Job trains tokenizers on a real node, and a TokenizationJob takes one of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.images import ROOT, Image
from e2e.node import STORE, RealCluster
from e2e.runs import NAME, RUN_S, Team, fit
from e2e.steps import step
from support.forked_commands import TOKJOB
from tokenization_worker.storage.open import open_store

pytestmark = pytest.mark.e2e

EXAMPLE = ROOT / "examples" / "kubernetes" / "train-tokenizer.yaml"
OUTPUT = "tokenizers/en"
SIZES = [2000, 4000, 8000]
CHOSEN = "4000/tokenizer.json"


def test_a_job_trains_tokenizers_as_a_local_training_does_and_a_job_takes_one(
    cluster: RealCluster, team: Team, images: dict[str, Image], corpus: Path, tmp_path: Path
) -> None:
    settings, job = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8").replace("your-bucket", team.bucket))
    [container] = job["spec"]["template"]["spec"]["containers"]
    image = container["image"] = images["worker.train"].name
    container["env"].append({"name": "STORAGE_EMULATOR_HOST", "value": STORE})
    container["resources"] = {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    training = yaml.safe_load(settings["data"]["training.yaml"])
    training["spec"]["tokenizer"]["vocabSize"] = SIZES  # the text of the tests has no more tokens
    settings["data"]["training.yaml"] = yaml.safe_dump(training)
    training["spec"] |= {"source": {"uris": [str(corpus)]}, "output": {"uri": str(tmp_path / "here")}}
    (tmp_path / "here.yaml").write_text(yaml.safe_dump(training), encoding="utf-8")
    with step("train here, for comparison"):
        done = subprocess.run([TOKJOB, "train", tmp_path / "here.yaml"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with step("train in a Pod"):
        cluster.do("-n", team.jobs.namespace, "apply", "-f", "-", text=yaml.safe_dump_all([settings, job]))
        completed = ("job/train-en", "--for=condition=complete", f"--timeout={RUN_S:.0f}s")
        cluster.do("-n", team.jobs.namespace, "wait", *completed)
    store = open_store(team.uri(OUTPUT))
    index = json.loads(store.read("index.json"))
    for path in index["files"]:
        assert store.read(path) == (tmp_path / "here" / path).read_bytes(), path
    [made] = [each for each in index["tokenizers"] if each["file"] == CHOSEN]
    cluster.do("-n", team.jobs.namespace, "delete", "job/train-en")
    spec = {
        "image": image,
        "source": {"uris": [f"gs://{team.bucket}/corpus"]},
        "tokenizer": {"uri": f"{team.uri(OUTPUT)}/{CHOSEN}", "fingerprint": made["fingerprint"]},
        "output": {"uri": team.uri()},
    }
    team.jobs.apply(NAME, fit(spec))
    with step("reach Succeeded"):
        team.succeed(NAME)
    verified = subprocess.run([TOKJOB, "verify", team.uri(), "--processes", "1"], capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout
