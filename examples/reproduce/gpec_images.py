"""Images for the experiments on GPEC: scikit-learn's digits, and MNIST, Fashion-MNIST and CIFAR10 by path.

Three formats are supported, in which the data are distributed:

* an ``.npz`` file with the arrays ``x_train`` (n, h, w) or (n, h, w, c), ``y_train`` (n,), ``x_test`` and ``y_test``,
  of bytes (Keras offers MNIST so);
* a folder with the files ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and
  ``t10k-labels-idx1-ubyte``, each optionally with the suffix ``.gz`` (MNIST and Fashion-MNIST as published);
* a folder with the files ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin`` (CIFAR10's binary
  version).
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from sklearn.datasets import load_digits

_IDX = {"x_train": "train-images-idx3", "y_train": "train-labels-idx1", "x_test": "t10k-images-idx3"}
_IDX |= {"y_test": "t10k-labels-idx1"}
_CIFAR_SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Images:
    """Images with labels.

    Args:
        name: The name of the data.
        shape: Height, width and, if there are several, channels.
        x: The training images, one row each, the channels of a pixel side by side, values from 0 to 1, (n, d).
        y: Their labels, (n,).
        x_test: The images to explain, (m, d).
        y_test: Their labels, (m,).
    """

    name: str
    shape: tuple[int, ...]
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def digits(seed: int) -> Images:
    """Return scikit-learn's digits, 8 by 8 pixels, 1200 of them to train on."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    train, test = order[:1200], order[1200:]
    x = data.data / 16.0
    return Images("digits", (8, 8), x[train], data.target[train], x[test], data.target[test])


def read_images(path: Path) -> Images:
    """Read images from a file or folder; the description of this module says in which formats.

    Raises:
        click.UsageError: If something is missing, or does not have the expected format.
    """
    if path.is_file():
        arrays = _read_npz(path)
    elif any(path.glob("*.bin")):
        arrays = _read_cifar(path)
    else:
        arrays = {name: _read_idx(path, stem + "-ubyte") for name, stem in _IDX.items()}
    x, x_test = arrays["x_train"], arrays["x_test"]
    if x.ndim not in (3, 4) or x.dtype != np.uint8 or x.shape[1:] != x_test.shape[1:]:
        raise click.UsageError(f"{path}: images must be bytes (n, h, w[, c]), got {x.dtype} of shape {x.shape}")
    labels = {name: arrays[name].reshape(-1).astype(int) for name in ("y_train", "y_test")}
    if (len(labels["y_train"]), len(labels["y_test"])) != (len(x), len(x_test)):
        raise click.UsageError(f"{path}: there must be as many labels as images")
    rows, rows_test = (images.reshape(len(images), -1) / 255.0 for images in (x, x_test))
    return Images(path.stem, x.shape[1:], rows, labels["y_train"], rows_test, labels["y_test"])


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    except (KeyError, ValueError, OSError) as error:
        raise click.UsageError(
            f"{path}: must be an .npz file with x_train, y_train, x_test, y_test ({error})"
        ) from None


def _read_idx(folder: Path, name: str) -> np.ndarray:
    """Read an array of bytes: two zeros, 8, the number of axes, their lengths in four bytes each, and the bytes."""
    path = next((folder / (name + end) for end in ("", ".gz") if (folder / (name + end)).is_file()), None)
    if path is None:
        raise click.UsageError(f"{folder}: lacks {name}, with or without .gz")
    content = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    if content[:3] != b"\0\0\x08":
        raise click.UsageError(f"{path}: is not an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">i4")
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise click.UsageError(f"{path}: must hold {shape.tolist()} bytes, has {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_cifar(folder: Path) -> dict[str, np.ndarray]:
    """Read records of a label and the red, green and blue values of an image, one channel after the other."""
    arrays = {}
    for part, names in {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}.items():
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise click.UsageError(f"{folder}: lacks {missing}")
        content = b"".join((folder / name).read_bytes() for name in names)
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + np.prod(_CIFAR_SHAPE))
        arrays[f"y_{part}"] = records[:, 0]
        arrays[f"x_{part}"] = records[:, 1:].reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return arrays
