#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Kills a command that uses the driver at random moments: kill9.sh TIMES COMMAND...
#
# After each kill the registers of CPU 0 must be as they were before the first;
# at the end memory must be back and the command, left alone, succeed. Needs
# `hostile` on the PATH.
times=$1
shift
used() { awk '/^VmallocUsed/ { print $2 }' /proc/meminfo; }
"$@" >/dev/null 2>&1 || { echo "kill9: the command fails without being killed: $?"; exit 2; }
registers=$(hostile registers) || exit 2
vmalloc=$(used)
seed=12345
i=0
while [ $i -lt "$times" ]; do
	"$@" >/dev/null 2>&1 &
	child=$!
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	usleep $((50000 + seed % 400000))
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	now=$(hostile registers) || { echo "kill9: kill $i: the CPU cannot be claimed"; exit 1; }
	if [ "$now" != "$registers" ]; then
		printf 'kill9: kill %s: the registers were\n%s\nand are\n%s\n' $i "$registers" "$now"
		exit 1
	fi
	i=$((i + 1))
done
"$@" >/dev/null 2>&1 || { echo "kill9: the run after it fails: $?"; exit 1; }
after=$(used)
echo "kill9: $times kills, registers as before, VmallocUsed $vmalloc kB before and $after kB after"
[ $((after - vmalloc)) -lt 256 ]
