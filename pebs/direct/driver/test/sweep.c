// SPDX-License-Identifier: GPL-2.0
/*
 * An interrupt at every instruction of the driver's around and within a run:
 * sweep [STRIDE [KIND [SCENARIO]]], KIND one of those below, SCENARIO a part of a
 * name of those below.
 *
 * The virtual lab raises an interrupt at the Nth instruction that CPU 0 executes
 * with an IDT that is not the kernel's, or in a module, there each address once;
 * N goes from one to the last by STRIDE. After each run with it everything must
 * be as if nothing had happened: this process' registers, with GS, and its shadow
 * stack; the IDT the kernel's; nothing that counts, records or traces on while
 * user space runs; the local APIC's entry as the plan left it; another NMI still
 * reaches the kernel, and another run has its result, its record and its PMI. The
 * programs bear values that a handler might take for its own: ECX 1, a GS that is
 * not the kernel's; some fault, are traced, or have an interrupt handler whose
 * write faults. Exits 1 when something was left behind. Machine checks are left
 * out, and it is said, where the kernel was built without a handler for them; boot
 * with mce=off, which makes of each a line in the kernel's log. For the lab alone,
 * with two CPUs.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <asm/prctl.h>

#include "lab.h"

#ifndef ARCH_SHSTK_ENABLE
#define ARCH_SHSTK_ENABLE 0x5001
#endif
#define RESULT 0x51

struct debug_store {
	unsigned long long bts_base, bts_index, bts_maximum, bts_threshold;
	unsigned long long pebs_base, pebs_index, pebs_maximum, pebs_threshold, reset[4];
};

#define DS_BYTES 16384
#define BUFFER 4096
#define BTS_BUFFER 8192
#define ITERATIONS 60
#define PERIOD 20
#define BRANCHES 0xc0ULL /* TR, BTS */

/* MOV ECX, 1; 1: DEC RDI; JNZ 1b; MOV EAX, 51H; RET */
#define BODY 0xb9, 1, 0, 0, 0, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xb8, RESULT, 0, 0, 0
static const unsigned char loop[] = { BODY, 0xc3 };
static const unsigned char faults[] = { BODY, 0x0f, 0x0b };
/* XOR EAX, EAX; MOV GS, EAX first: the base becomes 0, or at ring 0 WRMSR makes it 0. */
static const unsigned char user_gs[] = { 0x31, 0xc0, 0x8e, 0xe8, BODY, 0xc3 };
static const unsigned char kernel_gs[] = { 0x31, 0xc0, 0x31, 0xd2, 0xb9, 0x01, 0x01, 0x00, 0xc0,
					   0x0f, 0x30, BODY, 0xc3 };

static const struct scenario {
	const char *name;
	unsigned int ring;
	const unsigned char *code;
	size_t bytes;
	int faults;	/* the program does */
	int traced;	/* branches are recorded */
	int refused;	/* a write of its interrupt handler's faults */
	int alone;	/* no other CPU: a counter bounds the time */
	int closed;	/* no PMI comes */
} scenarios[] = {
	{ "ring 0, samples", 0, loop, sizeof(loop) },
	{ "ring 3, samples", 3, loop, sizeof(loop) },
	{ "ring 0, faults", 0, faults, sizeof(faults), .faults = 1 },
	{ "ring 3, faults", 3, faults, sizeof(faults), .faults = 1 },
	{ "ring 0, another GS", 0, kernel_gs, sizeof(kernel_gs) },
	{ "ring 3, another GS", 3, user_gs, sizeof(user_gs) },
	{ "ring 0, traced", 0, loop, sizeof(loop), .traced = 1 },
	{ "ring 3, traced", 3, loop, sizeof(loop), .traced = 1 },
	{ "ring 0, a handler's #GP", 0, loop, sizeof(loop), .refused = 1 },
	{ "ring 3, a handler's #GP", 3, loop, sizeof(loop), .refused = 1 },
	{ "ring 0, no PMIs", 0, loop, sizeof(loop), .closed = 1 },
	{ "ring 3, no PMIs", 3, loop, sizeof(loop), .closed = 1 },
	{ "ring 0, one CPU", 0, loop, sizeof(loop), .alone = 1 },
	{ "ring 3, one CPU", 3, loop, sizeof(loop), .alone = 1 },
};

/* twice: an NMI, and another up to 400 instructions behind it, within the first one's handler or behind that. */
static const struct kind {
	const char *name, *raises;
	unsigned int apart;
} kinds[] = {
	{ "nmi", "nmi", 0 }, { "mc", "mc", 0 }, { "pmi", "pmi", 0 }, { "twice", "nmi", 400 },
	{ "smi", "smi", 0 }, { "lvt", "lvt", 0 },
};

static int device, failures;
/* IA32_PERFEVTSEL0: a precise event of branches, which has another umask on other microarchitectures. */
static unsigned long long branches;
static struct skidproof_alloc code, store;
static unsigned char *code_view;
static struct debug_store *store_view;

/* /proc/interrupts, from this name on; NULL: it is not there. */
static const char *interrupts(const char *name)
{
	static char text[16384];
	int file = open("/proc/interrupts", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = 0, more;

	must(file >= 0, "/proc/interrupts");
	while ((more = read(file, text + bytes, sizeof(text) - 1 - bytes)) > 0)
		bytes += more;
	close(file);
	text[bytes] = 0;
	return strstr(text, name);
}

/* NMIs that the kernel has handled on CPU 0. */
static unsigned long kernel_nmis(void)
{
	const char *line = interrupts("NMI:");

	must(line != NULL, "NMI: in /proc/interrupts");
	return strtoul(line + 4, NULL, 10);
}

/* The local APIC's entry: an NMI, masked where none is wanted. */
static unsigned int lvt_of(const struct scenario *scenario)
{
	return scenario->closed ? 0x10400 : 0x400;
}

/* PEBS of conditional branches, an interrupt at the first record. */
static int sample(const struct scenario *scenario, struct skidproof_run *run)
{
	static struct skidproof_pmi log[64];
	unsigned long long buffer = store.address + BUFFER, bts = store.address + BTS_BUFFER;
	unsigned long long period = (1ULL << 48) - PERIOD;
	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 }, { 0x1d9, 1, 0, 0 },
		{ 0x834, 1, 0, lvt_of(scenario) }, { 0x38d, 1, 0, 0 }, { 0x390, 1, 0, 0x400000070000000fULL },
		{ 0x600, 1, 0, store.address }, { 0x186, 1, 0, branches }, { 0x4c1, 1, 0, period },
		{ 0x3f1, 1, 0, 1 }, { 0x1d9, 1, 0, scenario->traced ? BRANCHES : 0 }, { 0x38f, 1, 0, 1 },
	};
	struct skidproof_msr disable[] = { { 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 }, { 0x1d9, 1, 0, 0 } };
	struct skidproof_msr acknowledge[] = { { 0x186, 1, 0, ~0ULL } };

	memset(store_view, 0, sizeof(*store_view));
	store_view->bts_base = store_view->bts_index = bts;
	store_view->bts_maximum = store.address + DS_BYTES;
	store_view->bts_threshold = store_view->bts_maximum + 1;
	store_view->pebs_base = store_view->pebs_index = buffer;
	store_view->pebs_maximum = bts;
	store_view->pebs_threshold = buffer + 1;
	store_view->reset[0] = period;
	*run = (struct skidproof_run){
		.entry = code.address, .iterations = ITERATIONS,
		.enable = ADDRESS(enable), .enable_count = sizeof(enable) / sizeof(enable[0]),
		.disable = ADDRESS(disable), .disable_count = sizeof(disable) / sizeof(disable[0]),
		.acknowledge = ADDRESS(acknowledge), .acknowledge_count = scenario->refused,
		.log = ADDRESS(log), .log_capacity = 64,
		.pmi_flags = SKIDPROOF_PMI_ALL & ~SKIDPROOF_PMI_REWIND_BTS,
		.status_msr = 0x38e, .field_bytes = 8,
		.pebs_index_address = store.address + offsetof(struct debug_store, pebs_index),
		.pebs_base_address = store.address + offsetof(struct debug_store, pebs_base),
		.keep_status = 0xff, .deadline_ms = 1000, .ring = scenario->ring,
	};
	return ioctl(device, SKIDPROOF_IOC_RUN, run);
}

/* At which instruction of which sweep. */
struct at {
	const struct kind *kind;
	const struct scenario *scenario;
	unsigned long n;
	unsigned long long address;
};

static void complain(const struct at *at, const char *what, unsigned long long value)
{
	if (++failures <= 20)
		printf("failed  %s, %s, instruction %lu at %#llx: %s: %#llx\n", at->kind->name,
		       at->scenario->name, at->n, at->address, what, value);
}

static void judge(const struct at *at, const struct skidproof_run *run, int result, const char *which)
{
	char what[64];

	snprintf(what, sizeof(what), "%s RUN: ", which);
	if (result)
		complain(at, strcat(what, "refused"), result);
	else if (run->machine_checks)
		return;
	else if (run->outcome != (at->scenario->faults ? SKIDPROOF_FAULTED : SKIDPROOF_RETURNED))
		complain(at, strcat(what, "its outcome, its vector, where"),
			 run->outcome | run->fault_vector << 4 | run->fault_ip << 12);
	else if (!at->scenario->faults && run->result != RESULT)
		complain(at, strcat(what, "its result"), run->result);
}

static const unsigned long long mark = 0x0123456789abcdefULL;
static int has_shadow_stack;

/* Where this process' shadow stack is; 0 where it has none. RDSSPQ RAX. */
static unsigned long long shadow_stack(void)
{
	unsigned long long at = 0;

	asm volatile(".byte 0xf3, 0x48, 0x0f, 0x1e, 0xc8" : "+a" (at));
	return at;
}

static void sweep(const struct kind *kind, const struct scenario *scenario, unsigned long stride)
{
	unsigned long passed = 0, reached = 0, nmis = kernel_nmis(), after;
	struct at at = { kind, scenario };
	unsigned int places = 0, count, on, lvt;
	struct skidproof_run run;
	unsigned long long here, marked;
	char line[64];
	int result, met;

	memcpy(code_view, scenario->code, scenario->bytes);
	for (at.n = 1;; at.n += stride) {
		if (kind->apart)
			snprintf(line, sizeof(line), "%s %lu 0 +%lu", kind->raises, at.n,
				 1 + at.n * 7 % kind->apart);
		else
			snprintf(line, sizeof(line), "%s %lu 0", kind->raises, at.n);
		attack(line);
		result = sample(scenario, &run);
		met = came(&count, &at.address);
		attack("none");
		if (!met)
			break;
		places++;
		passed += run.foreign_nmis;
		judge(&at, &run, result, "the");
		asm volatile("movq %%gs:0, %0" : "=r" (marked));
		if (marked != mark)
			complain(&at, "this process' GS", marked);
		if (has_shadow_stack && !shadow_stack())
			complain(&at, "this process' shadow stack", 0);
		on = state(0, &lvt);
		if (on)
			complain(&at, "on, while user space runs", on);

		/* What is open is open, and an NMI that comes now reaches the kernel. */
		attack("nmi 1 0");
		ioctl(device, SKIDPROOF_IOC_ABI, &on);
		if (!came(&count, &here))
			complain(&at, "the lab raised no other NMI", 0);
		attack("none");
		after = kernel_nmis();
		if (after == nmis)
			complain(&at, "another NMI does not reach the kernel", after);
		/* Here nothing else waits that it could be one with. */
		if (scenario->closed && !strcmp(kind->name, "nmi") && after != nmis + 2)
			complain(&at, "it did not reach the kernel, or more did", after - nmis);
		reached += after - nmis;
		nmis = after;

		result = sample(scenario, &run);
		judge(&at, &run, result, "the next");
		if (!result && ((run.pmis == 0) != scenario->closed || run.foreign_nmis))
			complain(&at, "the next RUN: PMIs", run.pmis);
		if (!result && scenario->traced && store_view->bts_index == store_view->bts_base)
			complain(&at, "the next RUN: branches", 0);
		on = state(0, &lvt);
		if (on || (lvt & ~0x1000) != lvt_of(scenario))
			complain(&at, "after the next RUN: on, the APIC's entry", on | (unsigned long long)lvt << 32);
	}
	printf("%-5s %-24s %5u places; %lu NMIs to the kernel, %lu within the program\n", kind->name,
	       scenario->name, places, reached - (reached > places ? places : reached), passed);
	if (!places)
		complain(&at, "there is no such place", 0);
	/* An NMI that comes while one waits, a PMI for instance, is one with it. */
	if (!strcmp(kind->raises, "nmi") && (reached - places) * 4 < 3 * places)
		complain(&at, "too few reached the kernel", reached);
	fflush(stdout);
}

static void find_event(void)
{
	static const unsigned int umasks[] = { 0x01, 0x11, 0x04, 0x00 };
	struct skidproof_run run;
	unsigned int i;

	memcpy(code_view, loop, sizeof(loop));
	for (i = 0; i < sizeof(umasks) / sizeof(umasks[0]); i++) {
		branches = 0x4300c4 | umasks[i] << 8;
		if (!sample(&scenarios[0], &run) && run.pmis)
			return;
	}
	fprintf(stderr, "sweep: no event of branches is precise here\n");
	exit(2);
}

/* The kernel complains of each NMI that is nobody's; on a serial line that takes longer than all else here. */
static void console(const char *level)
{
	int file = open("/proc/sys/kernel/printk", O_WRONLY | O_CLOEXEC);

	must(file >= 0 && write(file, level, strlen(level)) > 0, "/proc/sys/kernel/printk");
	close(file);
}

int main(int argc, char **argv)
{
	unsigned long stride = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	long enabled = SYS_arch_prctl;
	unsigned int i, j;

	/* From here on nothing may return to who called main. */
	asm volatile("syscall" : "+a" (enabled) : "D" (ARCH_SHSTK_ENABLE), "S" (1) : "rcx", "r11", "memory");
	has_shadow_stack = !enabled && shadow_stack();
	may_attack();
	stay_on(0);
	must(syscall(SYS_arch_prctl, ARCH_SET_GS, &mark) == 0, "ARCH_SET_GS");
	device = open_device();
	must(ioctl(device, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	code_view = take(device, &code, SKIDPROOF_CODE, 4096);
	store_view = take(device, &store, SKIDPROOF_DEBUG_STORE, DS_BYTES);
	find_event();
	console("0");
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (argc > 2 && strcmp(argv[2], kinds[i].name))
			continue;
		if (!strcmp(kinds[i].name, "mc") && !interrupts("MCE:")) {
			printf("note: this kernel has no handler for machine checks; they are left out\n");
			continue;
		}
		for (j = 0; j < sizeof(scenarios) / sizeof(scenarios[0]); j++) {
			if (argc > 3 && !strstr(scenarios[j].name, argv[3]))
				continue;
			if (scenarios[j].alone)
				bring(0);
			sweep(&kinds[i], &scenarios[j], stride ? stride : 1);
			if (scenarios[j].alone)
				bring(1);
		}
	}
	console("4");
	printf("sweep: %d failures%s\n", failures, has_shadow_stack ? ", with a shadow stack" : "");
	exit(failures != 0);
}
