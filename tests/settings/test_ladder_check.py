"""A ladder that is wrong as a whole is refused with one sentence that names the key and the nearest valid value."""

import tomllib

import pytest

from settings.ladder import Ladder
from settings.ladder_check import check_ladder
from settings.source import BadInput, validate

INTENTS = {"static-memory", "sparse-decode", "kv-cache-dtype"}
GOOD = """
start = "a"
[base.args]
static-memory = "0.9"
[rung.a]
why = "first"
on = [{ kind = "nan", goto = "b" }]
[rung.b]
why = "second"
args = { sparse-decode = "x" }
on = [{ kind = "nan", stop = "no more" }]
[default]
on = [{ kind = "oom_graph", remedy = "less" }, { stop = "no edge for this" }]
[remedy.less]
step = { static-memory = "-0.07" }
floor = { static-memory = "0.7" }
"""


def check(text: str) -> None:
    check_ladder(validate(Ladder, tomllib.loads(text), "l.toml"), file="l.toml", intents=INTENTS)


def test_a_sound_ladder_is_accepted() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('start = "a"', 'start = "a"\ngates = []', "gates: none of them looks at a token; name one of accuracy, bench"),
        ('start = "a"', 'start = "a"\ngates = ["bench", "bench"]', "gates[1]: 'bench' stands there twice"),
        ('static-memory = "0.9"', 'static-memory = "0.9"\nport = 99999999', "base.args.port: '99999999' is no port"),
        ('static-memory = "0.9"', 'static-memory = "0.9"\nport = true', "base.args.port: 'True' is no port"),
        ('static-memory = "0.9"', 'static-memory = "0.9"\nport = "http"', "base.args.port: 'http' is no port"),
        ('kind = "nan", goto', "kind = [], goto", "rung.a.on.0.kind: an empty list matches nothing; leave the key out"),
        ('kind = "nan", goto', "stage = [], goto", "rung.a.on.0.stage: an empty list matches nothing"),
        ('start = "a"', 'start = "a"\nbudget = { wall_s = inf }', "budget.wall_s: Input should be a finite number"),
        ('start = "a"', 'start = "a"\nbudget = { wall_s = 1e12 }', "budget.wall_s: 1e+12 seconds are more than a year"),
        ('start = "a"', 'start = "a"\nbudget = { attempts = true }', "budget.attempts: true and false are no numbers"),
        ("[rung.b]", '[rung."../b"]', "rung: a rung's name is made of letters, digits, '.', '_' and '-', 64 at most"),
        ("[remedy.less]", '[remedy."a\\nb"]', "remedy: a remedy's name is made of letters"),
        ('why = "second"', 'why = "second"\nenv = { "A=B" = "1" }', "rung.b.env: 'A=B' and its value cannot stand"),
        ('step = { static-memory = "-0.07" }', "step = { static-memory = 'inf' }", "'inf' is no decimal number"),
        ('step = { static-memory = "-0.07" }', "step = { static-memory = [] }", "static-memory: Input should be"),
        ('start = "a"', 'start = "aa"', "l.toml: start: there is no rung 'aa'; did you mean 'a'?"),
        ('goto = "b"', 'goto = "bb"', "rung.a.on[0].goto: there is no rung 'bb'; did you mean 'b'?"),
        ('kind = "nan", goto', 'kind = "nun", goto', "rung.a.on[0].kind: there is no kind 'nun'; did you mean 'nan'?"),
        ('remedy = "less"', 'remedy = "les"', "there is no remedy 'les'; did you mean 'less'?"),
        ('kind = "nan", goto', 'phase = "lod", goto', "rung.a.on.0.phase.0: 'lod' is none of"),
        ('kind = "nan", goto', 'knd = "nan", goto', "rung.a.on.0.knd: unknown key; did you mean 'kind'?"),
        ('static-memory = "0.9"', 'static-memroy = "0.9"', "base.args.static-memroy: is no intent of this engine;"),
        ('static-memory = "0.9"', '--static-memory = "0.9"', "arguments are written without dashes"),
        ('static-memory = "0.9"', 'static-memory = "0.9"\napi-key = "k"', "base.args.api-key: a key as an argument"),
        ('{ stop = "no edge for this" }', '{ kind = "hang", stop = "x" }', "no final stop: a failure on rung 'a'"),
        ('stop = "no more"', 'goto = "a"', "rung.a.on: the walk may never end: a -> b -> a"),
        ('goto = "b"', 'stop = "x"', "rung.b: no edge leads here from 'a'"),
        ('{ kind = "oom_graph", remedy = "less" }, ', "", "remedy.less: no edge uses this remedy"),
        (
            '[{ kind = "nan", goto = "b" }]',
            '[{ kind = ["nan", "hang"], goto = "b" }, { kind = "nan", stop = "x" }]',
            "rung.a.on[1]: can never be taken: rung.a.on[0] matches all of it",
        ),
        ('step = { static-memory = "-0.07" }', "step = { static-memory = '-0,07' }", "'-0,07' is no decimal number"),
        ('static-memory = "0.9"\n', "", "remedy.less.step.static-memory: steps an argument that rung 'a' and [base]"),
        ('goto = "b" }', 'goto = "b", next = true }', "exactly one of goto, next, remedy, retry, stop"),
        ('floor = { static-memory = "0.7" }', 'floor = { other = "0.7" }', "floor.other bounds an argument"),
    ],
)
def test_a_fault_is_named_with_its_key(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        check(GOOD.replace(old, new, 1))
    assert says in str(caught.value)
    assert "l.toml" in str(caught.value)


def test_a_spent_remedy_hides_nothing_behind_it() -> None:
    more = '{ kind = "oom_graph", remedy = "less" }, { kind = "oom_graph", stop = "memory is spent" }, '
    check(GOOD.replace('{ kind = "oom_graph", remedy = "less" }, ', more))


def test_a_way_back_through_skipped_rungs_is_a_circle_too() -> None:
    text = GOOD.replace('stop = "no more"', 'goto = "c"') + (
        '[rung.c]\nwhy = "third, before the others in file order it is not"\n'
        'on = [{ kind = "nan", goto = "d" }]\n[rung.d]\nwhy = "x"\n'
    )
    check(text)
    with pytest.raises(BadInput, match="the walk may never end"):
        check(text.replace('why = "x"\n', 'why = "x"\non = [{ kind = "hang", goto = "c" }]\n'))
