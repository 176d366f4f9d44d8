"""The theorems of the paper as calculators, as printed and corrected: guarantees before any data are drawn.

- Definition 2, the separability β: `separability`, and all constants of a problem: `constants`.
- Theorem 3, samples for an error of Ẑ: `theorem3_samples`, `theorem3_error`; corrected: `theorem3_samples_corrected`,
  `theorem3_error_corrected`.
- Lemma 4, the error of F̂: `lemma4_error`; sharpened: `lemma4_error_sharp`.
- Lemma 5 and Algorithm 2, covers: `lemma5_tolerance`, `cover_limit`, `cover_size`, `program_rows`.
- Theorem 6, samples for a correct reward: `theorem6`; deflated: `theorem6_deflated`; side by side: `requirements`.
- Lemma 7, smooth dynamics: `lemma7`; corrected: `lemma7_corrected`.
- Lemma 10, truncation: `lemma10_tail`, `lemma10_size`, `lemma10_lipschitz`; corrected: `lemma10_tail_corrected`,
  `lemma10_size_corrected`.
- Lemma 11, decay of Z: `lemma11_coefficients`, `lemma11_norm`, `lemma11_derivative_bound`; corrected:
  `lemma11_coefficients_corrected`.
- Corollary 12, samples for smooth dynamics: `corollary12`; corrected: `corollary12_corrected`.
"""

from certirl.theory.guarantees import (
    Condition,
    Requirement,
    cover_limit,
    cover_size,
    lemma4_error,
    lemma4_error_sharp,
    lemma5_tolerance,
    program_rows,
    theorem3_error,
    theorem3_error_corrected,
    theorem3_samples,
    theorem3_samples_corrected,
    theorem6,
    theorem6_deflated,
)
from certirl.theory.requirements import (
    ASSUMED,
    Constants,
    Requirements,
    constants,
    requirements,
    separability,
)
from certirl.theory.smoothness import (
    Lemma7,
    Lemma7Corrected,
    corollary12,
    corollary12_corrected,
    lemma7,
    lemma7_corrected,
    lemma10_lipschitz,
    lemma10_size,
    lemma10_size_corrected,
    lemma10_tail,
    lemma10_tail_corrected,
    lemma11_coefficients,
    lemma11_coefficients_corrected,
    lemma11_derivative_bound,
    lemma11_norm,
)

__all__ = [
    "ASSUMED",
    "Condition",
    "Constants",
    "Lemma7",
    "Lemma7Corrected",
    "Requirement",
    "Requirements",
    "constants",
    "corollary12",
    "corollary12_corrected",
    "cover_limit",
    "cover_size",
    "lemma4_error",
    "lemma4_error_sharp",
    "lemma5_tolerance",
    "lemma7",
    "lemma7_corrected",
    "lemma10_lipschitz",
    "lemma10_size",
    "lemma10_size_corrected",
    "lemma10_tail",
    "lemma10_tail_corrected",
    "lemma11_coefficients",
    "lemma11_coefficients_corrected",
    "lemma11_derivative_bound",
    "lemma11_norm",
    "program_rows",
    "requirements",
    "separability",
    "theorem3_error",
    "theorem3_error_corrected",
    "theorem3_samples",
    "theorem3_samples_corrected",
    "theorem6",
    "theorem6_deflated",
]
