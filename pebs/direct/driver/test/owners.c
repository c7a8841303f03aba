// SPDX-License-Identifier: GPL-2.0
/*
 * Who else may have the performance monitoring of a CPU that is claimed: each is
 * refused with its errno and its reason, and goes on undisturbed. Those that the
 * virtual lab has to play are played by it. For the lab alone.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include "lab.h"

#define PRETENCE_PORT 0x5e9
#define FOREIGN_VECTOR 0xeb /* fixed, unmasked */

static int failures;

static void pretend(const char *line)
{
	outsb(PRETENCE_PORT, line, strlen(line));
	outsb(PRETENCE_PORT, "\n", 1);
}

static void verdict(int held, const char *what, unsigned long long value)
{
	printf("%-6s  %s: %#llx\n", held ? "held" : "failed", what, value);
	failures += !held;
}

static void no_change(unsigned int lvt_before)
{
	unsigned int lvt, on = state(0, &lvt);

	verdict((lvt & ~0x1000) == (lvt_before & ~0x1000), "… the APIC's entry is as it was", lvt);
	verdict(!(on & (SAMPLES | TRACES | NOT_LINUX_IDT)), "… and nothing is on that was not", on);
}

/* A claim gets this answer, and leaves what was there. */
static void claim_is(int error, unsigned int refusal, unsigned long long detail, const char *who)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	unsigned int lvt;
	char what[80];
	int file = open_device(), got;

	state(0, &lvt);
	got = ioctl(file, SKIDPROOF_IOC_CLAIM, &claim) ? errno : 0;
	snprintf(what, sizeof(what), "a claim with %s, errno", who);
	verdict(got == error, what, got);
	verdict(claim.refusal == refusal && (!detail || claim.detail == detail), "… its reason",
		claim.refusal | claim.detail << 8);
	close(file);
	no_change(lvt);
}

static void write_file(const char *name, const char *text)
{
	int file = open(name, O_WRONLY | O_CLOEXEC);

	must(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), name);
	close(file);
}

static unsigned long long count_of(int event)
{
	unsigned long long value = 0;

	must(read(event, &value, sizeof(value)) == sizeof(value), "reading a perf event");
	return value;
}

static void perf(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE, .size = sizeof(attr), .config = PERF_COUNT_HW_INSTRUCTIONS,
	};
	int event = syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);
	unsigned long long before, after;
	volatile unsigned int i;

	must(event >= 0, "perf_event_open");
	before = count_of(event);
	claim_is(EBUSY, SKIDPROOF_COUNTERS_HELD, 0, "a perf event open");
	for (i = 0; i < 100000; i++)
		;
	after = count_of(event);
	verdict(after - before > 100000, "… and the event goes on counting", after - before);
	close(event);
	claim_is(0, SKIDPROOF_CLAIMED, 0, "it closed");
}

/* Claimed, run, released: the entry is the other one's again. Meanwhile others come whom a claim does not keep away. */
static void foreign_entry(void)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	struct skidproof_msr enable[] = { { 0x38f, 1, 0, 0 }, { 0x834, 1, 0, 0x400 } };
	struct skidproof_alloc code;
	struct skidproof_run run = {
		.enable = ADDRESS(enable), .enable_count = 2, .status_msr = 0x38e, .field_bytes = 8,
		.deadline_ms = 100,
	};
	int file = open_device();
	unsigned int lvt;

	pretend("lvt eb");
	pretend("msr 570 0");
	must(ioctl(file, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	*(unsigned char *)take(file, &code, SKIDPROOF_CODE, 4096) = 0xc3;
	run.entry = code.address;
	must(ioctl(file, SKIDPROOF_IOC_RUN, &run) == 0, "RUN");
	pretend("msr 570 1");
	verdict(ioctl(file, SKIDPROOF_IOC_RUN, &run) && errno == EBUSY, "RUN when Intel PT traces since, errno", errno);
	pretend("msr 570 0");
	pretend("cr4 2000");
	verdict(ioctl(file, SKIDPROOF_IOC_RUN, &run) && errno == EBUSY, "RUN when a hypervisor is there since, errno", errno);
	pretend("cr4 2000");
	must(ioctl(file, SKIDPROOF_IOC_RUN, &run) == 0, "RUN without them");
	pretend("none");
	state(0, &lvt);
	verdict(lvt == 0x400, "an owner of the APIC's entry: during a claim it is the plan's", lvt);
	ioctl(file, SKIDPROOF_IOC_RELEASE, NULL);
	state(0, &lvt);
	verdict(lvt == FOREIGN_VECTOR, "… and afterwards the owner's", lvt);
	close(file);
	pretend("lvt 10000");
}

int main(void)
{
	must(ioperm(PRETENCE_PORT, 1, 1) == 0, "ioperm");
	stay_on(0);
	claim_is(0, SKIDPROOF_CLAIMED, 0, "nobody there");
	perf();
	write_file("/proc/sys/kernel/nmi_watchdog", "1");
	claim_is(EBUSY, SKIDPROOF_COUNTERS_HELD, 0, "the NMI watchdog");
	write_file("/proc/sys/kernel/nmi_watchdog", "0");
	claim_is(0, SKIDPROOF_CLAIMED, 0, "it off");
	/* IA32_RTIT_CTL: TraceEn. */
	pretend("msr 570 1");
	claim_is(EBUSY, SKIDPROOF_TRACES, 1, "Intel PT tracing");
	pretend("msr 570 0");
	claim_is(0, SKIDPROOF_CLAIMED, 0, "it there, not tracing");
	pretend("perfmon 1");
	claim_is(EOPNOTSUPP, SKIDPROOF_NO_PERFMON, 0, "version 1");
	pretend("none");
	/* CR4.VMXE */
	pretend("cr4 2000");
	claim_is(EBUSY, SKIDPROOF_VIRTUALIZES, 0, "a hypervisor on this CPU");
	pretend("cr4 2000");
	claim_is(0, SKIDPROOF_CLAIMED, 0, "it gone");
	foreign_entry();
	printf("owners: %d failures\n", failures);
	return failures != 0;
}
