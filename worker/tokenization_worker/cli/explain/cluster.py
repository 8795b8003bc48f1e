"""Reads what a cluster has of a job: get and list, nothing else. What may not be read is named, and the rest is shown.

Beside the checkpoint's client the only module that speaks with an API server.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from tokenization_worker.api.metadata import API_GROUP, VERSION
from tokenization_worker.api.status import Phase
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import read_time
from tokenization_worker.cli.explain.logs import Log, order_pods, pick, tail
from tokenization_worker.cli.explain.pods import JOB_LABEL, summarize_pod
from tokenization_worker.cli.explain.report import Object, Observed
from tokenization_worker.errors import SpecError, TemporaryError, TokenizationError
from tokenization_worker.messages.redact import redact
from tokenization_worker.output.driver_log import read_log
from tokenization_worker.storage.base import NotFound

_PLURAL = "tokenizationjobs"
_KUEUE = "kueue.x-k8s.io"
_ACCELERATOR, _TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
_TIMEOUTS_S = (5.0, 20.0)
_PAGE = 500
_MOST_PAGES = 20
_MOST_LOGS = 4
_TAIL = 100
_MOST_LOG_BYTES = 1 << 20
_STORED_PATIENCE_S = 15.0
_LINES = 8
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class _Refused(Exception):
    """The API server does not let this user do that."""


class _Absent(Exception):
    """It is not there."""


_NOT_ANSWERED = (_Absent, _Refused, TokenizationError)
"""Of a question whose answer only helps: the screen does without it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to ask. `namespace`: that of the kubeconfig's context, or of this Pod."""

    api: Any
    namespace: str
    not_shown: list[str] = field(default_factory=list)


def connect(kubeconfig: str | None, context: str | None) -> Cluster:
    """As kubectl finds its cluster; in a Pod without a kubeconfig, the cluster of that Pod."""
    settings = client.Configuration()
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG") or None
    try:
        if kubeconfig is context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(settings)
            namespace = _OWN_NAMESPACE.read_text(encoding="ascii").strip()
        else:
            config.load_kube_config(kubeconfig, context, settings)
            namespace = _namespace_of(kubeconfig, context)
    except (ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise SpecError(
            "NotInCluster",
            f"no cluster is known{f' as {context!r}' if context else ''}: {error}",
            next_step="give --kubeconfig FILE and --context NAME, or set KUBECONFIG; kubectl config get-contexts lists "
            "contexts",
        ) from error
    settings.retries = 0  # a person waits, and starts the command again
    return Cluster(client.ApiClient(settings), namespace)


def _namespace_of(kubeconfig: str | None, context: str | None) -> str:
    known, current = config.list_kube_config_contexts(kubeconfig)
    chosen = next((each for each in known if each["name"] == context), current) if context else current
    return str((chosen.get("context") or {}).get("namespace") or "default")


def read_job(cluster: Cluster, namespace: str, name: str) -> Observed:
    """All that is known of a job. Raises `SpecError` where it is not there or may not be read, and `TemporaryError`
    where the API server does not answer."""
    job, now = _read_own(cluster, namespace, name)
    created = read_time(job["metadata"].get("creationTimestamp"))
    core = client.CoreV1Api(cluster.api)
    pods = _list(
        cluster,
        "Pods",
        namespace,
        lambda **page: core.list_namespaced_pod(namespace, label_selector=f"{JOB_LABEL}={name}", **page),
    )
    pods = [pod for pod in pods if not _is_older(pod, created)]  # of a deleted namesake
    events = _list(cluster, "events", namespace, lambda **page: core.list_namespaced_event(namespace, **page))
    log, unread_log = _find_log(core, job, pods, now)
    not_shown = tuple(dict.fromkeys(cluster.not_shown))
    status, workers = job.get("status") or {}, (job.get("spec") or {}).get("workers") or {}
    has_kueue = _has_kueue(cluster) if status.get("phase") == Phase.QUEUED else None
    tpu_nodes = (
        _find_tpu_nodes(core) if workers.get("tpu") and status.get("reason") == StatusReason.UNSCHEDULABLE else None
    )
    return Observed(job, now, tuple(events), tuple(pods), log, not_shown, unread_log, has_kueue, tpu_nodes)


def _find_tpu_nodes(core: Any) -> tuple[str, ...] | None:
    """Accelerator and topology of each TPU node; None where this user may not see nodes."""
    try:
        nodes = [node for page in _pages(partial(core.list_node, label_selector=_ACCELERATOR)) for node in page]
    except _NOT_ANSWERED:
        return None
    labels = (node["metadata"].get("labels") or {} for node in nodes)
    return tuple(f"{each.get(_ACCELERATOR)} {each.get(_TOPOLOGY)}" for each in labels)


def _has_kueue(cluster: Cluster) -> bool | None:
    """Whether the cluster serves Kueue's kinds; None where the API server does not say."""
    groups = client.ApisApi(cluster.api)
    try:
        found = orjson.loads(_ask(partial(groups.get_api_versions, **_RAW)).data)
    except _NOT_ANSWERED:
        return None
    return any(group.get("name") == _KUEUE for group in found.get("groups") or ())


def _read_own(cluster: Cluster, namespace: str, name: str) -> tuple[Object, datetime]:
    """The job, and the API server's time: this machine's clock says nothing about ages."""
    custom = client.CustomObjectsApi(cluster.api)
    place = (API_GROUP, VERSION, namespace, _PLURAL)
    try:
        response = _ask(lambda: custom.get_namespaced_custom_object(*place, name, **_RAW))
    except _Absent:
        raise _not_found(custom, namespace, name) from None
    except _Refused as error:
        raise SpecError(
            "NotPermitted",
            f"TokenizationJob {namespace}/{name}: {error}",
            next_step=f"ask for a role that may get {_PLURAL}.{API_GROUP} there; the chart adds this to the role view",
        ) from None
    job: Object = orjson.loads(response.data)
    return job, _time_of(response.headers.get("Date"))


def _time_of(date: str | None) -> datetime:
    try:
        return parsedate_to_datetime(date or "")
    except ValueError:
        return datetime.now(UTC)


def _not_found(custom: Any, namespace: str, name: str) -> SpecError:
    """What to say of a job that is not there: what was meant, or where it is."""
    try:
        found = _ask(lambda: custom.list_namespaced_custom_object(API_GROUP, VERSION, namespace, _PLURAL, **_RAW))
        names = [item["metadata"]["name"] for item in orjson.loads(found.data)["items"]]
    except _Absent:
        return SpecError(
            "JobNotFound",
            "the cluster does not know TokenizationJobs",
            next_step="check --context; else install the operator's chart there (docs/kubernetes.md)",
        )
    except _Refused:
        names = []
    near = difflib.get_close_matches(name, names, n=3)
    elsewhere = [] if near else _namespaces_with(custom, name)
    if near:
        step = f"did you mean {' or '.join(near)}?"
    elif elsewhere:
        step = f"there is one in another namespace: -n {elsewhere[0]}"
    elif names:
        step = f"there are: {', '.join(sorted(names)[:10])}" + (" and more" if len(names) > 10 else "")
    else:
        step = "check -n and --context; kubectl get tkj -A lists all jobs"
    return SpecError("JobNotFound", f"namespace {namespace} has no TokenizationJob {name!r}", next_step=step)


def _namespaces_with(custom: Any, name: str) -> list[str]:
    try:
        selector = f"metadata.name={name}"
        found = _ask(
            lambda: custom.list_cluster_custom_object(API_GROUP, VERSION, _PLURAL, field_selector=selector, **_RAW)
        )
    except _NOT_ANSWERED:
        return []
    return [item["metadata"]["namespace"] for item in orjson.loads(found.data)["items"]]


def _list(cluster: Cluster, what: str, namespace: str, call: Callable[..., Any]) -> list[Object]:
    """All objects, page after page; what cannot be had is noted."""
    found: list[Object] = []
    try:
        for page in _pages(call):
            found += page
    except (_Refused, _Absent) as error:
        cluster.not_shown.append(f"{what} of namespace {namespace}: {error}")
    except TemporaryError as error:
        cluster.not_shown.append(f"{what} of namespace {namespace}: {error.message}")
    return found


def _pages(call: Callable[..., Any]) -> Iterator[list[Object]]:
    token = ""
    for _ in range(_MOST_PAGES):
        page = {"limit": _PAGE, **({"_continue": token} if token else {}), **_RAW}
        answer = orjson.loads(_ask(partial(call, **page)).data)
        yield answer.get("items") or []
        token = (answer.get("metadata") or {}).get("continue") or ""
        if not token:
            return


def _is_older(pod: Object, created: datetime | None) -> bool:
    made = read_time(pod["metadata"].get("creationTimestamp"))
    return created is not None and made is not None and made < created


def _find_log(core: Any, job: Object, pods: list[Object], now: datetime) -> tuple[Log | None, str]:
    """The last lines of the Pod that says most; where none says anything, of the log that the driver has left. And why
    there are none, where the API server refuses a log or cannot get it."""
    status = job.get("status") or {}
    attempt = status.get("attempt") or {}
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    summaries = order_pods((summarize_pod(pod, now) for pod in pods), is_planning=not attempt, most=_MOST_LOGS)
    failed: dict[str, str] = {}
    logs = (
        Log(f"of {summary.role} Pod {summary.name}", _read_pod(core, by_name[summary.name], failed))
        for summary in summaries
        if summary.node not in failed
    )
    found, uri = pick(logs), attempt.get("logUri")
    if found is None and uri:
        found = _read_stored(uri)
    has_lines = found is not None and found.lines
    return found, "" if has_lines else next(iter(failed.values()), "")


def _read_pod(core: Any, pod: Object, failed: dict[str, str]) -> tuple[str, ...]:
    """The last lines of a Pod's first container: of the time before, where it has just begun again. `failed`: by node,
    why its logs cannot be had, which is found out once."""
    metadata, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    has_begun_again = any(each.get("restartCount") for each in states if each.get("name") == container)
    for previous in (False, True) if has_begun_again else (False,):
        try:
            how = {"container": container, "tail_lines": _TAIL, "previous": previous, **_RAW}
            response = _ask(partial(core.read_namespaced_pod_log, metadata["name"], metadata["namespace"], **how))
            lines = tail(response.read(_MOST_LOG_BYTES).decode(errors="backslashreplace"), _LINES)
        except _Absent:
            continue
        except (_Refused, TemporaryError, urllib3.exceptions.HTTPError) as error:
            words = error.message if isinstance(error, TemporaryError) else redact(str(error))
            failed[str(pod["spec"].get("nodeName") or "")] = f"log of Pod {metadata['name']}: {words}"
            return ()
        if lines:
            return lines
    return ()


def _read_stored(uri: str) -> Log:
    """What the driver has left at the output, if this machine can read it in time."""
    origin = [f"{uri} (this machine cannot read it in {_STORED_PATIENCE_S:.0f} s)"]
    lines: list[str] = []

    def read() -> None:
        try:
            lines.extend(tail(read_log(uri), _LINES))
            origin[0] = f"that the driver has left: {uri}"
        except NotFound:
            origin[0] = f"{uri} (not on this machine: read it where the output is)"
        except TokenizationError as error:
            origin[0] = f"{uri} (cannot be read here: {error.message})"
        except BaseException as error:  # noqa: BLE001  in a thread: of a client library, or of a stop
            origin[0] = f"{uri} (cannot be read here: {redact(f'{type(error).__name__}: {error}')})"

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_STORED_PATIENCE_S)
    return Log(origin[0], tuple(lines))


_RAW: dict[str, Any] = {"_preload_content": False, "_request_timeout": _TIMEOUTS_S}


def _ask(call: Callable[[], Any]) -> Any:
    """The answer to a request. Raises `_Refused`, `_Absent`, and `TemporaryError` where there is none."""
    try:
        return call()
    except ApiException as error:
        words = _words_of(error)
        if error.status in (401, 403):
            raise _Refused(words) from error
        if error.status in (400, 404):  # 400: of a container that has not begun
            raise _Absent(words) from error
        raise _away(f"the API server answers {error.status}: {words}") from error
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise _away(f"the API server does not answer: {redact(str(reason))}") from error


def _words_of(error: ApiException) -> str:
    try:
        return redact(str(orjson.loads(error.body or b"{}")["message"]))
    except (ValueError, KeyError, TypeError):
        return redact(f"HTTP {error.status} {error.reason or ''}".strip())


def _away(words: str) -> TemporaryError:
    return TemporaryError(
        "ApiServerAway",
        words,
        next_step="check --context and the network; then start the same command again",
    )
