"""`dlscale data`: make a small real data set for a first try, and convert data sets to the forms that frameworks read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Final

import typer

from runner.commands.options import Commands, directory_argument
from runner.core import dataset, parsing
from runner.core import request as ask
from runner.core.console import open_console
from runner.core.errors import RequestError, unknown
from runner.core.request import Request
from runner.plan.discovery import discover_own
from runner.report.progress import progress
from runner.results.disk import check_writable
from runner.run.data import SMALL, import_imagenet32, make_sample

data_app = Commands(help="Make and pack data sets.")

FOLDERS: Final = (".lmdb",)  # packed forms that are folders
CHUNK_BYTES: Final = 2**24
IMPORTED: Final = ("imagenet32",)
FEWEST: Final = 11  # images: one for each photograph of `make_sample.py`


@data_app.command()
def sample(
    directory: Annotated[
        Path,
        directory_argument(
            "where to write; new or empty",
            example="OUT=/tmp/sample with make, or dlscale data sample /tmp/sample",
        ),
    ],
    images: Annotated[str, typer.Option("--images", help="how many JPEGs", metavar="N")] = "2000",
    seed: Annotated[str, typer.Option("--seed", help="which crops", metavar="N")] = "1",
    side: Annotated[
        str,
        typer.Option("--side", help="their height and width in pixels; 350-500 is about ImageNet's", metavar="N-N"),
    ] = "{}-{}".format(*SMALL),
) -> None:
    """Write real JPEGs, cropped from the photographs that ship with scikit-image and scikit-learn, one class per photograph."""
    count, number = parsing.count("IMAGES", images), parsing.non_negative("SEED", seed)
    least, greatest = (parsing.count("SIDE", word) or 0 for word in side.partition("-")[::2])
    if not 0 < least <= greatest:
        raise RequestError(f"SIDE={side} is not a range of pixels; type for example --side=96-160")
    if count is None or count < FEWEST:
        raise RequestError(f"IMAGES={images} is too few for the sample's {FEWEST} classes; set {FEWEST} or more")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RequestError(f"{directory} exists and is not an empty directory; name one that does not exist yet")
    check_writable(directory.absolute().parent)
    with progress(open_console(stderr=True)) as shown:
        make_sample(directory, images=count, seed=number or 0, side=(least, greatest), report=shown.stage)
    found = dataset.inspect(directory)
    open_console(soft_wrap=True).print(f"{directory}: {found.images} images in {found.classes} classes")


@data_app.command("import")
def import_(
    what: Annotated[str, typer.Argument(help="imagenet32: the published npz files of ImageNet at 32×32 pixels")],
    directory: Annotated[
        Path,
        directory_argument(
            "folder with the files", example="dlscale data import imagenet32 /data/npz --out=/data/imagenet32"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="where to write; new or empty")],
) -> None:
    """Write a published data set as class folders with JPEGs: OUT/train and OUT/val."""
    if what not in IMPORTED:
        raise RequestError(unknown("DATASET", what, IMPORTED))
    check_writable(out.absolute().parent)
    with progress(open_console(stderr=True)) as shown:
        import_imagenet32(directory, out, report=shown.stage)
    for part in ("train", "val"):
        found = dataset.inspect(out / part)
        open_console(soft_wrap=True).print(f"{out / part}: {found.images} images in {found.classes} classes")


@data_app.command()
def tokens(
    files: Annotated[list[Path], typer.Argument(help="text or any other files, one after the other")],
    out: Annotated[Path, typer.Option("--out", help="the file to write, for example corpus.bin")],
) -> None:
    """Turn files into one file of tokens for language models: a 16-bit token for each byte, which every model's vocabulary contains."""
    for file in files:
        if not file.is_file():
            raise RequestError(f"{file} is not a file; name files whose bytes become tokens")
        if out.is_dir() or (out.exists() and out.samefile(file)):
            raise RequestError(f"--out={out} is a folder, or one of the files to read; choose another name")
    if not any(file.stat().st_size for file in files):
        raise RequestError(f"{', '.join(map(str, files))}: not one byte to make a token of; name files that have text")
    check_writable(out.absolute().parent)
    with out.open("wb") as written:
        for file in files:
            with file.open("rb") as read:
                while chunk := read.read(CHUNK_BYTES):
                    token = bytearray(dataset.TOKEN_BYTES * len(chunk))
                    token[:: dataset.TOKEN_BYTES] = chunk  # low byte first
                    written.write(token)
    found = dataset.inspect(out, "tokens")
    open_console(soft_wrap=True).print(
        f"{out}: {found.images:,} tokens of {len(files)} file{'s' if len(files) > 1 else ''}"
    )


@data_app.command()
def pack(
    directory: Annotated[
        Path,
        directory_argument(
            "folder of class folders with JPEGs", example="dlscale data pack /data/train --out=train.rec"
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="NAME.rec (MXNet), NAME.lmdb (Caffe) or NAME.tfrecord (TensorFlow)")
    ],
    image_size: Annotated[
        str,
        typer.Option("--image-size", help="pixels to train at, for an LMDB: its images have one size", metavar="N"),
    ] = "224",
    engine: Annotated[str | None, typer.Option("--engine", help="docker, venv or host")] = None,
) -> None:
    """Pack a folder of JPEGs into one file that a framework reads, with NAME.json next to it: classes, and images left out."""
    if out.suffix not in dataset.PACKED:
        raise RequestError(f"--out={out} must end in {' or '.join(dataset.PACKED)}; type for example --out=train.rec")
    if directory.is_file() or directory.suffix in dataset.PACKED:
        raise RequestError(f"{directory} is not a folder of class folders; name the folder to pack")
    if out.exists() and out.is_dir() != (out.suffix in FOLDERS):
        raise RequestError(f"--out={out} exists and is not a {out.suffix} of the suite; choose another name")
    check_writable(out.absolute().parent)
    request = Request.model_validate(
        {
            "framework": dataset.PACKED[out.suffix].framework,
            "device": "cpu",
            "data": directory,
            "engine": parsing.choice("ENGINE", engine, ask.EngineName),
        }
    )
    from runner.run.prepare import pack_data

    resources = discover_own(request)
    with progress(open_console(stderr=True)) as shown:
        packed = pack_data(resources, shown, image_size=parsing.count("IMAGE_SIZE", image_size) or 224)
    for suffix in dataset.PACKED[out.suffix].companions:
        shutil.copyfile(packed.with_suffix(suffix), out.with_suffix(suffix))
    if packed.is_dir():
        shutil.copytree(packed, out, dirs_exist_ok=True)  # overwritten, as a file is
    else:
        shutil.copyfile(packed, out)
    found = dataset.inspect(out)
    open_console(soft_wrap=True).print(f"{out}: {found.images} images in {found.classes} classes")
