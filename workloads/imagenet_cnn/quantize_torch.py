"""Post-training static quantization of a network in PyTorch: int8 weights and activations, for x86 CPUs.

`torch.ao.quantization` in its FX graph mode is what PyTorch 2.13 itself has for it. It is deprecated in favour of the package torchao, whose
quantized graphs need torch.compile and with it a C++ compiler, which a read-only image without one can't offer.
Weights are quantized by output channel, activations by tensor with ranges from histograms, both as the `x86` default says; 7 of 8 bits
where a processor without VNNI could overflow (https://docs.pytorch.org/docs/stable/quantization.html).
"""

import copy
import warnings

import torch
from arguments import refuse
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

ENGINE = "x86"  # FBGEMM and oneDNN, whichever of the two PyTorch knows to be faster


def quantized(net, batches):
    """Make an int8 copy of a network in evaluation mode, its ranges read off the batches of images that it is shown."""
    if ENGINE not in torch.backends.quantized.supported_engines:
        known = ", ".join(torch.backends.quantized.supported_engines)
        refuse(f"--precision=int8 needs an x86 CPU: this PyTorch quantizes for {known}; ask for fp32 or bf16")
    torch.backends.quantized.engine = ENGINE
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # it is deprecated, and some defaults of its own observers are
        prepared = prepare_fx(copy.deepcopy(net), get_default_qconfig_mapping(ENGINE), (batches[0],))
        for images in batches:
            prepared(images)
        return convert_fx(prepared)
