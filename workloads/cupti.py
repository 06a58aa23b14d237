"""Records every CUDA API call of this process, including those of its start-up, by CUPTI, as nvprof does. Standard library only.

    recorder = Recorder("libcupti.so.13")     before the framework's first call
    recorder.stop()
    recorder.columns()                        columns of table `kernels` (`events.py`)

torch.profiler omits device queries and driver calls, so that it cannot show what a start-up does.
CUPTI fills buffers with records (CUPTI's reference, "Activity API"): an `ApiRecord` per call, whose `cbid` is the number of its function.
"""

import ctypes
import threading
import time

from arguments import refuse

# cupti_activity.h, cupti_callbacks.h: {kind of record: domain in which its functions are numbered}.
DOMAINS = {4: 1, 5: 2}  # calls of the driver, of the runtime
EVEN_IF_NOT_FULL = 1
BUFFER_BYTES = 8 * 2**20


class ApiRecord(ctypes.Structure):
    """`CUpti_ActivityAPI`; times in nanoseconds."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("cbid", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("process", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("correlation", ctypes.c_uint32),
        ("returned", ctypes.c_uint32),
    ]


_POINTER = ctypes.POINTER(ctypes.c_void_p)
_SIZE = ctypes.POINTER(ctypes.c_size_t)
REQUESTED = ctypes.CFUNCTYPE(None, _POINTER, _SIZE, _SIZE)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Recorder:
    """Records from its creation until `stop`; a profiler as in `profiling.py` that is on before the framework's first call."""

    source = "CUPTI"
    whole = True

    def __init__(self, library):
        """Start recording; `library` is CUPTI's file name for the loader."""
        try:
            self.cupti = ctypes.CDLL(library)
        except OSError as error:
            refuse(
                f"--profile=calls: {error}; install the CUPTI that belongs to this framework's CUDA, or leave it out"
            )
        self.rows, self.buffers, self.lock = [], {}, threading.Lock()
        self.callbacks = REQUESTED(self._provide_buffer), COMPLETED(self._collect_buffer)  # CUPTI needs them to the end
        self._call("cuptiActivityRegisterCallbacks", *self.callbacks)
        for kind in DOMAINS:
            self._call("cuptiActivityEnable", ctypes.c_uint32(kind))
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        self.offset = now.value - time.monotonic_ns()

    def start(self):
        """Do nothing: recording began at creation."""

    def stop(self):
        for kind in DOMAINS:
            self._call("cuptiActivityDisable", ctypes.c_uint32(kind))
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(EVEN_IF_NOT_FULL))

    def columns(self):
        names = {function: self._function_name(*function) for function in {row[0] for row in self.rows}}
        rows = sorted(self.rows, key=lambda row: row[1])
        return {
            "kind": ["call"] * len(rows),
            "name": [names[function] for function, *_ in rows],
            "device": [-1] * len(rows),
            "thread": [thread for _, _, _, thread, _ in rows],
            "start": [round((start - self.offset) / 1e9, 9) for _, start, _, _, _ in rows],
            "duration": [round((end - start) / 1e9, 9) for _, start, end, _, _ in rows],
            "correlation": [correlation for _, _, _, _, correlation in rows],
        }

    def _call(self, function, *arguments: object):
        code = getattr(self.cupti, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cupti.cuptiGetResultString(code, ctypes.byref(text))
            message = (text.value or b"").decode() or code
            refuse(f"--profile=calls: {function}: {message}; stop other profilers of this process, or leave it out")

    def _function_name(self, kind, cbid):
        text = ctypes.c_char_p()
        self._call("cuptiGetCallbackName", ctypes.c_uint32(DOMAINS[kind]), ctypes.c_uint32(cbid), ctypes.byref(text))
        return text.value.decode()

    def _provide_buffer(self, buffer, size, records):
        new_buffer = ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(new_buffer)
        with self.lock:
            self.buffers[address] = new_buffer
        buffer[0], size[0], records[0] = address, BUFFER_BYTES, 0

    def _collect_buffer(self, _context, _stream, buffer, _size, filled):
        record = ctypes.c_void_p()
        rows = []
        while (
            self.cupti.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), ctypes.c_size_t(filled), ctypes.byref(record)
            )
            == 0
        ):
            call = ApiRecord.from_address(record.value)
            rows.append(((call.kind, call.cbid), call.start, call.end, call.thread, call.correlation))
        with self.lock:
            self.rows += rows
            del self.buffers[buffer]
