"""Makes a torchvision wheel importable whose compiled operators cannot load.

Some package mirrors carry torch's CPU build beside a torchvision that was built against CUDA. Its shared library then
does not load, and `import torchvision` fails because it registers a fake kernel for an operator that nobody declared.
Llama 4's image processor uses only torchvision's resize and pad, which are plain torch: declaring the two operators
(without an implementation) is enough. `environment.py` copies this file into the virtual environment, with a .pth file
that imports it, only where `import torchvision` fails; the hook acts when torchvision is first imported.
"""

import sys
from importlib.abc import MetaPathFinder


class _DeclareOperators(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define(
                "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
            _keep_alive.append(library)
        # None: the ordinary finders load the module.


_keep_alive = []
sys.meta_path.insert(0, _DeclareOperators())
