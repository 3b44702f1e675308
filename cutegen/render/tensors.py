"""Tensors in global memory as the templates write them."""

from dataclasses import dataclass

from cutegen.contract.launch import TensorContract, leading_stride
from cutegen.contract.problem import Groups
from cutegen.render import epilogue


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHoles:
    """A tensor in global memory; `title` is its part of a CuTe name. A vector lies `along` a mode, the `mode`-th.

    `firsts` names the first coordinates of the elements that a warp holds, if it does. The elements begin at `pointer`,
    an expression over the parameter `name`; those of a group that follows others begin at the coordinates `begin`.
    """

    name: str
    title: str
    constants: str
    dtype: str
    align: str
    shape: str
    stride: str
    along: str
    mode: int
    pointer: str
    firsts: str = ""
    begin: str = ""

    @property
    def matrix(self) -> str:
        """The expression of one matrix of a batch, or of a group, which begins at `begin` if groups are packed."""
        return f"cute.domain_offset({self.begin}, {self.of_batch})" if self.begin else self.of_batch

    @property
    def of_batch(self) -> str:
        """The expression of one matrix of a batch, with all of its groups if they are packed."""
        of_batch = f"batch_stride_{self.name}, batch, batches"
        return f"matrix_of_batch({self.pointer}, {self.shape}, {self.stride}, {of_batch})"


def tensor_holes(tensor: TensorContract, groups: Groups | None = None) -> TensorHoles:
    """Return what the template writes for a tensor in global memory."""
    begins = groups.of if groups is not None and tensor.begins_with(groups) else ""
    listed = groups is not None and tensor.lists(groups)
    constants = epilogue.constants_of(tensor.name)
    leading = leading_stride(tensor)
    matrix = len(tensor.modes) == 2
    contiguous, other = ("1", leading) if matrix else (leading or "1", "0")
    modes = tensor.modes if matrix else ("m", "n")
    return TensorHoles(
        name=tensor.name,
        title=epilogue.title(tensor.name),
        constants=constants,
        dtype=f"{constants}_DTYPE",
        align=f"{constants}_ALIGN_ELEMS",
        shape=extents_of(modes, tensor.block or (1,) * len(modes), tensor.block_elems, begins=begins, listed=listed),
        stride=f"({other}, {contiguous})" if tensor.major == modes[1] else f"({contiguous}, {other})",
        along="" if matrix else tensor.major,
        mode=modes.index(tensor.major),
        pointer=tensor.name,
    )


def extents_of(
    modes: tuple[str, ...], block: tuple[int, ...], block_elems: int = 1, *, begins: str = "", listed: bool = False
) -> str:
    """Return the extents of a matrix: those of the problem, or the elements of their blocks, or of a list of them.

    Along the mode `begins` each group begins a block.

    >>> extents_of(("m", "k"), (1, 128)), extents_of(("m", "k"), (128, 64), 128)
    ('(m, cute.ceil_div(k, 128))', '(cute.ceil_div(m, 128), cute.ceil_div(k, 64) * 128)')
    """
    *others, last = (_blocks(mode, of, begins) for mode, of in zip(modes, block, strict=True))
    if listed:
        return f"({' * '.join(f'({each})' for each in (*others, last))}, {block_elems})"
    return f"({', '.join((*others, last if block_elems == 1 else f'{last} * {block_elems}'))})"


def _blocks(mode: str, of: int, begins: str) -> str:
    if mode == begins:
        return f"({mode} + {of - 1} * groups) // {of}"
    return mode if of == 1 else f"cute.ceil_div({mode}, {of})"
