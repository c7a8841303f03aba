#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What ends a claim from outside, in a guest with two CPUs: unloading, a second
# claim, a CPU that goes offline, suspend, the NMI watchdog. Ends with the
# module unloaded. `skidproof` is given as $1 or on the PATH.
program=${1:-skidproof}
run="$program run --machine direct --filter PebsPeriods.AreKeptExactly/period=1*"
owners=/sys/class/misc/skidproof/owners
failed=0
# expect WHAT CONDITION...
expect() {
	what=$1
	shift
	if "$@"; then
		echo "held    $what"
	else
		echo "failed  $what"
		failed=1
	fi
}
# begin: a run in the background that has claimed a CPU by now
begin() {
	$run >/tmp/background 2>&1 &
	background=$!
	while ! grep -q . $owners && kill -0 $background; do usleep 10000; done
}

sleep 1000 </dev/skidproof &
holder=$!
expect "an open device keeps the module" sh -c '! rmmod skidproof 2>/dev/null'
kill $holder
wait $holder 2>/dev/null

expect "who has claimed what is for root alone" [ "$(stat -c %a $owners)" = 400 ]
expect "the kernel is tainted: a user of it runs any code" [ $(($(cat /proc/sys/kernel/tainted) & 64)) != 0 ]

begin
$run >/tmp/second 2>&1
expect "a second claim is refused, and named" grep -q "claimed by process" /tmp/second
wait $background
expect "the first one is not disturbed" [ $? = 0 ]

begin
echo 0 >/sys/devices/system/cpu/cpu1/online
expect "the claimed CPU goes offline" [ "$(cat /sys/devices/system/cpu/online)" = 0 ]
wait $background
expect "its run fails" [ $? != 0 ]
echo 1 >/sys/devices/system/cpu/cpu1/online
$run >/tmp/again 2>&1
expect "the next one passes" [ $? = 0 ]

begin
expect "suspend is refused meanwhile" sh -c '! echo freeze 2>/dev/null >/sys/power/state'
wait $background
expect "and the run goes on" [ $? = 0 ]

echo 1 >/proc/sys/kernel/nmi_watchdog
$run >/tmp/watchdog 2>&1
expect "the NMI watchdog's counter is named" grep -q "sysctl kernel.nmi_watchdog=0" /tmp/watchdog
echo 0 >/proc/sys/kernel/nmi_watchdog
$run >/tmp/again 2>&1
expect "without it a run passes" [ $? = 0 ]

expect "the module unloads" rmmod skidproof

# load PARAMETER...: the module with them, where the lab has it
load() { insmod /lab/module.ko "$@" 2>/tmp/load; }
if [ -r /lab/module.ko ]; then
	for limit in 0 1001 4294967295; do
		expect "limit_ms=$limit is refused" sh -c "! insmod /lab/module.ko limit_ms=$limit 2>/dev/null"
		expect "and named" sh -c "dmesg | tail -n 3 | grep -q 'limit_ms=$limit is not from 1 to 1000'"
	done
	expect "memory_mib=0 is refused" sh -c '! insmod /lab/module.ko memory_mib=0 2>/dev/null'
	expect "and named" sh -c "dmesg | tail -n 3 | grep -q 'memory_mib=0 leaves no memory'"
	expect "dry_run=maybe is refused" sh -c '! insmod /lab/module.ko dry_run=maybe 2>/dev/null'
	expect "it loads with dry_run=1" load dry_run=1
	$run >/tmp/dry 2>&1
	expect "a run is refused then" [ $? = 77 ]
	expect "and the reason is named" grep -q "dry_run=1" /tmp/dry
	expect "it unloads" rmmod skidproof
fi
exit $failed
