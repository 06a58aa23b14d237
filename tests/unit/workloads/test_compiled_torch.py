"""What PyTorch's compilers are told of the directory that is kept for them.

Prevents: a training that ends because it may not write there, and one whose compilers look elsewhere.
"""

from __future__ import annotations

import os

import pytest
from with_pytorch.techniques import keep


@pytest.mark.parametrize(("mode", "told"), [(0o700, True), (None, False)])
def test_compilers_are_sent_there_if_it_can_be_written_to(monkeypatch, tmp_path, mode, told):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "before")
    if mode:
        (tmp_path / "kept").mkdir(mode)
    keep(str(tmp_path / "kept"))
    keep(None)
    sent = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    assert sent == ([f"{tmp_path}/kept/inductor", f"{tmp_path}/kept/triton"] if told else ["before", "before"])
