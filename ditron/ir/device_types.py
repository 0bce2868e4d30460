"""Types of the device level: memory and signal words that every rank has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import dtype_name
from ditron.plan.limits import MAX_ELEMENTS
from ditron.plan.tables import Memory


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!device.buffer<128x256xbf16, symmetric>`: a capacity, the same on every rank."""

    name = "device.buffer"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    memory: StringAttr

    @staticmethod
    def get(dims: Sequence[int], element: Attribute, memory: Memory) -> BufferType:
        return BufferType(ArrayAttr([IntAttr(d) for d in dims]), element, StringAttr(memory))

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    @property
    def dtype(self) -> str:
        return dtype_name(self.element_type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            memory = parser.parse_identifier()
        return (ArrayAttr([IntAttr(d) for d in shape]), element, StringAttr(memory))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.dims)
            printer.print_string("x")
            printer.print_attribute(self.element_type)
            printer.print_string(f", {self.memory.data}")

    def verify(self) -> None:
        if not self.dims or any(d < 1 for d in self.dims):
            raise VerifyException(f"a buffer's capacity is positive, got {self.dims}")
        if prod(self.dims) > MAX_ELEMENTS:
            raise VerifyException(f"a buffer has at most 2^48 elements, got {self.dims}")
        dtype_name(self.element_type)
        if self.memory.data not in tuple(Memory):
            raise VerifyException(f"memory is symmetric or local, got {self.memory.data}")


@irdl_attr_definition
class SignalsType(ParametrizedAttribute, TypeAttribute):
    """`!device.signals<8>`: that many signal words on every rank."""

    name = "device.signals"
    size: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer(allow_negative=False)),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.size.data))
