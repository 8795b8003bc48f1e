"""`tokjob run` that waits only a few seconds for the head of a Ray cluster; everything else is the product."""

from __future__ import annotations

import sys

from tokenization_worker.cli.main import main
from tokenization_worker.engine.ray import cluster as ray_cluster
from tokenization_worker.engine.ray import workers as ray_workers

if __name__ == "__main__":
    ray_workers.HEAD_GONE_S = 6.0
    ray_workers.CHECK_INTERVAL_S = 1.0
    ray_cluster.ANSWER_TIMEOUT_S = 2.0
    sys.exit(main(["run", *sys.argv[1:]]))
