"""Write the pages of the reference that list what there is: public packages, registered names, keys of a study file.

They are written before Sphinx looks for pages, into docs/reference, where git ignores them.
"""

import dataclasses
import functools
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from reference_examples import before_docstrings
from sphinx.application import Sphinx

from kpp import registry
from kpp.foundation.arguments import handed_out
from kpp_study.study.sections.schema import study_schema

PACKAGES = {
    "The main functions": ["kpp"],
    "Kernels and functions": [
        "kpp.kernels",
        "kpp.priors",
        "kpp.features",
        "kpp.functions",
        "kpp.functionals",
        "kpp.gp",
    ],
    "Models": [
        "kpp_models",
        "kpp_models.estimators",
        "kpp.inference",
        "kpp.numpyro_models",
        "kpp.numpyro_models.pointwise",
    ],
    "Explanations": ["kpp.explanations", "kpp.games", "kpp.inspection", "kpp.plots", "kpp.conversion"],
    "Embeddings, causes and preferences": [
        "kpp.embeddings",
        "kpp.causal",
        "kpp.preferences",
    ],
    "Plugins": [
        "kpp_rkhs_shap",
        "kpp_pref_shap",
        "kpp_surrogates",
        "kpp_gpec",
        "kpp_optimization",
        "kpp_structures",
        "kpp_areal",
        "kpp_converters",
        "kpp_study",
    ],
    "Tools": [
        "kpp.calibration",
        "kpp.metrics",
        "kpp.data",
        "kpp.networks",
        "kpp.data.estimators",
        "kpp.linalg",
        "kpp.storage.serialization",
        "kpp.registry",
        "kpp.testing",
        "kpp.runtime.threads",
    ],
    "Toolkits, for authors of models and plugins": [
        "kpp.causal.toolkit",
        "kpp.conversion.toolkit",
        "kpp.embeddings.toolkit",
        "kpp.explanations.toolkit",
        "kpp.games.toolkit",
        "kpp.gp.toolkit",
        "kpp.inference.toolkit",
        "kpp.kernels.toolkit",
        "kpp.networks.toolkit",
        "kpp.numpyro_models.toolkit",
        "kpp.plots.toolkit",
        "kpp.preferences.toolkit",
    ],
}
# What an explainer requires of a predictor, in the words of the table of options.
EXPLAINED = {
    "rkhs_function": "a kernel model",
    "probabilities": "probabilities",
    "callable": "any model",
    "pairs": "preferences",
}
# In the shape (*draws, p) the star would begin an emphasis.
STAR = re.compile(r"(?<=[(\s'\"])\*(?=[a-z_]+[,)\s\['\"])")
OURS = tuple(sorted({name.partition(".")[0] for names in PACKAGES.values() for name in names}))


def public_names(module: ModuleType) -> list[str]:
    """Return the classes and functions of ours that a module hands out, except hooks."""
    names = handed_out(vars(module))
    return sorted(name for name in names if is_ours(getattr(module, name)) and not name.startswith("register_"))


def is_ours(value: Any) -> bool:
    """Return whether a value is a class or function of our packages; a module is not."""
    home = getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in OURS and not inspect.ismodule(value)


def heading(text: str, line: str = "=") -> list[str]:
    """Return a heading in reStructuredText."""
    return [text, line * len(text), ""]


def packages() -> list[str]:
    """Return the names of all packages in the order of the reference."""
    return [name for names in PACKAGES.values() for name in names]


@functools.cache
def places() -> dict[int, str]:
    """Return the full name of each object in the first package that offers it, by the identity of the object."""
    found: dict[int, str] = {}
    for package in packages():
        module = importlib.import_module(package)
        for name in public_names(module):
            found.setdefault(id(getattr(module, name)), f"{package}.{name}")
    return found


def package_page(name: str) -> str:
    """Return the page of a package: its docstring and its names, each with a page of its own."""
    module = importlib.import_module(name)
    full_names = [places()[id(getattr(module, each))] for each in public_names(module)]
    own = [full for full in full_names if full.rpartition(".")[0] == name]
    others = [full for full in full_names if full.rpartition(".")[0] != name]
    lines = [*heading(name), *inspect.getdoc(module).splitlines(), ""]
    if own:
        lines += [
            f".. currentmodule:: {name}",
            "",
            ".. autosummary::",
            "   :toctree: generated",
            "   :nosignatures:",
            "",
        ]
        lines += [*(f"   {full.rpartition('.')[2]}" for full in own), ""]
    if others:
        lines += ["Also here: " + ", ".join(f"`{full}`" for full in others) + ".", ""]
    return "\n".join(lines)


def index_page() -> str:
    """Return the page that lists the packages by their use."""
    lines = heading("API reference")
    for title, names in PACKAGES.items():
        summaries = {name: inspect.getdoc(importlib.import_module(name)).splitlines()[0] for name in names}
        lines += heading(title, "-")
        lines += [f"* :doc:`{name} <{name}>`: {summary}" for name, summary in summaries.items()]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""]
    lines += heading("Before the examples", "-")
    lines += ["The examples of docstrings use these lines; the tests run both:", "", ".. code-block:: pycon", ""]
    lines += [f"   {line}" for line in before_docstrings().splitlines()]
    return "\n".join(lines)


def registered_page() -> str:
    """Return the page of all registered names, by kind, with the class and the plugin of each."""
    lines = heading("Registered names")
    lines += [
        "The names that studies, ``kpp.explain`` and the command line take, with the plugin of each. ",
        "",
    ]
    for kind in registry.ALL_KINDS:
        lines += heading(kind.replace("_", " ").capitalize(), "-")
        lines += [".. list-table::", "   :header-rows: 1", "   :widths: 25 55 20", ""]
        lines += ["   * - name", "     - what it is", "     - plugin"]
        for name, cls in sorted(getattr(registry, kind)().items()):
            (plugin,) = (record.name for record in registry.plugins() if name in record.offers.get(kind, ()))
            link = f":py:obj:`{name} <{places()[id(cls)]}>`" if id(cls) in places() else f"``{name}``"
            text = cls.help if kind == "commands" else inspect.getdoc(cls)
            summary = text.partition("\n\n")[0].replace("\n", " ")
            lines += [f"   * - {link}", f"     - {summary}", f"     - {plugin}"]
        lines.append("")
    return "\n".join(lines)


def study_page() -> str:
    """Return the page of the keys of a study file, from its schema."""
    sections = study_schema()["properties"]
    lines = heading("Study file")
    lines += ["The keys of each section. The guide to studies shows whole files: :doc:`../how_to/studies`. ", ""]
    lines += ["``kpp schema`` prints the same for editors, with the fields of each registered class.", ""]
    for name in ("study", "data", "certificate", "report"):
        lines += heading(f"[{name}]", "-")
        for section in sections[name].get("oneOf", [sections[name]]):
            kind = section["properties"].get("kind", {}).get("const")
            lines += heading(f'kind = "{kind}"', "~") if kind else []
            lines += [*key_table(section), ""]
    for name in ("model", "inference", "explainer"):
        lines += heading(f"[{name}]", "-")
        lines += ["``name`` is a registered name, and all other keys are fields of its class: :doc:`registered`.", ""]
    return "\n".join(lines)


def key_table(section: dict[str, Any]) -> list[str]:
    """Return the table of the keys of a section."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 20 60", ""]
    lines += ["   * - key", "     - default", "     - meaning"]
    for key, value in section["properties"].items():
        default = "required" if key in section["required"] else f"``{value['default']}``" if "default" in value else ""
        lines += [f"   * - ``{key}``", f"     - {default}", f"     - {value.get('description', '')}"]
    return lines


def options_of_explain() -> list[str]:
    """Return the tables of what `kpp.explain` takes: the fields of each explainer and of each value function."""
    lines = []
    for kind in ("explainers", "value_functions"):
        title = kind.replace("_", " ")
        lines += [f".. rubric:: Options of the {title}", ""]
        lines += [".. list-table::", "   :header-rows: 1", "   :widths: 30 70", ""]
        lines += ["   * - name", "     - options, the required ones in bold"]
        for name, cls in sorted(getattr(registry, kind)().items()):
            link = f":py:obj:`{name} <{places()[id(cls)]}>`" if id(cls) in places() else f"``{name}``"
            explained = f", explains {EXPLAINED[cls.requires]}" if kind == "explainers" else ""
            options = [option(cls, field) for field in dataclasses.fields(cls) if field.init]
            lines += [f"   * - {link}{explained}", f"     - {', '.join(options) or 'none'}"]
        lines.append("")
    return lines


def option(cls: Any, field: "dataclasses.Field[Any]") -> str:
    """Return an option as the tables show it: in bold if it is required, else with its default if that is short."""
    if field.name == "value_function" and cls.requires == "rkhs_function":
        return "``value_function='interventional'``"  # which `kpp.explain` fills in
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return f"**{field.name}**"
    short = isinstance(field.default, str | int | float | None)
    return f"``{field.name}={field.default!r}``" if short else f"``{field.name}``"


def add_options(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Add to the page of `kpp.explain` what it takes."""
    if name == "kpp.explain":
        lines += ["", *options_of_explain()]


def write_if_changed(path: Path, text: str) -> None:
    """Write a page, unless it is there already: Sphinx reads again what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_pages(app: Sphinx, config: Any) -> None:
    """Write all pages."""
    reference = Path(app.srcdir) / "reference"
    write_if_changed(reference / "registered.rst", registered_page())
    write_if_changed(reference / "study_file.rst", study_page())
    write_if_changed(reference / "api" / "index.rst", index_page())
    for name in packages():
        write_if_changed(reference / "api" / f"{name}.rst", package_page(name))
    for page in (reference / "api" / "generated").glob("*.rst"):
        if page.stem not in places().values():
            page.unlink()  # of a name that was removed since the last build
    examples = Path(app.srcdir).parent / "examples"
    for page in (Path(app.srcdir) / "gallery").glob("*/*.rst"):
        example = (examples / page.relative_to(app.srcdir)).with_suffix(".py")
        if page.stem not in ("index", "sg_execution_times") and not example.exists():
            page.unlink()  # of an example that was moved or removed since the last build


def escape_stars(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape the stars of shapes in a docstring."""
    lines[:] = [STAR.sub(r"\*", line) for line in lines]


def skip_inherited(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the methods that scikit-learn writes into each estimator: their text refers to pages of its site."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("config-inited", write_pages)
    app.connect("autodoc-process-docstring", add_options, priority=901)
    app.connect("autodoc-process-docstring", escape_stars, priority=900)  # after napoleon
    app.connect("autodoc-skip-member", skip_inherited)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
