#!/bin/sh
# First process of a container whose image is not the suite's and may lack Python: lease.py's job, in POSIX shell.
#
#     sh lease.sh PROGRAM ARGS...
#
# The runner holds the other end of standard input open. However the runner dies, that end closes, and the program is
# terminated (SIGTERM, five seconds, SIGKILL). SIGTERM and SIGINT do the same. The container ends with this process, and the
# kernel kills the rest of its processes. The exit code is the program's (128 + signal number if a signal ended it), or 143
# if the lease ended the program.

ending=
trap 'ending=yes' TERM INT

exec 3<&0 </dev/null
"$@" 3<&- &
program=$!
# Nothing is ever written to this end: `read` returns when it closes. The signal is repeated, since one that arrives just
# before `wait` would not interrupt it.
{ while read -r _; do :; done; while kill -TERM "$$"; do sleep 1; done; } <&3 >/dev/null 2>&1 &
exec 3<&-

wait "$program"
code=$?
if [ -n "$ending" ]; then
  # Not in the trap: bash as `sh` does not wait there.
  trap '' TERM INT
  { kill -TERM "$program"; { sleep 5; kill -KILL "$program"; } & wait "$program"; } 2>/dev/null
  code=143
fi
exit "$code"
