"""The class of the warnings of kpp."""

from __future__ import annotations


class KppWarning(UserWarning):
    """What a user of kpp should know before using a result; the base class of all warnings of kpp itself.

    For example, an effect rests on few rows, a curve lies outside of the data, or a plugin was left out.
    ``warnings.simplefilter("ignore", kpp.KppWarning)`` leaves the warnings of other libraries as they are.
    """
