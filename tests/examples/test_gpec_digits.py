"""The image half of GPEC's table 1: images are read as they are handed out, and the script runs at small size."""

from __future__ import annotations

import gzip

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner


@pytest.fixture(scope="module")
def images(load_script):
    return load_script("reproduce/gpec_images.py")


@pytest.fixture(scope="module")
def script(load_script, images):
    load_script("reproduce/gpec_data.py")
    load_script("reproduce/gpec_methods.py")
    return load_script("reproduce/gpec_digits.py")


@pytest.fixture
def arrays():
    """Ten images to train on and four others, of 4 by 5 pixels."""
    rng = np.random.default_rng(0)
    shapes = {"x_train": (10, 4, 5), "y_train": (10,), "x_test": (4, 4, 5), "y_test": (4,)}
    return {
        name: rng.integers(256 if "x" in name else 10, size=shape).astype(np.uint8) for name, shape in shapes.items()
    }


def as_idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def assert_read(found, arrays):
    np.testing.assert_allclose(found.x, arrays["x_train"].reshape(10, -1) / 255)
    np.testing.assert_allclose(found.x_test, arrays["x_test"].reshape(4, -1) / 255)
    np.testing.assert_array_equal(found.y, arrays["y_train"])
    np.testing.assert_array_equal(found.y_test, arrays["y_test"])
    assert found.shape == arrays["x_train"].shape[1:]


def test_files_of_arrays_are_read(images, arrays, tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays)
    assert_read(images.read_images(tmp_path / "mnist.npz"), arrays)


def test_folders_of_idx_files_are_read_packed_or_not(images, arrays, tmp_path):
    names = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"]
    for number, (name, array) in enumerate(zip(names, arrays.values(), strict=True)):
        if number % 2:
            (tmp_path / f"{name}-ubyte").write_bytes(as_idx(array))
        else:
            (tmp_path / f"{name}-ubyte.gz").write_bytes(gzip.compress(as_idx(array)))
    assert_read(images.read_images(tmp_path), arrays)


def test_binary_batches_are_read_with_the_channels_of_a_pixel_side_by_side(images, tmp_path):
    rng = np.random.default_rng(0)
    pictures = rng.integers(256, size=(12, 32, 32, 3)).astype(np.uint8)
    labels = rng.integers(10, size=12).astype(np.uint8)
    for part, name in enumerate([f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]):
        rows = slice(2 * part, 2 * part + 2)
        records = [
            bytes([label]) + picture.transpose(2, 0, 1).tobytes()
            for picture, label in zip(pictures[rows], labels[rows], strict=True)
        ]
        (tmp_path / name).write_bytes(b"".join(records))
    found = images.read_images(tmp_path)
    assert found.shape == (32, 32, 3)
    np.testing.assert_allclose(found.x.reshape(10, 32, 32, 3), pictures[:10] / 255)
    np.testing.assert_allclose(found.x_test.reshape(2, 32, 32, 3), pictures[10:] / 255)
    np.testing.assert_array_equal(np.concatenate([found.y, found.y_test]), labels)


def test_what_is_missing_or_wrong_is_said(images, arrays, tmp_path):
    with pytest.raises(click.UsageError, match="lacks train-images-idx3-ubyte"):
        images.read_images(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(as_idx(arrays["x_train"])[:-1])
    with pytest.raises(click.UsageError, match=r"must hold \[10, 4, 5\] bytes, has 199"):
        images.read_images(tmp_path)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(click.UsageError, match="must be an .npz file with x_train"):
        images.read_images(tmp_path / "other.npz")
    np.savez(tmp_path / "floats.npz", **{**arrays, "x_train": arrays["x_train"] / 255})
    with pytest.raises(click.UsageError, match="images must be bytes"):
        images.read_images(tmp_path / "floats.npz")
    np.savez(tmp_path / "short.npz", **{**arrays, "y_test": arrays["y_test"][:-1]})
    with pytest.raises(click.UsageError, match="as many labels as images"):
        images.read_images(tmp_path / "short.npz")


def test_digits_are_divided_by_the_seed(images):
    first, second = images.digits(0), images.digits(1)
    assert first.x.shape == (1200, 64)
    assert len(first.x_test) == 597
    assert first.x.max() == 1.0
    assert not np.array_equal(first.y, second.y)


def test_widths_that_fall_in_every_step_are_counted(script):
    settings = list(script.SETTINGS)[:3]
    table = [(0, 3.0, 2.0, 1.0), (1, 3.0, 1.0, 1.0), (2, 1.0, 3.0, 2.0)]
    rows = [
        {"seed": seed, "setting": setting, "width": width}
        for seed, *values in table
        for setting, width in zip(settings, values, strict=True)
    ]
    assert script.falls(pd.DataFrame(rows), settings) == 1


def test_networks_are_those_that_are_asked_for(script):
    dense, convolutional = (script.network((8, 8), (4,), channels, beta=1.0) for channels in ((), (2,)))
    assert (type(dense).__name__, type(convolutional).__name__) == ("MLPClassifier", "ConvolutionalClassifier")
    assert convolutional.image_shape == (8, 8) and dense.hidden == convolutional.hidden == (4,)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:no boundary found:UserWarning")  # so little training leaves some classes out
def test_the_script_runs_at_small_size(script, tmp_path):
    done = CliRunner().invoke(script.main, ["--small", "--output", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "in how many of the seeds (1) it falls" in done.output
    found = pd.read_csv(tmp_path / "gpec_digits.csv")
    assert found.groupby("method").size().to_dict() == dict.fromkeys(
        ["BayesLIME", "BayesSHAP", "CXPlain", "GPEC", "Naive-GP"], 6
    )
    assert (found["width"] > 0).all()
    # The only thing that Naive-GP sees of a network is the noise of KernelSHAP, of at least the same variance.
    assert found[found["method"] == "Naive-GP"]["width"].between(0.01, 4.0).all()
    assert (tmp_path / "gpec_digits.png").stat().st_size > 10_000
