"""`python -m sglang.bench_serving`: the old name of the load test; newer releases say so and go on."""

import sys

from sglang._log import SITE, plain
from sglang._story import STORY
from sglang.benchmark.serving import main

if __name__ == "__main__":
    if STORY.release in ("0.5.17", "0.5.23"):
        plain(
            f"{SITE}/sglang/bench_serving.py:13: FutureWarning: `sglang.bench_serving` is deprecated and will be "
            "removed in a future release; use `sglang.benchmark.serving` instead (e.g. "
            "`python -m sglang.benchmark.serving`).\n  warnings.warn(\n"
        )
    main(sys.argv[1:])
