#!/usr/bin/env bash
# The job of one node: night.sh FOLDER COMMAND…. Runs the command in FOLDER/<node> and leaves there what became of it: `began`, its output in
# `log`, and `exit`, its exit code. A node without `exit` went away, or was ended by its deadline. The job's exit code is the command's.
set -u
folder=$1/${SLURMD_NODENAME:?this is a job of Slurm}
shift
mkdir -p "$folder" && cd "$folder" || exit 2
printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(cat /proc/sys/kernel/random/boot_id)" >began
"$@" >log 2>&1
code=$?
printf '%s\n' "$code" >exit.new
sync exit.new log
mv exit.new exit
exit "$code"
