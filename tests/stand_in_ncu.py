"""A program that takes the flags of Nsight Compute's `ncu`, writes a page into its log, and runs what it was given."""

import stat
import sys


def make_ncu(folder, page):
    """Put one into a folder; its flags are beside it once it has run."""
    (folder / "page").write_text(page)
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\n"
        "import itertools, subprocess, sys\n"
        "flags = list(itertools.takewhile(lambda word: word.startswith('--'), sys.argv[1:]))\n"
        "log = next(word for word in flags if word.startswith('--log-file=')).partition('=')[2]\n"
        f"open(log, 'w').write(open({str(folder / 'page')!r}).read())\n"
        f"open({str(folder / 'flags')!r}, 'w').write('\\n'.join(flags))\n"
        "sys.exit(subprocess.call(sys.argv[1 + len(flags):]))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
