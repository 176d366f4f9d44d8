"""Environments that pay a learned reward, for libraries that train on gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from certirl.environments.playing import wrapped_reader
from certirl.environments.spaces import Reader, controls_of
from certirl.functions.reward import paid_at_an_end, unpack, values_of
from certirl.ground.domain import Array, as_domain
from certirl.ground.domain import into_domain as placed


class RewardWrapper(gymnasium.Wrapper):  # type: ignore[misc]
    """The environment with a learned reward in place of its own, for any library that trains on gymnasium.

    A step is paid R(s'), the reward of the state it leads to; this orders policies as R does. A terminal state is
    absorbing for the learned reward, which goes on paying R there, while training stops: the last step is paid
    ``R(s')/(1 − γ)``, the whole rest. Otherwise a reward that is negative everywhere would teach to end it all soon.

    With ``shaped=True`` a step is paid ``V(s') − (V(s) − R(s))/γ`` instead, by the value V of a solution: the same plus
    ``γΦ(s') − Φ(s)`` with Φ = (V − R)/γ, which changes no comparison of policies (Ng, Harada and Russell, 1999). What
    the expert does is then paid about 0 and everything else less, at once and not only in the sum of what follows.
    """

    def __init__(
        self,
        env: Any,
        reward: Any,
        *,
        discount: float | None = None,
        domain: Any = None,
        actions: int | Sequence[Any] | None = None,
        shaped: bool = False,
        get_state: Reader | None = None,
    ) -> None:
        """Wrap an environment.

        Args:
            env: the environment.
            reward: a `Solution`, a `Reward`, or any function of states ``[n, d]``.
            discount: γ, of the training; known from a solution. 0 pays R(s') once at the end.
            domain: the box on which the reward is known; states beyond are put on its edge. The reward's own if left
                out, and for a plain function none.
            actions: as for `simulator`: the wrapped environment then takes the numbers 0, 1, … of these; the
                environment's own actions if left out.
            shaped: add the potential that the solution's value makes; for solutions that have one.
            get_state: as for `simulator`.
        """
        super().__init__(env)
        self._controls = None if actions is None else controls_of(env.action_space, actions)
        if self._controls is not None:
            self.action_space = gymnasium.spaces.Discrete(len(self._controls))
        if discount is not None and not 0 <= discount < 1:
            raise ValueError(f"discount must be at least 0 and less than 1, got {discount}")
        self._learned, self._discount, _ = unpack(reward, discount, None)
        self._potential = _potential_of(reward, self._discount) if shaped else None
        self._before = 0.0  # Φ of the state before, if it is shaped
        basis = getattr(self._learned, "basis", None)
        box = domain if domain is not None else getattr(basis, "domain", None)
        self._domain = None if box is None else as_domain(box)
        self._read = wrapped_reader(env, get_state)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The environment's own step, paid by the learned reward; its own is in ``info["own_reward"]``."""
        control = action if self._controls is None else self._controls[int(action)]
        seen, own, terminated, truncated, info = self.env.step(control)
        state = self._state()
        paid = float((paid_at_an_end if terminated else values_of)(self._learned, state)[0])
        if terminated and paid:
            if self._discount is None:
                raise ValueError(
                    "the episode ended in a terminal state, where the learned reward is paid for ever: pass discount=γ "
                    "to RewardWrapper, or discount=0 to pay it once"
                )
            paid /= 1 - self._discount
        if self._potential is not None and self._discount is not None:
            ahead = 0.0 if terminated else self._potential(state)
            paid, self._before = paid + self._discount * ahead - self._before, ahead
        return seen, paid, terminated, truncated, {**info, "own_reward": own}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The environment's own."""
        answer = self.env.reset(seed=seed, options=options)
        if self._potential is not None:
            self._before = self._potential(self._state())
        return answer

    def _state(self) -> Array:
        state = self._read(self.env)[None]
        return state if self._domain is None else placed(state, self._domain, ())


def _potential_of(solution: Any, discount: float | None) -> Callable[[Array], float]:
    """Φ(s) = (V(s) − R(s))/γ: what is to come after a state, by the solution's own value."""
    value = getattr(solution, "value", None)
    if not callable(value):
        raise ValueError("a shaped reward needs a value: pass the solution of an expert that depends on the state")
    if discount != solution.discount or not discount:
        raise ValueError(f"the value belongs to the discount {solution.discount}, got {discount}: leave discount out")
    return lambda state: float((value(state) - solution.reward(state))[0]) / discount
