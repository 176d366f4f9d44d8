"""What is known of the dynamics beyond the data: it chooses the theorem of a proof, or an estimate.

certirl.certify(reward, source, columns=13, tail=GaussianNoise(1.5), ...)   # the next state has a smooth density
certirl.certify(reward, source, dynamics=AffineGaussian(...), ...)          # drift and noise are known exactly
certirl.certify(reward, source, dynamics=Deterministic(...), ...)           # there is no noise
certirl.solve(log, dynamics=SharedDrift(), ...)                             # what an action does is one vector
"""

from certirl.fit.declared import Resets
from certirl.fit.drifts import SharedDrift
from certirl.proof.cells import Deterministic
from certirl.proof.densities import tail_from_density
from certirl.proof.known_noise import AffineGaussian
from certirl.proof.tails import AdditiveNoise, GaussianNoise, LaplaceNoise, Smooth, UniformNoise

__all__ = [
    "AdditiveNoise",
    "AffineGaussian",
    "Deterministic",
    "GaussianNoise",
    "LaplaceNoise",
    "Resets",
    "SharedDrift",
    "Smooth",
    "UniformNoise",
    "tail_from_density",
]
__dir__ = __all__.copy
