"""Teams as bags of members, and crowds whose users are contexts, against models of rows and dense formulas."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import special

import kpp
from kpp.kernels import RBF, BagMean, Categorical, Contextual, GeneralizedPreferential, Linear, pad_bags
from kpp.kernels.toolkit import PaddedBags
from kpp.preferences import Matches, Rankings
from kpp_models import GPGP, PGP, PreferenceGP, PreferenceRidge, duel, preference_matrix, sample_preferences
from kpp_models.estimators import match_rows

RNG = np.random.default_rng(0)
MEMBERS = RNG.normal(size=(9, 2))
TEAMS = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 0], [1, 4]]
MEANS = np.stack([MEMBERS[team].mean(axis=0) for team in TEAMS])
FIRST, SECOND, Y = [0, 1, 2, 3, 0, 2], [1, 2, 3, 4, 4, 0], [1, 0, 1, 1, 0, 1]
MATCHES = Matches.from_teams(MEMBERS, TEAMS, FIRST, SECOND, Y)
NEW = [RNG.normal(size=(size, 2)) for size in (1, 6, 2)]
OPTIONS = {"inference": kpp.MAP(progress=False), "num_prior_samples": 0}
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def team_fit():
    return GPGP(BagMean(Linear(0.5)) + 0.7).fit(KEY, MATCHES, **OPTIONS)


def conditioned(model, data):
    """A fit without the groups of ArviZ: there is nothing to infer."""
    model, data, schema = model.prepare(data)
    return kpp.Fit(model, None, data, schema, {}, OPTIONS["inference"])


def rbf(a, b, lengthscale=1.0):
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / lengthscale**2)


def generalized(kernel, a, b):
    """The kernel of pairs a (n, 2, d) and b (m, 2, d), from one of items."""
    k = [[kernel(a[:, i], b[:, j]) for j in range(2)] for i in range(2)]
    return k[0][0] * k[1][1] - k[0][1] * k[1][0]


def laplace(gram, y):
    """Laplace's approximation for logistic matches: the coefficients of the mean, and of what the data reduce."""
    f = np.zeros(len(y))
    for _ in range(50):
        chance = special.expit(f)
        w = chance * (1 - chance)
        f = gram @ np.linalg.solve(np.eye(len(y)) + w[:, None] * gram, w * f + y - chance)
    return y - special.expit(f), np.linalg.inv(gram + np.diag(1 / w))


def expected_chance(mean, variance):
    """The expectation of the logistic function of normal numbers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    draws = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    return special.expit(draws) @ weights / weights.sum()


@pytest.mark.slow
def test_with_a_linear_kernel_teams_are_their_mean_members():
    """The mean of a linear kernel over two bags is that kernel at their means; new teams have other sizes."""

    def of_means(a, b):
        return 0.5 * a @ b.T + 0.7

    known, y = MEANS[np.asarray(MATCHES.pairs)], np.asarray(MATCHES.wins)
    gram = generalized(of_means, known, known)
    coefficients, reduction = laplace(gram, y)
    low, high = np.triu_indices(3, 1)
    asked = np.stack([team.mean(axis=0) for team in NEW])[np.stack([low, high], axis=1)]
    section = generalized(of_means, asked, known)
    mean = section @ coefficients
    variance = np.diag(generalized(of_means, asked, asked) - section @ reduction @ section.T)
    fit = conditioned(GPGP(BagMean(Linear(0.5)) + 0.7), MATCHES)
    found = preference_matrix(fit, pad_bags(NEW))
    for name, exact in (
        ("mean", mean),
        ("latent_variance", variance),
        ("probability", expected_chance(mean, variance)),
    ):
        np.testing.assert_allclose(found[name].values[0, 0, low, high], exact, atol=1e-10)  # rounding
    at_data = gram @ coefficients
    np.testing.assert_allclose(fit.predict(MATCHES)["mean"].values[0, 0], at_data, atol=1e-10)
    cavity = 1 / (1 / np.diag(gram - gram @ reduction @ gram) - special.expit(at_data) * special.expit(-at_data))
    held_out = np.log(expected_chance((2 * y - 1) * (at_data - cavity * coefficients), cavity))
    scores = jax.jit(lambda data: fit.model.log_likelihood({}, data)["y"])(fit.data)
    np.testing.assert_allclose(scores, held_out, atol=1e-8)  # rounding


@pytest.mark.slow
def test_teams_of_one_member_are_items_with_names_and_categories():
    table = pd.DataFrame(MEMBERS, columns=["speed", "power"]).assign(role=["a", "b", "c"] * 3)
    matches = Matches.from_teams(table, [[0], [1], [2], [3]], [0, 1, 2, 0], [1, 2, 3, 3], [1, 1, 0, 1])
    assert matches.feature_names == ("speed", "power", "role")
    kernel = BagMean(RBF(1.0).on(("speed", "power")) * Categorical(0.4).on("role"))
    found = conditioned(PGP(kernel), matches).predict(matches)
    roles = np.arange(4) % 3
    items = rbf(MEMBERS[:4], MEMBERS[:4]) * np.where(roles[:, None] == roles, 1.0, 0.4)
    sides = np.eye(4)[np.asarray(matches.pairs)]
    gram = (sides[:, 0] - sides[:, 1]) @ items @ (sides[:, 0] - sides[:, 1]).T  # of differences of utilities
    coefficients, reduction = laplace(gram, np.asarray(matches.wins))
    np.testing.assert_allclose(found["mean"].values[0, 0], gram @ coefficients, rtol=1e-8)
    variance = np.diag(gram - gram @ reduction @ gram)
    np.testing.assert_allclose(found["latent_variance"].values[0, 0], variance, rtol=1e-8)
    with pytest.raises(ValueError, match="'role'"):
        PGP(BagMean(RBF(1.0))).fit(KEY, matches, **OPTIONS)


@pytest.mark.slow
def test_new_teams_are_asked_as_padded_bags(team_fit):
    teams = pad_bags(NEW)
    first, second = (PaddedBags(teams.points[rows], teams.lengths[rows]) for rows in np.array([[0, 1], [1, 2]]))
    found = duel(team_fit, first, second)["probability"].values
    matrix = preference_matrix(team_fit, teams)["probability"].values[0, 0]
    np.testing.assert_allclose(found, [matrix[0, 1], matrix[1, 2]], atol=1e-12)  # rounding
    assert sample_preferences(team_fit, KEY, MATCHES, 3).shape == (3, 5, 5)


@pytest.mark.nightly
def test_a_fit_to_teams_is_saved(team_fit, tmp_path):
    team_fit.save(tmp_path / "fit.nc")
    again = kpp.Fit.load(tmp_path / "fit.nc").predict(MATCHES)
    np.testing.assert_allclose(again["mean"], team_fit.predict(MATCHES)["mean"], rtol=1e-12)  # rounding


def test_matches_of_teams_are_split_and_taken():
    first, second = MATCHES.split(KEY, 0.5)
    assert first.has_teams and second.num_items == 5
    assert first.num_matches + second.num_matches == len(Y)
    assert "5 items" in repr(MATCHES)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: GPGP(RBF(1.0)).fit(KEY, MATCHES), ValueError, "`kernel` cannot be evaluated"),
        (lambda: PreferenceRidge(GeneralizedPreferential(RBF(1.0)), 0.1).fit(KEY, MATCHES), ValueError, "got teams"),
        (
            lambda: GPGP(BagMean(RBF(1.0)), latent="inducing", num_inducing=2).fit(KEY, MATCHES),
            ValueError,
            "inducing.*got teams",
        ),
        (lambda: match_rows(MATCHES), ValueError, "got teams"),
        (lambda: Rankings.from_matches(MATCHES), ValueError, "got teams"),
        (
            lambda: Matches.from_teams(MEMBERS, [[0], [9]], [0], [1]),
            ValueError,
            "numbers from 0 to 8",
        ),
        (lambda: Matches.from_teams(MEMBERS, [[0], []], [0], [1]), ValueError, "`teams`"),
    ],
)
def test_teams_are_refused_where_they_have_no_place(use, error, message):
    with pytest.raises(error, match=message):
        use()


CROWD = pd.DataFrame({"user": ["u", "v", "w"], "age": [0.0, 1.0, 2.0]})
ITEMS = pd.DataFrame({"ID": list("abcd"), "size": [0.0, 0.5, 1.0, 2.0]})
VOTES = pd.DataFrame(
    [(first, second, user) for user in "uvw" for first, second in (("b", "a"), ("c", "d"), ("d", "a"))],
    columns=["winner", "loser", "user"],
)


@pytest.mark.slow
def test_a_crowd_has_the_kronecker_kernel_and_predicts_for_new_users():
    """The mode with the Kronecker product of NumPy; the new user is between two known ones."""
    votes = Matches.from_tables(ITEMS, VOTES, users=CROWD)
    assert votes.context_names == ("age",) and votes.num_pairs == 9
    kernel = Contextual(GeneralizedPreferential(RBF(1.0) + 0.5), RBF(0.8))
    fit = conditioned(PreferenceGP(kernel), votes)

    def of_items(a, b):
        return rbf(a, b) + 0.5

    pairs = ITEMS["size"].to_numpy()[np.array([[0, 1], [0, 3], [2, 3]])][:, :, None]
    users, new = CROWD[["age"]].to_numpy(), np.array([[1.5]])
    y = np.repeat([0.0, 0.0, 1.0], 3)  # a lost to b and to d, and c beat d
    coefficients, _ = laplace(np.kron(generalized(of_items, pairs, pairs), rbf(users, users, 0.8)), y)
    section = np.kron(generalized(of_items, pairs[:1], pairs), rbf(new, users, 0.8))
    found = fit.predict((pairs[:1], new))["mean"].values.ravel()
    np.testing.assert_allclose(found, section @ coefficients, rtol=1e-6)  # of Newton's method


def test_users_need_a_name_in_both_tables():
    with pytest.raises(ValueError, match="'user' that `items` has not|names 1 items in column 'user'"):
        Matches.from_tables(ITEMS, VOTES, users=CROWD.iloc[:2])
    with pytest.raises(ValueError, match="`contexts` must be left out"):
        Matches.from_tables(ITEMS, VOTES, users=CROWD, contexts=["user"])


def test_one_table_holds_the_features_of_winners_and_losers():
    table = pd.DataFrame(
        {
            "winner_age": [20, 30, 20],
            "winner_hand": ["left", "right", "left"],
            "loser_hand": ["right", "left", "left"],
            "loser_age": [30, 25, 25],
            "surface": ["clay", "grass", "clay"],
        }
    )
    matches = Matches.from_table(table, contexts=["surface"])
    assert matches.feature_names == ("age", "hand") and matches.levels == (("hand", ("left", "right")),)
    assert matches.num_items == 3 and matches.context_names == ("surface",)
    items = [tuple(row) for row in np.asarray(matches.items)]
    strength = {item: 0.0 for item in items}
    for (low, high), win, loss in zip(matches.pairs, matches.wins, matches.losses, strict=True):
        strength[items[low]] += float(win - loss)
        strength[items[high]] -= float(win - loss)
    assert strength == {(20.0, 0.0): 2.0, (25.0, 0.0): -2.0, (30.0, 1.0): 0.0}


@pytest.mark.slow
def test_one_table_holds_the_names_of_winners_and_losers():
    table = pd.DataFrame({"won": ["b", "c"], "lost": ["a", "b"]})
    matches = Matches.from_table(table, winner="won", loser="lost")
    assert matches.item_names == ("a", "b", "c") and matches.levels == (("item", ("a", "b", "c")),)
    assert matches.adjacency().tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    fit = conditioned(PGP(Categorical().on("item")), matches)
    assert preference_matrix(fit, matches)["probability"].values[0, 0, 2, 0] > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"winner": "first_"}, "neither a column 'first_' nor"),
        ({"loser": "winner_a"}, "same features"),
        ({"contexts": ["place"]}, "lacks the columns"),
    ],
)
def test_mistakes_in_one_table_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Matches.from_table(pd.DataFrame({"winner_age": [1.0], "loser_age": [2.0]}), **options)
