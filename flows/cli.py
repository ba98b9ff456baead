"""The command line: joins the commands, each in a module of its own, and turns errors into exit codes."""

import os
import signal
import sys

import typer

from flows.cli_bisect import bisect
from flows.cli_diagnose import diagnose
from flows.cli_export import export
from flows.cli_fleet import fleet
from flows.cli_history import compare, history
from flows.cli_host import status, stop
from flows.cli_judge import judge
from flows.cli_plan import plan, probe
from flows.cli_report import report
from flows.cli_run import rehearse, run
from flows.cli_show import explain, ladder, logs, show
from flows.terminal import prepare_terminal
from settings.environment import check_environment
from settings.source import BadInput
from settings.words import ExitCode
from tasks.host import HostError, HostKeyRefused, HostLost, HostUnreachable
from tasks.pure.visible import visible

__all__ = ["app", "main"]

app = typer.Typer(
    name="bringup",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Get a large language model to really serve on a GPU host, and find out why when it does not.",
)

app.command()(run)
app.command()(rehearse)
app.command()(fleet)
app.command()(status)
app.command()(stop)
app.command()(show)
app.command()(explain)
app.command()(report)
app.command()(export)
app.command()(history)
app.command()(compare)
app.command()(bisect)
app.command()(logs)
app.add_typer(ladder, name="ladder")
app.command()(plan)
app.command()(probe)
app.command()(diagnose)
app.command()(judge)


@app.callback()
def _before() -> None:
    if "--help" not in sys.argv:
        check_environment()


def main() -> None:
    """Entry point of `bringup`. Exit codes: contracts §3 (settings/words.py, ExitCode)."""
    prepare_terminal()
    try:
        app()
    except BadInput as e:
        _fail(str(e), ExitCode.BAD_INPUT)
    except (HostUnreachable, HostLost, HostKeyRefused) as e:
        _fail(str(e), ExitCode.HOST_UNREACHABLE)
    except HostError as e:  # it answered
        _fail(str(e), ExitCode.UNEXPECTED)
    except OSError as e:  # e.g. a full disk under the runs folder
        _fail(f"{e.filename or 'a file of the run'}: {e.strerror or e}", ExitCode.UNEXPECTED)
    except KeyboardInterrupt:
        _fail("interrupted", ExitCode.INTERRUPTED)
    finally:  # what is left are libraries saying goodbye: an impatient Ctrl-C ends it without their tracebacks
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: os._exit(ExitCode.INTERRUPTED))


def _fail(message: str, code: ExitCode) -> None:
    print(f"bringup: {visible(message)}", file=sys.stderr)
    sys.exit(code)
