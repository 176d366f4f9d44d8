"""A tour of certified inverse reinforcement learning, as a marimo notebook: `certirl tour` opens it."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(app_title="certirl: a tour")


@app.cell
def _():
    import marimo as mo

    import certirl
    from certirl.ground import status
    from certirl.paper.figures import figure1
    from certirl.show import cards, charts

    return cards, certirl, charts, figure1, mo, status


@app.cell
def _(mo):
    mo.md(r"""
    # A reward, and a proof that it is right

    An expert controls a system. At every state it takes the same action, action 0. **Which reward makes that optimal?**
    The dynamics are unknown and the state is a number in $[-1, 1]$, so there are infinitely many states; all we can do
    is draw transitions from a simulator. Here the simulator is a random test problem with three actions whose truth can
    be computed, so that everything below can be compared with it.

    Move the sliders. Everything below follows.
    """)
    return


@app.cell
def _(mo):
    def slider(label, steps, value):
        return mo.ui.slider(steps=steps, value=value, show_value=True, debounce=True, label=label)

    counts = [factor * power for power in (1_000, 10_000, 100_000) for factor in (1, 2, 5)] + [1_000_000]
    n_slider = slider("n, transitions per action", counts, 2_000)
    k_slider = slider("k, functions", [5, 7, 9, 11, 13, 15], 11)
    discount_slider = slider("γ, discount", [0.5, 0.6, 0.7, 0.8, 0.9], 0.7)
    delta_slider = slider("δ, risk of a false proof", [0.001, 0.01, 0.05, 0.1, 0.2], 0.05)
    sliders = mo.vstack([n_slider, k_slider, discount_slider, delta_slider])
    return delta_slider, discount_slider, k_slider, n_slider, sliders


@app.cell
def _(sliders):
    sliders
    return


@app.cell
def _(delta_slider, discount_slider, k_slider, n_slider):
    n, k = n_slider.value, k_slider.value
    discount, delta = discount_slider.value, delta_slider.value
    return delta, discount, k, n


@app.cell
def _(certirl):
    problem = certirl.problems.random_polynomial(seed=0, actions=3, degree=10)
    return (problem,)


@app.cell
def _(discount, k, mo, n):
    mo.md(f"""
    ## What is estimated

    Rewards and values are sums of **k = {k}** functions of the state. From **n = {n:,}** transitions of each action we
    estimate a matrix $\\hat Z_a$ for each action: how the expected values of these functions at the next state depend
    on the state now. With the discount γ = {discount:g} the matrices give, for every reward $R$, the **margin** of
    action 0:

    $$D_a(s) = (P_0 V)(s) - (P_a V)(s), \\qquad V = R + \\gamma P_0 V,$$

    by how much the expected value of the next state is larger after action 0 than after action $a$. If $D_a(s) > 0$ at
    every state and for every other action, action 0 is strictly optimal: the reward explains the expert.
    """)
    return


@app.cell
def _(certirl, discount, figure1, k, n, problem):
    log = certirl.steps.sample(problem, basis=certirl.Fourier(k), samples=n, rng=0)
    try:
        panel = figure1.curves(
            problem, certirl.steps.measure(log, basis=certirl.Fourier(k)), discount=discount, cover=0.05
        )
        missing = ""
    except ValueError as problem_found:
        panel, missing = None, str(problem_found)
    return missing, panel


@app.cell
def _(cards, figure1, missing, mo, panel):
    mo.vstack(
        [
            mo.md("## The paper's argument, Figure 1"),
            mo.md(
                "A linear program finds a reward whose *estimated* margin (black) is at least 1 at the points of a "
                "grid, the cover. Between the points the margin can fall no faster than its Lipschitz constant allows "
                "(orange). The true margin differs from the estimate by the error of the matrices (blue). If blue is "
                "above zero at every state, the reward is **proved** right; the dashed line is the truth, which a user "
                "never sees."
            ),
            mo.md(f"*{missing}*") if panel is None else mo.Html(cards.figure(figure1.chart(panel))),
        ]
    )
    return


@app.cell
def _(figure1, mo, n, panel):
    least = None if panel is None else float(min(panel["truth at least"]))
    mo.md(
        "With these samples there is no reward at all: the estimates contradict each other."
        if panel is None
        else f"At n = {n:,} the reward is **{figure1.verdict(panel)}**: the bound on the true margin over action "
        f"{panel['rival']} is {least:.3g} at worst, and that margin is {min(panel['truth']):.3g}. The bound uses the "
        "true matrices, which only a test problem has; the paper's theorem replaces them by a bound that holds for any "
        "data, and needs many more samples."
    )
    return


@app.cell
def _(delta, mo):
    mo.md(f"""
    ## What a certificate says

    `certirl.solve` with `delta` finds a reward from a part of the transitions and bounds the error of its margin from
    **fresh** ones, at all states together. What remains after all errors are subtracted is a lower bound on the true
    margin. If it is positive, the reward is certified: the statement is false with probability at most δ = {delta:g}.
    `solve` draws at most n transitions of each action, and stops as soon as the proof is complete.
    """)
    return


@app.cell
def _(certirl, delta, discount, k, n, problem):
    solution = certirl.solve(
        problem,
        discount=discount,
        expert=0,
        basis=certirl.Legendre(k),
        columns=3,
        delta=delta,
        tail=0,
        samples=n,
        rng=0,
        progress=False,
    )
    return (solution,)


@app.cell
def _(solution):
    solution
    return


@app.cell
def _(cards, charts, discount, mo, problem, solution, status):
    proof = solution.certificate
    is_certified = solution.status == "certified"
    true_margin = None if solution.reward is None else float(problem.true_margin(solution.reward, discount=discount))
    if proof is None or true_margin is None:
        sentence = f"There is no certificate: {solution.reason}."
    elif is_certified:
        sentence = (
            f"**Certified.** The proof says that the margin is at least {status.rounded_down(proof.margin):.3g}; the "
            f"true margin, which the proof did not use, is {true_margin:.3g}."
        )
    else:
        sentence = (
            f"**Not certified.** The true margin is {true_margin:.3g}, but these data do not prove that it is "
            f"positive: {proof.missing}. Move n to the right."
        )
    mo.vstack(
        [
            mo.md("## How the margin is spent"),
            mo.Html("" if proof is None else cards.figure(charts.budget(proof))),
            mo.md(sentence),
        ]
    )
    return is_certified, proof, true_margin


@app.cell
def _(mo):
    mo.md("""
    ## Where to go from here

    - The *tail* was declared as zero: this problem's dynamics depend on the state through three functions exactly. For
      your own system you declare a bound; no data can show it.
    - `solution.report("report.html")` writes everything about a solution to a page; `solution.save("solution.npz")` and
      `certirl check solution.npz` derive the proof again, with other code.
    - `certirl tour --copy tour.py` writes this notebook to a file, and `marimo edit tour.py` lets you change it.
    """)
    return


if __name__ == "__main__":
    app.run()
