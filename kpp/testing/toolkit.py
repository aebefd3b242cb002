"""More of `kpp.testing`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.testing.commands import command_checks as command_checks
from kpp.testing.converters import converter_checks as converter_checks
from kpp.testing.embeddings import embedding_checks as embedding_checks
from kpp.testing.explainers import explainer_checks as explainer_checks
from kpp.testing.inferences import inference_checks as inference_checks
from kpp.testing.kernels import kernel_checks as kernel_checks
from kpp.testing.models import model_checks as model_checks
from kpp.testing.suite import check_command as check_command
from kpp.testing.suite import check_converter as check_converter
from kpp.testing.suite import check_explainer as check_explainer
from kpp.testing.suite import check_value_function as check_value_function
from kpp.testing.value_functions import value_function_checks as value_function_checks

_guard_exports(globals())
