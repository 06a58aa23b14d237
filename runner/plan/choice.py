"""The trials of a request; if it names no framework, for the first framework that offers everything else that was requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from runner.core.errors import RequestError
from runner.core.request import Request
from runner.core.trial import AnyTrial, Trial
from runner.engines.environment import find_interpreter
from runner.images.spec import ImageSpec
from runner.plan import external
from runner.plan.discovery import AnyResources, Resources
from runner.plan.plan import plan


def trials_of(
    request: Request, resources: AnyResources, *, say: Callable[[str], None]
) -> tuple[AnyResources, tuple[AnyTrial, ...]]:
    """Plan the trials of one of the suite's programs, by `choose`, or of a user's command; return them and the resources that they run on."""
    if isinstance(resources, Resources):
        return choose(request, resources, say=say)
    return resources, external.plan_command(request, resources, say=say)


def choose(
    request: Request, resources: Resources, *, say: Callable[[str], None]
) -> tuple[Resources, tuple[Trial, ...]]:
    """Plan the trials with the first image that meets the whole request; return its resources and them; `say` what was completed or chosen for the user.

    Raises RequestError if no framework offers all of it, or, without containers, none that this machine has a Python for. The reason given
    is that of the first framework tried; it says so if it depends on the framework.
    """
    if request.framework and request.version and request.version != resources.image.version:
        say(f"VERSION={request.version} is taken as {resources.image.version}")
    refusals: list[RequestError] = []
    tried = (resources.image, *resources.others)
    for image in tried:
        found = resources if image is resources.image else replace(resources, image=image)
        try:
            found.check_engine()
            if isinstance(image, ImageSpec) and found.engine.name == "venv" and not request.framework:
                find_interpreter(image.requires_python)
            trials = plan(request, found)
        except RequestError as error:
            refusals.append(error)
            continue
        if not request.framework:
            why = ": " + str(refusals[0]).partition(";")[0] if refusals else ""
            say(f"no FRAMEWORK is given, {image.name} is taken{why}")
        return found, trials
    what, name, rest = str(refusals[0]).partition(f"FRAMEWORK={tried[0].framework}")
    if not name or len(tried) == 1:
        raise refusals[0]
    if all(str(refusal).startswith(what) for refusal in refusals):
        raise RequestError(f"{what}any framework{rest}")
    raise RequestError(f"no framework offers everything requested; the first one tried: {refusals[0]}")
