#!/opt/tokenization/bin/python
"""The command `ray` of the worker's image: Ray's own, with a short way to one answer.

Before a worker starts, KubeRay lets it ask whether there is a head, on a fifth of a core: `ray health-check --address
HOST:PORT`. Ray's command imports most of Ray first. A head answers gRPC's own health protocol as well: a quarter of the
time of even Ray's client alone.
"""

import os
import sys

ANSWER_TIMEOUT_S = 5.0
SERVING = b"\x08\x01"
"""A `grpc.health.v1.HealthCheckResponse` with `status: SERVING`."""


def is_serving(address: str) -> bool:
    """Whether a head answers at HOST:PORT, or begins to within `ANSWER_TIMEOUT_S`; says why not."""
    import grpc

    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:  # as Ray's own
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer: bytes = check(b"", timeout=ANSWER_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            print(f"no Ray head answers at {address}: {error}", file=sys.stderr)
            return False
    return answer == SERVING


def main(words: list[str]) -> int:
    """`words`: of the command line; returns the exit code."""
    is_short = words[:2] == ["health-check", "--address"] and len(words) == 3
    if is_short and os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):  # as Ray reads it
        return 0 if is_serving(words[2]) else 1
    from ray.scripts.scripts import main as rays_own

    code: int = rays_own()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
