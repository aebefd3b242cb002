"""Which pixels decide: CXPlain on handwritten digits
==================================================

CXPlain trains small networks to predict how much the loss of a classifier grows if a
pixel is removed. After that they explain a new image at once, without calling the
classifier, and their disagreement tells how certain the map is.
"""

# %%
# The classifier is a logistic regression on the digits of scikit-learn, 8 by 8 pixels
# each.

# sphinx_gallery_tags = ["any model", "classification"]
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from kpp_surrogates import CXPlain

jax.config.update("jax_enable_x64", True)
digits = load_digits()
images, labels = digits.data / 16.0, digits.target
classifier = LogisticRegression(max_iter=500).fit(images[:1000], labels[:1000])
print(f"accuracy at new images: {classifier.score(images[1000:], labels[1000:]):.2f}")

# %%
# We remove one pixel at a time of 600 images, and train five networks on bootstrap
# samples.

explainer = CXPlain(
    images[:600],
    loss="log",
    num_bootstraps=5,
    hidden=(64,),
    num_epochs=100,
    progress=False,
)
fitted = explainer.fit(classifier, rng_key=jax.random.key(0))

# %%
# The share of each pixel in the increase of the loss, for images that neither the
# classifier nor the networks have seen. Red pixels decide, and the last row shows where
# the networks disagree. All ten outputs of the classifier have the same shares, because
# there is only one loss.

chosen = [
    1000 + int(np.flatnonzero(labels[1000:] == digit)[0]) for digit in (0, 2, 3, 4, 7)
]
shares = fitted.explain(images[chosen]).isel(output=0)
rows = {
    "image": (images[chosen], "gray_r"),
    "share": (shares.values.values, "Reds"),
    "deviation": (np.sqrt(shares.variance.values), "Purples"),
}
figure, axes = plt.subplots(3, 5, figsize=(6.4, 4.2), layout="constrained")
for line, (name, (pictures, colors)) in zip(axes, rows.items(), strict=True):
    line[0].set_ylabel(name)
    for ax, picture in zip(line, pictures, strict=True):
        ax.imshow(picture.reshape(8, 8), cmap=colors, vmin=0.0, vmax=picture.max())
        ax.set(xticks=[], yticks=[])

# %%
# Read more in the user guide: :doc:`/how_to/surrogates`, "CXPlain".
