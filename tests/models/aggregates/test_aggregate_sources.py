"""Several sources of aggregates of one field, against the joint Gaussian written out in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import kpp
from kpp.data.bags import Bags
from kpp.kernels import RBF
from kpp.storage.serialization import from_spec, to_spec
from kpp_models import CMP, aggregate_posterior
from kpp_models.aggregates.operators.conditional_mean import Places
from oracles.kernels import rbf

SIZES = (np.array([1, 4, 2, 3]), np.array([3, 2, 5]))
NOISE, REGULARIZATION, PRIOR_MEAN = np.array([0.05, 0.4]), 0.02, 0.5
SCALES = (0.6, 1.3)  # of the kernels of the covariates


class Joint:
    """Two sources: four small bags with a target each, and three bags with two targets elsewhere."""

    def __init__(self):
        rng = np.random.default_rng(8)
        self.points = [rng.normal(size=(10, 2)), rng.normal(size=(10, 2))]
        self.covariates = [np.linspace(-1.0, 1.0, 4)[:, None], np.array([[-0.7], [0.0], [0.8]])]
        self.places = [self.covariates[0], np.array([[-0.5], [0.6]])]
        self.targets = [rng.normal(size=4), rng.normal(size=2)]
        self.x = rng.normal(size=(5, 2))
        self.bags = [
            Bags.create(points, np.repeat(np.arange(len(sizes)), sizes), covariates)
            for points, sizes, covariates in zip(self.points, SIZES, self.covariates, strict=True)
        ]
        self.spread = [self._spread(source) for source in range(2)]
        self.kernel = lambda a, b: rbf(a, b, 0.9)

    def _spread(self, source):
        sizes, covariates = SIZES[source], self.covariates[source]
        average = np.repeat(np.eye(len(sizes)), sizes, axis=1) / sizes[:, None]
        gram = rbf(covariates, covariates, SCALES[source]) + sizes.sum() * REGULARIZATION * np.diag(1.0 / sizes)
        return average.T @ np.linalg.solve(gram, rbf(covariates, self.places[source], SCALES[source]))

    def posterior(self, sources):
        """Field and evidence given the targets of some sources: conditioning of one joint Gaussian vector."""
        points = np.concatenate([self.points[source] for source in sources])
        parts = [self.spread[source] for source in sources]
        spread = np.zeros((len(points), sum(part.shape[1] for part in parts)))
        row = column = 0
        for part in parts:
            spread[row : row + part.shape[0], column : column + part.shape[1]] = part
            row, column = row + part.shape[0], column + part.shape[1]
        noise = np.concatenate([np.full(self.spread[source].shape[1], NOISE[source]) for source in sources])
        covariance = spread.T @ self.kernel(points, points) @ spread + np.diag(noise)
        mean, z = PRIOR_MEAN * spread.sum(0), np.concatenate([self.targets[source] for source in sources])
        cross = self.kernel(self.x, points) @ spread
        gain = np.linalg.solve(covariance, cross.T).T
        return {
            "mean": PRIOR_MEAN + gain @ (z - mean),
            "covariance": self.kernel(self.x, self.x) - gain @ cross.T,
            "density": stats.multivariate_normal(mean, covariance).logpdf(z),
        }


@pytest.fixture(scope="module")
def joint():
    return Joint()


def model_of(**options):
    return CMP(RBF(0.9), tuple(map(RBF, SCALES)), NOISE, REGULARIZATION, mean=PRIOR_MEAN, **options)


@eqx.filter_jit
def evaluate(model, data, x, places=None):
    found = model.predictive({}, data, x, covariance=True)
    found["density"] = log_density(model.numpyro_model, (), data, {})[0]
    return found | ({} if places is None else {"aggregates": model.aggregate_moments({}, data, places)})


@pytest.fixture(scope="module")
def both(joint):
    model, data, _ = model_of().prepare(joint.bags, joint.targets, covariates=joint.places)
    places = Places(jnp.array([[0.2], [0.2]]), jnp.array([0, 1]))
    return evaluate(model, data, jnp.asarray(joint.x), places)


@pytest.mark.slow
def test_two_sources_are_one_joint_gaussian(joint, both, tolerance):
    expected = joint.posterior([0, 1])
    np.testing.assert_allclose(both["mean"], expected["mean"], **tolerance())
    np.testing.assert_allclose(both["latent_covariance"], expected["covariance"], **tolerance())
    np.testing.assert_allclose(both["density"], expected["density"], **tolerance())


@pytest.mark.slow
def test_a_second_source_adds_what_it_knows(joint, both, tolerance):
    alone = CMP(RBF(0.9), RBF(SCALES[0]), NOISE[0], REGULARIZATION, mean=PRIOR_MEAN)
    model, data, _ = alone.prepare(joint.bags[0], joint.targets[0], covariates=joint.places[0])
    first = evaluate(model, data, jnp.asarray(joint.x))
    np.testing.assert_allclose(first["mean"], joint.posterior([0])["mean"], **tolerance())
    assert (both["latent_variance"] < first["latent_variance"] - 1e-4).all()


@pytest.mark.slow
def test_sources_know_different_aggregates_of_the_same_covariate(both):
    # Each source has its own bags and kernel: the same place means another distribution of points.
    mean, covariance = both["aggregates"]["mean"], both["aggregates"]["latent_covariance"]
    assert abs(mean[0] - mean[1]) > 0.01
    assert np.linalg.eigvalsh(covariance).min() > 0


@pytest.mark.slow
def test_inducing_points_at_all_points_lose_nothing(joint, both):
    points = np.concatenate(joint.points)
    model, data, _ = model_of(inducing_points=points).prepare(joint.bags, joint.targets, covariates=joint.places)
    found = evaluate(model, data, jnp.asarray(joint.x))
    for name in ("mean", "latent_covariance", "density"):  # a nugget of 1e-10 at the inducing points
        np.testing.assert_allclose(found[name], both[name], rtol=1e-6, atol=1e-7)


def test_models_of_several_sources_are_written_and_read(joint):
    again = from_spec(to_spec(model_of()), "models")
    assert to_spec(again) == to_spec(model_of()) and len(again.bag_kernel) == 2
    np.testing.assert_array_equal(again.noise_variance, NOISE)


@pytest.mark.nightly
def test_fits_of_several_sources_are_saved_and_loaded(joint, tmp_path):
    inference = kpp.MAP(num_restarts=0, progress=False)
    fit = model_of().fit(
        jax.random.key(0),
        joint.bags,
        joint.targets,
        covariates=joint.places,
        inference=inference,
        num_prior_samples=0,
    )
    fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.predict(joint.x)["mean"], fit.predict(joint.x)["mean"])
    here = [aggregate_posterior(part, joint.places[1], source=1)["mean"] for part in (fit, again)]
    np.testing.assert_array_equal(*here)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [np.ones(4)]}, "`y` must have one entry for each of the 2 sources, got 1"),
        ({"covariates": [np.ones((4, 1))]}, "`covariates` must have one entry for each of the 2 sources, got 1"),
        ({"y": [np.ones(4), np.ones(3)]}, "`covariates` and `y` must have the same number of rows"),
        ({"bag_kernel": (RBF(1.0),) * 3}, "`bag_kernel` must be one kernel, or one for each of the 2 sources, got 3"),
        ({"noise_variance": np.ones(3)}, "`noise_variance` must be one number, or one for each of the 2 sources"),
    ],
)
def test_sources_that_do_not_match_are_refused(joint, change, message):
    options = {"bag_kernel": RBF(1.0), "noise_variance": 0.1} | change
    y, covariates = options.pop("y", joint.targets), options.pop("covariates", joint.places)
    model = CMP(RBF(0.9), regularization=REGULARIZATION, **options)
    with pytest.raises(ValueError, match=message):
        model.prepare(joint.bags, y, covariates=covariates)
