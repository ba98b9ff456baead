"""The record: its JSON Schema is committed and true, it is strict JSON, and it reads back as it was written."""

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

import tasks.pure.record
from settings.words import AttemptOutcome, Phase, RunOutcome, Stage
from tasks.pure.record import Attempt, BenchPoint, Build, Diagnosis, Evidence, Halt, HostSummary, LadderRef, RunRecord

SCHEMA = Path(tasks.pure.record.__file__).with_name("record.schema.json")
REMAKE = (
    "make it anew: python -c 'import json; from tasks.pure.record import RunRecord as R; "
    'print(json.dumps(R.model_json_schema(mode="serialization"), indent=1))\' > tasks/pure/record.schema.json'
)


def record() -> RunRecord:
    cause = Diagnosis(
        kind="nan", phase=Phase.DECODE, stage=Stage.DECODE, try_="another backend",
        evidence=Evidence(line=7, text="NaN"),
    )
    failed = Attempt(n=1, id="a", rung="auto", outcome=AttemptOutcome.FAILED, diagnosis=cause)
    return RunRecord(
        run_id="r", started_at=datetime.now(UTC), outcome=RunOutcome.EXHAUSTED, target="t",
        ladder=LadderRef(name="l", sha256="0"), build=Build(engine="sglang"), host=HostSummary(name="h"), lease_s=90,
        attempts=(failed,), halt=Halt(reason="x", by="rung"),
    )  # fmt: skip


def test_the_committed_schema_is_that_of_the_model() -> None:
    assert json.loads(SCHEMA.read_text()) == RunRecord.model_json_schema(mode="serialization"), REMAKE


def test_a_record_fits_its_schema_and_reads_back_the_same() -> None:
    written = record().model_dump_json()
    jsonschema.validate(json.loads(written), json.loads(SCHEMA.read_text()))
    assert RunRecord.model_validate_json(written) == record().model_copy(
        update={"started_at": RunRecord.model_validate_json(written).started_at}
    )


def test_the_words_of_the_contract_stand_in_the_file() -> None:
    written = json.loads(record().model_dump_json())
    assert written["schema"] == 1
    assert written["attempts"][0]["diagnosis"]["try"] == "another backend"
    assert written["ended_at"] is None
    assert written["started_at"].endswith("Z")


def test_infinity_is_refused_so_that_the_file_stays_strict_json() -> None:
    with pytest.raises(ValidationError):
        BenchPoint(profile="p", valid=True, asked=1, duration_s=float("inf"))
