"""Lets the real SGLang start beside a torch that has no GPU operators; on PYTHONPATH, it touches no file of the venv.

Where a CPU build of torch cannot load torchvision's compiled library, two of its operators are unknown, and
`torchvision._meta_registrations` fails while it registers their fake kernels. Their schemas are enough: no text model
calls them. They are defined just before that module is imported, after torchvision has tried its own library, so that a
complete torchvision is left alone, and no other Python process of the venv pays for importing torch.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__: list[str] = []

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _BeforeRegistration(MetaPathFinder):
    """Finds nothing; it only takes notice that the module is about to be imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system passes all three
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == "torchvision._meta_registrations":
            sys.meta_path.remove(self)
            _define_missing_operators()
        return None


def _define_missing_operators() -> None:
    import torch

    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", _SCHEMA)


sys.meta_path.insert(0, _BeforeRegistration())
