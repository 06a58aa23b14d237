"""The software and devices of this process as MXNet's libraries name them, for the event `env`."""

import ctypes

import placement


def library_number(library, function):
    """Ask a CUDA library for its version as it numbers it; None where it is absent."""
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return None
    number = ctypes.c_int()
    call(ctypes.byref(number))
    return number.value


def cuda_versions():
    """Versions of the CUDA libraries that this MXNet was built for, written as PyTorch writes its own."""
    cuda = library_number("libcudart.so.11.0", "cudaRuntimeGetVersion")  # 11020 is 11.2
    nccl = library_number("libnccl.so.2", "ncclGetVersion")  # 22005 is 2.20.5
    try:
        cudnn = str(ctypes.CDLL("libcudnn.so.8").cudnnGetVersion())
    except OSError:
        cudnn = None
    return {
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "cudnn": cudnn,
        "nccl": f"{nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}" if nccl else None,
    }


def gpu_name(index):
    """Name of a GPU: the first member, 256 characters, of CUDA 11's cudaDeviceProp."""
    properties = ctypes.create_string_buffer(4096)
    ctypes.CDLL("libcudart.so.11.0").cudaGetDeviceProperties(properties, index)
    return properties.value.decode()


def environment(args, mx):
    """Software and devices as MXNet's libraries name them."""
    told = {"framework": "mxnet", "framework_version": mx.__version__, "device_names": []}
    if args.device == "gpu":
        told.update(cuda_versions(), device_names=[gpu_name(i) for i in range(args.devices)])
    return placement.environment(args, **told)
