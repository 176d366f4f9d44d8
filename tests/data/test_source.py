"""A log and a simulator answer the same questions; what belongs to one of them alone is refused for the other."""

import numpy as np
import pytest

import certirl
from certirl.data.source import Logged, Simulated, as_source
from refusals import refused
from systems import Moving

PROBLEM, BASIS = certirl.problems.random_polynomial(seed=7), certirl.Legendre(5).on(((-1.0, 1.0),))
SAMPLES = 300


class Cliff:
    """States above 0.8 are terminal."""

    n_actions, domain, periodic = 2, ((-1.0, 1.0),), ()

    def sample(self, states, action, rng):
        return np.clip(states[:, 0] + 0.2 * (action - 0.5) + 0.1 * rng.normal(size=len(states)), -1, 1)

    def terminal(self, states):
        return states[:, 0] > 0.8


def logged(simulator, samples=SAMPLES, **known):
    log = certirl.steps.sample(simulator, basis=BASIS, samples=samples, rng=0)
    settings = {"domain": log.domain, "n_actions": log.n_actions}
    return certirl.Transitions(log.states, log.actions, log.next_states, **settings, **known)


def cliff_log():
    log = logged(Cliff(), 2_000)
    return logged(Cliff(), 2_000, terminal=Cliff().terminal(log.next_states))


def rows_of(stream):
    return {
        (action, *state, *after)
        for piece in stream
        for action, nexts in zip(piece.actions, piece.next_states, strict=True)
        for state, after in zip(piece.states.tolist(), nexts.tolist(), strict=True)
    }


SOURCES = {"simulator": PROBLEM, "log": logged(PROBLEM)}


@pytest.mark.parametrize("kind", SOURCES)
def test_both_kinds_answer_alike(kind):
    source = as_source(SOURCES[kind])
    assert as_source(source) is source and source.is_log == (kind == "log")
    assert (source.domain, source.n_actions, source.periodic) == (((-1.0, 1.0),), 3, ())
    assert not source.has_terminal_states and source.terminal() == (None, None)
    source.check_without_terminal()
    source.check_noise()
    assert source.number_to_draw(None, usual=7) == (0 if source.is_log else 7)
    assert source.per_action(SAMPLES) == SAMPLES
    stream = source.stream(SAMPLES, BASIS, source.generator(0), paired=False)
    assert stream.total == 3 * SAMPLES and stream.per_action == SAMPLES
    assert rows_of(stream) == rows_of(stream) == rows_of(stream.record())
    chunked = [piece for chunk in stream.chunks() for piece in chunk.pieces()]
    assert rows_of(chunked) == rows_of(stream) and len(rows_of(stream)) == stream.total


@pytest.mark.parametrize("kind", SOURCES)
def test_training_and_proof_never_share_a_transition(kind):
    source = as_source(SOURCES[kind])
    training, fresh = source.pools(0.3, BASIS, source.generator(0, "certify"), samples=SAMPLES)
    assert not rows_of(training) & rows_of(fresh)
    assert training.total + fresh.total == 3 * SAMPLES
    assert training.total == pytest.approx(0.3 * 3 * SAMPLES, abs=3)
    again, _ = source.pools(0.3, BASIS, source.generator(0, "certify"), samples=SAMPLES)
    assert rows_of(again) == rows_of(training)


def test_pools_of_draws_grow_and_keep_what_they_have():
    training, fresh = as_source(PROBLEM).pools(0.3, BASIS, 0)
    assert training.size == 0
    training.grow(40)
    before = rows_of(training)
    training.grow(100)
    training.grow(70)
    assert training.size == 100 and len(rows_of(training)) == 300 and before < rows_of(training)
    assert rows_of(training.newest()) == rows_of(training) - before
    assert training.leading(30).size == 30 and training.leading(80).size == 80  # of all rounds
    assert len(training.log(60)) == 3 * 60 and len(training.log(1_000)) == 300
    assert {row for chunk in training.chunks() for row in rows_of(chunk.pieces())} == rows_of(training)
    fresh.grow(100)
    assert not rows_of(training) & rows_of(fresh)


def test_pools_of_a_log_hold_all_of_it():
    log = SOURCES["log"]
    training, fresh = as_source(log).pools(0.3, BASIS, np.random.default_rng(0))
    sizes = training.size, fresh.size
    training.grow(10**6)
    assert (training.size, fresh.size) == sizes and rows_of(training) | rows_of(fresh) == rows_of(log)
    assert len(training.log(1)) == len(rows_of(training)) == len(rows_of(training.leading(1)))
    assert rows_of(training.newest()) == rows_of(training)


@pytest.mark.parametrize("kind", ["simulator", "log"])
def test_terminal_states_are_found_described_and_refused_for_proofs(kind):
    source = as_source(Cliff() if kind == "simulator" else cliff_log())
    terminal, boxes = source.terminal()
    states = np.linspace(-1, 1, 401)[:, None]
    assert source.has_terminal_states and (terminal(states) == Cliff().terminal(states)).mean() > 0.99
    assert boxes.reliable and "s[0] > 0." in str(boxes)
    refused("a proof is for problems without terminal states", source.check_without_terminal)
    with pytest.raises(ValueError, match="a proof is for problems without terminal states"):
        [list(stream) for stream in source.pools(0.5, BASIS, source.generator(0), samples=SAMPLES)]


def test_what_one_of_them_does_not_use_is_refused():
    log, simulator = as_source(SOURCES["log"]), as_source(PROBLEM)
    for settings, sentence in (
        ({"asked": 10}, "samples is for simulators: data that were recorded are used as they are, leave samples out"),
        ({"asked": None, "paired": True}, "paired is for simulators: a log says itself whether its rows are paired"),
    ):
        refused(sentence, log.number_to_draw, **settings, usual=7)
        assert simulator.number_to_draw(**settings, usual=7) == (settings["asked"] or 7)
    for settings in ({"asked": 0}, {"asked": "x"}, {"asked": 8, "most": 7}, {"asked": None, "paired": "yes"}):
        refused("must be", simulator.number_to_draw, **settings, usual=7)
    with pytest.raises(TypeError, match="rng is needed"):
        simulator.generator(None)
    assert log.generator(None).random() == log.generator(0).random()
    with pytest.raises(ValueError, match="needs a declared domain"):
        Logged(certirl.Transitions([0.0, 1.0], [0, 1], [1.0, 0.5])).divided(0.5, np.random.default_rng(0))
    for source in (None, 5, certirl.steps.measure(SOURCES["log"], basis=BASIS)):
        with pytest.raises(TypeError, match="neither Transitions nor a simulator"):
            as_source(source)
    assert isinstance(log, Logged) and isinstance(simulator, Simulated)


def test_pairs_stay_together_when_a_log_is_divided():
    log = certirl.steps.sample(PROBLEM, basis=BASIS, samples=50, rng=0, paired=True)
    for part in Logged(log).divided(0.4, np.random.default_rng(1)):
        assert part.paired and len(set(part.counts.tolist())) == 1
        np.testing.assert_array_equal(part.of_action(0)[0], part.of_action(2)[0])


STILL = Moving(((-1.0, 1.0),) * 2, (0.1, -0.1), keep=0.9)


def test_proofs_from_draws_without_noise_are_refused():
    asked = {"discount": 0.9, "delta": 0.05, "tail": 0, "columns": 10, "rng": 0}
    for expert in (0, lambda states: states[:, 0] > 0):
        with pytest.raises(ValueError, match=r"no noise: .* declare dynamics=certirl\.dynamics\.Deterministic"):
            certirl.solve(STILL, expert=expert, **asked)
    asked = {"columns": certirl.product(BASIS, BASIS), "tail": 0, "rng": 0}
    refused("no noise", certirl.certify, lambda states: states[:, 0], STILL, expert=0, discount=0.9, **asked)
