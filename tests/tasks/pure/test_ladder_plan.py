"""What each rung of the shipped ladders comes to, for each release on each kind of GPU."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from settings.engine import Engine
from settings.ladder import Ladder
from settings.ladder_check import check_ladder
from settings.source import BadInput, find, load, validate
from tasks.pure.capabilities import Capabilities
from tasks.pure.ladder_plan import as_json, check_args, plan_ladder

BUILDS = Callable[..., Capabilities]
RELEASES = ("0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.17", "0.5.20", "0.5.23")

# p planned, s skipped (this build cannot say it), D doomed (this build is known to refuse it or to overwrite it).
# 0.5.8.post1 does not know the model at all, so all that it can spell is doomed.
TABLE = """
glm5-sm120              0.5.8.post1  0.5.9   0.5.10.post1  0.5.12.post1  0.5.17  0.5.20  0.5.23
                        90 100 120 | for each release: SM90, SM100, SM120
auto                    DDD          ppp     ppp           ppp           ppp     ppp     ppp
fp8-gemm-cutlass        DDD          ppp     ppp           ppp           ppp     ppp     ppp
moe-cutlass             DDD          ppp     ppp           ppp           ppp     ppp     ppp
graphs-off              DDD          ppp     ppp           ppp           ppp     ppp     ppp
flashinfer-sparse-mla   sss          sss     sss           sss           DDp     DDp     DDp
flashmla-sparse         DDD          ppp     pDD           ppp           ppD     ppD     ppD
trtllm                  sss          ppp     ppp           ppp           ppD     ppD     ppD
bf16-kv                 DDD          ppp     ppp           ppp           ppp     ppp     ppp
bf16-kv-tilelang        DDD          ppp     ppp           ppp           ppp     ppp     ppp
"""
LETTER = {"planned": "p", "skipped": "s", "doomed": "D"}


def shipped(name: str, engine: Engine) -> Ladder:
    path = find("ladders", name)
    ladder = load(Ladder, path)
    check_ladder(ladder, file=path, intents=engine.intents)
    return ladder


def statuses(ladder: Ladder, engine: Engine, on: Capabilities) -> dict[str, str]:
    return {r.name: LETTER[r.status] for r in plan_ladder(ladder, engine, on, python="python3", model="m")}


def test_the_status_of_each_founding_rung_for_each_release_and_gpu(engine: Engine, build: BUILDS) -> None:
    rows = (line.split() for line in TABLE.strip().splitlines()[2:])
    expected = {row[0]: dict(zip(RELEASES, row[1:], strict=True)) for row in rows}
    ladder = shipped("glm5-sm120", engine)
    found: dict[str, dict[str, str]] = {name: {} for name in ladder.rung}
    for release in RELEASES:
        by_gpu = [statuses(ladder, engine, build(release, sm)) for sm in (90, 100, 120)]
        for name in ladder.rung:
            found[name][release] = "".join(status[name] for status in by_gpu)
    assert expected == found


@pytest.mark.parametrize(
    ("release", "sm", "twins"),
    [
        ("0.5.9", 120, {}),
        ("0.5.10.post1", 120, {"flashmla-sparse": "auto", "trtllm": "auto"}),
        ("0.5.12.post1", 120, {"trtllm": "auto"}),
        ("0.5.23", 120, {"flashinfer-sparse-mla": "auto"}),
    ],
)
def test_a_rung_that_comes_to_the_same_as_an_earlier_one_says_so(
    engine: Engine, build: BUILDS, release: str, sm: int, twins: dict[str, str]
) -> None:
    rungs = plan_ladder(shipped("glm5-sm120", engine), engine, build(release, sm), python="python3", model="m")
    whys = {rung.name: rung.why.split("comes to the same as `") for rung in rungs if rung.why}
    told = {name: why[1].split("`")[0] for name, why in whys.items() if len(why) > 1}
    assert twins == told


@pytest.mark.parametrize(("name", "sm"), [("glm5-sm90", 90), ("glm5-sm100", 100), ("glm5-sm100", 103)])
@pytest.mark.parametrize("release", RELEASES[1:])
def test_each_rung_of_the_other_ladders_can_be_launched_where_it_belongs(
    engine: Engine, build: BUILDS, name: str, sm: int, release: str
) -> None:
    assert {"p"} == set(statuses(shipped(name, engine), engine, build(release, sm)).values())


@pytest.mark.parametrize("release", RELEASES[1:])
def test_the_other_axes_are_there_in_every_release_but_for_prefill_graphs(
    engine: Engine, build: BUILDS, release: str
) -> None:
    found = statuses(shipped("axes", engine), engine, build(release, 100))
    assert {"prefill-graphs-off"} if release == "0.5.9" else set() == {n for n, s in found.items() if s != "p"}


def test_the_axes_begin_at_the_component_that_was_named(engine: Engine) -> None:
    ladder = shipped("axes", engine)
    heads = {edge.component[0]: edge.goto for edge in ladder.rung["asked"].on if edge.component and edge.goto}
    components = engine.components()
    assert {"speculative", "moe", "gemm", "comm", "graph", "attention"} == set(heads)
    for component, rung in heads.items():
        assert rung is not None
        changed = {components.get(arg) for arg in ladder.rung[rung].args} - {None}
        assert {component} == changed, rung


def test_the_whole_plan_is_one_json_object(engine: Engine, build: BUILDS) -> None:
    on = build("0.5.8.post1", 120)
    rungs = plan_ladder(shipped("glm5-sm120", engine), engine, on, python="python3", model="m")
    facts: dict[str, Any] = json.loads(json.dumps(as_json(rungs, engine, on, ladder="glm5-sm120"), allow_nan=False))
    assert "does not know GlmMoeDsaForCausalLM" in facts["build"]["problem"]
    assert {"name", "status", "argv", "env", "expects", "why"} == set(facts["rungs"][0])
    skipped = next(rung for rung in facts["rungs"] if rung["status"] == "skipped")
    assert ([], {}, {}) == (skipped["argv"], skipped["env"], skipped["expects"])
    assert "this build has no `flashinfer_sparse_mla`" in skipped["why"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"sparse-decode": "flashmla_sparce"}, "value 'flashmla_sparce'; did you mean 'flashmla_sparse'"),
        ({"nsa-decode-backend": "trtlm"}, "no release knows the value 'trtlm'; did you mean 'trtllm'"),
        ({"tp-sizes": 8}, "no intent, and no flag of any release; did you mean 'tp-size'"),
    ],
)
def test_a_slip_of_the_pen_is_bad_input_and_no_rung_to_skip(
    engine: Engine, build: BUILDS, args: dict[str, str], complaint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        check_args(_one_rung(args), engine, build("0.5.23"), file="my.toml")
    assert str(caught.value).startswith("my.toml: rung.only.args.")
    assert complaint in str(caught.value)


def test_a_slip_in_a_variation_is_told_like_one_in_a_rung(engine: Engine, build: BUILDS) -> None:
    rungs = {"start": "only", "rung": {"only": {"why": "x", "on": [{"stop": "end"}]}}}
    ladder = validate(Ladder, {**rungs, "vary": {"v": {"why": "x", "args": {"chunked-prefil-size": 1}}}}, "my.toml")
    with pytest.raises(BadInput, match=r"my\.toml: vary\.v\.args\.chunked-prefil-size: .*'chunked-prefill-size'"):
        check_args(ladder, engine, build("0.5.23"), file="my.toml")


@pytest.mark.parametrize("args", [{"cuda-graph-max-bs": 8}, {"sparse-decode": "triton"}, {"port": 31000}])
def test_what_another_release_has_is_no_slip(engine: Engine, build: BUILDS, args: dict[str, Any]) -> None:
    check_args(_one_rung(args), engine, build("0.5.9"), file="my.toml")


def _one_rung(args: dict[str, Any]) -> Ladder:
    return validate(
        Ladder, {"start": "only", "rung": {"only": {"why": "x", "args": args, "on": [{"stop": "end"}]}}}, "my.toml"
    )
