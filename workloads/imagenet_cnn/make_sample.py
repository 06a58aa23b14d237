"""Crops a small set of real JPEGs from the photographs that ship with scikit-image and scikit-learn: no network, reproducible by seed.

    python3 make_sample.py OUT --images 2000 --seed 1 --side 96-160

Each photograph is a class. Each of its images is a random square with a side in the range of --side, or the photograph's shorter side if that
is less. At 96 to 160 pixels a network can learn to tell them apart in a minute; at 350 to 500 the images have about as many pixels as
ImageNet's. --scale-to scales every crop to one side, as ImageNet at 32×32 was: its files take as long to decode as those.

Needs pillow, scikit-image and scikit-learn. Progress goes to standard error, one JSON line at the end to standard output.
"""

import argparse
import json
import random
import sys
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import at_least, refuse
from class_folders import new_folder

QUALITY = 90

# Photographs (package, file, origin). Excluded from what the packages ship: drawings, text, and pictures without a licence.
SKIMAGE, SKLEARN = ("skimage", "data"), ("sklearn", "datasets/images")
PHOTOGRAPHS = (
    (SKIMAGE, "astronaut.png", "Eileen Collins, NASA Great Images database; public domain"),
    (SKIMAGE, "brick.png", "Bricks25 of CC0Textures; CC0"),
    (SKIMAGE, "chelsea.png", "Stefan van der Walt; CC0"),
    (SKLEARN, "china.jpg", "danielbuechele, flickr.com/photos/danielbuechele/6061409035; CC BY 2.0, cropped"),
    (SKIMAGE, "coffee.png", "Rachel Michetti; CC0"),
    (SKLEARN, "flower.jpg", "vultilion, flickr.com/photos/vultilion/6056698931; CC BY 2.0, cropped"),
    (SKIMAGE, "grass.png", "Grass of DeviantArt's linolafett via CC0Textures; CC0"),
    (SKIMAGE, "gravel.png", "Gravel04 of CC0Textures; CC0"),
    (SKIMAGE, "hubble_deep_field.jpg", "NASA, Hubble Deep Field; public domain"),
    (SKIMAGE, "retina.jpg", "Mikael Haggstrom, WikiJournal of Medicine 1 (2); CC0"),
    (SKIMAGE, "rocket.jpg", "SpaceX, launch of the DSCOVR satellite; public domain"),
)


def photograph(package, name):
    """Find a file inside an installed package, without importing the package."""
    (top, folder) = package
    path = Path(find_spec(top).origin).parent / folder / name
    if not path.is_file():
        refuse(
            f"{path} is missing; this version of {top} does not ship it: install the versions of requirements-sample.lock"
        )
    return path


def sides(text):
    """Parse ``LEAST-GREATEST``, the range of a crop's side in pixels."""
    least, _, greatest = text.partition("-")
    if not 0 < int(least) <= int(greatest):
        raise argparse.ArgumentTypeError(text + " is no range of pixels")
    return int(least), int(greatest)


def crop(image, side, generator, *, scale_to=None):
    side = min(generator.randint(*side), *image.size)
    left, top = generator.randint(0, image.width - side), generator.randint(0, image.height - side)
    square = image.crop((left, top, left + side, top + side))
    return square.resize((scale_to, scale_to), Image.Resampling.BOX) if scale_to else square


def write(args, out):
    generator = random.Random(args.seed)
    size = "-".join(map(str, args.side))
    scaled = f", scaled to {args.scale_to}" if args.scale_to else ""
    notes = [
        f"{args.images} JPEG crops of {size} pixels a side{scaled}, seed {args.seed}, made by make_sample.py; one folder a photograph."
    ]
    for number, (package, name, origin) in enumerate(PHOTOGRAPHS):
        folder = out / Path(name).stem
        folder.mkdir(parents=True)
        share = range(number, args.images, len(PHOTOGRAPHS))
        with Image.open(photograph(package, name)) as file:
            image = file.convert("RGB")
        for index in share:
            crop(image, args.side, generator, scale_to=args.scale_to).save(folder / f"{index:06d}.jpg", quality=QUALITY)
        notes.append(f"{folder.name}/  from {package[0]}/{package[1]}/{name}: {origin}")
        print(f"{folder.name}: {len(share)} images", flush=True, file=sys.stderr)
    (out / "SOURCES.txt").write_text("\n".join(notes) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=at_least(len(PHOTOGRAPHS)), default=2000)
    parser.add_argument("--seed", type=at_least(0), default=1)
    parser.add_argument("--side", type=sides, default=(96, 160))
    parser.add_argument("--scale-to", type=at_least(1), default=None)
    args = parser.parse_args()
    with new_folder(args.out) as draft:
        write(args, draft)
    classes = sorted(Path(name).stem for _, name, _ in PHOTOGRAPHS)
    print(json.dumps({"path": str(args.out), "images": args.images, "classes": classes}))


if __name__ == "__main__":
    main()
