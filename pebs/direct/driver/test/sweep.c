// SPDX-License-Identifier: GPL-2.0
/*
 * An interrupt at every instruction of the driver's around and within a run:
 * sweep [STRIDE [KIND]], KIND one of nmi, mc, pmi.
 *
 * The virtual lab raises an NMI, a machine check or a PMI at the Nth instruction
 * that CPU 0 executes in a module, or with an IDT that is not the kernel's; N
 * goes from one to the last by STRIDE. A run with it is followed by one without,
 * which must be as if nothing had happened: the result, a record and its PMI,
 * counters and branches off, the IDT the kernel's. Each NMI must have reached
 * the kernel. The programs bear values that a handler might take for its own:
 * ECX 1, a GS that is not the kernel's; one faults. Exits 1 when something was
 * left behind. For the lab alone. Machine checks are left out, and it is said,
 * where the kernel was built without a handler for them; boot with mce=off, which
 * makes of each a line in the kernel's log.
 */
#include <cpuid.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define ATTACK_PORT 0x5e8
#define ATTACK_LEAF 0x40000400
#define RESULT 0x51
#define ADDRESS(x) ((unsigned long long)(x))

struct debug_store {
	unsigned long long bts[4], pebs_base, pebs_index, pebs_maximum, pebs_threshold, reset[4];
};

#define DS_BYTES 16384
#define BUFFER 4096
#define ITERATIONS 60
#define PERIOD 20

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
	int faults;
} scenarios[] = {
	{ "ring 0, samples", 0, loop, sizeof(loop), 0 },
	{ "ring 3, samples", 3, loop, sizeof(loop), 0 },
	{ "ring 0, faults", 0, faults, sizeof(faults), 1 },
	{ "ring 3, faults", 3, faults, sizeof(faults), 1 },
	{ "ring 0, another GS", 0, kernel_gs, sizeof(kernel_gs), 0 },
	{ "ring 3, another GS", 3, user_gs, sizeof(user_gs), 0 },
};

static int device, failures;
static struct skidproof_alloc code, store;
static unsigned char *code_view;
static struct debug_store *store_view;

static void must(int held, const char *what)
{
	if (held)
		return;
	perror(what);
	exit(2);
}

static void attack(const char *kind, unsigned long n)
{
	char line[64];

	snprintf(line, sizeof(line), "%s %lu 0\n", kind, n);
	outsb(ATTACK_PORT, n ? line : "none\n", n ? strlen(line) : 5);
}

/* Whether it came; how many places there were. */
static int came(unsigned int *places, unsigned long long *at)
{
	unsigned int a, b, c, d;

	__cpuid(ATTACK_LEAF, a, b, c, d);
	*places = b;
	*at = c | (unsigned long long)d << 32;
	return a;
}

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

static void take(struct skidproof_alloc *block, unsigned int use, unsigned long long bytes, void *view)
{
	void *mapped;

	*block = (struct skidproof_alloc){ .use = use, .bytes = bytes };
	must(ioctl(device, SKIDPROOF_IOC_ALLOC, block) == 0, "ALLOC");
	mapped = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, block->offset);
	must(mapped != MAP_FAILED, "mmap");
	*(void **)view = mapped;
}

/* PEBS of conditional branches, an interrupt at the first record. */
static int sample(const struct scenario *scenario, struct skidproof_run *run)
{
	static struct skidproof_pmi log[64];
	unsigned long long buffer = store.address + BUFFER;
	unsigned long long period = (1ULL << 48) - PERIOD;
	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 }, { 0x1d9, 1, 0, 0 }, { 0x834, 1, 0, 0x400 },
		{ 0x38d, 1, 0, 0 }, { 0x390, 1, 0, 0x400000070000000fULL },
		{ 0x600, 1, 0, store.address }, { 0x186, 1, 0, 0x4301c4 }, { 0x4c1, 1, 0, period },
		{ 0x3f1, 1, 0, 1 }, { 0x38f, 1, 0, 1 },
	};
	struct skidproof_msr disable[] = { { 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 } };

	memset(store_view, 0, sizeof(*store_view));
	store_view->pebs_base = store_view->pebs_index = buffer;
	store_view->pebs_maximum = store.address + DS_BYTES;
	store_view->pebs_threshold = buffer + 64;
	store_view->reset[0] = period;
	*run = (struct skidproof_run){
		.entry = code.address, .iterations = ITERATIONS,
		.enable = ADDRESS(enable), .enable_count = sizeof(enable) / sizeof(enable[0]),
		.disable = ADDRESS(disable), .disable_count = 2,
		.log = ADDRESS(log), .log_capacity = 64,
		.pmi_flags = SKIDPROOF_PMI_ALL & ~SKIDPROOF_PMI_REWIND_BTS,
		.status_msr = 0x38e, .field_bytes = 8,
		.pebs_index_address = store.address + offsetof(struct debug_store, pebs_index),
		.pebs_base_address = store.address + offsetof(struct debug_store, pebs_base),
		.keep_status = 0xff, .deadline_ms = 1000, .ring = scenario->ring,
	};
	return ioctl(device, SKIDPROOF_IOC_RUN, run);
}

static void complain(const char *kind, const struct scenario *scenario, unsigned long n,
		     unsigned long long at, const char *what, unsigned long long value)
{
	if (++failures <= 20)
		printf("failed  %s, %s, instruction %lu at %#llx: %s: %#llx\n", kind, scenario->name, n, at,
		       what, value);
}

static void sweep(const char *kind, const struct scenario *scenario, unsigned long stride)
{
	static const unsigned int off[] = { 0x38f, 0x3f1, 0x1d9 };
	unsigned long n, reached = 0, merged = 0, passed = 0;
	unsigned int places = 0, count, i;
	struct skidproof_run run;
	unsigned long long at;
	struct {
		unsigned short limit;
		unsigned long long base;
	} __attribute__((packed)) idt;

	memcpy(code_view, scenario->code, scenario->bytes);
	for (n = 1;; n += stride) {
		unsigned long nmis = kernel_nmis(), nmis_after;
		int hit, result;

		attack(kind, n);
		result = sample(scenario, &run);
		hit = came(&count, &at);
		attack(kind, 0);
		if (!hit)
			break;
		places++;
		nmis_after = kernel_nmis();
		passed += run.foreign_nmis;
		if (result)
			complain(kind, scenario, n, at, "RUN fails", result);
		else if (run.outcome != (scenario->faults ? SKIDPROOF_FAULTED : SKIDPROOF_RETURNED) &&
			 !run.machine_checks)
			complain(kind, scenario, n, at, "its outcome", run.outcome);
		else if (!scenario->faults && !run.machine_checks && run.result != RESULT)
			complain(kind, scenario, n, at, "its result", run.result);
		/* An NMI that comes while one waits, a PMI for instance, is one with it. */
		if (!strcmp(kind, "nmi") && nmis_after == nmis)
			merged++;
		reached += nmis_after - nmis;

		if (sample(scenario, &run))
			complain(kind, scenario, n, at, "the next RUN fails", 0);
		else if (run.outcome != (scenario->faults ? SKIDPROOF_FAULTED : SKIDPROOF_RETURNED))
			complain(kind, scenario, n, at, "the next one's outcome", run.outcome);
		else if (!scenario->faults && run.result != RESULT)
			complain(kind, scenario, n, at, "the next one's result", run.result);
		else if (!run.pmis || run.foreign_nmis)
			complain(kind, scenario, n, at, "the next one's PMIs", run.pmis);
		for (i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
			struct skidproof_msr one = { off[i], 0, 0, 0 };
			struct skidproof_msrs msrs = { ADDRESS(&one), 1, 0 };

			if (ioctl(device, SKIDPROOF_IOC_MSRS, &msrs) || one.value)
				complain(kind, scenario, n, at, "a register is not 0", one.value);
		}
		asm volatile("sidt %0" : "=m" (idt));
		if (idt.base < 0xfffffe0000000000ULL || idt.base >= 0xfffffe8000000000ULL)
			complain(kind, scenario, n, at, "the IDT", idt.base);
	}
	printf("%s, %s: %u places; %lu NMIs to the kernel, %lu within the program, %lu one with a PMI\n", kind,
	       scenario->name, places, reached, passed, merged);
	if (!places || (!strcmp(kind, "nmi") && merged * 4 > places))
		complain(kind, scenario, n, 0, "too few reached the kernel", reached);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "nmi", "mc", "pmi" };
	unsigned long stride = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	unsigned int i, j;
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	must(sched_setaffinity(0, sizeof(first), &first) == 0, "CPU 0");
	must(ioperm(ATTACK_PORT, 1, 1) == 0, "ioperm");
	device = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	must(device >= 0, SKIDPROOF_DEVICE);
	must(ioctl(device, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	take(&code, SKIDPROOF_CODE, 4096, &code_view);
	take(&store, SKIDPROOF_DEBUG_STORE, DS_BYTES, &store_view);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (argc > 2 && strcmp(argv[2], kinds[i]))
			continue;
		if (!strcmp(kinds[i], "mc") && !interrupts("MCE:")) {
			printf("note: this kernel has no handler for machine checks; they are left out\n");
			continue;
		}
		for (j = 0; j < sizeof(scenarios) / sizeof(scenarios[0]); j++)
			sweep(kinds[i], &scenarios[j], stride ? stride : 1);
	}
	printf("sweep: %d failures\n", failures);
	return failures != 0;
}
