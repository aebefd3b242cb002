"""Is a posterior calibrated
=========================

If parameters are drawn from the prior and data from the parameters, the rank of the
true parameter among the draws of its posterior is uniform. The picture shows a
posterior that passes this check, and one with an error that fails it.
"""

# sphinx_gallery_tags = ["intervals", "Gaussian processes"]
import jax
import matplotlib.pyplot as plt
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC

from kpp.calibration import simulation_based_calibration
from kpp.plots import rank_ecdf

jax.config.update("jax_enable_x64", True)


# %%
# The model is the mean of eight measurements. The second model, with a wrong noise,
# only simulates data; their posterior is then too narrow.
def model(y=None, noise=1.0):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("measurements", 8):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def noisier(y=None):
    return model(y, noise=2.0)


# %%
# For each of 200 simulated data sets, 63 draws of the posterior are compared with the
# true mean.
def sampler(model):
    return HMC(model, trajectory_length=1.5)


options = {
    "num_datasets": 200,
    "num_warmup": 100,
    "thinning": 1,
    "kernel": sampler,
    "progress": False,
}
right = simulation_based_calibration(jax.random.key(0), model, {}, **options)
wrong = simulation_based_calibration(
    jax.random.key(0), model, {}, simulator=noisier, **options
)

# %%
# A calibrated posterior stays inside the band with probability 95 %. The other curve is
# above the band on the left and below it on the right: too many true values are at the
# ends of the posterior, so it is too narrow.
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for axis, result, title in zip(
    axes, (right, wrong), ("calibrated", "too narrow"), strict=True
):
    rank_ecdf(result.dataset(), ax=axis)
    axis.set_title(title)
plt.show()

# %%
# Read more in the user guide: :doc:`/how_to/calibration`.
