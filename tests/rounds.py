"""Searches in small rounds, so that training data contradict each other in some of them."""

from importlib import import_module

from certirl.solver.solve import ProgramLearner


def in_small_rounds(monkeypatch):
    """Begin searches with 300 transitions per action; the list that is returned counts the rewards of every round."""
    rounds, learn = [], ProgramLearner.learn

    def counting(self, training):
        learned = learn(self, training)
        rounds.append(len(learned.candidates))
        return learned

    monkeypatch.setattr(import_module("certirl.solver.search"), "FIRST", 300)
    monkeypatch.setattr(ProgramLearner, "learn", counting)
    return rounds
