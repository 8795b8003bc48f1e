"""Addresses in environment variables: taken as they are, or refused before a library asks their host."""

from __future__ import annotations

import pytest

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.endpoints import endpoint_in


@pytest.mark.parametrize(
    "address", ["http://u:p%40ss%2Fw0rd@h:1", "https://h/a/b", "http://token@h", "http://[::1]:9000"]
)
def test_an_address_of_a_service_is_taken_as_it_is(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{address}/")
    assert endpoint_in("AWS_ENDPOINT_URL") == address


@pytest.mark.parametrize(
    "address",
    [
        "http://user:p@ss/w0rd@127.0.0.1:1",
        "http://user:p@ss@127.0.0.1:1",
        "http://user:p@ss?w0rd@127.0.0.1:1",
        "http://user:p@ss#w0rd@127.0.0.1:1",
        "http://user:99/ss/w0rd@127.0.0.1:1",
    ],
)
def test_a_password_that_is_not_percent_encoded_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it would be the host: it would be asked of DNS, and shown."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(SpecError, match=r"AWS_ENDPOINT_URL is 'http://\*\*\*@127.0.0.1:1': expected http") as refused:
        endpoint_in("AWS_ENDPOINT_URL")
    assert refused.value.reason == "StorageNotUsable"
    assert "percent-encoded" in refused.value.next_step
    assert "ss" not in str(refused.value).replace("password", "")
