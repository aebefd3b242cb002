"""Does GPEC's uncertainty decrease for simpler neural classifiers of images (GPEC, table 1, figure 8)?

    python examples/reproduce/gpec_digits.py [--data mnist.npz] [--seeds 5] [--patch 2] [--hidden 64,64]
        [--channels 16,32] [--unet] [--evidence] [--small] [--output FOLDER]

(Hill, Masoomi, Torop, Ghimire and Dy, Boundary-aware uncertainty for feature attribution explainers, 2024.) Networks
are trained with a penalty l2 on their weights of 0, 1e-5 and 1e-4, and with Softplus activations of beta 1, 0.5 and
0.25 instead of ReLU; the features are square patches of pixels. For every method the script prints the mean width of
its intervals, four standard deviations, over test images, patches and classes, with standard errors over seeds. Each
seed has its own networks and, for the digits, its own division into training and test images. The script also prints in
how many seeds the width decreases strictly along each of the two sequences of settings.

GPEC and Naive-GP use KernelSHAP as explainer. GPEC has the published settings. Naive-GP also has prior variance 1, and
its lengthscale is the median distance of images. With `--evidence`, both are also run with parameters chosen by the
evidence for each class, which takes most of the time. The networks of CXPlain are fully connected, or with `--unet`
U-Nets, as in the paper. With `--channels` the classifiers are convolutional networks, with so many features in each
convolution.

By default the images are scikit-learn's digits, at small size; `--data` takes MNIST, Fashion-MNIST or CIFAR10 in the
formats that `gpec_images.py` describes, for which ``--hidden 700,400,200,100`` are the paper's networks. With
`--output` the widths are saved, and a figure of interval bounds of superpixels: BayesLIME's contributions to the
predicted class with GPEC's uncertainty.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from gpec_images import Images, digits, read_images
from gpec_methods import widths
from scipy.spatial.distance import pdist
from tqdm import tqdm

from kpp import Explanation
from kpp_gpec import (
    GPEC,
    BoundarySample,
    ConvolutionalClassifier,
    FittedNeuralClassifier,
    MLPClassifier,
    NaiveGP,
    PGDSampler,
    class_margin,
    grid_superpixels,
    plot_interval_bounds,
    slic_superpixels,
)
from kpp_surrogates import BayesLIME, BayesSHAP, CXPlain, KernelSHAP

SETTINGS: dict[str, dict[str, float]] = {
    "l2 0": {"l2": 0.0},
    "l2 1e-5": {"l2": 1e-5},
    "l2 1e-4": {"l2": 1e-4},
    "beta 1": {"beta": 1.0},
    "beta .5": {"beta": 0.5},
    "beta .25": {"beta": 0.25},
}
ROWS = (list(SETTINGS)[:3], list(SETTINGS)[3:])
# The paper's rho (table 6), for MNIST and CIFAR10; for the digits, a value that gives typical pairs the same weight.
CONCENTRATION = {784: 0.01, 3072: 0.05, 64: 0.1}
SHOWN, SUPERPIXELS = 5, 20  # images in the figure, and pieces of each


@dataclass(frozen=True)
class Sizes:
    """The numbers of epochs, explained images, boundary samples per class, references and perturbations."""

    epochs: int = 60
    train: int = 100
    test: int = 50
    boundary: int = 200
    references: int = 10
    samples: int = 200


SMALL = Sizes(3, 12, 4, 20, 3, 40)


@dataclass(frozen=True)
class Problem:
    """Images, a network, its boundaries, and the explained images."""

    images: Images
    classifier: FittedNeuralClassifier
    boundaries: list[BoundarySample]
    sizes: Sizes
    seed: int

    @property
    def key(self) -> Any:
        """The random key of the seed."""
        return jax.random.key(self.seed)

    @property
    def background(self) -> np.ndarray:
        """The training images that are explained."""
        return self.images.x[: self.sizes.train]

    @property
    def x(self) -> np.ndarray:
        """The test images that are explained."""
        return self.images.x_test[: self.sizes.test]

    @property
    def concentration(self) -> float:
        """The published rho."""
        return CONCENTRATION.get(self.images.x.shape[1], 0.1)


def network(shape: tuple[int, ...], hidden: tuple[int, ...], channels: tuple[int, ...], **options: Any) -> Any:
    """Return a convolutional classifier if there are channels, and else a fully connected one."""
    if channels:
        return ConvolutionalClassifier(shape, channels=channels, hidden=hidden, **options)
    return MLPClassifier(hidden, **options)


def prepare(
    images: Images, setting: str, hidden: tuple[int, ...], channels: tuple[int, ...], sizes: Sizes, seed: int
) -> Problem:
    """Train a network, and sample the boundary of each class by adversarial examples."""
    key = jax.random.key(seed)
    options = {"num_epochs": sizes.epochs, "progress": False, "random_state": key, **SETTINGS[setting]}
    model = network(images.shape, hidden, channels, **options)
    classifier = model.fit(images.x, images.y).function_
    sampler = PGDSampler(max_points=sizes.boundary, num_seeds=sizes.boundary)
    keys = jax.random.split(key, len(classifier.classes))
    boundaries = [
        sampler.sample(one, class_margin(classifier.logits, index), images.x) for index, one in enumerate(keys)
    ]
    return Problem(images, classifier, boundaries, sizes, seed)


def judges(shap: KernelSHAP, problem: Problem, evidence: bool) -> dict[str, GPEC | NaiveGP]:
    """Return the processes, by name."""
    background = problem.background
    fixed: dict[str, Any] = {"variance": 1.0, "standardize": False, "min_noise_variance": 1e-4}
    found = {
        "GPEC": GPEC.published(shap, background, concentration=problem.concentration),
        "Naive-GP": NaiveGP(shap, background, lengthscale=float(np.median(pdist(background))), **fixed),
    }
    if evidence:
        found |= {"GPEC, evidence": GPEC(shap, background), "Naive-GP, evidence": NaiveGP(shap, background)}
    return found


def explanations(problem: Problem, groups: dict[str, list[int]], evidence: bool, unet: bool) -> dict[str, Explanation]:
    """Explain the test images by every method."""
    classifier, x, key, background = problem.classifier, problem.x, problem.key, problem.background
    common: dict[str, Any] = {"groups": groups, "progress": False}
    shap = KernelSHAP(background[: problem.sizes.references], num_coalitions=problem.sizes.samples, **common)
    shape: dict[str, Any] = {"image_shape": problem.images.shape, "hidden": (16, 32)} if unet else {}
    seen = shap.explain(classifier, background, rng_key=key)
    others = {
        "BayesSHAP": BayesSHAP(background, num_perturbations=problem.sizes.samples, **common),
        "BayesLIME": BayesLIME(background, num_perturbations=problem.sizes.samples, **common),
        "CXPlain": CXPlain(background, num_epochs=problem.sizes.epochs, **shape, **common),
    }
    found = {}
    for name, judge in judges(shap, problem, evidence).items():
        of_boundary = {"boundary": problem.boundaries} if isinstance(judge, GPEC) else {}
        found[name] = judge.fit(classifier, explanation=seen, rng_key=key, **of_boundary).explain(x)
    return found | {name: explainer.explain(classifier, x, rng_key=key) for name, explainer in others.items()}


def run(problem: Problem, groups: dict[str, list[int]], evidence: bool, unet: bool) -> list[dict[str, Any]]:
    """Return the mean width of every method for one network."""
    known = {
        "accuracy": problem.classifier.score(problem.images.x_test, problem.images.y_test),
        "boundary": sum(sample.num_points for sample in problem.boundaries),
    }
    found = explanations(problem, groups, evidence, unet)
    return [{**known, "method": name, "width": widths(explanation).mean()} for name, explanation in found.items()]


def falls(found: pd.DataFrame, settings: list[str]) -> int:
    """Return in how many seeds the widths decrease strictly from one setting to the next."""
    wide = found.pivot(index="seed", columns="setting", values="width")[settings]
    return int((np.diff(wide.to_numpy(), axis=1) < 0).all(axis=1).sum())


def print_table(found: pd.DataFrame) -> None:
    """Print the half of table 1."""
    seeds = found["seed"].nunique()
    name = found["data"].iloc[0]
    click.echo(f"\n{name}: mean width +- standard error, and in how many of the seeds ({seeds}) it falls in each row")
    click.echo(f"{'':>20}" + "".join(f"{setting:>20}" for setting in SETTINGS))
    for name, part in found.groupby("method", sort=False):
        of_setting = part.groupby("setting")["width"]
        mean, error = of_setting.mean(), of_setting.std(ddof=1).fillna(0.0) / np.sqrt(seeds)
        cells = "".join(f"{f'{mean[s]:.2e} +- {error[s]:.0e}':>20}" for s in SETTINGS)
        click.echo(f"{name:>20}{cells}   " + ", ".join(f"{falls(part, row)} of {seeds}" for row in ROWS))
    once = found.drop_duplicates(["seed", "setting"]).groupby("setting")
    for name, form in (("accuracy", ".3f"), ("boundary", ".0f")):
        means = once[name].mean()
        click.echo(f"{name:>20}" + "".join(f"{means[s]:>20{form}}" for s in SETTINGS))


def draw_bounds(problem: Problem, path: Path) -> None:
    """Draw bounds of the contributions of superpixels to the predicted class, as figure 8 does."""
    images, count = problem.images, min(SUPERPIXELS, int(np.prod(problem.images.shape[:2])))
    groups = slic_superpixels(images.x[: problem.sizes.train], images.shape, count)
    explainer = BayesLIME(problem.background, num_perturbations=problem.sizes.samples, groups=groups, progress=False)
    gpec = GPEC.published(explainer, problem.background, concentration=problem.concentration)
    fitted = gpec.fit(problem.classifier, boundary=problem.boundaries, rng_key=problem.key)
    x = problem.x[:SHOWN]
    predicted = [str(label) for label in problem.classifier.predict(x)]
    plot_interval_bounds(fitted.explain(x), x, images.shape, output=predicted).savefig(path, dpi=150)
    plt.close("all")


def _as_sizes(value: str) -> tuple[int, ...]:
    return tuple(int(size) for size in value.split(",") if size)


@click.command(help=__doc__)
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="Images; the digits by default.")
@click.option("--seeds", default=5, show_default=True, help="Number of networks per setting.")
@click.option("--patch", default=2, show_default=True, help="The side of the patches that are features, in pixels.")
@click.option("--hidden", default="64,64", show_default=True, help="The widths of the networks' hidden layers.")
@click.option("--channels", default="", help="The features of each convolution; by default there is none.")
@click.option("--unet", is_flag=True, help="CXPlain by U-Nets.")
@click.option("--evidence", is_flag=True, help="Also choose the parameters of GPEC and Naive-GP by evidence.")
@click.option("--small", is_flag=True, help="One seed, 3 epochs, 12 explained training images and 4 test images.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for widths and figure.")
def main(
    data: Path | None,
    seeds: int,
    patch: int,
    hidden: str,
    channels: str,
    unet: bool,
    evidence: bool,
    small: bool,
    output: Path | None,
) -> dict[str, pd.DataFrame]:
    """Run the experiment."""
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    sizes, rows, problem = SMALL if small else Sizes(), [], None
    given = None if data is None else read_images(data)
    for seed, setting in tqdm(list(itertools.product(range(1 if small else seeds), SETTINGS)), desc="networks"):
        images = given or digits(seed)
        problem = prepare(images, setting, _as_sizes(hidden), _as_sizes(channels), sizes, seed)
        known = {"data": images.name, "seed": seed, "setting": setting}
        rows += [{**known, **row} for row in run(problem, grid_superpixels(images.shape, patch), evidence, unet)]
    found = pd.DataFrame(rows)
    print_table(found)
    if output is not None and problem is not None:
        output.mkdir(parents=True, exist_ok=True)
        found.to_csv(output / "gpec_digits.csv", index=False)
        draw_bounds(problem, output / "gpec_digits.png")
    click.echo(f"{time.perf_counter() - start:.0f} s")
    return {"widths": found}


if __name__ == "__main__":
    main()
