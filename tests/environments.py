"""Virtual environments of frameworks for jobs without a container, created if missing."""

from pathlib import Path

from checkout import ROOT

from runner.core.cache import cache_dir
from runner.engines.environment import ensure_environment
from runner.images.catalog import load_images


def environment_of(framework: str) -> Path:
    """The Python of an environment with the newest CPU version of a framework."""
    image = load_images(ROOT).find(framework, None, "cpu", gpus=(), driver=None)
    return ensure_environment(
        lock=image.lock_path,
        requires_python=image.requires_python,
        cache=cache_dir(),
        report=print,
        extra_index=image.extra_index,
    )
