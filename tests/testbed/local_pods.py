"""Pods that are processes of this machine: the plan and the driver, of the worker's own code.

They run with the environment of their container and reach the API server as the Pod's ServiceAccount, so that its
rights are those of the chart.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kubernetes import client

TOKJOB = Path(sys.executable).with_name("tokjob")


class LocalPods:
    """The processes, by the UID of their Pod; their logs and credentials lie below `folder`."""

    def __init__(self, api: client.ApiClient, folder: Path) -> None:
        self._core = client.CoreV1Api(api)
        self._configuration = api.configuration
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, pod: dict[str, Any], words: list[str], environment_of: dict[str, Any]) -> None:
        """Run `tokjob` words for a Pod, with the environment of `environment_of`'s container."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if uid in self._processes:
            return
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        own = environment_of["spec"]["containers"][0].get("env") or ()
        values = {each["name"]: each["value"] for each in own if "value" in each}
        environment = {
            **os.environ,
            **values,
            "KUBECONFIG": str(self._credentials(pod, home)),
            "HOSTNAME": environment_of["metadata"]["name"],
            "HOME": str(Path.home()),
        }
        with (home / "log").open("ab") as log:
            self._processes[uid] = subprocess.Popen(
                [str(TOKJOB), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def exit_code(self, uid: str) -> int | None:
        """None while it runs."""
        process = self._processes.get(uid)
        return None if process is None else process.poll()

    def kill(self, uid: str) -> None:
        """End a Pod's process and all that it has started."""
        process = self._processes.pop(uid, None)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        for uid in list(self._processes):
            self.kill(uid)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _credentials(self, pod: dict[str, Any], home: Path) -> Path:
        """A kubeconfig of the Pod's ServiceAccount, in its namespace."""
        namespace = pod["metadata"]["namespace"]
        account = pod["spec"].get("serviceAccountName", "default")
        asked = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600)
        )
        token = self._core.create_namespaced_service_account_token(account, namespace, asked).status.token
        cluster = {"server": self._configuration.host, "certificate-authority": self._configuration.ssl_ca_cert}
        path = home / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "pod",
                    "clusters": [{"name": "testbed", "cluster": cluster}],
                    "users": [{"name": account, "user": {"token": token}}],
                    "contexts": [
                        {"name": "pod", "context": {"cluster": "testbed", "user": account, "namespace": namespace}}
                    ],
                }
            ),
            encoding="utf-8",
        )
        return path


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
