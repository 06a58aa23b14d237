"""The suite's own programs in a custom image.

Prevents: an image that is silently pulled or built; runs in different images, or with different mounts, taken for runs of one trial; a
vendor's entry point that is left out, or put before commands in other images; a dry run that prints something else than what runs; a row
of the support matrix for an image that nobody else has.

The command lines of dry runs are compared with golden files; `DLSCALE_GOLDEN=write make test` writes them again.
"""

import dataclasses
import re
import stat
from types import SimpleNamespace

import examples
import planned
import pytest
from docker.errors import APIError, ImageNotFound
from goldens import expected
from records import record
from unit.plan.test_launch import _words

from runner.cluster import cluster
from runner.commands.documents import support_matrix
from runner.core.container_spec import IMAGE_USER, Mount
from runner.core.errors import RequestError
from runner.core.record import ImageUsed
from runner.core.request import Request
from runner.core.wire import Link
from runner.engines import docker
from runner.engines.base import EngineError, job_user
from runner.images.custom_image import CustomImage, FoundImage
from runner.plan import discovery, external
from runner.plan.image import images_of
from runner.plan.launch import launch
from runner.plan.layout import container, make_job
from runner.plan.plan import plan
from runner.run import bench, prepare

GOLDEN = examples.ROOT / "tests" / "golden" / "custom_image"
ENTRYPOINT = ("/opt/vendor/entrypoint.sh",)
FOUND = FoundImage(reference="hostroot:1", id="sha256:7", entrypoint=ENTRYPOINT)
GIGABIT = Link(rate_mbit=1000.0, delay_ms=0.0, emulated=True)
USR = (Mount(source="/usr", target="/usr"), Mount(source="/opt", target="/opt"))


class StandIn:
    """An engine that has some images and can neither build nor pull."""

    def __init__(self, held):
        self.images, self.held = self, held

    def get(self, reference):
        if reference.isupper():
            raise APIError("invalid reference format", explanation="invalid reference format")
        if reference not in self.held:
            raise ImageNotFound(f"No such image: {reference}")
        return self.held[reference]

    def info(self):
        return {"Runtimes": {"nvidia": {}}, "ServerVersion": "99.1", "DockerRootDir": "/"}

    def version(self):
        return {"Version": "99.1"}

    def close(self):
        pass


@dataclasses.dataclass
class Held:
    """An image as the engine describes it."""

    id: str
    attrs: dict
    labels: dict = dataclasses.field(default_factory=dict)


@pytest.fixture
def machine(monkeypatch):
    """A machine with four GPUs whose engine has two images: one of a vendor, and one that the suite built."""
    vendors = {"Config": {"Entrypoint": list(ENTRYPOINT)}, "RepoDigests": ["corp/net@sha256:5"]}
    ours = {"Config": {"Entrypoint": None}, "RepoDigests": None}
    held = {"hostroot:1": Held("sha256:7", vendors), "own:1": Held("sha256:8", ours, {"dlscale.lock.sha256": "a" * 64})}
    monkeypatch.setattr(docker, "connect", lambda: StandIn(held))
    monkeypatch.setattr(cluster, "inspect_local", lambda: examples.gpu_node(4))
    return held


def request(**changes):
    return Request.model_validate({"image": "hostroot:1", "framework": "pytorch", "repeat": 1} | changes)


def custom_image(**changes):
    return CustomImage(**({"found": FOUND, "framework": "pytorch", "device": "cpu", "mounts": USR} | changes))


# Discovery


def test_the_image_is_looked_up_with_its_id_digest_lock_and_entry_point(machine):
    assert discovery.discover(request(gpus=(1,), mounts=USR)).image == CustomImage(
        found=FoundImage(reference="hostroot:1", id="sha256:7", digest="corp/net@sha256:5", entrypoint=ENTRYPOINT),
        framework="pytorch",
        device="gpu",
        mounts=USR,
    )
    own = discovery.discover(request(image="own:1", device="cpu")).image
    assert own.found == FoundImage(reference="own:1", id="sha256:8", lock_sha256="a" * 64)
    assert (own.device, own.mounts) == ("cpu", ())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"image": "gone:1"},
            "the engine of this machine has no image gone:1; type `docker pull gone:1` there, or `dlscale images load`",
        ),
        ({"image": "NO NAME"}, "--image NO NAME can't be looked up (invalid reference format); give NAME:TAG"),
        ({"framework": "pytroch"}, "unknown FRAMEWORK 'pytroch'; did you mean pytorch? Known: pytorch"),
    ],
)
def test_an_unknown_image_or_framework_is_refused_in_one_sentence(machine, asked, says):
    with pytest.raises(RequestError) as caught:
        discovery.discover(request(**asked))
    assert str(caught.value).startswith(says)


def test_without_an_engine_the_virtual_environment_is_no_fallback(monkeypatch):
    def nobody():
        raise EngineError("no Docker engine answers (its socket does not exist)")

    monkeypatch.setattr(docker, "connect", nobody)
    monkeypatch.setattr(cluster, "inspect_local", lambda: examples.gpu_node(4))
    with pytest.raises(RequestError, match="^no Docker engine answers .*; start it"):
        discovery.discover(request())


def test_no_gpu_is_too_new_for_a_custom_image(machine, monkeypatch):
    newest = tuple(examples.gpu(n, compute_capability="99.0") for n in range(4))
    monkeypatch.setattr(cluster, "inspect_local", lambda: examples.gpu_node(4).model_copy(update={"gpus": newest}))
    assert discovery.discover(request(framework="mxnet", gpus=(4,))).image.framework == "mxnet"


def test_a_folder_that_the_job_cannot_read_is_refused(machine, monkeypatch, tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "file").touch(mode=0o600)  # the modes of files, and of a folder's contents, are up to the user
    monkeypatch.setattr(discovery, "job_user", lambda: IMAGE_USER)
    mount = Mount(source=str(tmp_path / "private"), target="/venv")
    with pytest.raises(RequestError, match=r"private can be read by its owner only, .*; type `chmod o\+rx"):
        discovery.discover(request(mounts=(mount,)))
    (tmp_path / "private").chmod(stat.S_IRWXU | stat.S_IROTH | stat.S_IXOTH)
    discovery.discover(request(mounts=(mount, Mount(source=str(tmp_path / "file"), target="/etc/file"))))


def test_for_hosts_the_image_is_looked_up_in_the_engine_that_supplies_them(machine, monkeypatch):
    """In this machine's engine or, without one, in the first host's."""
    remote = StandIn({"there:1": Held("sha256:9", {})})
    seen = SimpleNamespace(docker=SimpleNamespace(client=remote), host=SimpleNamespace(name="n1"))
    of_hosts = dataclasses.replace(planned.resources().cluster, surveyed=(seen,))
    assert of_hosts.image_source()[0].held is machine

    def nobody():
        raise EngineError("no Docker engine answers")

    monkeypatch.setattr(docker, "connect", nobody)
    assert of_hosts.image_source() == (remote, "n1")
    with pytest.raises(RequestError, match="n1 has no image gone:1"):
        images_of(request(image="gone:1"), "gpu", of_hosts)


# Plans


def trial(image, **changes):
    asked = Request.model_validate({"repeat": 1, "workers": (1,)} | changes)
    return plan(asked, planned.resources("pytorch", image=image))[0]


def test_the_key_depends_on_the_images_id_and_the_mounts():
    """The version in a trial is the image's name, because the framework's version is known only when it runs."""
    found = trial(custom_image())
    assert (found.framework, found.version) == ("pytorch", "hostroot:1")
    assert custom_image().flags == ("--image=hostroot:1", "--mount=/usr:/usr", "--mount=/opt:/opt")
    key = found.key
    renamed = FOUND.model_copy(update={"digest": "corp/net@sha256:5", "entrypoint": ()})
    assert trial(custom_image(found=renamed)).key == key
    others = {
        trial(custom_image(found=FOUND.model_copy(update={"id": "sha256:8"}))).key,
        trial(custom_image(mounts=())).key,
        trial(custom_image(mounts=USR[:1])).key,
        trial(custom_image(mounts=(USR[0], Mount(source="/opt/other", target="/opt")))).key,
        trial(custom_image(mounts=(USR[0], Mount(source="/opt", target="/opt/other")))).key,
        trial(next(i for i in planned.CATALOG.images if i.name == "pytorch 2.13.0-cpu")).key,
    }
    assert len(others) == 6
    assert key not in others


@pytest.mark.parametrize("framework", ["mxnet", "pytorch", "tensorflow"])
@pytest.mark.parametrize("strategy", [None, "horovod"])
def test_every_framework_scales_as_in_the_suites_own_images(framework, strategy):
    asked = Request(workers=(2,), repeat=1, strategy=strategy)
    two = plan(asked, planned.resources(framework, image=custom_image(framework=framework)))[-1]
    own = plan(asked, planned.resources(framework))[-1]
    facts = ("strategy", "kvstore", "horovod", "processes")
    assert [getattr(two, fact) for fact in facts] == [getattr(own, fact) for fact in facts]


def test_caffe_in_a_custom_image_has_the_limits_of_caffe():
    gpus = plan(
        Request(gpus=(4,), repeat=1),
        planned.resources("caffe", "gpu", image=custom_image(framework="caffe", device="gpu")),
    )
    assert gpus[-1].strategy == "caffe"
    with pytest.raises(RequestError, match="WORKERS=2 asked, caffe hostroot:1 trains on one device"):
        plan(Request(workers=(2,)), planned.resources("caffe", image=custom_image(framework="caffe")))


def test_horovod_in_a_custom_image_is_limited_to_one_node(machine):
    asked = request(nodes=2, links=(GIGABIT,), gpus=(2,), strategy="horovod")
    with pytest.raises(RequestError, match="the suite's own images, and pytorch hostroot:1 is not one of these; ask"):
        plan(asked, discovery.discover(asked))
    alone = request(gpus=(2,), strategy="horovod")
    assert plan(alone, discovery.discover(alone))[-1].strategy == "horovod"


def test_custom_images_are_not_in_the_support_matrix():
    """Not even an image with the reference of one of the suite's."""
    image = next(image for image in planned.CATALOG.images if image.name == "mxnet 1.9.1")
    ran = trial(custom_image(framework="mxnet", found=FOUND.model_copy(update={"reference": "dlscale/mxnet:1.9.1"})))
    assert support_matrix([image], [record(trial=ran.model_copy(update={"framework": "mxnet"}))]) == support_matrix(
        [image], []
    )


# Runs


class Silent:
    def stage(self, text):
        pass


def test_a_custom_image_is_prepared_unmodified(machine, monkeypatch):
    monkeypatch.setattr(prepare, "ensure", lambda *_, **__: pytest.fail("built an image that was given"))
    monkeypatch.setattr(prepare, "remove_certain", lambda _: None)
    looked = discovery.discover(request(gpus=(1,), mounts=USR))
    ready = prepare.prepare(looked, Silent(), packed_at=None, run="m")
    used = {"reference": "hostroot:1", "id": "sha256:7", "digest": "corp/net@sha256:5", "lock_sha256": None}
    assert ready.image_used == ImageUsed.model_validate(used)
    assert ready.describer.mounts(None)[1:] == USR  # everything that runs in the image sees them, packers of data too
    assert prepare.preview(looked, packed_at=None).image_used == ready.image_used


def specs(machine, **changes):
    asked = request(mounts=USR, **changes)
    looked = discovery.discover(asked)
    last = plan(asked, looked)[-1]
    return launch(make_job(last, looked, prepare.preview(looked, packed_at=None), run_id="run-1"))


def test_the_entry_point_precedes_every_command_in_the_image_and_no_other(machine):
    workers = specs(machine, framework="mxnet", device="cpu", workers=(2,))
    assert [spec.role for spec in workers] == ["scheduler", "server", "worker", "worker"]
    assert {spec.argv[:4] for spec in workers} == {("python3", "/dlscale/workloads/lease.py", *ENTRYPOINT, "python3")}
    *nodes, first, second = specs(machine, nodes=2, gpus=(2,), links=(GIGABIT,))
    assert [ENTRYPOINT[0] in spec.argv for spec in (*nodes, first, second)] == [False, False, True, True]
    assert [spec.mounts[1:] for spec in (*nodes, first, second)] == [(), (), USR, USR]


def test_a_profiler_that_is_already_mounted_is_not_mounted_twice(machine, monkeypatch):
    """Docker refuses two mounts with one target."""
    nsight = "/opt/nvidia/nsight-compute/2025.3.0"
    metrics = {"source": "ncu", "program": f"{nsight}/ncu", "folder": nsight}
    passed = {"kind": "metrics", "after": None, "iterations": 1, "region": None, "counting": metrics}
    shown = examples.job(
        examples.trial(framework="pytorch", program="imagenet_cnn/train_pytorch.py", device="gpu", profile=passed),
        node=examples.gpu_node(),
        mounts=(Mount(source=nsight, target=nsight),),
    )
    assert [mount.target for spec in launch(shown) for mount in spec.mounts] == [nsight]


DRY_RUNS = {"one-gpu": {"gpus": (1,)}, "two-emulated-nodes": {"gpus": (2,), "nodes": 2, "links": (GIGABIT,)}}


def drawn(told):
    """The output of a dry run with each option and its value on its own line."""
    return "".join(
        line + "\n" if line.startswith("#") else " \\\n  ".join(_words(line.split())) + "\n\n"
        for line in told.splitlines()
    )


@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_dry_run_prints_the_exact_command_lines(machine, capsys, name):
    few = {"batch": 64, "iterations": 40, "warmup": 4, "telemetry_hz": 0}
    assert bench.dry_run(request(model="resnet50", precision="bf16", mounts=USR, **few, **DRY_RUNS[name])) == 0
    told = capsys.readouterr().out.replace(str(examples.ROOT), "/suite")
    told = told.replace(f"--user {job_user()}", f"--user {IMAGE_USER}")
    lines = drawn(
        re.sub(r"-tools-[0-9a-f]{12}", "-tools-0123456789ab", told)
    )  # the tag is a digest of the image's ingredients
    assert lines == expected(GOLDEN / f"{name}.txt", lines)


# A user's command


def test_a_users_command_gets_the_mounts_and_its_key_depends_on_them(machine, monkeypatch):
    keys = []
    for mounts in ((), USR, USR[:1]):
        asked = Request(image="hostroot:1", command=("train",), gpus=(1,), repeat=1, mounts=mounts)
        looked = discovery.discover(asked)
        (trial,) = external.plan_command(asked, looked)
        ready = prepare.preview(looked, packed_at=None)
        assert container(trial, looked, ready.describer, run_id="r").mounts[1:] == mounts
        assert looked.image.entrypoint == ENTRYPOINT
        keys.append(trial.key)
    assert len(set(keys)) == 3
