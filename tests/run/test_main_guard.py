"""Scripts without a main guard: workers that are started from scratch import the script, and would run it again."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from support.corpus import CorpusWriter, take_documents
from support.runs import make_job
from tokenization_worker.run.run import Options, run_job

START = """
import sys, threading
from tokenization_worker import *
threading.Thread(target=threading.Event().wait, daemon=True).start()  # as where nothing can be forked
print("the script begins")
"""
RUN = "run_job(TokenizationJob.of(source='source', tokenizer='bytes', output='out'), options=Options(processes=2))"
VERIFY = "print(verify('out', processes=2).is_clean)"
GUARD = 'if __name__ == "__main__":\n    '

SCRIPTS = {
    "run": (RUN, ""),
    "run and catch": (f"try:\n    {RUN}\nexcept Exception as error:\n    sys.exit(str(error))", ""),
    "verify": (VERIFY, "out"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = CorpusWriter(tmp_path / "source")
    for first in range(0, 80, 20):
        corpus.jsonl(take_documents(5_000, first=first))
    corpus.finish()
    return tmp_path


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(START + text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "made"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_without_a_main_guard_is_told_what_to_write(folder: Path, text: str, made: str) -> None:
    if made:
        job = make_job(folder / "source", folder / made, tokenizer={"name": "bytes"})
        run_job(job, options=Options(processes=1))
    done = run_script(folder, text)
    function = "verify" if made else "run_job"
    assert done.returncode != 0
    assert "MainGuardMissing" in done.stderr
    assert f'put {function} below if __name__ == "__main__":' in done.stderr
    assert f"{folder}/script.py" in done.stderr
    assert "memory" not in done.stderr
    assert done.stderr.count("Traceback") <= 1
    assert len(done.stderr.splitlines()) < 40, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "made"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_with_a_main_guard_runs(folder: Path, text: str, made: str) -> None:
    if made:
        job = make_job(folder / "source", folder / made, tokenizer={"name": "bytes"})
        run_job(job, options=Options(processes=1))
    done = run_script(folder, GUARD + text.replace("\n", "\n    "))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("text", "made"), [(RUN, ""), (VERIFY, "out")], ids=["run", "verify"])
def test_a_program_from_standard_input_is_told_to_be_a_file(folder: Path, text: str, made: str) -> None:
    """Workers that are started from scratch import the program by its path."""
    if made:
        run_job(make_job(folder / "source", folder / made, tokenizer={"name": "bytes"}), options=Options(processes=1))
    command = [sys.executable, "-"]
    done = subprocess.run(command, input=START + text, cwd=folder, capture_output=True, text=True, timeout=120)
    assert "MainGuardMissing: the program comes from <stdin>" in done.stderr
    assert "save the program as a file" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_in_a_process_of_somebody_else_the_call_itself_is_refused(folder: Path) -> None:
    """A program's own process imports the script just as well; its output is that program's business."""
    text = f"""
import multiprocessing
{GUARD}multiprocessing.get_context("spawn").Process(target=print, args=("never",)).start()
{RUN}
"""
    done = run_script(folder, text)
    assert "SpecError: MainGuardMissing" in done.stderr
    assert "never" not in done.stdout


def test_a_program_may_run_jobs_in_processes_of_its_own(folder: Path) -> None:
    job = make_job(folder / "source", folder / "out", tokenizer={"name": "bytes"})
    process = multiprocessing.get_context("spawn").Process(target=run_job, args=(job,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (folder / "out" / "index.json").exists()
