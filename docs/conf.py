"""The settings of the site: `make docs` builds it into build/site."""

import importlib.metadata
import importlib.util
import os
import socket
import sys
import tomllib
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
sys.path.insert(0, str(HERE))

from jupyter_cache.cache.db import create_db  # noqa: E402
from page_links import source_of_object  # noqa: E402

# Read before JAX starts, also by the processes that run the pages: programs are compiled once, quickly, and kept.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parent / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if os.environ.get("KPP_QUICK_COMPILER"):  # what compiles fastest, as in the tests, whose programs are found again
    flags = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
    # Two pages run at the same time. With JAX before 0.11.2 a small pool of threads can wait forever.
    if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:3])) >= (0, 11, 2):
        os.environ.setdefault("NPROC", "1")

# Pages are run on this machine, where the kernel's warning about connections without encryption says nothing.
os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
profile = Path(os.environ["IPYTHONDIR"]) / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text('get_config().IPKernelApp.log_level = "ERROR"\n', encoding="utf-8")

PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
author = "The kpp developers"
copyright = author
version = release = PROJECT["version"]
language = "en"

extensions = [
    "myst_nb",
    "page_links",
    "page_order",
    "reference_pages",
    "search_words",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx_llms_txt",
    "sphinx_sitemap",
    "sphinxcontrib.bibtex",
    "sphinxext.opengraph",
    "used_in",
]
exclude_patterns = [f"gallery/{folder}*.{kind}" for folder in ("", "**/") for kind in ("ipynb", "json", "py", "zip")]
suppress_warnings = ["config.cache"]  # of the classes among the settings of the gallery

# Pages
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / "executed_pages")
nb_execution_in_temp = True
Path(nb_execution_cache_path).mkdir(parents=True, exist_ok=True)
create_db(nb_execution_cache_path)  # here, since two processes that read pages would both make its tables
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"

# Reference
default_role = "py:obj"  # a name in backquotes is a link where there is a page for it
autosummary_generate = True
autosummary_generate_overwrite = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
templates_path = ["templates"]
OTHER_SITES = {
    "arviz": ("https://python.arviz.org/en/stable/", None),
    "jax": ("https://docs.jax.dev/en/latest/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "numpyro": ("https://num.pyro.ai/en/stable/", None),
    "python": ("https://docs.python.org/3/", None),
    "shap": ("https://shap.readthedocs.io/en/latest/", None),
    "sklearn": ("https://scikit-learn.org/stable/", None),
    "xarray": ("https://docs.xarray.dev/en/stable/", None),
}


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the address of the source of a name of the reference."""
    return source_of_object(PROJECT["urls"]["Source"], info) if domain == "py" else None


def has_network() -> bool:
    """Return whether other sites can be reached; without them their names are no links."""
    try:
        socket.create_connection(("docs.python.org", 443), timeout=5).close()
    except OSError:
        return False
    return True


intersphinx_mapping = OTHER_SITES if has_network() else {}

# Gallery
# The processes of joblib end when they have been idle, which is no fault of an example.
warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
GALLERY = ("explanations", "trust", "models", "averages", "causes", "preferences")  # its sections in their order
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"botorch_loop\.py$",  # PyTorch, of several gigabytes, would have to be installed
    "abort_on_example_error": True,
    "download_all_examples": False,
    "parallel": 2,
    "remove_config_comments": True,
    "reset_modules": ("matplotlib", "gallery_warnings.make_errors"),
    "show_memory": False,
    "write_computation_times": False,
    "subsection_order": [f"../examples/gallery/{name}" for name in GALLERY],
    "within_subsection_order": "FileNameSortKey",
    "ignore_repr_types": r"matplotlib\.",  # what a cell of a picture returns
    "thumbnail_size": (400, 280),
}

# Site
html_theme = "pydata_sphinx_theme"
html_title = "kpp"
html_baseurl = os.environ.get("KPP_SITE_URL", "http://localhost:8000/")  # for the sitemap and cards
# MathJax from its package, so that formulas need no network.
(MATHJAX,) = importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations
URLS = PROJECT["urls"]
html_context = {"default_mode": "auto", "source_url": URLS["Source"], "issues_url": URLS["Issues"]}
html_static_path = ["static", "pictures/explanation.png", str(Path(MATHJAX) / "static")]
mathjax_path = "mathjax/tex-chtml.js"
html_css_files = ["kpp.css"]
html_js_files = ["kpp.js"]
html_show_sourcelink = False
html_theme_options = {
    "collapse_navigation": True,  # hundreds of pages of the reference in each side bar would make all pages large
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "github_url": URLS["Source"],
    "logo": {"text": f"kpp {version}"},
    "secondary_sidebar_items": ["page-toc", "page-links"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
sitemap_url_scheme = "{link}"
ogp_site_url = html_baseurl
ogp_image = f"{html_baseurl}_static/explanation.png"
ogp_social_cards = {"enable": False}  # one card for all pages
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
llms_txt_title = "kpp: kernel probabilistic programming"
llms_txt_summary = PROJECT["description"]
llms_txt_exclude = ["search", "genindex", "py-modindex", "gallery/**/sg_execution_times"]
