"""The client of a run's TokenizationCheckpoint: its Pods read their task there and report progress.

The worker's only Kubernetes client. Plan Pod and driver write parts of the status that do not overlap, so merge
patches cannot collide; success alone is written over exactly what was read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from tokenization_worker.api.checkpoint import CheckpointPlan, CheckpointProgress, Committed
from tokenization_worker.api.metadata import API_GROUP, VERSION
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.storage.retry import Retry, calling

T = TypeVar("T")

PLURAL = "tokenizationcheckpoints"
_TIMEOUTS_S = (5.0, 20.0)
_MERGE = "application/merge-patch+json"
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

START = Retry(limit_s=300.0, first_s=0.5, most_s=15.0)
"""At the start nothing can be done without the checkpoint: the API server may be away for some minutes."""

REPORT = Retry(limit_s=10.0, first_s=0.5, most_s=5.0)
"""A report on the way; the next one says more."""

REFUSED = Retry(limit_s=30.0, first_s=0.5, most_s=5.0)
"""A 403 passes when the operator has named this Pod as the one that may report, which takes it a moment."""

END = Retry(limit_s=600.0, first_s=0.5, most_s=30.0)
"""The last word. The dataset is there without it, but the job would not end."""

RENEWED = Retry(limit_s=3600.0, first_s=0.5, most_s=30.0)
"""A 401 passes when the kubelet renews the token of this Pod, within 50 minutes: the ServiceAccount was deleted and
made again, which ends all tokens that it had."""


_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request")
"""How the API server begins a denial by a policy."""


class CheckpointClient:
    """One checkpoint, in the namespace of this Pod, or, outside of a cluster, in that of the current context."""

    def __init__(self, name: str) -> None:
        try:
            self._api: Any = _connect()
        except ConfigException as error:
            raise SpecError(
                "NotInCluster",
                f"checkpoint {name}: this process is not in a Pod, and has no kubeconfig: {error}",
                next_step="use tokjob run outside of a cluster",
            ) from error
        self.name = name
        self._namespace = _current_namespace()
        self._is_unknown = False

    def read(self, retry: Retry = START) -> dict[str, Any]:
        """The checkpoint as it is now, in the words of the operator's version; `read_checkpoint` understands it.

        Raises `SpecError` for one that is not there.
        """
        return dict(self._call(retry, lambda: self._api.get_namespaced_custom_object(*self._place(), **_TIMED)))

    def report_plan(self, plan: CheckpointPlan) -> None:
        """Write what the plan Pod has found."""
        self._call(END, lambda: self._send({"status": {"plan": _plain(plan)}}))

    def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
        """Write how far the driver is; `is_last`: worth waiting for, also while the operator is away (see `commit`) or
        until the token of this Pod is renewed."""

        def attempt() -> None:
            self._send({"status": {"progress": _plain(progress)}})

        self._call(END if is_last else REPORT, attempt, is_last=is_last)

    def commit(self, committed: Committed, progress: CheckpointProgress | None = None) -> None:
        """Write that the dataset is there; over the very status that was read, so that nothing is overlooked.

        With the `progress` of a whole run it waits longer for a refusal to pass: an operator that is away has not named
        this Pod yet.
        """
        if progress is not None:
            self.report_progress(progress, is_last=True)

        def attempt() -> None:
            version = self._api.get_namespaced_custom_object(*self._place(), **_TIMED)["metadata"]["resourceVersion"]
            self._send({"metadata": {"resourceVersion": version}, "status": {"committed": _plain(committed)}})

        self._call(END, attempt, is_last=progress is not None)

    def _send(self, body: dict[str, Any]) -> None:
        self._api.patch_namespaced_custom_object_status(*self._place(), body, _content_type=_MERGE, **_TIMED)

    def _place(self) -> tuple[str, str, str, str, str]:
        return API_GROUP, VERSION, self._namespace, PLURAL, self.name

    def _call(self, retry: Retry, call: Callable[[], T], *, is_last: bool = False) -> T:
        """`is_last`: a refusal is waited for as long as everything else, and an unknown token until it is renewed."""
        try:
            with calling(f"reach checkpoint {self._namespace}/{self.name}", may_be_given_up=False):
                if is_last:
                    return RENEWED.call(
                        lambda: retry.call(
                            self._with_token(call), lambda error: 0.0 if _is_refusal(error) else _wait_of(error)
                        ),
                        lambda error: 0.0 if _is_unknown(error) else None,
                    )
                return retry.call(
                    lambda: REFUSED.call(call, lambda error: 0.0 if _is_refusal(error) else None), _wait_of
                )
        except ApiException as error:
            raise self._failed(error) from error
        except urllib3.exceptions.HTTPError as error:
            raise self._away(f"the API server does not answer: {error}") from error

    def _with_token(self, call: Callable[[], T]) -> Callable[[], T]:
        """That call, with the token that is in its file by now where the last one was unknown."""

        def attempt() -> T:
            if self._is_unknown:
                with suppress(ConfigException, OSError):  # its file is being replaced
                    self._api = _connect()
            try:
                return call()
            except ApiException as error:
                self._is_unknown = _is_unknown(error)
                raise

        return attempt

    def _failed(self, error: ApiException) -> Exception:
        where = f"checkpoint {self._namespace}/{self.name}"
        words = f"{error.status} {_message_of(error) or error.reason}"
        if error.status == 404:
            return SpecError("CheckpointMissing", f"{where} does not exist", next_step="nothing: its job was deleted")
        if error.status == 403 and (policy := _POLICY.search(words)) is not None:
            return TemporaryError(
                "ReportDenied",
                f"{where}: the API server does not let this Pod report: {words}",
                next_step=f"ask who manages ValidatingAdmissionPolicy {policy[1]} and its binding {policy[2]}. The "
                "operator's own policy admits the Pod that the operator has named: see that the operator runs",
            )
        if error.status in (401, 403):
            return TemporaryError(
                "NamespaceNotPrepared",
                f"{where}: the API server does not let this Pod read or report: {words}",
                next_step="give its ServiceAccount the role of workers: tokjob namespace-manifest prints the binding "
                "(--service-account where the job names another one)",
            )
        return self._away(words)

    def _away(self, words: str) -> TemporaryError:
        return TemporaryError(
            "ApiServerAway",
            f"checkpoint {self._namespace}/{self.name}: {words}",
            next_step="finished work is kept; the next attempt continues from there",
        )


def _connect() -> Any:
    """A client with what is in the files of this Pod now, or in the kubeconfig."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        config.load_incluster_config()
    else:
        config.load_kube_config()
    return client.CustomObjectsApi()


_TIMED: dict[str, Any] = {"_request_timeout": _TIMEOUTS_S}


def _message_of(error: ApiException) -> str:
    """The API server's own sentence; nothing where something else has answered."""
    try:
        return str(json.loads(error.body or "{}").get("message", ""))
    except (ValueError, AttributeError):
        return ""


def _is_unknown(error: Exception) -> bool:
    """Whether the API server does not know the token."""
    return isinstance(error, ApiException) and error.status == 401


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, ApiException) and error.status == 403


def _wait_of(error: Exception) -> float | None:
    """None for what does not pass."""
    if isinstance(error, urllib3.exceptions.HTTPError):
        return 0.0
    if not isinstance(error, ApiException):
        return None
    if error.status in (409, 429) or error.status == 0 or error.status >= 500:
        after = (error.headers or {}).get("Retry-After", "")
        return float(after) if after.isdecimal() else 0.0
    return None


def _plain(part: CheckpointPlan | CheckpointProgress | Committed) -> dict[str, Any]:
    """With nulls: a merge patch leaves alone what is not named."""
    return part.model_dump(mode="json", by_alias=True)


def _current_namespace() -> str:
    if _OWN_NAMESPACE.exists():
        return _OWN_NAMESPACE.read_text(encoding="ascii").strip()
    try:
        _, current = config.list_kube_config_contexts()
    except ConfigException:
        return "default"
    return str((current.get("context") or {}).get("namespace") or "default")
