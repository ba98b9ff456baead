"""A command that draws nothing and flows nothing does not pay for what could."""

import subprocess
import sys

HEAVY = {"matplotlib", "numpy", "jinja2", "prefect", "fsspec"}


def test_the_command_line_loads_neither_prefect_nor_what_draws_pages() -> None:
    code = f"import sys, flows.cli; print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
