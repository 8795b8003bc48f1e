#!/opt/tokenization/bin/python
"""The command `ray` of the worker's image: Ray's own, with a short way to one answer.

Before a worker starts, KubeRay lets it ask whether there is a head, on a fifth of a core: `ray health-check --address
HOST:PORT`. Ray's command imports most of Ray first; its client alone takes half of that time.
"""

import sys


def main(words: list[str]) -> int:
    """`words`: of the command line; returns the exit code."""
    if words[:2] == ["health-check", "--address"] and len(words) == 3:
        from ray._raylet import GcsClient

        GcsClient(address=words[2])  # raises where no head answers
        return 0
    from ray.scripts.scripts import main as rays_own

    code: int = rays_own()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
