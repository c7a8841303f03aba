#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Everything that must not hurt the driver, in a guest with two CPUs: torture.sh CALLS KILLS SEED STRIDE.
#
# Wrong calls one by one, random calls, programs of random bytes at ring 3, kill
# -9 at random moments, interrupts at every STRIDEth instruction, NMIs of others
# within runs, what ends a claim from outside. Then
# everything must have been given back: memory of the driver's in no slab and no
# mapping, and no page that is in no use at all. Boot with panic_on_warn=1
# slub_debug=FZPU. Needs refusals, hostile, held_pages, sweep, turns, bound, owners, kill9.sh, nmis.sh,
# edges.sh and skidproof on the PATH, and the module loaded. Ends with it unloaded.
calls=$1
kills=$2
seed=$3
stride=$4
failed=0
suite=PebsReload.TakesEachCountersOwnSlot # behind what a run measures first, PEBS on all but for moments

# part NAME COMMAND...
part() {
	name=$1
	shift
	echo "== $name (at $(cut -d ' ' -f 1 /proc/uptime) s)"
	if "$@"; then
		echo "held    $name"
	else
		echo "failed  $name: $?"
		failed=1
	fi
}
field() { awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo; }
# What is cached, what RCU frees later, and pages that only a CPU's list of recent
# ones still holds (compaction empties those) go first.
settle() {
	rm -rf /tmp/torture/*
	sync
	sleep 1
	for again in 1 2 3; do
		echo 3 >/proc/sys/vm/drop_caches
		echo 1 >/proc/sys/vm/compact_memory
		for cache in /sys/kernel/slab/*/shrink; do echo 1 >"$cache"; done
		sleep 1
	done 2>/dev/null
}
# uncounted HELD...: kB of pages that are neither free, in a CPU's list of free ones
# too, nor in any use that is counted: by the kernel, or by held_pages, which gave
# HELD. Stacks are among VmallocUsed. What a driver takes by the page and keeps is
# here.
uncounted() {
	awk -v held="$(($1 + $2))" '$2 == "free" { free += $3 }
		$1 == "count:" { free += $2 }
		FILENAME ~ /meminfo/ { kb[$1] = $2 }
		END {
			used = kb["MemTotal:"] - 4 * free - held
			split("Buffers Cached SwapCached AnonPages Slab PageTables VmallocUsed Percpu", uses)
			for (i in uses) used -= kb[uses[i] ":"]
			print used
		}' /proc/meminfo /proc/zoneinfo
}
figures() {
	held=$(held_pages) || return 1
	uncounted $held
	echo $held
	for name in Slab SUnreclaim VmallocUsed PageTables; do field $name; done
}
# compare NAME BEFORE AFTER MOST: that it did not grow by more than MOST kB
compare() {
	echo "  $1: $2 kB before, $3 kB after"
	[ $(($3 - $2)) -le "$4" ] || { echo "failed  $1 grew by $(($3 - $2)) kB"; failed=1; }
}
# kB of each slab.
slabs() { awk 'NR > 2 { print $1, $3 * $4 / 1024 }' /proc/slabinfo; }
# Who allocated what is in slabs, as slub_debug keeps it: with the way there, or,
# on older kernels, the last caller alone.
traces() { ls /sys/kernel/debug/slab/*/alloc_traces /sys/kernel/slab/*/alloc_calls 2>/dev/null; }
# That went through the module, which is gone: its functions have no names any more.
leaked() {
	for trace in $(traces); do
		# What describes a mapping goes on to describe free addresses.
		case $trace in */vmap_area/*) continue ;; esac
		cat $trace >/tmp/trace
		grep -qF ' 0xffffffffc0' /tmp/trace || continue # in most there is none, and awk is slow here
		awk -v RS= -v ORS='\n\n' -v trace="$trace" '/ 0xffffffffc0/ { print trace ": " $0 }' /tmp/trace
	done
}

# With KASAN the kernel's own handler of an NMI takes half a millisecond of this
# guest: those that are under way at the limit come to their end.
slack=1
kasan=0
if grep -q ' kasan_report$' /proc/kallsyms; then
	kasan=1
	slack=3
fi

mkdir -p /tmp/torture
cd /tmp/torture || exit 2
for option in panic_on_warn=1 slub_debug=FZPU; do
	grep -q $option /proc/cmdline || echo "note: the kernel was booted without $option"
done
# What every part needs once for good is there before it is measured.
refusals >/dev/null || failed=1
hostile 2000 "$seed" >/dev/null || failed=1
kill9.sh 2 hostile long 2 >/dev/null || failed=1
sweep 9973 >/dev/null || failed=1
skidproof run --machine direct --filter "$suite" >/dev/null 2>&1 || failed=1
settle
slabs >/tmp/slabs
before=$(figures) || exit 2

part "wrong calls" sh -c 'refusals >refusals; code=$?; grep -E "^failed|^refusals" refusals; exit $code'
part "random calls" hostile "$calls" "$seed"
part "any programs at ring 3" hostile any $((calls / 100 + 500)) "$seed"
part "an interrupt at every ${stride}th instruction" sweep "$stride"
part "turns" turns
part "the longest time with interrupts off" bound $slack
part "others who own the PMU" owners
part "kills of a program that runs for long" kill9.sh $((kills / 2)) hostile long 3
part "kills of suites" kill9.sh $((kills - kills / 2)) skidproof run --machine direct --filter "$suite"
settle
after=$(figures) || exit 2
echo "== memory (at $(cut -d ' ' -f 1 /proc/uptime) s)"
if grep skidproof_block /proc/vmallocinfo; then
	echo "failed  blocks are still mapped"
	failed=1
fi
set -- $before $after
if [ $kasan = 1 ]; then
	# KASAN's notes of who freed what, and its shadow of mappings, are pages of that kind, ever more.
	echo "  in no use that is counted, KASAN's own among them: $1 kB before, $8 kB after"
else
	compare "in no use that is counted" "$1" "$8" 128
fi
echo "  ways to allocations, for slub_debug: $2 kB before, $9 kB after"
echo "  the kernel's own page tables: $3 kB before, ${10} kB after"
compare Slab "$4" "${11}" 1024
compare SUnreclaim "$5" "${12}" 1024
compare VmallocUsed "$6" "${13}" 64
compare PageTables "$7" "${14}" 64
slabs | awk 'NR == FNR { before[$1] = $2; next }
	$2 - before[$1] >= 32 { print "  of slabs, " $1 ": " before[$1] " kB before, " $2 " kB after" }' /tmp/slabs -
part "NMIs of others" nmis.sh 8
part "a claim that is ended from outside" edges.sh
if traces | grep -q .; then
	settle
	leaked >leaked
	if grep -q . leaked; then
		cat leaked
		echo "failed  the module allocated in slabs what is not freed: above, each with where"
		failed=1
	fi
else
	echo "note: this kernel keeps no traces of who allocated what; only the figures above speak of leaks"
fi
# Of some complaints the kernel makes no warning: a slab that was overwritten, a CPU or a task that is stuck, a clock
# that jumped.
if dmesg | grep -A 40 -E "BUG|WARNING|INFO: (task|rcu)|rcu.*stall|lockup|Oops|Object (freed|already)|TSC ADJUST differs"; then
	echo "failed  the kernel complained"
	failed=1
fi
[ $failed = 0 ] && echo "torture: held" || echo "torture: failed"
exit $failed
