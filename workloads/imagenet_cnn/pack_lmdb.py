"""Packs a folder of class folders of JPEGs into an LMDB for Caffe, with Caffe's own `convert_imageset`.

    python3 pack_lmdb.py DIR OUT.lmdb --image-size=224

Standard library and syntax of Python 3.6 only. Writes the directory OUT.lmdb, and OUT.json {classes, images, skipped, size}. Labels are
positions in the sorted class names. Caffe's Data layer crops but does not resize, so all images are resized to `size` x `size`
pixels here (256 for crops of 224, regardless of aspect ratio, as in Caffe's ImageNet example) and stored as JPEGs, which the layer decodes.
JPEGs that are truncated or do not decode are left out and listed in `skipped`. Progress goes to standard error, one JSON line at the end
to standard output.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from arguments import at_least, refuse
from class_folders import is_whole
from data_caffe import packed_size
from packing import command_line, list_images, refuse_empty

TAIL = 1024  # as far back as `is_whole` reads
UNREADABLE = re.compile(rb"Could not open or find file (.*)")
PROCESSED = re.compile(rb"Processed (\d+) files")


def ends_like_jpeg(path):
    """Whether a file ends like a JPEG; the decoder checks the rest."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL))
        return is_whole(stream.read())


def listed_path(path, number, stage):
    """An image's path in the list, relative to the root directory; via a link if its name contains whitespace, which would end it there."""
    if re.search(r"\s", str(path)):
        link = stage / f"{number}.jpg"
        link.symlink_to(path)
        path = link
    return str(path)[1:]


def convert(lines, out, size, stage, *, skipped):
    """Run `convert_imageset` on lines of `NAME LABEL`, after skipping `skipped` images. Returns the names that it could not read."""
    listing = stage / "list.txt"
    listing.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    flags = [f"--resize_height={size}", f"--resize_width={size}", "--encoded", "--encode_type=jpg"]
    argv = ["convert_imageset", *flags, "/", str(listing), str(out)]
    process = subprocess.Popen(argv, env={"GLOG_logtostderr": "1"}, stderr=subprocess.PIPE)
    unreadable = set()
    for line in process.stderr:
        failed, done = UNREADABLE.search(line), PROCESSED.search(line)
        if failed:
            unreadable.add(failed.group(1).decode().lstrip("/"))
        elif done:
            left_out = skipped + len(unreadable)
            seen, total = int(done.group(1)) + left_out, len(lines) + skipped
            print(f"{seen} of {total} images, {left_out} left out", file=sys.stderr, flush=True)
        elif not line.startswith(b"I"):  # warnings, errors, and the cause of its end
            sys.stderr.buffer.write(line)
    if process.wait():
        raise SystemExit(1)
    return unreadable


def pack(folder, images, out, size):
    """Write `images`, (path below `folder`, label), to an LMDB. Returns the paths of those that are no complete JPEG."""
    skipped, names, lines = [], {}, []
    with tempfile.TemporaryDirectory(prefix="dlscale-pack-") as directory:
        for number, (name, label) in enumerate(images):
            if ends_like_jpeg(folder / name):
                line = listed_path(folder / name, number, Path(directory))
                names[line] = name
                lines.append(f"{line} {label}")
            else:
                skipped.append(name)
        unreadable = convert(lines, out, size, Path(directory), skipped=len(skipped))
        skipped += [names[line] for line in unreadable]
    return sorted(skipped)


def main():
    parser = command_line(__doc__.splitlines()[0])
    parser.add_argument(
        "--image-size", type=at_least(1), default=224, help="size in pixels of the crops to train on (default: 224)"
    )
    args = parser.parse_args()
    if shutil.which("convert_imageset") is None:
        refuse("`convert_imageset` is not on PATH; run this in a Caffe image")
    classes, images = list_images(args, ".lmdb")

    # Written under another name and renamed at the end: an LMDB that exists is complete.
    partial, index = args.out.with_suffix(".partial.lmdb"), args.out.with_suffix(".json")
    shutil.rmtree(str(partial), ignore_errors=True)
    size = packed_size(args.image_size)
    skipped = pack(args.folder.resolve(), images, partial, size)
    packed = len(images) - len(skipped)
    if not packed:
        shutil.rmtree(str(partial))
        refuse_empty(args)
    # Caffe grants access to the owner only. Readers open the lock for writing, if only to learn that the file system is read-only.
    partial.chmod(0o755)
    (partial / "lock.mdb").chmod(0o666)
    facts = {"classes": classes, "images": packed, "skipped": skipped, "size": size}
    index.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    shutil.rmtree(str(args.out), ignore_errors=True)
    partial.rename(args.out)
    print(json.dumps({"path": str(args.out), **facts}))


if __name__ == "__main__":
    main()
