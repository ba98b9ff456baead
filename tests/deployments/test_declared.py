"""What prefect.yaml declares: when each deployment runs, where, with what, and that the flows take all of it."""

from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.utilities.callables import parameter_schema
from prefect.utilities.importtools import import_object

from deployments.worker import POOL
from flows.bringup import bringup
from flows.fleet import fleet

DECLARED = yaml.safe_load((Path(__file__).resolve().parents[2] / "deployments/prefect.yaml").read_text())
BY_NAME: dict[str, dict[str, Any]] = {deployment["name"]: deployment for deployment in DECLARED["deployments"]}


@pytest.mark.parametrize(
    ("name", "entrypoint", "tags", "schedules", "parameters"),
    [
        ("glm5-bringup", "flows.bringup.bringup", ["bringup", "glm5"], None,
         {"target": "rehearsal", "ladder": "glm5-sm120"}),
        ("glm5-nightly", "flows.bringup.bringup", ["bringup", "glm5", "nightly"],
         [{"cron": "0 2 * * *", "timezone": "Europe/Berlin", "active": True}],
         {"target": "rehearsal", "ladder": "glm5-sm120", "ref": None, "force": False, "confirm": True, "keep": False,
          "notify": True, "budget_s": None, "budget_attempts": None, "wait_s": 7200}),
        ("glm5-fleet", "flows.fleet.fleet", ["bringup", "glm5", "fleet"], None,
         {"targets": ["rehearsal"], "ladder": "glm5-sm120"}),
    ],
)  # fmt: skip
def test_a_deployment_is_what_the_readme_says(
    name: str, entrypoint: str, tags: list[str], schedules: object, parameters: dict[str, object]
) -> None:
    found = BY_NAME[name]
    assert (entrypoint, tags, schedules) == (found["entrypoint"], found["tags"], found.get("schedules"))
    assert (parameters, {"name": POOL}) == (found["parameters"], found["work_pool"])


@pytest.mark.parametrize("name", BY_NAME)
def test_a_flow_takes_what_its_deployment_gives_it_and_lacks_nothing(name: str) -> None:
    takes = signature(import_object(BY_NAME[name]["entrypoint"]).fn).parameters
    needs = {parameter for parameter, of in takes.items() if of.default is Parameter.empty}
    given = set(BY_NAME[name]["parameters"])
    assert (set(), set()) == (given - set(takes), needs - given)


@pytest.mark.parametrize(
    ("flow", "types"),
    [
        (bringup, {
            "target": "string", "ladder": "string", "ref": "string or null", "force": "boolean", "confirm": "boolean",
            "keep": "boolean", "notify": "boolean", "budget_s": "number or null", "budget_attempts": "integer or null",
            "runs": "string or null", "lock": "string or null", "resume": "string or null", "again": "boolean",
            "wait_s": "number",
        }),
        (fleet, {
            "targets": "array", "ladder": "string", "runs": "string or null", "at_once": "integer", "keep": "boolean",
            "ref": "string or null", "force": "boolean", "confirm": "boolean", "notify": "boolean",
            "budget_s": "number or null", "budget_attempts": "integer or null", "wait_s": "number",
        }),
    ],
)  # fmt: skip
def test_the_form_of_a_run_says_of_each_parameter_its_type_and_what_it_means(
    flow: Flow[..., Any], types: dict[str, str]
) -> None:
    fields = parameter_schema(flow.fn).properties
    assert types == {name: _type(field) for name, field in fields.items()}
    assert [] == [name for name, field in fields.items() if len(field.get("description", "")) < 10]
    assert not any("Args:" in field["description"] for field in fields.values())


def _type(field: Mapping[str, Any]) -> str:
    return str(field["type"]) if "type" in field else " or ".join(either["type"] for either in field["anyOf"])


def test_no_deployment_has_a_limit_whose_lease_would_end_a_run_when_the_server_blinks() -> None:
    assert 3 == len(BY_NAME)
    assert [] == [name for name, deployment in BY_NAME.items() if "concurrency_limit" in deployment]
