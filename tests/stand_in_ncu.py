"""Stands in for Nsight Compute's `ncu`: accepts its flags, writes the requested counters of a page to its log, and runs the given program."""

import stat
import sys


def make_ncu(folder, page):
    """Create one in a folder; it appends its flags to a file there, one line per run."""
    (folder / "page").write_text(page)
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\n"
        "import csv, itertools, subprocess, sys\n"
        "flags = list(itertools.takewhile(lambda word: word.startswith('--'), sys.argv[1:]))\n"
        "log, metrics = (next(word for word in flags if word.startswith(name)).partition('=')[2]\n"
        "                for name in ('--log-file=', '--metrics='))\n"
        f"lines = open({str(folder / 'page')!r}).read().splitlines()\n"
        "rows = [line for line in lines if line.startswith('\"')]\n"
        "names = next(csv.reader(rows), [])\n"
        "kept = [n for n, name in enumerate(names) if '__' not in name or name in metrics.split(',')]\n"
        "with open(log, 'w') as page:\n"
        "    page.writelines(line + '\\n' for line in lines if line not in rows)\n"
        "    writer = csv.writer(page, quoting=csv.QUOTE_ALL)\n"
        "    writer.writerows([row[n] for n in kept] for row in csv.reader(rows))\n"
        f"open({str(folder / 'flags')!r}, 'a').write(' '.join(flags) + '\\n')\n"
        "sys.exit(subprocess.call(sys.argv[1 + len(flags):]))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
