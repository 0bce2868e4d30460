"""`dt.Options` from the command line's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from ditron.errors import OptionError
from ditron.plan.options import OpOptions, Options

TRUE_FALSE = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def parse_tile(text: str) -> tuple[int, ...]:
    """`128x256` as sizes.

    Raises:
        ValueError: it is not of that form.
    """
    return tuple(int(size) for size in text.split("x"))


_PARSERS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": lambda text: int(text, 0),
    "float": float,
    "bool": lambda text: TRUE_FALSE[text.lower()],
    "tuple[int, int]": parse_tile,
}

_EXAMPLES = {"int": "65536", "float": "0.5", "bool": "true", "tuple[int, int]": "128x256"}


def make_options(
    words: Sequence[str], named: Mapping[str, str | int | None] | None = None
) -> Options:
    """Options from `name=value` words, of which `pattern:name=value` counts for ops so called.

    Args:
        words: such as `workers=2` or `layers.*.up:tile=128x256`.
        named: options that the command line has flags of their own for; None is not given.

    Raises:
        OptionError: a name that is no option, or a value that does not fit it.
    """
    given = {name: value for name, value in (named or {}).items() if value is not None}
    whole = {name: _parse(name, str(value), Options) for name, value in given.items()}
    per_op: dict[str, dict[str, Any]] = {}
    for word in words:
        target, equals, text = word.partition("=")
        if not equals or target.startswith(":"):
            msg = f"--option {word}: expected name=value or op-name:name=value"
            raise OptionError(msg)
        pattern, _, name = target.rpartition(":")
        name = name.replace("-", "_")
        if pattern:
            per_op.setdefault(pattern, {})[name] = _parse(name, text, OpOptions)
        else:
            whole[name] = _parse(name, text, Options)
    ops = {pattern: OpOptions(**values) for pattern, values in per_op.items()}
    return Options(**whole, per_op=ops)


def _parse(name: str, text: str, kind: type[OpOptions]) -> Any:  # noqa: ANN401 - as its field
    types = {
        f.name: str(f.type).removesuffix(" | None")
        for f in fields(kind)
        if str(f.type).removesuffix(" | None") in _PARSERS
    }
    if name not in types:
        near = get_close_matches(name, types, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(types)}"
        msg = f"no option is named {name}; {hint}"
        raise OptionError(msg)
    try:
        return _PARSERS[types[name]](text)
    except (ValueError, KeyError):
        msg = f"option {name}={text}: expected a value such as {_EXAMPLES[types[name]]}"
        raise OptionError(msg) from None
