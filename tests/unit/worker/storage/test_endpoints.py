"""Addresses in environment variables: taken as they are, or refused before a library asks their host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.patience import quick_retry
from support.stores.quick_gcs import quick_gcs
from tokenization_worker.errors import SpecError
from tokenization_worker.storage.endpoints import PROXIES, endpoint_in, require_usable_proxies
from tokenization_worker.storage.sources import list_source


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in PROXIES:
        monkeypatch.delenv(variable, raising=False)
    with quick_gcs(0.05, lambda: 5.0):
        yield


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


@pytest.mark.parametrize("uri", ["hf://datasets/org/name/x.parquet", "s3://bucket/x", "gs://bucket/x"])
@pytest.mark.parametrize("variable", PROXIES)
def test_a_proxy_that_is_no_address_is_named_before_a_library_reads_it(
    variable: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("hf", "s3"):
        monkeypatch.setattr(f"tokenization_worker.storage.{scheme}.source.Retry", quick_retry)
    monkeypatch.setenv(variable, "http://AKIA:se+cr/et@h:1")
    with pytest.raises(SpecError, match=rf"StorageNotUsable: {variable} is 'http://\*\*\*@h:1': expected http") as told:
        list_source((uri,))
    assert told.value.exit_code == 2
    assert "se+cr" not in str(told.value)


@pytest.mark.parametrize(
    "address", ["u:p@ss@proxy:3128", "http://", "http://proxy:99999", "ftp://proxy:21", "a proxy", "proxy:port"]
)
def test_what_is_no_proxy_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(SpecError, match="StorageNotUsable: HTTPS_PROXY is "):
        require_usable_proxies()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://proxy:3128",
        "HTTP://proxy:3128/",
        "https://u:p%2Fw@proxy",
        "proxy",
        "proxy.example:3128",
        "u:p@10.0.0.1:3128",
        "http://u:p^{w}@proxy:3128",
        "socks5h://[::1]:1080",
    ],
)
def test_a_proxy_as_libraries_read_it_is_taken(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", address)
    require_usable_proxies()
