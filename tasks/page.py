"""One run as one HTML page, from its record alone: opens from disk, asks the network for nothing, runs no script."""

from pathlib import Path
from typing import Any

from tasks.charts import charts_of
from tasks.pure.explain import explain
from tasks.pure.names import state_name
from tasks.pure.path_svg import path_svg
from tasks.pure.record import Attempt, RunRecord
from tasks.pure.report import BRANCH_COLUMNS, branch_rows, command, comparison_lines, headline, host_rows
from tasks.pure.visible import visible

__all__ = ["html_report", "rendered"]


def html_report(record: RunRecord) -> str:
    """The whole page. Text of others is escaped, and shown without what would turn or hide it."""
    from markupsafe import Markup

    charts = [(c.title, Markup(c.svg), c.note) for c in charts_of(record)]  # our own drawings, text escaped
    return rendered(
        "page.html.j2",
        record=record,
        headline=headline(record),
        lines=explain(record)[1:],
        columns=BRANCH_COLUMNS,
        rows=branch_rows(record),
        compared=comparison_lines(record),
        path=Markup(path_svg(record)),  # escaped where it is made
        timeline=[c for c in charts if c[0].startswith("Timeline")],
        load=[c for c in charts if not c[0].startswith("Timeline")],
        attempts=[_attempt(a, a.n == record.winner) for a in record.attempts],
        host=list(host_rows(record)),
    )


def rendered(template: str, **values: Any) -> str:
    """A template of this folder with these values: every text in them escaped, and made harmless to look at."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda v: v if isinstance(v, Markup) else "" if v is None else visible(str(v)),
    )  # fmt: skip
    return environment.get_template(template).render(**values)


def _attempt(a: Attempt, won: bool) -> dict[str, Any]:
    return {
        "entry": a,
        "state": state_name(a.outcome, a.diagnosis),
        "won": won,
        "command": command(a.argv),
        "variables": a.env.items(),
        "settings": [(k, a.asked.get(k), a.effective.get(k)) for k in dict.fromkeys((*a.asked, *a.effective))],
        "seconds": sum(s.wall_s for s in a.stages),
    }

