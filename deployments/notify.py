"""Why telling people is one command: the automation in automations.yaml needs a block's id, which no file can know."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.exceptions import PrefectHTTPStatusError

__all__ = ["AUTOMATIONS", "BLOCK", "main"]

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
BLOCK = "glm5-people"


def main(
    url: Annotated[
        str, typer.Option(envvar="BRINGUP_NOTIFY_URL", help="Where to POST; as a variable no process list has it.")
    ],
) -> None:
    """Make or renew the webhook and the automations on the server of PREFECT_API_URL.

    Example: BRINGUP_NOTIFY_URL=https://hooks.slack.com/services/… python -m deployments.notify
    """
    if not url.startswith(("http://", "https://")):
        typer.echo("BRINGUP_NOTIFY_URL is no address to post to: it begins with https:// or http://", err=True)
        raise typer.Exit(2)
    if "PREFECT_API_URL" not in os.environ:
        typer.echo("PREFECT_API_URL is not set: it says which Prefect server is meant", err=True)
        raise typer.Exit(2)
    # Prefect posts the rendered text as it is and names no type. Slack's incoming webhooks take {"text": …} as well.
    block: Any = Webhook(method="POST", url=url, headers={"Content-Type": "application/json"})
    block_id = str(block.save(BLOCK, overwrite=True))
    text = AUTOMATIONS.read_text(encoding="utf-8").replace("{{ WEBHOOK_BLOCK }}", block_id)
    for declared in yaml.safe_load(text)["automations"]:
        _forget(declared["name"])
        Automation(**declared).create()
        typer.echo(f"{declared['name']}: on {', '.join(declared['trigger']['expect'])}")


def _forget(name: str) -> None:
    """An automation of that name, made by an earlier call."""
    try:
        old: Any = Automation.read(name=name)
    except (ValueError, PrefectHTTPStatusError):
        return
    old.delete()


if __name__ == "__main__":
    typer.run(main)
