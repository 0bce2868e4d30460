"""Attributes and types that several dialects use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    StringAttr,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ditron.errors import ProgramError
from ditron.plan.placement import Mesh, Partial, Placement, Placements, Replicate, Shard, show
from ditron.plan.prediction import NO_PREDICTION, Prediction
from ditron.plan.spec import TensorSpec, check_spec
from ditron.plan.tables import LIBRARY

_ELEMENT_TYPES: dict[str, TypeAttribute] = {
    "f32": f32,
    "bf16": bf16,
    "f16": f16,
    "f64": f64,
    "i32": i32,
    "i64": i64,
    "bool": i1,
}
_DTYPE_NAMES = {t: name for name, t in _ELEMENT_TYPES.items()}


def dtype_attr(dtype: str) -> TypeAttribute:
    """The element type of a dtype's name, such as "bf16"."""
    return _ELEMENT_TYPES[dtype]


def dtype_name(element_type: Attribute) -> str:
    """The dtype's name of an element type.

    Raises:
        VerifyException: the type is no element type of ditron's.
    """
    name = _DTYPE_NAMES.get(element_type)  # pyright: ignore[reportArgumentType]
    if name is None:
        message = f"{element_type} is no element type; expected one of {_expected()}"
        raise VerifyException(message)
    return name


def _expected() -> str:
    return ", ".join(map(str, _ELEMENT_TYPES.values()))


@irdl_attr_definition
class MeshAttr(ParametrizedAttribute):
    """`#task.mesh<dp = 2, tp = 4>`: named axes with sizes, the outermost first."""

    name = "task.mesh"

    axes: ArrayAttr[StringAttr]
    sizes: ArrayAttr[IntAttr]

    @staticmethod
    def get(mesh: Mesh) -> MeshAttr:
        return MeshAttr(ArrayAttr(map(StringAttr, mesh.axes)), ArrayAttr(map(IntAttr, mesh.sizes)))

    @property
    def mesh(self) -> Mesh:
        return Mesh(
            **{a.data: s.data for a, s in zip(self.axes.data, self.sizes.data, strict=True)}
        )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def axis() -> tuple[StringAttr, IntAttr]:
            name = parser.parse_identifier_or_str_literal()
            parser.parse_punctuation("=")
            return StringAttr(name), IntAttr(parser.parse_integer())

        pairs = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, axis)
        return ArrayAttr(name for name, _ in pairs), ArrayAttr(size for _, size in pairs)

    def print_parameters(self, printer: Printer) -> None:
        pairs = zip(self.axes.data, self.sizes.data, strict=True)
        with printer.in_angle_brackets():
            printer.print_string(", ".join(f"{axis.data} = {size.data}" for axis, size in pairs))

    def verify(self) -> None:
        names = [axis.data for axis in self.axes.data]
        if len(set(names)) != len(names) or len(names) != len(self.sizes.data):
            message = f"a mesh has one size for each of its distinct axes, got {names}"
            raise VerifyException(message)
        try:
            _ = self.mesh
        except ProgramError as error:
            raise VerifyException(error.message) from error


@irdl_attr_definition
class PlacementsAttr(Data[Placements]):
    """`#task.placements<[shard(0), replicate]>`: one placement per mesh axis."""

    name = "task.placements"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Placements:
        with parser.in_angle_brackets():
            return cls.parse_list(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(show(self.data))

    @classmethod
    def parse_list(cls, parser: AttrParser) -> Placements:
        """`[shard(0), replicate]` without the attribute around it."""

        def placement() -> Placement:
            match parser.parse_identifier():
                case "shard":
                    with parser.in_parens():
                        return Shard(parser.parse_integer(allow_negative=False))
                case "replicate":
                    return Replicate()
                case "partial":
                    with parser.in_parens():
                        parser.parse_keyword("sum")
                    return Partial()
                case word:
                    parser.raise_error(f"expected shard, replicate or partial, got {word}")
            return None

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, placement))


@irdl_attr_definition
class TensorType(ParametrizedAttribute, TypeAttribute):
    """`!task.tensor<512x256xbf16, [shard(0)]>`: global shape, element type, placements.

    Without placements, as in `!task.tensor<512x256xbf16>`, they are yet to be inferred.
    """

    name = "task.tensor"

    dims: ArrayAttr[IntAttr]
    element_type: Attribute
    layout: PlacementsAttr

    @staticmethod
    def get(
        shape: Sequence[int], element_type: Attribute | str, placements: Sequence[Placement] = ()
    ) -> TensorType:
        if isinstance(element_type, str):
            element_type = dtype_attr(element_type)
        layout = PlacementsAttr(tuple(placements))
        return TensorType(ArrayAttr(map(IntAttr, shape)), element_type, layout)

    @staticmethod
    def of(spec: TensorSpec) -> TensorType:
        """The type that stands for a spec."""
        return TensorType.get(spec.shape, spec.dtype, spec.placements)

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(d.data for d in self.dims.data)

    @property
    def dtype(self) -> str:
        return dtype_name(self.element_type)

    @property
    def placements(self) -> Placements:
        return self.layout.data

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype, self.placements)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            placed = parser.parse_optional_punctuation(",") is not None
            layout = PlacementsAttr(PlacementsAttr.parse_list(parser) if placed else ())
        return ArrayAttr(map(IntAttr, shape)), element_type, layout

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("".join(f"{size}x" for size in self.shape))
            printer.print_attribute(self.element_type)
            if self.placements:
                printer.print_string(f", {show(self.placements)}")

    def verify(self) -> None:
        try:
            check_spec(self.spec, len(self.placements))
        except ProgramError as error:
            raise VerifyException(error.message) from error


TRANSFERS = ("push", "pull", "in-place")


@irdl_attr_definition
class ChoiceAttr(ParametrizedAttribute):
    """How an op is to be carried out, as `choose-algorithms` or the user decided.

    Printed `#task.choice<mesh in-place chunk 64 tile 128x256>`, without what is not chosen; `by
    library` has a library's kernels compute, instead of emitted ones. What
    was predicted may follow: `cost_ns 812400 over "mesh push" 901200 until "4x the rows"`, which is
    the cost, the next best way and its cost, and a change by which that would win.
    """

    name = "task.choice"

    algorithm_name: StringAttr
    transfer_kind: StringAttr
    chunk_rows: IntAttr
    tile_sizes: ArrayAttr[IntAttr]
    computed_by: StringAttr
    cost: IntAttr
    over: StringAttr
    over_cost: IntAttr
    until: StringAttr

    @staticmethod
    def get(
        algorithm: str = "",
        transfer: str = "",
        chunk: int = 0,
        tile: Sequence[int] = (),
        prediction: Prediction = NO_PREDICTION,
        *,
        library: bool = False,
    ) -> ChoiceAttr:
        return ChoiceAttr(
            StringAttr(algorithm),
            StringAttr(transfer),
            IntAttr(chunk),
            ArrayAttr(map(IntAttr, tile)),
            StringAttr(LIBRARY if library else ""),
            IntAttr(prediction.cost_ns),
            StringAttr(prediction.over),
            IntAttr(prediction.over_ns),
            StringAttr(prediction.until),
        )

    @property
    def algorithm(self) -> str:
        """A name such as "mesh"; "" where there is none to choose."""
        return self.algorithm_name.data

    @property
    def transfer(self) -> str:
        """One of `TRANSFERS`, or ""."""
        return self.transfer_kind.data

    @property
    def chunk(self) -> int:
        """Rows of the chunked dimension; 0 is a whole shard."""
        return self.chunk_rows.data

    @property
    def tile(self) -> tuple[int, ...]:
        """Elements a dimension of the result's tile; () where there is none to choose."""
        return tuple(size.data for size in self.tile_sizes.data)

    @property
    def library(self) -> bool:
        """Whether a library's kernels compute."""
        return self.computed_by.data == LIBRARY

    @property
    def engine(self) -> str:
        """The engine of what it computes."""
        return LIBRARY if self.library else "sm"

    @property
    def plain(self) -> ChoiceAttr:
        """The same without what was predicted."""
        return ChoiceAttr.get(
            self.algorithm, self.transfer, self.chunk, self.tile, library=self.library
        )

    @property
    def prediction(self) -> Prediction:
        """What the choice was expected to cost, and why it was made."""
        return Prediction(self.cost.data, self.over.data, self.over_cost.data, self.until.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        choice = {"algorithm": "", "transfer": ""}
        chunk, tile, prediction, library = 0, list[int](), NO_PREDICTION, False
        with parser.in_angle_brackets():
            while (word := _optional_dashed_word(parser)) is not None:
                if word == "chunk":
                    chunk = parser.parse_integer(allow_negative=False)
                elif word == "tile":
                    tile = parser.parse_dimension_list()
                elif word == "by":
                    parser.parse_keyword(LIBRARY)
                    library = True
                elif word in ("cost_ns", "over", "until"):
                    prediction = _parse_prediction(parser, word, prediction)
                else:
                    key = "transfer" if word in TRANSFERS else "algorithm"
                    if choice[key]:
                        parser.raise_error(f"{key} given twice: {choice[key]} and {word}")
                    choice[key] = word
        made = ChoiceAttr.get(
            **choice, chunk=chunk, tile=tile, prediction=prediction, library=library
        )
        return made.parameters

    def print_parameters(self, printer: Printer) -> None:
        words = [self.algorithm, self.transfer]
        words.append(f"chunk {self.chunk}" if self.chunk else "")
        words.append(f"tile {'x'.join(map(str, self.tile))}" if self.tile else "")
        words.append(f"by {LIBRARY}" if self.library else "")
        words.append(str(self.prediction))
        with printer.in_angle_brackets():
            printer.print_string(" ".join(filter(None, words)))

    def verify(self) -> None:
        if self.transfer not in ("", *TRANSFERS):
            message = f"transfer is one of {', '.join(TRANSFERS)}, got {self.transfer}"
            raise VerifyException(message)
        if self.chunk < 0 or any(size < 1 for size in self.tile):
            message = f"chunk and tile count elements, got {self.chunk}, {self.tile}"
            raise VerifyException(message)


def _parse_prediction(parser: AttrParser, word: str, known: Prediction) -> Prediction:
    if word == "cost_ns":
        return replace(known, cost_ns=parser.parse_integer(allow_negative=False))
    text = parser.parse_str_literal()
    if word == "until":
        return replace(known, until=text)
    return replace(known, over=text, over_ns=parser.parse_integer(allow_negative=False))


def _optional_dashed_word(parser: AttrParser) -> str | None:
    word = parser.parse_optional_identifier()
    while word is not None and parser.parse_optional_punctuation("-") is not None:
        word += "-" + parser.parse_identifier()
    return word
