"""Pods that are processes of this machine: the plan and the driver, of the worker's own code.

They run with the environment of their container and reach the API server as the Pod's ServiceAccount, so that its
rights are those of the chart.
"""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Any

from kubernetes import client

from support.forked_commands import TOKJOB, Forked
from testbed.accounts import account_kubeconfig
from testbed.ray_head import RayHead
from tokenization_worker.api.checkpoint import CHECKPOINT_VARIABLE, LAST_WORDS_VARIABLE


class LocalPods:
    """The processes, by the UID of their Pod; their logs and credentials lie below `folder`."""

    def __init__(self, api: client.ApiClient, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._processes: dict[str, Forked] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._ray = RayHead(folder / "ray.log")

    def start(self, pod: dict[str, Any], words: list[str], environment_of: dict[str, Any]) -> None:
        """Run `tokjob` words for a Pod, with the environment of `environment_of`'s container."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if uid in self._processes:
            return
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        own = environment_of["spec"]["containers"][0].get("env") or ()
        values = {
            each["name"]: each["value"]
            for each in own
            if "value" in each and not each["name"].startswith("RAY_")  # of a cluster that is not there
        }
        if CHECKPOINT_VARIABLE in values:
            values["RAY_ADDRESS"] = self._ray.address()
        environment = {
            **os.environ,
            **values,
            "KUBECONFIG": str(self._credentials(pod, home)),
            "HOSTNAME": environment_of["metadata"]["name"],
            "HOME": str(Path.home()),
            LAST_WORDS_VARIABLE: str(home / "last-words"),
        }
        with (home / "log").open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self._processes[uid] = Forked(
                [TOKJOB, *words],
                stdin=nothing.fileno(),
                stdout=log.fileno(),
                stderr=log.fileno(),
                start_new_session=True,
                env=environment,
            )

    def exit_code(self, uid: str) -> int | None:
        """None while it runs."""
        process = self._processes.get(uid)
        return None if process is None else process.poll()

    def last_words(self, pod: dict[str, Any]) -> str:
        """What it has left in its termination log."""
        path = self._folder / pod["metadata"]["name"] / "last-words"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def kill(self, uid: str) -> None:
        """End a Pod's process and all that it has started."""
        process = self._processes.pop(uid, None)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End all; their logs stay."""
        for uid in list(self._processes):
            self.kill(uid)
        self._ray.close()

    def _credentials(self, pod: dict[str, Any], home: Path) -> Path:
        """Of the Pod's ServiceAccount, in its namespace."""
        account = pod["spec"].get("serviceAccountName", "default")
        return account_kubeconfig(self._api, pod["metadata"]["namespace"], account, home / "kubeconfig")


def words_of(pod: dict[str, Any]) -> list[str]:
    """What a Pod's container would run, after the program's name."""
    container = pod["spec"]["containers"][0]
    return [str(word) for word in container.get("command") or ()][1:]


def submission_of(pod: dict[str, Any]) -> str | None:
    """The id under which KubeRay's submitter submits its job; None for another Pod."""
    container = pod["spec"]["containers"][0]
    text = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
    words = shlex.split(text.replace(";", " ; "), comments=False)
    for flag in ("--submission-id", "--job-id"):
        if flag in words:
            return words[words.index(flag) + 1]
    return None
