#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Kills a command that uses the driver at random moments: kill9.sh TIMES COMMAND...
#
# Kills until TIMES of them struck while the command had claimed a CPU, and says
# how many struck it within a run; those that came before its claim or behind
# its end prove nothing and are not counted. After each one the registers must
# be as they were before the first, and at the end the command, left alone, must
# succeed. Needs `hostile` on the PATH, and a second CPU to strike within runs.
times=$1
shift
owners=/sys/class/misc/skidproof/owners
now() { awk '{ print int($1 * 1000000) }' /proc/uptime; }

begun=$(now)
"$@" >/dev/null 2>&1 || { echo "kill9: the command fails without being killed: $?"; exit 2; }
length=$(($(now) - begun))
registers=$(hostile registers) || exit 2
seed=12345
running=0
claimed=0
elsewhere=0
while [ $((running + claimed)) -lt "$times" ]; do
	"$@" >/dev/null 2>&1 &
	child=$!
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	usleep $((seed / 16 % length))
	state=
	read -r cpu pid state <$owners
	kill -9 $child 2>/dev/null
	wait $child 2>/dev/null
	case $state in
	running) running=$((running + 1)) ;;
	claimed) claimed=$((claimed + 1)) ;;
	*) elsewhere=$((elsewhere + 1)) ;;
	esac
	if read -r cpu pid state <$owners; then
		echo "kill9: CPU $cpu is still claimed by process $pid"
		exit 1
	fi
	after=$(hostile registers) || exit 1
	if [ "$after" != "$registers" ]; then
		printf 'kill9: the registers were\n%s\nand after %s kills are\n%s\n' "$registers" \
			$((running + claimed + elsewhere)) "$after"
		exit 1
	fi
	if [ $elsewhere -gt $((10 * times + 100)) ]; then
		echo "kill9: of $elsewhere kills hardly one struck a process that had claimed a CPU"
		exit 2
	fi
done
"$@" >/dev/null 2>&1 || { echo "kill9: the command fails after the kills: $?"; exit 1; }
echo "kill9: $running kills within a run, $claimed more while a CPU was claimed, $elsewhere at other times: registers as before: $*"
