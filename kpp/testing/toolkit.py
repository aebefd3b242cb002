"""More of `kpp.testing`, for authors of models and plugins; names may change in minor versions."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.testing.suite import check_command as check_command
from kpp.testing.suite import check_converter as check_converter
from kpp.testing.suite import check_explainer as check_explainer
from kpp.testing.suite import check_value_function as check_value_function
from kpp.testing.suite import checks_of as checks_of

_guard_exports(globals())
