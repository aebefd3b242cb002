"""What a report says of the draws is asked of the inference, whatever its name."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import pytest

import kpp
from kpp.inference import AbstractInference, Posterior
from kpp_study import load_fit, parse_study, run_study


class Walk(AbstractInference):
    """A sampler of a third party."""

    num_warmup: int = eqx.field(static=True, default=60)
    progress: bool = eqx.field(static=True, default=False)

    def run(self, rng_key, numpyro_model, data):
        raise NotImplementedError


@pytest.mark.slow_variants("Walk")
@pytest.mark.nightly_variants("MCMC")
@pytest.mark.parametrize("cls", [kpp.MCMC, Walk])
def test_chains_of_any_sampler_are_judged(cls, finished, tmp_path, register, monkeypatch):
    """The sampler returns the draws that NUTS has found, so that nothing is compiled and the verdict is known."""
    draws = load_fit(finished.folder).fit.draws
    posterior = Posterior(draws, {"lp": jnp.zeros((2, 60))}, {"inference": cls.__name__})
    monkeypatch.setattr(cls, "run", lambda self, rng_key, numpyro_model, data: posterior)
    if cls is Walk:
        register("inferences", "Walk", Walk)
    text = finished.study.read_text(encoding="utf-8")
    start, end = text.index("[inference]"), text.index("[explainer]")
    study = (
        f'{text[:start]}[inference]\nname = "{cls.__name__}"\nnum_warmup = 70\n{text[end:]}\n[report]\nwaterfalls = 0'
    )
    folder = run_study(parse_study(study, folder=finished.study.parent), tmp_path / "results", progress=False)
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert f"Fitted by {cls.__name__}: 2 chains of 60 draws after 70 steps of warm-up." in report
    assert "R-hat compares the chains" in report and "approximation of the posterior" not in report
    by_nuts = (finished.folder / "report.html").read_text(encoding="utf-8")
    table = [
        page[page.index("ESS bulk") : page.index("</tbody>", page.index("ESS bulk"))] for page in (report, by_nuts)
    ]
    assert table[0] == table[1]
