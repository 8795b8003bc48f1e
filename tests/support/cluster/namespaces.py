"""Namespaces of tests on the shared control plane."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from kubernetes import client

from support.cluster.jobs import Jobs
from tokenization_operator.objects.kinds import Kind

_numbers = count()


@contextmanager
def new_namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace of the restricted standard, with nothing in it.

    Its jobs go afterwards, and with them what they own. It stays itself: a deletion costs the control plane a hundred
    requests.
    """
    name = f"test-{os.getpid()}-{next(_numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.CoreV1Api(api).create_namespace({"metadata": {"name": name, "labels": labels}})
    yield name
    jobs = Jobs(api, name)
    jobs.delete_all(Kind.JOB)
    jobs.delete_all(Kind.RAY_JOB)
