"""A reward is written as LaTeX, Python, JSON and ONNX, and what was written has its values."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest

import certirl
from certirl import Cells, Chebyshev, Fourier, Legendre, Reward, product
from certirl.data.terminal import TerminalBoxes
from certirl.functions.bases import Family
from certirl.functions.components import SumBasis, as_components
from certirl.functions.ends import Ends
from certirl.functions.features import features_of
from certirl.functions.sigmoids import Sigmoids
from certirl.ground import archive
from certirl.ground.domain import as_domain
from refusals import refused


@archive.record
class Halved(Family):
    """Polynomials of a user: P_n = 1.5 t P_{n−1} − 0.5 P_{n−2}."""

    kind, mass = "Halved", 2.0

    @staticmethod
    def _recurrence(n):
        return 1.5, 0.5

    def sup(self):
        return np.linspace(1.0, 2.0, self.size)


class Steep(Halved):
    """Functions of a user that are no polynomials."""

    kind = "Steep"

    def _reference_values(self, t):
        return np.exp(super()._reference_values(t))


INF = math.inf
BOX2 = as_domain(((0.0, 1.0), (-1.0, 1.0)))
BASES = [
    Legendre(1, (0.0, 2.0)),
    Legendre(5, (0.0, 2.0)),
    Fourier(6),
    Chebyshev(31, (-3.0, 1.0)),
    product(Legendre(4), Fourier(5)).on(BOX2),
    product(Chebyshev(3), Legendre(4), Fourier(3), index="hyperbolic").on(((0.0, 9.0),) * 3),
    Cells((6,)).on(((0.0, 2.0),)),
    Cells((7,), (0,)).on(((-1.0, 2.0),)),
    Cells((5, 4, 3), (1,)).on(((0.0, 1.0), (0.0, 3.0), (-1e3, 1e3))),
    SumBasis(as_components({"b": [1], 'a "\\': [0, 2]}, [Chebyshev(5), Legendre(3)], ((0.0, 1.0),) * 3)),
    Sigmoids(30, ((0.0, 1.0), (-3.0, 3.0), (0.0, 5.0)), (0.5, 0.0, 2.0), (0.2, 1.0, 1.0), 4.0, (1,)),
    Sigmoids(3, BOX2, (0.5, 0.0), (0.2, 1.0)),
]
REWARDS = [Reward(basis, np.random.default_rng(2).normal(size=basis.size)) for basis in BASES]
BOXES = TerminalBoxes(np.array([[[0.5, -INF], [INF, 0.3]], [[-INF, 0.9], [0.1, INF]]]), 0.0, 0.0, 10)
REWARDS.append(Reward(BASES[4], REWARDS[4].coefficients, BOXES))
REWARDS.append(
    Reward(features_of({"goal": "terminal", "inner": REWARDS[4], "other": REWARDS[11]}, BOX2), [2.0, 0.5, -3.0], BOXES)
)
OWN = [Halved(6, (0.0, 3.0)), product(Halved(4), Fourier(5)).on(BOX2)]
REWARDS += [Reward(basis, np.random.default_rng(3).normal(size=basis.size)) for basis in OWN]
ENDS = Ends(np.array([[[0.7, -INF], [INF, 0.8]], [[-INF, -INF], [INF, -0.5]]]), -7.0)
REWARDS.append(Reward(BASES[4], REWARDS[4].coefficients, BOXES, ends=ENDS))
IDS = [f"{number} {reward.basis}" for number, reward in enumerate(REWARDS)]


def states_of(reward, n=3_000):
    low, high = np.array(reward.domain).T
    states = low + (high - low) * np.random.default_rng(1).random((n, len(low)))
    states[:2] = low, high
    return states


def assert_same(values, reward, states):
    wanted = reward(states)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize("reward", REWARDS, ids=IDS)
def test_python_of_a_reward_has_its_values(reward):
    module = {}
    text = reward.to_python()
    exec(compile(text, "reward.py", "exec"), module)
    states = states_of(reward)
    assert_same(module["reward"](states), reward, states)
    single = states[5] if states.shape[1] > 1 else float(states[5, 0])
    value = module["reward"](single)
    assert type(value) is float and value == pytest.approx(reward(single), rel=1e-12, abs=1e-12)
    assert re.findall(r"^(?:import|from) .*", text, re.M) == ["import numpy as np"]
    refused("must lie in the domain", module["reward"], states[1] + 1)


def test_python_of_a_reward_is_a_module_that_runs_by_itself(tmp_path):
    reward = REWARDS[4]
    (tmp_path / "written.py").write_text(reward.to_python(), encoding="utf-8")
    code = "import sys, written; print(written.reward([0.25, 0.5]), 'certirl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    value, imported = done.stdout.split()
    assert float(value) == pytest.approx(reward([0.25, 0.5]), rel=1e-12) and imported == "False"


@pytest.mark.parametrize("reward", REWARDS, ids=IDS)
def test_json_of_a_reward_reads_back_to_the_bit(reward, tmp_path):
    text = reward.to_json()
    json.loads(text, parse_constant=pytest.fail)  # JSON as everyone reads it, without infinite numbers
    (tmp_path / "reward.json").write_text(text, encoding="utf-8")
    states = states_of(reward, 200)
    for again in (Reward.from_json(text), certirl.load(tmp_path / "reward.json")):
        np.testing.assert_array_equal(again.coefficients, reward.coefficients)
        np.testing.assert_array_equal(again(states), reward(states))
        assert not again.coefficients.flags.writeable


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"size": 5', '"size": 6'),
        ("[5]", "[4]"),
        ('"float64"', '"object"'),
        ('"values": [', '"values": ["__import__",'),
        ('"values": [', '"values": [true,'),
        ('"type": "Reward"', '"type": "Legendre"'),
        (f'"version": {archive.VERSION}', '"version": 1'),
        ("}}", "}"),
        ('"coefficients": {"d', '"other": {"d'),
    ],
)
def test_json_that_was_changed_is_refused(old, new, tmp_path):
    text = REWARDS[1].to_json()
    assert old in text
    (tmp_path / "reward.json").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError):
        Reward.from_json(text.replace(old, new))
    if "Legendre" not in new:  # of another kind, which load returns or refuses by its fields
        refused(r"reward\.json", certirl.load, tmp_path / "reward.json")


def latex_values(text, reward, states):
    """The values of an expansion in LaTeX, read as mathematics."""
    lines = text.removeprefix("\\begin{aligned}\n").removesuffix("\n\\end{aligned}").split(" \\\\\n")
    total = re.sub(r"^R\(s\) &?= ", "", lines[0])
    letters = {"s": states[:, 0], "pi": np.pi} | {f"s_{axis}": states[:, axis] for axis in range(states.shape[1])}
    for line in lines[1:]:
        if found := re.fullmatch(r"(t|t_\{\d\}) &= (?:\\frac\{)?(\S+)(?: ([+-]) ([^}]+))?(?:\}\{(.+)\})?", line):
            name, coordinate, sign, centre, scale = found.groups()
            shift = float(f"{sign or '-'}{centre or 0}")
            letters[re.sub("[{}]", "", name)] = (letters[re.sub("[{}]", "", coordinate)] + shift) / float(scale or 1)

    def plain(code):
        code = re.sub(r" \\cdot 10\^\{(-?\d+)\}", r"e\1", code)
        code = re.sub(r"([PT])_\{(\d+)\}\(", r"\1(\2, ", code).replace("\\,", "*").replace("\\pi ", "*pi*")
        return re.sub("[{}]", "", code.replace("\\", "")).replace("(*pi", "(pi")

    functions = {
        "P": lambda n, t: np.polynomial.Legendre.basis(n)(t),
        "T": lambda n, t: np.polynomial.Chebyshev.basis(n)(t),
        "sin": np.sin,
        "cos": np.cos,
    }
    return eval(plain(total), functions | letters) + np.zeros(len(states))


@pytest.mark.parametrize("reward", REWARDS[:6] + REWARDS[14:16], ids=IDS[:6] + IDS[14:16])
def test_latex_with_all_digits_has_the_values(reward):
    states = states_of(reward, 50)
    assert_same(latex_values(reward.to_latex(digits=17), reward, states), reward, states)


def test_latex_names_what_cannot_be_written_and_says_what_is_left_out():
    reward = Reward(features_of({"speed_x": lambda s, a: s[:, 0] * a, "goal": "terminal"}, BOX2), [-2, 0.5], np.all)
    assert reward.to_latex().splitlines()[1:-1] == [
        r"R(s, a) &= -2\,\text{speed\_x}(s, a) - 0.5 \\",
        r"R(s, a) &= 0 \quad \text{at terminal states}",
    ]
    assert r"R(s) &= 0 \quad \text{where } 0.5 < s_{0},\ s_{1} \le 0.3 \text{ or }" in REWARDS[12].to_latex()
    below = r"\quad \text{at those of them } \text{where } 0.7 < s_{0},\ s_{1} \le 0.8 \text{ or } s_{1} \le -0.5"
    for ended in (BOXES, np.all):  # terminal states that boxes describe, and others
        own = Reward(BASES[4], REWARDS[4].coefficients, ended, ends=ENDS)
        assert r"\text{, but} \\" in own.to_latex() and own.to_latex().splitlines()[-2] == rf"R(s) &= -7 {below}"
        assert str(own).endswith(
            "-7 at terminal states with s[0] > 0.7 and s[1] ≤ 0.8; or s[1] ≤ -0.5, 0 at all others"
        )
    short = REWARDS[3].to_latex(terms=3, digits=2, names=["angle θ_1"])
    assert short.count("T_{") == 3 and r"\text{28 smaller terms}" in short and r"\mathrm{angle θ\_1}" in short
    assert r"\mathbb{R}^{5 \times 4 \times 3}" in REWARDS[8].to_latex()
    assert REWARDS[9].to_latex(symbol="V").count("V_{") == 4 and "R" not in REWARDS[9].to_latex(symbol="V")
    assert r"\sum_{i=1}^{25} w_i \tanh" in REWARDS[10].to_latex()
    assert all(reward.to_latex().count("{") == reward.to_latex().count("}") for reward in REWARDS)
    refused("names must be those of 2 coordinates", REWARDS[4].to_latex, names=["one"])


def test_python_functions_are_refused_with_a_sentence(tmp_path):
    functions = Reward(features_of({"speed": lambda states: states[:, 0]}, BOX2), [1.0])
    terminal = Reward(BASES[4], REWARDS[4].coefficients, lambda states: states[:, 0] > 0.5)
    nested = Reward(features_of({"inner": terminal}, BOX2), [1.0])
    for reward, match in ((functions, "the feature 'speed'"), (terminal, "which states"), (nested, "'inner'")):
        for write in (reward.to_python, lambda reward=reward: reward.to_onnx(tmp_path / "r.onnx")):
            refused(f"{match}.* Python function", write)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="with_features"):  # as for an npz file
        Reward.from_json(functions.to_json())([0.5, 0.0])


@pytest.mark.parametrize("reward", REWARDS, ids=IDS)
def test_onnx_of_a_reward_has_its_values_in_double_precision(reward, tmp_path):
    pytest.importorskip("onnx")
    states, (low, high) = states_of(reward, 500), np.array(reward.domain).T
    path = reward.to_onnx(tmp_path / "reward")
    assert path.name == "reward.onnx"
    for run in onnx_runtimes(path):
        values = run(states)
        assert values.dtype == np.float64 and values.shape == (len(states),)
        assert_same(values, reward, states)
        outside = run(np.stack([high + 1, low - 1, np.where(low < 0, np.nan, low), high + 1e-12]))
        assert np.isnan(outside[:2]).all() and np.isfinite(outside[3])


def test_onnx_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'pip install "certirl\[onnx\]"'):
        REWARDS[0].to_onnx(tmp_path / "reward.onnx")


def test_the_suffix_of_a_file_decides_what_is_written(tmp_path, capsys):
    from certirl.cli import main

    reward = REWARDS[1]
    for suffix, text in ((".py", reward.to_python()), (".tex", reward.to_latex()), (".json", reward.to_json())):
        path = reward.export(tmp_path / f"reward{suffix}")
        assert path.read_text(encoding="utf-8").rstrip("\n") == text.rstrip("\n")
    assert reward.export(tmp_path / "plain").name == "plain.py"
    with pytest.raises(ValueError, match=r"reward\.docx: its name must end in \.py, \.tex, \.json or \.onnx"):
        reward.export(tmp_path / "reward.docx")
    reward.save(tmp_path / "saved.npz")
    assert main(["export", str(tmp_path / "saved.npz"), "-o", str(tmp_path / "again.py")]) == 0
    assert (tmp_path / "again.py").read_text(encoding="utf-8") == (tmp_path / "reward.py").read_text(encoding="utf-8")
    assert main(["export", str(tmp_path / "saved.npz"), "--value"]) == 2
    assert "holds no value that can be exported" in capsys.readouterr().err


ACTING = [
    Reward(BASES[number], np.random.default_rng(5).normal(size=(3, BASES[number].size)), **ended)
    for number, ended in [(1, {}), (8, {}), (4, {"ended": BOXES, "ends": ENDS}), (9, {})]
]


@pytest.mark.parametrize("reward", ACTING, ids=lambda reward: str(reward.basis))
def test_rewards_of_actions_are_written_with_a_second_argument(reward, tmp_path):
    states, actions = states_of(reward), np.random.default_rng(6).integers(0, 3, 3_000)
    wanted = reward(states, actions)
    exec(compile(reward.to_python(), "reward.py", "exec"), module := {})
    np.testing.assert_allclose(module["reward"](states, actions), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    assert module["reward"](states[4], 1) == pytest.approx(reward(states[4], 1), abs=1e-12)
    refused("actions must be whole numbers below 3", module["reward"], states, 3)
    path = reward.to_onnx(tmp_path / "reward")
    for run in onnx_runtimes(path):
        values = run(states, action=actions)
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    lines = reward.to_latex(digits=17).splitlines()
    assert [sum(line.startswith(f"R(s, {action}) &= ") for line in lines) for action in range(3)] == [1, 1, 1]
    assert len(set(lines)) == len(lines)
    if reward.basis == BASES[1]:
        for action in range(3):
            one = reward.for_action(action)
            body = next(line for line in lines if line.startswith(f"R(s, {action})"))
            assert body.partition("= ")[2] == one.to_latex(digits=17).splitlines()[1].partition("= ")[2]


def onnx_runtimes(path):
    """ONNX's own reference in Python, and onnxruntime where it is installed."""
    from onnx.reference import ReferenceEvaluator

    yield lambda states, **more: ReferenceEvaluator(str(path)).run(None, {"state": states} | more)[0]
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    yield lambda states, **more: session.run(None, {"state": states} | more)[0]


@pytest.mark.parametrize("kind", ["py", "tex", "onnx"])
def test_functions_of_a_user_that_are_no_polynomials_are_refused_with_a_sentence(kind, tmp_path):
    """LaTeX wrote Chebyshev polynomials in their place, and Python raised KeyError."""
    with pytest.raises(ValueError, match="functions of Steep are no polynomials, and no formula of them is known"):
        Reward(Steep(4), np.ones(4)).export(tmp_path / f"reward.{kind}")
