"""Fits in files: exact, whole or absent, readable by ArviZ, and good enough to go on from in another process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import arviz as az
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import kpp
import kpp_models
from kpp.inference import AbstractInference, Posterior
from kpp.inference.fit import storage
from kpp.kernels import RBF
from kpp.storage import arviz_data
from kpp.storage.serialization import to_spec


@pytest.fixture(scope="module")
def gp_fit(conjugate):
    kernel = RBF(lengthscale=dist.LogNormal(0.0, 1.0).expand([3]), variance=1.0)
    model = kpp_models.GPRegression(kernel, noise_variance=dist.HalfNormal(1.0))
    inference = kpp.NUTS(num_warmup=60, num_samples=40, num_chains=2, progress=False)
    frame = pd.DataFrame(conjugate.x, columns=["age", "dose", "mass"])
    return model.fit(jax.random.key(0), frame, conjugate.y, inference=inference)


@pytest.fixture
def registered(linear_model, register):
    register("models", "BayesianLinear", linear_model)


@pytest.fixture
def path(nuts_fit, registered, tmp_path):
    nuts_fit.save(tmp_path / "fit.nc")
    return tmp_path / "fit.nc"


@pytest.mark.slow
def test_predictions_are_saved_with_a_fit(nuts_fit, registered, conjugate, tmp_path):
    fit = nuts_fit.with_predictions(jax.random.key(9), conjugate.x[:4])
    fit.save(tmp_path / "fit.nc")
    loaded, kept = (arviz_data.groups(some.idata) for some in (kpp.Fit.load(tmp_path / "fit.nc"), fit))
    for group in ("predictions", "predictions_constant_data"):
        xr.testing.assert_equal(loaded[group], kept[group])


@pytest.mark.nightly_variants("gp_fit")
@pytest.mark.parametrize("name", ["nuts_fit", pytest.param("gp_fit", marks=pytest.mark.slow)])
def test_a_fit_comes_back_exactly(name, request, registered, conjugate, tmp_path):
    fit = request.getfixturevalue(name)
    fit.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    assert eqx.tree_equal(loaded.draws, fit.draws)
    assert eqx.tree_equal(loaded.data, fit.data)
    assert eqx.tree_equal(loaded.state, fit.state)
    assert loaded.schema == fit.schema
    assert loaded.inference == fit.inference
    assert to_spec(loaded.model) == to_spec(fit.model)
    assert dict(loaded.idata.attrs) == dict(fit.idata.attrs)
    for group_name, group in arviz_data.groups(fit.idata).items():
        xr.testing.assert_equal(arviz_data.group(loaded.idata, group_name), group)
    np.testing.assert_array_equal(loaded.predict(conjugate.x[:5])["mean"], fit.predict(conjugate.x[:5])["mean"])


def test_arviz_opens_the_file(path, nuts_fit):
    opened = az.from_netcdf(path, engine="h5netcdf")
    np.testing.assert_array_equal(opened["posterior"]["weights"], nuts_fit.draws["weights"])


@pytest.fixture(scope="module")
def resumed(gp_fit):
    return gp_fit.resume(jax.random.key(7), 25)


@pytest.mark.nightly
def test_chains_go_on_in_another_process(gp_fit, resumed, tmp_path):
    gp_fit.save(tmp_path / "fit.nc")
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "import kpp, sys\n"
        "fit = kpp.Fit.load(sys.argv[1])\n"
        "fit.resume(jax.random.key(7), 25).save(sys.argv[2])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "fit.nc"), str(tmp_path / "more.nc")], check=True)
    there, here = kpp.Fit.load(tmp_path / "more.nc"), resumed
    assert here.draws["kernel.lengthscale"].shape == (2, 65, 3)
    np.testing.assert_array_equal(here.draws["kernel.lengthscale"][:, :40], gp_fit.draws["kernel.lengthscale"])
    np.testing.assert_allclose(there.draws["noise_variance"], here.draws["noise_variance"], rtol=1e-6)


@pytest.mark.nightly
def test_resumed_chains_keep_step_size_and_mass_matrix(gp_fit, resumed):
    more = resumed
    np.testing.assert_array_equal(more.state["step_size"], gp_fit.state["step_size"])
    np.testing.assert_array_equal(more.state["inverse_mass_matrix"], gp_fit.state["inverse_mass_matrix"])
    groups = arviz_data.groups(more.idata)
    for name in ("posterior", "sample_stats", "log_likelihood", "posterior_predictive"):
        assert groups[name].sizes["draw"] == 65
        np.testing.assert_array_equal(groups[name]["draw"], np.arange(65))
    last = gp_fit.draws["kernel.lengthscale"][:, -1]
    # In unconstrained space chains go on from where they were: the state is the logarithm of the last draw.
    np.testing.assert_allclose(jnp.exp(gp_fit.state["position.kernel.lengthscale"]), last, rtol=1e-10)


def test_only_nuts_resumes(map_fit):
    with pytest.raises(TypeError, match="MAP keeps no state of chains to resume"):
        map_fit.resume(jax.random.key(0), 10)


def test_an_unregistered_model_is_refused(laplace_fit, tmp_path):
    with pytest.raises(TypeError, match="not registered"):
        laplace_fit.save(tmp_path / "fit.nc")
    assert not list(tmp_path.iterdir())


class Repeated(AbstractInference):
    """A third party's inference: it draws from the prior."""

    num_samples: int = 3
    label: object = "prior"
    progress: bool = False

    def run(self, rng_key, numpyro_model, data):
        draw = numpyro.infer.Predictive(lambda: numpyro_model(data["x"]), num_samples=self.num_samples)
        samples = jax.jit(draw)(rng_key)
        return Posterior({"weights": samples["weights"][None]}, {}, {"inference": "Repeated"})


@pytest.fixture
def repeated_fit(linear_model, prior, conjugate, registered):
    model = linear_model(prior, conjugate.noise)
    return model.fit(jax.random.key(0), conjugate.x, conjugate.y, inference=Repeated(4), num_prior_samples=0)


def test_a_third_partys_inference_comes_back(repeated_fit, tmp_path):
    repeated_fit.save(tmp_path / "fit.nc")
    loaded = kpp.Fit.load(tmp_path / "fit.nc")
    assert type(loaded.inference) is Repeated
    assert loaded.inference == Repeated(4)
    assert eqx.tree_equal(loaded.draws, repeated_fit.draws)


def test_a_registered_inference_is_saved_by_its_name(repeated_fit, tmp_path, register):
    register("inferences", "repeated prior", Repeated)
    repeated_fit.save(tmp_path / "fit.nc")
    description = json.loads(xr.load_dataset(tmp_path / "fit.nc", engine="h5netcdf").attrs["kpp"])
    assert description["inference"]["name"] == "repeated prior"
    assert kpp.Fit.load(tmp_path / "fit.nc").inference == Repeated(4)


def test_no_module_that_a_file_names_is_imported(repeated_fit, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(storage, "_class_name", lambda cls: "stranger.Inference" if cls is Repeated else cls.__name__)
    repeated_fit.save(tmp_path / "fit.nc")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="a fit by stranger.Inference, .* not loaded; import stranger first"):
        kpp.Fit.load(tmp_path / "fit.nc")


def test_the_inferences_of_kpp_are_saved_by_their_own_names(path):
    description = json.loads(xr.load_dataset(path, engine="h5netcdf").attrs["kpp"])
    assert description["inference"]["name"] == "NUTS"
    assert [storage._class_name(cls) for cls in (kpp.MAP, kpp.Laplace, kpp.SVI)] == ["MAP", "Laplace", "SVI"]


def test_fields_of_an_inference_must_be_plain(repeated_fit, tmp_path):
    broken = dataclasses.replace(repeated_fit, inference=Repeated(label=("a",)))
    with pytest.raises(TypeError, match="its `label` is a tuple; fields of an inference must be numbers, text"):
        broken.save(tmp_path / "fit.nc")
    assert not (tmp_path / "fit.nc").exists()


def test_an_interrupted_save_leaves_the_old_file_and_no_other(nuts_fit, registered, tmp_path, monkeypatch):
    folder = tmp_path / "fits"
    folder.mkdir()
    path = folder / "fit.nc"
    path.write_text("old")

    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, "dump_to_store", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nuts_fit.save(path)
    assert [entry.name for entry in folder.iterdir()] == ["fit.nc"]
    assert path.read_text() == "old"


def test_other_files_are_refused(tmp_path):
    xr.Dataset({"a": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match="must be a fit saved by kpp"):
        kpp.Fit.load(tmp_path / "other.nc")


def test_nested_data_keep_their_structure():
    data = {"x": {"points": np.ones((2, 3)), "lengths": (np.arange(2), None)}, "y": [np.zeros(2)]}
    structure = storage._structure(data, "")
    arrays = {storage._name(place): leaf for place, leaf in jax.tree_util.tree_leaves_with_path(data)}
    assert set(arrays) == {"x.points", "x.lengths.0", "y.0"}
    assert eqx.tree_equal(storage._unflatten(structure, arrays), data)
    with pytest.raises(TypeError, match="`data` holds a set at 'x'"):
        storage._structure({"x": {1}}, "")
