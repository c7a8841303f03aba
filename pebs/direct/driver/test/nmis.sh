#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# NMIs of others within runs, at ring 0 and ring 3: nmis.sh RUNS. Another CPU asks
# for backtraces meanwhile. The runs must go on, and some of these NMIs have come
# in the middle of one. Needs `hostile` on the PATH, and a second CPU.
echo 1 >/proc/sys/kernel/sysrq
hostile long "$1" >/tmp/long &
child=$!
while kill -0 $child 2>/dev/null; do
	taskset 2 sh -c 'echo l >/proc/sysrq-trigger'
	usleep 20000
done
wait $child || { echo "nmis: the runs failed"; exit 1; }
cat /tmp/long
grep -q ' [1-9][0-9]* NMIs of others' /tmp/long
