// SPDX-License-Identifier: GPL-2.0
/*
 * The longest time with interrupts off, as the virtual lab measures it, against
 * the limit and a millisecond, or SLACK of them: programs without an end, plans
 * that keep every PMI away, PMIs, NMIs and SMIs one behind the other, whoever
 * raises them. Where there is one CPU, the plans that a counter can bound. Exits
 * 1 where it is longer. For the lab alone; a guest whose second CPU is offline has no good
 * clock there.
 *
 *   bound [SLACK]
 */
#include "lab.h"

#define DEADLINE_MS 300

/* JMP to itself; at ring 0 also with another GS: XOR EAX, EAX; XOR EDX, EDX; MOV ECX, C0000101H; WRMSR. */
static const unsigned char endless[] = { 0xeb, 0xfe };
static const unsigned char endless_gs[] = { 0x31, 0xc0, 0x31, 0xd2, 0xb9, 0x01, 0x01, 0x00, 0xc0,
					    0x0f, 0x30, 0xeb, 0xfe };
/* 1: MOV RAX, [RSI]; CLFLUSH [RSI]; JMP 1b: loads that take long */
static const unsigned char cold[] = { 0x48, 0x8b, 0x06, 0x0f, 0xae, 0x3e, 0xeb, 0xf8 };

#define PMIS ((1ULL << 48) - 25) /* of instructions between two */
#define FREEZES (1ULL << 12) /* IA32_DEBUGCTL: the counters, at a PMI */

static const struct scenario {
	const char *name;
	const char *attack; /* beside it */
	const unsigned char *code;
	unsigned int bytes;
	unsigned int masked; /* no PMI comes */
	unsigned int writes; /* how many more stand in the plan */
	unsigned long long counts; /* IA32_PMC0 from there on, again at each PMI */
	unsigned long long debugctl;
} scenarios[] = {
	{ "a program without an end", NULL, endless, sizeof(endless) },
	{ "… that loads from memory", NULL, cold, sizeof(cold) },
	{ "… with another GS", NULL, endless_gs, sizeof(endless_gs) },
	{ "… without PMIs", NULL, endless, sizeof(endless), .masked = 1 },
	{ "500 writes before it", NULL, endless, sizeof(endless), .writes = 500 },
	{ "PMIs, 25 instructions apart", NULL, endless, sizeof(endless), .counts = PMIS },
	{ "… that freeze the counters", NULL, endless, sizeof(endless), .counts = PMIS,
	  .debugctl = FREEZES },
	{ "PMIs that nothing raised", "pmi 1000 0 *1500", endless, sizeof(endless) },
	{ "NMIs of others", "nmi 1000 0 *150", endless, sizeof(endless) },
	{ "… without PMIs", "nmi 1000 0 *150", endless, sizeof(endless), .masked = 1 },
	{ "… and PMIs", "nmi 1000 0 *1500", endless, sizeof(endless), .counts = PMIS },
	{ "… in pairs", "nmi 1000 0 +60", endless, sizeof(endless) },
	{ "SMIs", "smi 1000 0 *500", endless, sizeof(endless) },
	{ "another owner of the LVT entry", "lvt 1000 0 *100", endless, sizeof(endless), .counts = PMIS },
};

static int failures;
static double slack_ms = 1;
static struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };

/* ms */
static double longest(unsigned int *windows)
{
	unsigned int a, b, c, d;

	__cpuid_count(ATTACK_LEAF, 1, a, b, c, d);
	*windows = a;
	return (c | (unsigned long long)d << 32) / (double)claim.tsc_khz;
}

static void bounded(int file, const struct skidproof_alloc *code, unsigned char *view,
		    const struct skidproof_alloc *data, const struct scenario *scenario, unsigned int ring)
{
	static struct skidproof_pmi log[16];
	static struct skidproof_msr enable[SKIDPROOF_MAX_MSRS];
	struct skidproof_msr acknowledge[] = { { 0x4c1, 1, 0, scenario->counts } };
	struct skidproof_msr disable[] = { { 0x38f, 1, 0, 0 }, { 0x186, 1, 0, 0 }, { 0x1d9, 1, 0, 0 } };
	const double limit = claim.limit_us / 1000.0 + slack_ms;
	struct skidproof_run run = {
		.entry = code->address, .data = data->address, .enable = ADDRESS(enable),
		.disable = ADDRESS(disable), .disable_count = sizeof(disable) / sizeof(disable[0]),
		.acknowledge = ADDRESS(acknowledge), .acknowledge_count = scenario->counts != 0,
		.log = ADDRESS(log), .log_capacity = 16,
		.pmi_flags = scenario->counts ? SKIDPROOF_PMI_UNMASK | SKIDPROOF_PMI_CLEAR_STATUS |
							SKIDPROOF_PMI_RESTORE_CTRL : SKIDPROOF_PMI_UNMASK,
		.status_msr = 0x38e, .field_bytes = 8, .deadline_ms = DEADLINE_MS, .ring = ring,
	};
	unsigned int n = 0, i, windows, met, places;
	unsigned long long at;
	double ms;
	int held;

	enable[n++] = (struct skidproof_msr){ 0x38f, 1, 0, 0 };
	enable[n++] = (struct skidproof_msr){ 0x834, 1, 0, scenario->masked ? 0x10400 : 0x400 };
	enable[n++] = (struct skidproof_msr){ 0x38d, 1, 0, 0 };
	enable[n++] = (struct skidproof_msr){ 0x1d9, 1, 0, scenario->debugctl };
	for (i = 0; i < scenario->writes; i++)
		enable[n++] = (struct skidproof_msr){ 0x4c1, 1, 0, i };
	if (scenario->counts) {
		enable[n++] = (struct skidproof_msr){ 0x4c1, 1, 0, scenario->counts };
		enable[n++] = (struct skidproof_msr){ 0x186, 1, 0, 0x5300c0 };
	}
	enable[n++] = (struct skidproof_msr){ 0x38f, 1, 0, scenario->counts != 0 };
	run.enable_count = n;
	memset(view, 0xcc, 64);
	memcpy(view, scenario->code, scenario->bytes);
	if (ring && scenario->code == endless_gs)
		memcpy(view, "\x31\xc0\x8e\xe8\xeb\xfe", 6); /* XOR EAX, EAX; MOV GS, EAX */
	attack(scenario->attack ? scenario->attack : "watch 0 0");
	held = ioctl(file, SKIDPROOF_IOC_RUN, &run) == 0 && run.outcome == SKIDPROOF_TIMED_OUT;
	ms = longest(&windows);
	met = came(&places, &at);
	attack("none");
	held = held && ms > 0 && ms <= limit && (!scenario->attack || met > 1) &&
	       (!scenario->counts || run.pmis > 10);
	printf("%-6s  ring %u, %-32s %7.3f ms of %g; %u windows, %llu PMIs, %llu NMIs of others, %u raised\n",
	       held ? "held" : "failed", ring, scenario->name, ms, limit, windows,
	       run.pmis + run.pmis_dropped, run.foreign_nmis, met);
	if (!held)
		printf("        outcome %u, guard %#x\n", run.outcome, run.guard);
	fflush(stdout);
	failures += !held;
}

int main(int argc, char **argv)
{
	struct skidproof_alloc code, data;
	unsigned char *view;
	unsigned int i;
	int file;

	if (argc > 1)
		slack_ms = atof(argv[1]);
	may_attack();
	stay_on(0);
	file = open_device();
	must(ioctl(file, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	view = take(file, &code, SKIDPROOF_CODE, 4096);
	take(file, &data, SKIDPROOF_DATA, 4096);
	for (i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (!(claim.flags & SKIDPROOF_WATCHED) && scenarios[i].masked)
			continue;
		bounded(file, &code, view, &data, &scenarios[i], 0);
		bounded(file, &code, view, &data, &scenarios[i], 3);
	}
	printf("bound: %d failures\n", failures);
	return failures != 0;
}
