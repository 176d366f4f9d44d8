"""The paper in code: its algorithms as plain calls, its theorems as calculators, its figures.

Dexter, Bello and Honorio, Inverse Reinforcement Learning in a Continuous State Space with Formal Guarantees (2021).

- Algorithm 1, the estimate Ẑ: `algorithm1`. Algorithm 2, the reward: `algorithm2`.
- Definition 2, the separability β: `separability`, and all constants of a problem: `constants`.
- Theorem 3, samples for an error of Ẑ: `theorem3_samples`, `theorem3_error`; corrected: `theorem3_samples_corrected`,
  `theorem3_error_corrected`.
- Lemma 4, the error of F̂: `lemma4_error`; sharpened: `lemma4_error_sharp`.
- Lemma 5 and Algorithm 2, covers: `lemma5_tolerance`, `cover_limit`, `cover_size`, `program_rows`.
- Theorem 6, samples for a correct reward: `theorem6`; deflated: `theorem6_deflated`; side by side: `requirements`, and
  the command `certirl theorems`.
- Lemma 7, smooth dynamics: `lemma10_lipschitz` and `lemma10_size`; corrected: `lemma7_corrected`.
- Lemma 10, truncation: `lemma10_tail`, `lemma10_size`, `lemma10_lipschitz`; corrected: `lemma10_tail_corrected`,
  `lemma10_size_corrected`.
- Lemma 11, decay of Z: `lemma11_coefficients`, `lemma11_norm`; corrected: `lemma11_coefficients_corrected`.
- Corollary 12, samples for smooth dynamics: `corollary12`; corrected: `corollary12_corrected`.
- Figures 1 to 4 and the appendix's rollouts: the modules of `certirl.paper.figures`, run by `certirl reproduce`.
"""

from certirl.paper import algorithms, hypotheses, smooth, theorems
from certirl.paper.algorithms import *  # noqa: F403
from certirl.paper.hypotheses import *  # noqa: F403
from certirl.paper.smooth import *  # noqa: F403
from certirl.paper.theorems import *  # noqa: F403

__all__ = [*algorithms.__all__, *hypotheses.__all__, *theorems.__all__, *smooth.__all__]
__dir__ = __all__.copy
