"""One bad plugin never takes the host down: it is left out, with a warning that says which, whose and why."""

from __future__ import annotations

import pytest

from kpp import registry
from kpp.kernels import RBF
from kpp.storage.serialization import from_spec, to_spec

HOOK = """
import kpp
class Mine: pass
class Yours: pass
@kpp.hookimpl
def register_kernels():
    return {names}
"""

BAD = {
    "import error": ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that"),
    "syntax error": ("def register_kernels(:", "SyntaxError"),
    "error while importing": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "exit while importing": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "an exception that ends programs": ("class End(BaseException): pass\nraise End('now')", "End: now"),
    "the end of a generator": ("raise GeneratorExit", "GeneratorExit"),
    "the cancelling of a task": ("import asyncio; raise asyncio.CancelledError('stop')", "CancelledError: stop"),
    "a group of exceptions": ("raise BaseExceptionGroup('all', [GeneratorExit()])", "BaseExceptionGroup: all"),
    "wrong signature": (
        HOOK.format(names="{}").replace("register_kernels()", "register_kernels(kernels)"),
        r"TypeError: Plugin [\s\S]*\{'kernels'\}.*the hooks are register_kernels\(\)",
    ),
    "misspelled hook": (
        HOOK.format(names="{}").replace("register_kernels", "register_kernel"),
        r"TypeError: unknown hook 'register_kernel' .*the hooks are register_kernels\(\)",
    ),
    "no mapping": (HOOK.format(names="[Mine]"), "TypeError: `register_kernels` must return a mapping"),
    "nothing returned": (HOOK.format(names="'RBF'"), "TypeError: `register_kernels` must return a mapping"),
    "name no string": (HOOK.format(names="{3: Mine}"), "TypeError: `register_kernels` must use non-empty strings"),
    "instance": (HOOK.format(names="{'Mine': Mine()}"), "TypeError: `register_kernels` must map 'Mine' to a class"),
    "abstract class": (
        HOOK.format(names="{'Mine': kpp.kernels.AbstractKernel}"),
        "TypeError: `register_kernels` maps 'Mine' to AbstractKernel, which lacks evaluate",
    ),
    "error in the hook": (HOOK.format(names="{'Mine': Mine, **{1 / 0: Mine}}"), "ZeroDivisionError"),
    "an exception that ends programs, in the hook": (
        HOOK.format(names="(_ for _ in ()).throw(GeneratorExit('in the hook'))"),
        "GeneratorExit: in the hook",
    ),
    "look-up while importing": ("from kpp import registry; registry.kernels()", "RuntimeError: a plugin may not look"),
}


@pytest.mark.parametrize(("source", "error"), BAD.values(), ids=BAD)
def test_bad_plugin_is_left_out_with_a_warning(install, record, source, error):
    install("somebodys-kpp", "somebodys", source)
    with pytest.warns(registry.PluginWarning, match=f"plugin 'somebodys' of distribution 'somebodys-kpp' .*{error}"):
        assert "RBF" in registry.kernels()
    assert "Mine" not in registry.kernels()
    assert "rkhs-shap" in registry.explainers()
    left_out = record("somebodys", "somebodys-kpp")
    assert left_out.error
    assert not left_out.offers


def test_missing_names_mention_the_plugins_left_out(install):
    install("somebodys-kpp", "somebodys", "import a_module_that_is_not_there")
    with pytest.warns(registry.PluginWarning):
        registry.refresh()
        with pytest.raises(registry.PluginError, match=r"left out: somebodys \(ModuleNotFoundError"):
            registry.get("kernels", "Mine")


def test_name_offered_twice_is_refused_naming_both(install, record):
    install("a-kpp", "a", HOOK.format(names="{'Mine': Mine, 'Alone': Mine}"))
    install("b-kpp", "b", HOOK.format(names="{'Mine': Yours}"))
    both = r"'Mine' among the kernels is refused because plugin 'a' of distribution 'a-kpp' and plugin 'b' of .*'b-kpp'"
    with pytest.warns(registry.PluginWarning, match=both):
        known = registry.kernels()
    assert "Mine" not in known
    assert {"Alone", "RBF"} <= set(known)
    with pytest.raises(registry.PluginError, match=both):
        registry.get("kernels", "Mine")
    assert record("a", "a-kpp").offers == {"kernels": ("Alone",)}
    assert record("a", "a-kpp").refused == record("b", "b-kpp").refused == {"kernels": ("Mine",)}


#: A name of each kind that kpp itself, or a plugin of its distribution, registers.
OWN = {
    "kernels": "RBF",
    "embeddings": "MeanEmbedding",
    "value_functions": "interventional",
    "explainers": "rkhs-shap",
    "models": "KernelRidge",
    "inferences": "MAP",
    "converters": "sklearn",
}


@pytest.mark.parametrize("kind", registry.KINDS)
def test_a_stranger_cannot_take_a_name_of_kpp(kind, install, record):
    own = registry.get(kind, OWN[kind])
    source = HOOK.replace("register_kernels", f"register_{kind}").format(
        names=f"{{'{OWN[kind]}': Mine, 'Alone': Mine}}"
    )
    install("a-kpp", "a", source)
    told = f"'{OWN[kind]}' among the .* is one of kpp's own, .*plugin 'a' of distribution 'a-kpp' offers is left out"
    with pytest.warns(registry.PluginWarning, match=told):
        assert registry.get(kind, OWN[kind]) is own
    assert registry.name_of(kind, own) == OWN[kind]
    assert registry.owner_of(kind, own) is None
    assert registry.get(kind, "Alone").__name__ == "Mine"
    assert record("a", "a-kpp").offers == {kind: ("Alone",)}
    assert record("a", "a-kpp").refused == {kind: (OWN[kind],)}


def test_a_name_of_kpp_that_two_strangers_offer_stays_with_kpp(install):
    own = registry.get("kernels", "RBF")
    install("a-kpp", "a", HOOK.format(names="{'RBF': Mine}"))
    install("b-kpp", "z", HOOK.format(names="{'RBF': Yours}"))
    with pytest.warns(
        registry.PluginWarning, match="'a-kpp' and plugin 'z' of distribution 'b-kpp' offers is left out"
    ):
        assert registry.get("kernels", "RBF") is own


def test_saved_objects_are_read_beside_a_stranger_with_the_same_name(install):
    spec = to_spec(RBF(2.0))
    install("a-kpp", "a", HOOK.format(names="{'RBF': Mine}"))
    with pytest.warns(registry.PluginWarning):
        found = from_spec(spec, "kernels")
    assert type(found) is RBF and float(found.lengthscale) == 2.0


def test_ctrl_c_while_a_plugin_loads_is_no_fault_of_the_plugin(install):
    install("a-kpp", "a", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.kernels()


def test_switching_one_of_two_off_settles_it(install, monkeypatch):
    install("a-kpp", "a", HOOK.format(names="{'RBF': Mine}"))
    monkeypatch.setenv("KPP_DISABLE_PLUGINS", "a")
    assert registry.get("kernels", "RBF").__module__.startswith("kpp.kernels")


def test_entry_point_name_of_two_distributions_is_refused_naming_both(install, record):
    install("a-kpp", "same", HOOK.format(names="{'Mine': Mine}"))
    install("b-kpp", "same", HOOK.format(names="{'Other': Mine}"))
    with pytest.warns(registry.PluginWarning, match="'same' of distribution '[ab]-kpp' is also used by '[ab]-kpp'"):
        known = registry.kernels()
    assert not {"Mine", "Other"} & set(known)
    assert "b-kpp" in str(record("same", "a-kpp").error)
    assert "a-kpp" in str(record("same", "b-kpp").error)


def test_entry_point_name_of_kpp_stays_with_kpp(install, record):
    install("a-kpp", "core", HOOK.format(names="{'Mine': Mine}"))
    with pytest.warns(registry.PluginWarning, match="'core' of distribution 'a-kpp' is also used by 'kpp'"):
        assert "RBF" in registry.kernels()
    assert record("core", "kpp").error is None
    assert "Mine" not in registry.kernels()
