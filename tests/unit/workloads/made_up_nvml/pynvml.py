"""nvidia-ml-py with a made-up driver and GPUs: its own names, structures and errors, and answers written by a test.

MADE_UP_NVML is a JSON object:

    gpus     how many
    forget   names that this release lacks
    refuse   ids of fields that this driver lacks
    link     generation and width of its PCIe link (default: 4 and 16)
    pcie     bytes that its PCIe counters count between two readings (default: 0)
    gpm      whether the GPUs have it (default: yes)
    faults   [{call, gpu, after, error}]: after the first `after` calls, calls of this function for this GPU (without `gpu`: for any) raise the
             error code, or never return if the code is null
    log      a file that gets a line for each GPM sample allocated and freed
"""

# ruff: noqa: N802  (the names are the library's)

import collections
import ctypes
import functools
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
REAL = next(path for entry in sys.path if (path := Path(entry, "pynvml.py")).is_file() and path.resolve() != HERE)
spec = importlib.util.spec_from_file_location("real_pynvml", REAL)
real = importlib.util.module_from_spec(spec)
sys.modules["real_pynvml"] = real
spec.loader.exec_module(real)
globals().update({name: value for name, value in vars(real).items() if not name.startswith("__")})

SETTINGS = json.loads(os.environ.get("MADE_UP_NVML", "{}"))
CALLS = collections.Counter()
MIB = 1 << 20

GPM = {
    real.NVML_GPM_METRIC_SM_UTIL: 93.456,
    real.NVML_GPM_METRIC_SM_OCCUPANCY: 41.0,
    real.NVML_GPM_METRIC_FP64_UTIL: 0.0,
    real.NVML_GPM_METRIC_FP32_UTIL: 12.5,
    real.NVML_GPM_METRIC_FP16_UTIL: 0.25,
    real.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 61.999,
    real.NVML_GPM_METRIC_DRAM_BW_UTIL: 38.0,
    real.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 2.0,
    real.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 0.5,
    real.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: 1024.0,
}  # the other direction of NVLink is missing
FIELDS = {
    real.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 1_111,
    real.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 2_222,
    real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 3,
    real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 4,
    real.NVML_FI_DEV_POWER_INSTANT: 298_765,
}
PCIE = (real.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, real.NVML_FI_DEV_PCIE_COUNT_TX_BYTES)


def log(line):
    if "log" in SETTINGS:
        with Path(SETTINGS["log"]).open("a") as file:
            file.write(line + "\n")


def answers(function):
    """Count the calls of a function by GPU, and let them fail according to the faults."""

    @functools.wraps(function)
    def call(*arguments):
        name = function.__name__
        gpu = arguments[0] if arguments and isinstance(arguments[0], int) else None
        CALLS[name, gpu] += 1
        for fault in SETTINGS.get("faults", []):
            if fault["call"] == name and fault.get("gpu", gpu) == gpu and CALLS[name, gpu] > fault.get("after", 0):
                if fault["error"] is None:
                    time.sleep(1000)
                raise real.NVMLError(fault["error"])
        return function(*arguments)

    globals()[function.__name__] = call
    return call


def scalar(name, value):
    def function(*_):
        return value

    function.__name__ = name
    answers(function)


scalar("nvmlInit", None)
scalar("nvmlDeviceGetCount", SETTINGS.get("gpus", 1))
scalar("nvmlDeviceGetName", b"NVIDIA H200")
scalar("nvmlDeviceGetEnforcedPowerLimit", 650_000)
scalar("nvmlDeviceGetPowerManagementDefaultLimit", 700_000)
scalar("nvmlDeviceGetPowerUsage", 312_345)
scalar("nvmlDeviceGetTemperature", 55)
scalar("nvmlDeviceGetMaxPcieLinkGeneration", SETTINGS.get("link", [4, 16])[0])
scalar("nvmlDeviceGetMaxPcieLinkWidth", SETTINGS.get("link", [4, 16])[1])
scalar("nvmlDeviceGetCurrentClocksEventReasons", 0x24)
scalar("nvmlDeviceGetCurrentClocksThrottleReasons", 0x42)
scalar("nvmlDeviceGetUtilizationRates", real.c_nvmlUtilization_t(gpu=87, memory=41))
scalar("nvmlDeviceGetMemoryInfo", real.c_nvmlMemory_t(total=143_771 * MIB, free=1, used=10_241 * MIB + 5))


@answers
def nvmlDeviceGetHandleByIndex(index):
    if index >= SETTINGS.get("gpus", 1):
        raise real.NVMLError(real.NVML_ERROR_INVALID_ARGUMENT)
    return index


@answers
def nvmlDeviceGetUUID(gpu):
    return f"GPU-{gpu}"


@answers
def nvmlDeviceGetTotalEnergyConsumption(gpu):
    return 5_000_000 + 31_234 * CALLS["nvmlDeviceGetTotalEnergyConsumption", gpu]


@answers
def nvmlDeviceGetClockInfo(_gpu, clock):
    return {real.NVML_CLOCK_SM: 1_980, real.NVML_CLOCK_MEM: 3_201}[clock]


@answers
def nvmlDeviceGetTotalEccErrors(_gpu, kind, counter):
    assert counter == real.NVML_VOLATILE_ECC
    return {real.NVML_MEMORY_ERROR_TYPE_CORRECTED: 7, real.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 1}[kind]


@answers
def nvmlDeviceGetComputeRunningProcesses(_gpu):
    mine = {"pid": os.getppid(), "usedGpuMemory": 512 * MIB}
    gone = {"pid": 2**22 + 1, "usedGpuMemory": None}  # above Linux's largest process id
    return [real.nvmlFriendlyObject(mine), real.nvmlFriendlyObject(gone)]


@answers
def nvmlDeviceGetFieldValues(_gpu, asked):
    told = (real.c_nvmlFieldValue_t * len(asked))()
    for answer, one in zip(told, asked, strict=True):
        field, scope = one if isinstance(one, tuple) else (one, 0)
        nvlink = field in (
            real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
            real.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        )
        assert scope == (0xFFFFFFFF if nvlink else 0)
        if nvlink:
            answer.valueType, answer.value.ullVal = real.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, FIELDS[field]
        else:
            answer.valueType, answer.value.uiVal = real.NVML_VALUE_TYPE_UNSIGNED_INT, FIELDS[field]
            if field in PCIE:
                FIELDS[field] = (FIELDS[field] + SETTINGS.get("pcie", 0)) % (1 << 32)
        refused = (nvlink and SETTINGS.get("nvlink") is False) or field in SETTINGS.get("refuse", [])
        answer.nvmlReturn = real.NVML_ERROR_NOT_SUPPORTED if refused else 0
    return told


SAMPLES = {}


def address(sample):
    return ctypes.cast(sample, ctypes.c_void_p).value


@answers
def nvmlGpmQueryDeviceSupport(_gpu):
    return real.c_nvmlGpmSupport_t(version=1, isSupportedDevice=int(SETTINGS.get("gpm", True)))


@answers
def nvmlGpmSampleAlloc():
    number = 16 * (len(SAMPLES) + 1)
    SAMPLES[number] = None
    log(f"alloc {number}")
    return ctypes.cast(number, real.c_nvmlGpmSample_t)


@answers
def nvmlGpmSampleFree(sample):
    log(f"free {address(sample)}")


@answers
def nvmlGpmSampleGet(gpu, sample):
    SAMPLES[address(sample)] = (gpu, CALLS["nvmlGpmSampleGet", gpu])
    return sample


@answers
def nvmlGpmMetricsGet(request):
    assert request.version == real.NVML_GPM_METRICS_GET_VERSION
    (gpu, before), (same, now) = SAMPLES[address(request.sample1)], SAMPLES[address(request.sample2)]
    assert gpu == same
    assert now == before + 1, "not the two newest samples, older one first"
    for number in range(request.numMetrics):
        metric = request.metrics[number]
        metric.nvmlReturn = 0 if metric.metricId in GPM else real.NVML_ERROR_NOT_SUPPORTED
        metric.value = GPM.get(metric.metricId, 77.0)
    return request


for name in SETTINGS.get("forget", []):
    globals().pop(name)
