"""Fields are constructor parameters in their declared order, and a final class has every field that is demanded."""

# No `from __future__ import annotations`: Equinox reads `AbstractVar` off the annotation itself.

import dataclasses
import inspect
import types

import equinox as eqx
import jax
import pytest

import kpp
import kpp_gpec
import kpp_models
from kpp import registry

# Classes without `examples`; each of their fields has a default.
PLAIN = (
    *(kpp.NUTS, kpp.MAP, kpp.Laplace, kpp.SVI),
    *(kpp_gpec.BisectionSampler, kpp_gpec.GradientSampler, kpp_gpec.PGDSampler),
)
KINDS = (registry.kernels, registry.embeddings, registry.value_functions, registry.explainers, registry.models)
CLASSES = {cls.__name__: cls for cls in (*PLAIN, *(cls for kind in KINDS for cls in kind().values()))}

# Abstract classes by a final class below them, with a field or class variable that they demand.
DEMANDS = {
    "inference": (kpp.NUTS, "progress"),
    "imputation": (kpp.games.GaussianConditional, "background"),
    "preference kernel": (kpp.kernels.Preferential, "kernel"),
    "stationary kernel": (kpp.kernels.RBF, "lengthscale"),
    "embedding": (kpp.embeddings.MeanEmbedding, "points"),
    "aggregate model": (kpp_models.BaggGP, "degrees_of_freedom"),
    "effect model": (kpp_models.BayesIMP, "uncertain_function"),
    "collider model": (kpp_models.ColliderRidge, "spouses"),
    "boundary sampler": (kpp_gpec.PGDSampler, "tolerance"),
    "explainer": (registry.explainers()["lime"], "requires"),
}


def init_fields(cls: type) -> list[str]:
    """The fields that are parameters, those that are keyword only last."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [field.name for field in sorted(fields, key=lambda field: bool(field.kw_only))]


def instance_of(cls: type) -> eqx.Module:
    return cls() if cls in PLAIN else next(iter(cls.examples(jax.random.key(0))))[0]


def by_keyword_only(cls: type) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


@pytest.mark.slow_variants(
    "BaggGP",
    "Tanimoto",
    "BayesIME",
    "GPEC",
    "PreferentialContext",
    "PreferentialItems",
    "RKHSShap",
    "RestrictedShapleyRegularized",
    "ShapleyRegularized",
    "Baseline",
    "BayesLIME",
    "CMP",
    "Categorical",
)
@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_construction_by_position_sets_the_fields_in_declared_order(cls):
    instance = instance_of(cls)
    keywords = by_keyword_only(cls)
    values = {name: getattr(instance, name) for name in init_fields(type(instance))}
    again = type(instance)(
        *(value for name, value in values.items() if name not in keywords), **{name: values[name] for name in keywords}
    )
    for name, value in values.items():
        found = getattr(again, name)
        assert found is value or eqx.tree_equal(found, value), name


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_parameters_are_fields_and_the_first_is_the_first_that_the_class_declares(cls):
    parameters = list(inspect.signature(cls).parameters)
    assert parameters == init_fields(cls)
    # Fields that an abstract class holds come first; those that it only demands keep the place of the final class.
    bases = [fields_declared_by(base) for base in reversed(cls.__mro__)]
    positional = set(parameters) - set(by_keyword_only(cls))
    declared = [name for names in bases for name in names if name in (positional or parameters)]
    assert parameters[:1] == declared[:1]


def fields_declared_by(cls: type) -> list[str]:
    return [name for name, kind in inspect.get_annotations(cls).items() if "AbstractVar" not in str(kind)]


@pytest.mark.parametrize(("cls", "name"), [(kpp.NUTS, "num_warmup"), (kpp.MAP, "num_restarts")])
def test_first_number_of_an_inference_is_not_its_progress_bar(cls, name):
    inference = cls(200)
    assert (getattr(inference, name), inference.progress) == (200, True)


@pytest.mark.parametrize(("final", "name"), DEMANDS.values(), ids=DEMANDS)
def test_missing_field_is_refused_when_the_class_is_created(final, name):
    base = next(base for base in final.__mro__ if name in demanded_by(base))
    with pytest.raises(TypeError, match=rf"`Incomplete` lacks the fields \[.*'{name}'.*\]"):
        types.new_class("Incomplete", (base,))
    types.new_class("AbstractIncomplete", (base,))


def demanded_by(cls: type) -> frozenset[str]:
    return getattr(cls, "__abstractvars__", frozenset()) | getattr(cls, "__abstractclassvars__", frozenset())


def test_field_property_and_value_meet_a_demand():
    class AbstractScaled(kpp.foundation.modules.AbstractModule):
        scale: eqx.AbstractVar[float]
        kind: eqx.AbstractClassVar[str]

    class Field(AbstractScaled):
        scale: float
        kind = "field"

    class Property(AbstractScaled):
        kind = "property"

        @property
        def scale(self) -> float:
            return 2.0

    class Inherited(Field):
        pass

    assert (Field(1.0).scale, Property().scale, Inherited(3.0).scale) == (1.0, 2.0, 3.0)
