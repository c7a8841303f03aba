// SPDX-License-Identifier: GPL-2.0
/*
 * What performance monitoring of version 6 and architectural PEBS ask of the
 * driver: a buffer in one piece of physical memory, records nowhere else, and
 * counters that others use without a reservation. For the lab alone.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include "lab.h"

#define PEBS_BASE 0x3f4
#define PEBS_INDEX 0x3f5
#define GLOBAL_STATUS 0x38e
#define GLOBAL_CTRL 0x38f
#define GLOBAL_OVF_CTRL 0x390
#define CTR 0x1900
#define CFG_A 0x1901
#define CFG_C 0x1903

#define BUFFER_BYTES 65536
#define BUFFER_SIZE 4			/* 4 KiB << 4 */
#define PERIOD 1000ULL
#define RECORD_UNIT 16
#define THRESHOLD (1ULL << 54)
#define INSTRUCTIONS 0x4300c0ULL	/* at every ring */
#define CONFIGURATION (1ULL << 63 | (0xffffffffULL & -PERIOD))
#define INDEX(threshold) (1ULL << 32 | (unsigned long long)((threshold) / RECORD_UNIT) << 36)

static int failures;

static void verdict(int held, const char *what, unsigned long long value)
{
	printf("%-6s  %s: %#llx\n", held ? "held" : "failed", what, value);
	failures += !held;
}

/* The errno of the call, or 0; the last access of a list is then in *access. */
static int accesses(int file, struct skidproof_msr *list, unsigned int count)
{
	struct skidproof_msrs msrs = { .list = ADDRESS(list), .count = count };

	return ioctl(file, SKIDPROOF_IOC_MSRS, &msrs) ? errno : 0;
}

static unsigned long long read_msr(int file, unsigned int msr)
{
	struct skidproof_msr access = { .msr = msr };

	must(accesses(file, &access, 1) == 0, "RDMSR");
	return access.fault ? ~0ULL : access.value;
}

static int write_msr(int file, unsigned int msr, unsigned long long value)
{
	struct skidproof_msr access = { .msr = msr, .write = 1, .value = value };
	int error = accesses(file, &access, 1);

	return error ?: access.fault ? -1 : 0;
}

static void refused(int error, int expected, const char *what)
{
	verdict(error == expected, what, error);
}

static int claim(int file, struct skidproof_claim *claim)
{
	*claim = (struct skidproof_claim){ .abi = SKIDPROOF_ABI };
	return ioctl(file, SKIDPROOF_IOC_CLAIM, claim) ? errno : 0;
}

struct bench {
	int file;
	struct skidproof_alloc code, buffer;
	unsigned char *records;
};

/* A loop whose instructions counter 0 samples into what `base` says. */
static int sample(struct bench *b, unsigned long long base, unsigned long long iterations,
		  struct skidproof_run *run, struct skidproof_pmi *log)
{
	struct skidproof_msr enable[] = {
		{ GLOBAL_CTRL, 1, 0, 0 }, { CFG_C, 1, 0, 0 }, { GLOBAL_OVF_CTRL, 1, 0, THRESHOLD | 1 },
		{ 0x834, 1, 0, 0x400 }, { PEBS_BASE, 1, 0, base },
		{ PEBS_INDEX, 1, 0, INDEX(BUFFER_BYTES / 2) }, { CFG_A, 1, 0, INSTRUCTIONS },
		{ CTR, 1, 0, (1ULL << 48) - PERIOD }, { CFG_C, 1, 0, CONFIGURATION },
		{ GLOBAL_CTRL, 1, 0, 1 },
	};
	struct skidproof_msr disable[] = { { GLOBAL_CTRL, 1, 0, 0 } };
	struct skidproof_msr read[] = { { PEBS_INDEX, 0, 0, 0 }, { GLOBAL_STATUS, 0, 0, 0 } };
	int error;

	*run = (struct skidproof_run){
		.entry = b->code.address, .iterations = iterations,
		.enable = ADDRESS(enable), .enable_count = sizeof(enable) / sizeof(enable[0]),
		.disable = ADDRESS(disable), .disable_count = 1,
		.read = ADDRESS(read), .read_count = 2,
		.log = ADDRESS(log), .log_capacity = 4,
		.pmi_flags = SKIDPROOF_PMI_UNMASK | SKIDPROOF_PMI_CLEAR_STATUS,
		.status_msr = GLOBAL_STATUS, .field_bytes = 8, .deadline_ms = 5000,
		.pebs_buffer = 0x1000, .keep_status = 1,
	};
	error = ioctl(b->file, SKIDPROOF_IOC_RUN, run) ? errno : 0;
	run->result = read[0].value;
	return error;
}

/* The bytes of the records from the buffer's beginning on, by their headers. */
static unsigned long long recorded(const struct bench *b, unsigned int *count)
{
	unsigned long long at = 0;

	for (*count = 0; at + RECORD_UNIT <= BUFFER_BYTES; (*count)++) {
		unsigned long long bytes = *(unsigned long long *)(b->records + at) & 0xffff;

		if (!bytes)
			break;
		at += bytes;
	}
	return at;
}

static void buffers(struct bench *b)
{
	struct skidproof_alloc block = { .bytes = 8 << 20, .use = SKIDPROOF_PEBS_BUFFER };

	refused(ioctl(b->file, SKIDPROOF_IOC_ALLOC, &block) ? errno : 0, ENOMEM,
		"a buffer of more than the kernel has in one piece, errno");
	block = (struct skidproof_alloc){ .bytes = 4096, .use = SKIDPROOF_PEBS_BUFFER, .physical = 4096 };
	refused(ioctl(b->file, SKIDPROOF_IOC_ALLOC, &block) ? errno : 0, EINVAL,
		"a buffer with a physical address in it, errno");
	b->records = take(b->file, &b->buffer, SKIDPROOF_PEBS_BUFFER, BUFFER_BYTES);
	verdict(b->buffer.physical && !(b->buffer.physical & 0xfff), "a buffer's physical address",
		b->buffer.physical);
}

static void records(struct bench *b)
{
	unsigned long long base = b->buffer.physical | BUFFER_SIZE, bytes, past, interrupts;
	struct skidproof_pmi log[4];
	struct skidproof_run run;
	unsigned int count;
	int error;

	error = sample(b, base, 50 * PERIOD, &run, log);
	bytes = recorded(b, &count);
	verdict(!error && run.outcome == SKIDPROOF_RETURNED, "sampling, errno", error);
	/* Two instructions an iteration. */
	verdict(count >= 99 && count <= 101, "… as many records as periods", count);
	verdict((run.result & 0x7fffff0) == bytes, "… and IA32_PEBS_INDEX behind them", run.result);
	verdict(run.pmis == 0, "… without an interrupt below the threshold", run.pmis);

	memset(b->records, 0, BUFFER_BYTES);
	error = sample(b, base, 300 * PERIOD, &run, log);
	/* Nobody sets the index back, so each record from there on interrupts. */
	bytes = recorded(b, &count);
	past = (bytes - BUFFER_BYTES / 2) / (bytes / count);
	interrupts = run.pmis + run.pmis_dropped;
	verdict(!error && interrupts >= past && interrupts <= past + 1, "past the threshold an interrupt for each record",
		interrupts);
	verdict(!!(log[0].global_status & THRESHOLD), "… by its own bit of the status", log[0].global_status);
	verdict(log[0].pebs_index >= 0x1000 + BUFFER_BYTES / 2 && log[0].pebs_index < 0x1000 + BUFFER_BYTES,
		"… and the index as it was then", log[0].pebs_index);

	memset(b->records, 0xee, BUFFER_BYTES);
	refused(sample(b, b->code.address | BUFFER_SIZE, PERIOD, &run, log), EPERM,
		"sampling to a linear address, errno");
	refused(sample(b, (b->buffer.physical + 4096) | BUFFER_SIZE, PERIOD, &run, log), EPERM,
		"… to a buffer that ends behind the block, errno");
	refused(sample(b, (b->buffer.physical - 4096) | BUFFER_SIZE, PERIOD, &run, log), EPERM,
		"… that begins before it, errno");
	refused(sample(b, base | 0x1f, PERIOD, &run, log), EPERM, "… that is larger, errno");
	verdict(b->records[0] == 0xee, "… and nothing is recorded", b->records[0]);
}

/* Which of three registers is written last makes no difference. */
static void elsewhere(struct bench *b)
{
	const unsigned int last[] = { GLOBAL_CTRL, CFG_C, PEBS_BASE };
	const unsigned long long value[] = { 1, CONFIGURATION, BUFFER_SIZE };
	char what[80];
	int i, n, error;

	for (n = 0; n < 3; n++) {
		must(write_msr(b->file, GLOBAL_CTRL, 0) == 0 && write_msr(b->file, CFG_C, 0) == 0 &&
		     write_msr(b->file, PEBS_BASE, b->buffer.physical | BUFFER_SIZE) == 0, "WRMSR");
		for (i = 0; i < 3; i++) {
			if (i != n)
				must(write_msr(b->file, last[i], value[i]) == 0, "WRMSR");
		}
		error = write_msr(b->file, last[n], value[n]);
		snprintf(what, sizeof(what), "counting, PEBS and a base of 0, MSR %#x last, errno", last[n]);
		refused(error, EPERM, what);
	}
	must(write_msr(b->file, GLOBAL_CTRL, 0) == 0 && write_msr(b->file, CFG_C, 0) == 0, "WRMSR");
}

/* The buffer goes while the registers speak of it. */
static void freed(struct bench *b, unsigned long long base_before)
{
	struct skidproof_free gone = { .address = b->buffer.address };

	must(write_msr(b->file, PEBS_BASE, b->buffer.physical | BUFFER_SIZE) == 0 &&
	     write_msr(b->file, CFG_C, CONFIGURATION) == 0, "WRMSR");
	munmap(b->records, BUFFER_BYTES);
	must(ioctl(b->file, SKIDPROOF_IOC_FREE, &gone) == 0, "FREE");
	verdict(read_msr(b->file, PEBS_BASE) == base_before, "a base whose buffer is freed is what it was",
		read_msr(b->file, PEBS_BASE));
	verdict(!(read_msr(b->file, CFG_C) >> 63), "… and its counter samples no more", read_msr(b->file, CFG_C));
}

static int perf_event(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW, .size = sizeof(attr), .config = 0xc0,
	};

	return syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);
}

/* perf, which may use registers that nobody can reserve. */
static void others(struct bench *b)
{
	static const unsigned char loop[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
	struct skidproof_claim answer;
	struct skidproof_pmi log[4];
	struct skidproof_run run;
	int event = perf_event(), error;

	must(event >= 0, "perf_event_open");
	error = claim(b->file, &answer);
	verdict(error == EBUSY && answer.refusal == SKIDPROOF_COUNTERS_HELD, "a claim with a perf event open, MSR",
		answer.detail);
	close(event);
	error = claim(b->file, &answer);
	verdict(!error, "a claim with it closed, errno", error);
	memcpy(take(b->file, &b->code, SKIDPROOF_CODE, 4096), loop, sizeof(loop));
	buffers(b);
	error = sample(b, b->buffer.physical | BUFFER_SIZE, PERIOD, &run, log);
	verdict(!error, "a run with nobody there, errno", error);
	/* Where perf reserves what it uses it does not come at all. */
	event = perf_event();
	error = sample(b, b->buffer.physical | BUFFER_SIZE, PERIOD, &run, log);
	if (event < 0) {
		verdict(!error, "perf keeps away from a claimed CPU, errno", error);
		return;
	}
	refused(error, EBUSY, "a run when perf has come since, errno");
	refused(sample(b, b->buffer.physical | BUFFER_SIZE, PERIOD, &run, log), EBUSY,
		"… and the next one, errno");
	close(event);
	error = sample(b, b->buffer.physical | BUFFER_SIZE, PERIOD, &run, log);
	verdict(!error, "a run when it has gone, errno", error);
}

int main(void)
{
	struct bench b = { .file = open_device() };
	unsigned long long base_before;
	struct skidproof_claim answer;
	unsigned int lvt, on;

	setvbuf(stdout, NULL, _IOLBF, 0);
	stay_on(0);
	must(claim(b.file, &answer) == 0, "CLAIM");
	base_before = read_msr(b.file, PEBS_BASE);
	ioctl(b.file, SKIDPROOF_IOC_RELEASE, NULL);
	others(&b);
	records(&b);
	elsewhere(&b);
	freed(&b, base_before);
	write_msr(b.file, CFG_C, CONFIGURATION);
	ioctl(b.file, SKIDPROOF_IOC_RELEASE, NULL);
	on = state(0, &lvt);
	verdict(!(on & (SAMPLES | TRACES | NOT_LINUX_IDT)), "after the release nothing samples", on);
	close(b.file);
	printf("version6: %d failures\n", failures);
	return failures != 0;
}
