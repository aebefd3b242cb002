"""Discovery, look-up, switching off."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest

from kpp import registry

GOOD = """
import kpp
from kpp.kernels import RBF

class Mine:
    pass

@kpp.hookimpl
def register_kernels():
    return {"Mine": Mine}
"""


def test_own_parts_are_registered_without_a_warning():
    registry.refresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = registry.plugins()
    own = {record.name: record for record in records if record.distribution == "kpp"}
    assert set(own) == {
        "areal",
        "converters",
        "core",
        "gpec",
        "models",
        "optimization",
        "pref_shap",
        "rkhs_shap",
        "structures",
        "study",
        "surrogates",
    }
    assert not [record for record in own.values() if record.error or record.disabled]
    assert {"RBF", "Matern52", "Sum"} <= set(registry.kernels())
    assert {"MeanEmbedding"} <= set(registry.embeddings())
    assert {"interventional", "baseline"} <= set(registry.value_functions())
    assert {"rkhs-shap"} <= set(registry.explainers())
    assert {"GPRegression", "GPClassification", "KernelRidge", "KernelLogistic"} <= set(registry.models())
    assert {"NUTS", "MCMC", "SVI", "MAP", "Laplace", "NaturalGradient"} == set(registry.inferences())
    assert set(registry.commands()) == {"explain", "new", "predict", "report", "run", "schema"}


def test_every_registered_class_is_found_by_its_name_and_its_name_by_the_class():
    for kind in registry.KINDS:
        for name, cls in getattr(registry, kind)().items():
            assert registry.get(kind, name) is cls
            assert registry.get(kind, registry.name_of(kind, cls)) is cls


def test_plugin_of_a_stranger_is_found(install, record):
    install("somebodys-kpp", "somebodys", GOOD)
    assert registry.get("kernels", "Mine").__name__ == "Mine"
    found = record("somebodys", "somebodys-kpp")
    assert (found.version, found.module, found.error, found.disabled) == ("1.2", "somebodys_kpp_plugin", None, False)
    assert found.offers == {"kernels": ("Mine",)}


def test_disabled_plugin_is_not_imported(install, record, monkeypatch):
    install("somebodys-kpp", "somebodys", GOOD)
    monkeypatch.setenv("KPP_DISABLE_PLUGINS", " somebodys ,rkhs_shap,")
    assert record("somebodys", "somebodys-kpp").disabled
    assert "somebodys_kpp_plugin" not in sys.modules
    assert "rkhs-shap" not in registry.explainers()
    assert "RBF" in registry.kernels()
    with pytest.raises(registry.PluginError, match=r"rkhs_shap \(disabled\)"):
        registry.get("explainers", "rkhs-shap")


def test_disabling_what_is_not_installed_is_a_warning(install, monkeypatch):
    install("somebodys-kpp", "somebodys", GOOD)
    monkeypatch.setenv("KPP_DISABLE_PLUGINS", "somebody")
    with pytest.warns(registry.PluginWarning, match="KPP_DISABLE_PLUGINS names somebody, which no"):
        assert "Mine" in registry.kernels()


def test_unknown_name_gets_the_nearest_names():
    with pytest.raises(registry.PluginError, match=r"'RBG' among the kernels; did you mean 'RBF'"):
        registry.get("kernels", "RBG")
    with pytest.raises(registry.PluginError, match="among the value functions; there are baseline"):
        registry.get("value_functions", "qqqq")


def test_unknown_kind_lists_the_kinds():
    with pytest.raises(ValueError, match="`kind` must be one of kernels, embeddings, value_functions"):
        registry.get("kernel", "RBF")
    with pytest.raises(ValueError, match="`kind` must be one of"):
        registry.name_of("kernel", int)


def test_name_of_a_class_that_is_not_registered_says_how_to():
    with pytest.raises(
        registry.PluginError, match="builtins.int is not registered among the kernels.*`register_kernels`"
    ):
        registry.name_of("kernels", int)


def test_plugins_are_loaded_once(install):
    install("somebodys-kpp", "somebodys", GOOD.replace("import kpp\n", "import kpp\nloads = []\n", 1) + "    \n")
    first = registry.get("kernels", "Mine")
    assert registry.get("kernels", "Mine") is first
    registry.kernels().clear()
    assert registry.get("kernels", "Mine") is first, "the registry must hand out copies"


def test_threads_share_one_discovery(install):
    install("somebodys-kpp", "somebodys", "import time\n" + GOOD.replace("return {", "time.sleep(0.05); return {"))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(registry.plugins())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({id(records) for records in found}) == 1
