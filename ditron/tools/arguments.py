"""`--set name=value`: arguments of the user's `program()`, typed by its own signature."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from ditron.errors import OptionError
from ditron.plan.dtypes import USABLE, DType
from ditron.tools.settings import TRUE_FALSE


def parse_settings(settings: Sequence[str], signature: inspect.Signature) -> dict[str, object]:
    """`name=value` texts as arguments of a function, typed by its defaults and annotations.

    Raises:
        OptionError: a name that the function does not take, or a value that does not fit it.
    """
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    arguments: dict[str, object] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            msg = f"--set {setting}: expected name=value"
            raise OptionError(msg)
        if name not in parameters:
            raise OptionError(_unknown(name, parameters))
        arguments[name] = _parse_value(name, text, parameters[name])
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in arguments:
            msg = f"program() needs a value for {name}: --set {name}=..."
            raise OptionError(msg)
    return arguments


def _unknown(name: str, parameters: Mapping[str, object]) -> str:
    near = get_close_matches(name, parameters, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(parameters) or 'none'}"
    return f"--set {name}: program() has no such argument; {hint}"


def _parse_value(name: str, text: str, parameter: inspect.Parameter) -> object:
    """A value of the type that the parameter's default has, else of its annotation."""
    kind = _kind(parameter)
    try:
        return _PARSERS[kind](text) if kind in _PARSERS else ast.literal_eval(text)
    except (ValueError, SyntaxError, KeyError):
        wanted = _EXPECTED.get(kind, kind or "a Python literal")
        msg = f"--set {name}={text}: expected {wanted}"
        raise OptionError(msg) from None


def _kind(parameter: inspect.Parameter) -> str:
    if parameter.default is not parameter.empty and parameter.default is not None:
        return type(parameter.default).__name__
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.rpartition(".")[2].removesuffix(" | None")


def _dtype(text: str) -> DType:
    return {dtype.name: dtype for dtype in USABLE}[text.removeprefix("dt.")]


_EXPECTED = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "DType": f"one of {', '.join(dtype.name for dtype in USABLE)}",
}

_PARSERS: dict[str, Callable[[str], object]] = {
    "bool": lambda text: TRUE_FALSE[text.lower()],
    "int": lambda text: int(text, 0),
    "float": float,
    "str": str,
    "DType": _dtype,
}
