#!/bin/sh
# First process of a container whose image is not ours and may have no Python: what lease.py does, in POSIX shell.
#
#     sh lease.sh PROGRAM ARGS...
#
# The runner holds the other end of standard input open. When the runner dies, however it dies, that end closes and the program is
# terminated here (SIGTERM, five seconds, SIGKILL). SIGTERM and SIGINT do the same. With this process the container ends, and the
# kernel kills whatever the program left in it. The exit code is the program's (128 + signal number if a signal ended it), or 143
# when the lease ran out.

ending=
trap 'ending=yes' TERM INT

exec 3<&0 </dev/null
"$@" 3<&- &
program=$!
# Nothing is ever written to this end: `read` returns when it closes. Said again until it is heard, as a signal that comes just
# before `wait` would not interrupt it.
{ while read -r _; do :; done; while kill -TERM "$$"; do sleep 1; done; } <&3 >/dev/null 2>&1 &
exec 3<&-

wait "$program"
code=$?
if [ -n "$ending" ]; then
  # Not in the trap: Bash as `sh` does not wait there.
  trap '' TERM INT
  { kill -TERM "$program"; { sleep 5; kill -KILL "$program"; } & wait "$program"; } 2>/dev/null
  code=143
fi
exit "$code"
