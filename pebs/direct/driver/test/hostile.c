// SPDX-License-Identifier: GPL-2.0
/*
 * Random and hostile calls of the driver: hostile [COUNT [SEED]].
 *
 * hostile registers prints what the CPUs' registers hold instead; hostile long
 * N has N programs sampled on CPU 0 that run for long, each with a claim and
 * memory of its own, for whoever wants to kill it meanwhile; hostile any N
 * [SEED] runs N programs of random pieces and bytes at ring 3.
 *
 * Wrong sizes, unmapped pointers, unlisted registers, debug stores that lie
 * elsewhere, programs that fault or never end, at ring 0 and ring 3, any bytes
 * for a program at ring 3, calls that race with one another
 * and with close(), by two processes of which each also has a file of the
 * other's; meanwhile attempts to unload the module, and, where there are two
 * CPUs, one that goes offline and comes back. Every call must answer 0 or an
 * errno that a driver may answer; afterwards the registers must be as they
 * were. Meant for a kernel that panics on warnings. Exits 1 when a call did
 * what it must not.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define PROCESSES 2
#define FILES 4
#define SHARED 0 /* this file both processes have */
#define BLOCKS 8
#define RACERS 2
#define REPORT_EVERY 50000
#define OFFLINE_EVERY 20000

enum kind {
	CLAIM, RELEASE, MSRS, ALLOC, FREE, RUN, RDPMC, JUNK, UNMAPPED, SAMPLING, ENDLESS,
	RACING_MSRS, RACING_CLAIM, KINDS
};

static const char *const names[KINDS] = {
	"claim", "release", "msrs", "alloc", "free", "run", "rdpmc", "nobody's command",
	"run from nowhere", "sampling run", "endless run", "racing msrs", "racing claim",
};

/* What both processes count. */
static struct counts {
	unsigned long done[KINDS], failed[KINDS];
	unsigned long wrong, closes, faults, timeouts, pmis, outside, user, nmis;
} *counts;

static int files[FILES];
static struct skidproof_alloc blocks[FILES][BLOCKS];
static void *views[FILES][BLOCKS];
static int owner = -1; /* the file that claimed a CPU the last time */

static void add(unsigned long *to, unsigned long n)
{
	__atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static void complain(const char *what, long long value)
{
	fprintf(stderr, "hostile: wrong: %s: %lld\n", what, value);
	add(&counts->wrong, 1);
}

static unsigned long long next(unsigned long long *state)
{
	unsigned long long z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static unsigned long long below(unsigned long long *state, unsigned long long bound)
{
	return next(state) % bound;
}

/* Values that limits are made of, and the caller's own addresses. */
static unsigned long long value(unsigned long long *state, int file)
{
	static const unsigned long long edges[] = {
		0, 1, 7, 8, 4095, 4096, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
		0x7fffffffffff, 0x800000000000, 0xffff800000000000, 0xffffffff81000000,
		0xfffffffffffff000, ~0ULL, 0x400, 0x10400, 0x4300c0, 0x5300c0, 0x1c0,
	};
	const struct skidproof_alloc *block = &blocks[file][below(state, BLOCKS)];

	switch (below(state, 4)) {
	case 0:
		return next(state);
	case 1:
		return block->address + below(state, 3) * (block->bytes / 2);
	case 2:
		return 1ULL << below(state, 64);
	default:
		return edges[below(state, sizeof(edges) / sizeof(edges[0]))];
	}
}

/* Every call is of one kind: mostly right, or with nothing to rely on. */
static __thread unsigned int spoil;

static int spoiled(unsigned long long *state, unsigned int one_of)
{
	return spoil && below(state, one_of) == 0;
}

static unsigned int msr(unsigned long long *state)
{
	static const unsigned int known[] = {
		0xc1, 0xc2, 0xc4, 0x186, 0x187, 0x1a0, 0x1d9, 0x309, 0x30a, 0x30b, 0x345, 0x38d,
		0x38e, 0x38f, 0x390, 0x3f1, 0x3f6, 0x4c1, 0x600, 0x834,
		/* From here on they are absent on some parts, read-only or not on the list. */
		0x3f4, 0x3f5, 0x1900, 0x1901, 0x1903, 0x1983,
		0x34, 0x8b, 0xc5, 0x18a, 0x391, 0x3f2, 0x10, 0x1b, 0x79, 0x174, 0xc0000080,
		0xc0000082, 0x277,
	};

	if (spoiled(state, 8))
		return next(state);
	return known[below(state, spoil ? sizeof(known) / sizeof(known[0]) : 20)];
}

/* Memory that may be read, not be there, or belong to the kernel. */
static unsigned long long pointer(unsigned long long *state, void *good)
{
	if (!spoiled(state, 4))
		return (unsigned long long)good;
	switch (below(state, 3)) {
	case 0:
		return next(state);
	case 1:
		return 0;
	default:
		return 0xffffffff81000000ULL;
	}
}

/* The errors that the calls have, those of a file that was just closed among them. */
static int expected(int error)
{
	static const int list[] = {
		EPERM, ENXIO, EINTR, E2BIG, EBADF, ENOMEM, EFAULT, EBUSY, ENODEV, EINVAL, ENOTTY,
		ENOSPC, ESHUTDOWN, EDEADLK,
	};
	unsigned int i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (list[i] == error)
			return 1;
	}
	return 0;
}

static int call(int file, unsigned long request, void *argument, enum kind kind)
{
	int result = ioctl(files[file], request, argument);

	add(result == 0 ? &counts->done[kind] : &counts->failed[kind], 1);
	if (result > 0)
		complain(names[kind], result);
	else if (result < 0 && !expected(errno))
		complain(names[kind], errno);
	else if (result == 0 && request == SKIDPROOF_IOC_CLAIM)
		owner = file;
	return result;
}

static void random_msrs(unsigned long long *state, int file)
{
	struct skidproof_msr list[8];
	struct skidproof_msrs msrs = { .count = below(state, spoil ? 10 : 9) };
	unsigned int i;

	for (i = 0; i < 8; i++) {
		list[i].msr = msr(state);
		list[i].write = below(state, 2);
		list[i].fault = spoiled(state, 64);
		list[i].value = value(state, file);
	}
	if (spoiled(state, 16))
		msrs.count = next(state);
	msrs.list = pointer(state, list);
	msrs.done = spoiled(state, 16);
	if (call(file, SKIDPROOF_IOC_MSRS, &msrs, MSRS) == 0) {
		for (i = 0; i < msrs.done && i < 8; i++) {
			/* Never let through. */
			if (list[i].msr == 0x10 || list[i].msr == 0x79 || list[i].msr >= 0xc0000000)
				complain("an unlisted MSR was accessed", list[i].msr);
		}
	}
}

/* A block and a view of it. */
static int take(int file, unsigned int n, unsigned int use, unsigned long long bytes)
{
	struct skidproof_alloc *block = &blocks[file][n];

	*block = (struct skidproof_alloc){ .use = use, .bytes = bytes };
	if (call(file, SKIDPROOF_IOC_ALLOC, block, ALLOC)) {
		memset(block, 0, sizeof(*block));
		return -1;
	}
	views[file][n] = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files[file],
			      block->offset);
	if (views[file][n] == MAP_FAILED)
		views[file][n] = NULL;
	return views[file][n] ? 0 : -1;
}

static void give(int file, unsigned int n)
{
	struct skidproof_alloc *block = &blocks[file][n];
	struct skidproof_free given = { .address = block->address };

	if (block->address)
		call(file, SKIDPROOF_IOC_FREE, &given, FREE);
	if (views[file][n])
		munmap(views[file][n], block->bytes);
	memset(block, 0, sizeof(*block));
	views[file][n] = NULL;
}

static void random_memory(unsigned long long *state, int file)
{
	unsigned int n = below(state, BLOCKS);
	struct skidproof_alloc *block = &blocks[file][n];
	int protection = PROT_READ | PROT_WRITE;

	if (block->address) {
		struct skidproof_free given = { .address = block->address };

		if (below(state, 4) == 0)
			given.address = value(state, file);
		if (views[file][n] && below(state, 2)) {
			munmap(views[file][n], block->bytes);
			views[file][n] = NULL;
		}
		if (call(file, SKIDPROOF_IOC_FREE, &given, FREE) == 0 &&
		    given.address == block->address) {
			/* The view outlives the block. */
			if (views[file][n]) {
				*(volatile char *)views[file][n] = 1;
				munmap(views[file][n], block->bytes);
			}
			memset(block, 0, sizeof(*block));
			views[file][n] = NULL;
		}
		return;
	}
	block->use = below(state, spoil ? 5 : 4);
	block->bytes = spoiled(state, 4) ? value(state, file) : 8 + below(state, 65536);
	block->reserved = spoiled(state, 16);
	if (call(file, SKIDPROOF_IOC_ALLOC, block, ALLOC) != 0) {
		memset(block, 0, sizeof(*block));
		return;
	}
	if (below(state, 8) == 0)
		protection = below(state, 8);
	views[file][n] = mmap(NULL, block->bytes + 4096 * (below(state, 8) == 0), protection,
			      below(state, 8) ? MAP_SHARED : MAP_PRIVATE, files[file],
			      block->offset + 4096 * (below(state, 16) == 0));
	if (views[file][n] == MAP_FAILED) {
		views[file][n] = NULL;
	} else if (protection != (PROT_READ | PROT_WRITE)) {
		munmap(views[file][n], block->bytes);
		views[file][n] = NULL;
	}
}

/* RET; UD2; a load from 8; DEC RDI, JNZ back, RET; JMP to itself. */
static const unsigned char code[][8] = {
	{ 0xc3 }, { 0x0f, 0x0b }, { 0x48, 0x8b, 0x04, 0x25, 8, 0, 0, 0 },
	{ 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 }, { 0xeb, 0xfe },
};

#define LOOP 3
#define FOREVER 4

static void count_run(const struct skidproof_run *run)
{
	add(&counts->faults, run->outcome == SKIDPROOF_FAULTED);
	add(&counts->timeouts, run->outcome == SKIDPROOF_TIMED_OUT);
	add(&counts->pmis, run->pmis);
	add(&counts->user, run->ring == 3);
	add(&counts->nmis, run->foreign_nmis);
	if (run->outcome > SKIDPROOF_INTERRUPTED)
		complain("an outcome that there is not", run->outcome);
}

static void random_run(unsigned long long *state, int file)
{
	struct skidproof_msr enable[4], disable[4], read[4], acknowledge[2];
	struct skidproof_pmi log[4];
	struct skidproof_run run;
	unsigned int i, n = below(state, BLOCKS);

	memset(&run, 0, sizeof(run));
	for (i = 0; i < 4; i++) {
		enable[i] = (struct skidproof_msr){ msr(state), 1, 0, value(state, file) };
		disable[i] = (struct skidproof_msr){ msr(state), 1, 0, value(state, file) };
		read[i] = (struct skidproof_msr){ msr(state), spoiled(state, 16), 0, 0 };
	}
	if (below(state, 2)) {
		enable[3] = (struct skidproof_msr){ 0x38f, 1, 0, value(state, file) };
		disable[0] = (struct skidproof_msr){ 0x38f, 1, 0, 0 };
	}
	acknowledge[0] = (struct skidproof_msr){ msr(state), 1, 0, 0 };
	/* Only code that was put there is entered, at its beginning, or what is refused. */
	for (i = 0; i < BLOCKS && blocks[file][n].use != SKIDPROOF_CODE; i++)
		n = (n + 1) % BLOCKS;
	if (blocks[file][n].use == SKIDPROOF_CODE && views[file][n] && blocks[file][n].address &&
	    blocks[file][n].bytes >= 8) {
		memcpy(views[file][n], code[below(state, FOREVER)], 8);
		run.entry = blocks[file][n].address;
	} else {
		run.entry = below(state, 2) ? 0 : next(state);
	}
	run.ring = spoiled(state, 16) ? next(state) : below(state, 2) * 3;
	run.iterations = 1 + below(state, 1000);
	run.data = value(state, file);
	run.enable = pointer(state, enable);
	run.disable = pointer(state, disable);
	run.read = pointer(state, read);
	run.acknowledge = pointer(state, acknowledge);
	run.log = pointer(state, log);
	run.enable_count = below(state, 5);
	run.disable_count = below(state, 5);
	run.read_count = below(state, 5);
	run.acknowledge_count = below(state, 8) == 0;
	run.log_capacity = below(state, 5);
	run.pmi_flags = spoiled(state, 8) ? next(state) : below(state, 32);
	run.status_msr = spoiled(state, 4) ? msr(state) : 0x38e;
	run.field_bytes = spoiled(state, 8) ? below(state, 10) : 8;
	if (spoiled(state, 2)) {
		run.pebs_index_address = value(state, file);
		run.bts_base_address = value(state, file);
	}
	run.deadline_ms = spoiled(state, 8) ? value(state, file) : 20;
	if (spoiled(state, 16))
		run.enable_count = next(state);
	if (call(file, SKIDPROOF_IOC_RUN, &run, RUN) == 0)
		count_run(&run);
}

/* The DS area in 64-bit mode, and where in the same block the PEBS buffer begins. */
struct debug_store {
	unsigned long long bts[4], pebs_base, pebs_index, pebs_maximum, pebs_threshold, reset[4];
};

#define DS_BYTES 16384
#define BUFFER 4096

/*
 * PEBS of conditional branches in a loop, an interrupt every few records: what
 * the driver is for. Unless it shall be right, one plan in four has its debug
 * store elsewhere, which must be refused. 0: it returned, and was interrupted.
 */
static int sampling_run(unsigned long long *state, int file, unsigned int cpu,
			unsigned long iterations, unsigned long period, int right)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = cpu };
	unsigned long long fields, area, buffer;
	struct skidproof_pmi log[16];
	struct debug_store *store;
	struct skidproof_run run;
	int elsewhere = -1;

	call(file, SKIDPROOF_IOC_CLAIM, &claim, CLAIM);
	give(file, 0);
	give(file, 1);
	if (take(file, 0, SKIDPROOF_CODE, 4096) || take(file, 1, SKIDPROOF_DEBUG_STORE, DS_BYTES))
		return -1;
	memcpy(views[file][0], code[LOOP], 8);
	fields = area = blocks[file][1].address;
	buffer = area + BUFFER;
	store = views[file][1];
	memset(store, 0, sizeof(*store));
	store->pebs_base = store->pebs_index = buffer;
	store->pebs_maximum = area + DS_BYTES;
	store->pebs_threshold = buffer + (1 + below(state, 4)) * 64;
	store->reset[0] = (1ULL << 48) - period;
	if (!right && below(state, 4) == 0) {
		elsewhere = below(state, 5);
		switch (elsewhere) {
		case 0:
			store->pebs_maximum = area + DS_BYTES + 1 + below(state, 1 << 20);
			break;
		case 1:
			store->pebs_index = area + DS_BYTES + 1 + below(state, 1 << 20);
			break;
		case 2:
			store->pebs_index = buffer - BUFFER - 1 - below(state, 1 << 20);
			break;
		case 3:
			store->pebs_base = blocks[file][0].address;
			break;
		default:
			area = below(state, 2) ? blocks[file][0].address : 0xffffffff81000000ULL;
		}
	}

	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 }, { 0x1d9, 1, 0, 0 }, { 0x834, 1, 0, 0x400 },
		{ 0x38d, 1, 0, 0 }, { 0x390, 1, 0, 0x400000070000000fULL }, { 0x600, 1, 0, area },
		{ 0x186, 1, 0, 0x4301c4 }, { 0x4c1, 1, 0, (1ULL << 48) - period },
		{ 0x3f1, 1, 0, 1 }, { 0x38f, 1, 0, 1 },
	};
	struct skidproof_msr disable[] = { { 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 } };
	struct skidproof_msr read[] = { { 0xc1, 0, 0, 0 }, { 0x38e, 0, 0, 0 } };
	/* Raises #GP in the handler, wherever its interrupt came. */
	struct skidproof_msr acknowledge[] = { { 0x186, 1, 0, ~0ULL } };

	run = (struct skidproof_run){
		.entry = blocks[file][0].address,
		.iterations = iterations,
		.enable = (unsigned long long)enable, .enable_count = 11,
		.disable = (unsigned long long)disable, .disable_count = 2,
		.read = (unsigned long long)read, .read_count = 2,
		.acknowledge = (unsigned long long)acknowledge,
		.acknowledge_count = !right && below(state, 4) == 0,
		.log = (unsigned long long)log, .log_capacity = 16,
		.pmi_flags = SKIDPROOF_PMI_ALL & ~SKIDPROOF_PMI_REWIND_BTS,
		.status_msr = 0x38e,
		.field_bytes = 8,
		.pebs_index_address = fields + offsetof(struct debug_store, pebs_index),
		.pebs_base_address = fields + offsetof(struct debug_store, pebs_base),
		.keep_status = 0xff,
		.deadline_ms = 10000,
		.ring = below(state, 2) * 3,
	};
	if (call(file, SKIDPROOF_IOC_RUN, &run, SAMPLING)) {
		add(&counts->outside, elsewhere >= 0 && errno == EPERM);
		return -1;
	}
	if (run.outcome == SKIDPROOF_RETURNED && elsewhere >= 0) {
		complain("ran with a debug store elsewhere", elsewhere);
	} else {
		count_run(&run);
	}
	return run.outcome == SKIDPROOF_RETURNED && run.pmis > 0 ? 0 : -1;
}

/*
 * What a program at ring 3 may do to the processor that goes on with the
 * kernel: segments, flags, system calls, its stack, counters, loops; among them
 * bytes that nobody chose.
 */
static void any_program(unsigned long long *state, unsigned char *text, size_t bytes)
{
	static const struct {
		unsigned char bytes[10], count;
	} pieces[] = {
		{ { 0x8e, 0xe8 }, 2 },			/* MOV GS, AX */
		{ { 0x8e, 0xe0 }, 2 },			/* MOV FS, AX */
		{ { 0x8e, 0xd8, 0x8e, 0xc0 }, 4 },	/* MOV DS, AX; MOV ES, AX */
		{ { 0xb8, 0x2b, 0, 0, 0 }, 5 },		/* MOV EAX, 2BH */
		{ { 0x31, 0xc0 }, 2 },			/* XOR EAX, EAX */
		{ { 0x9c, 0x80, 0x4c, 0x24, 0x01, 0x44, 0x9d }, 7 },	/* RFLAGS |= NT, DF */
		{ { 0x9c, 0x80, 0x4c, 0x24, 0x02, 0x04, 0x9d }, 7 },	/* RFLAGS |= AC */
		{ { 0x9c, 0x80, 0x4c, 0x24, 0x01, 0x01, 0x9d }, 7 },	/* RFLAGS |= TF */
		{ { 0x8c, 0xd0, 0x8e, 0xd0 }, 4 },	/* MOV SS, itself */
		{ { 0x0f, 0x05 }, 2 },			/* SYSCALL */
		{ { 0xcd, 0x80 }, 2 },			/* INT 80H */
		{ { 0x50 }, 1 },			/* PUSH RAX */
		{ { 0x5c }, 1 },			/* POP RSP */
		{ { 0xff, 0xd6 }, 2 },			/* CALL RSI */
		{ { 0x48, 0xff, 0xc8, 0x75, 0xf8 }, 5 },	/* DEC RAX; JNZ 3 bytes before it */
		{ { 0x48, 0x89, 0x3e }, 3 },		/* MOV [RSI], RDI */
		{ { 0x48, 0x31, 0xf8 }, 3 },		/* XOR RAX, RDI */
		{ { 0xf3, 0x48, 0x0f, 0xae, 0xd8 }, 5 },	/* WRGSBASE RAX */
		{ { 0x0f, 0xae, 0x16 }, 3 },		/* LDMXCSR [RSI] */
		{ { 0xdb, 0xe3, 0xd9, 0xfa }, 4 },	/* FNINIT; FSQRT */
		{ { 0xeb, 0xfe }, 2 },			/* JMP to itself */
		{ { 0x48, 0xcf }, 2 },			/* IRETQ */
		{ { 0xc3 }, 1 },			/* RET */
	};
	const size_t known = sizeof(pieces) / sizeof(pieces[0]);
	size_t i = 0;

	while (i < bytes) {
		size_t n = below(state, 2 * known), count = 1 + below(state, 6);
		unsigned long long random = next(state);
		const void *from = &random;

		if (n < known) {
			from = pieces[n].bytes;
			count = pieces[n].count;
		}
		if (count > bytes - i)
			count = bytes - i;
		memcpy(text + i, from, count);
		i += count;
	}
}

/*
 * A loop without an end: the guard, the slices and the deadline end it. Or any
 * program, at ring 3.
 */
static void endless_run(unsigned long long *state, int file, int any)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = below(state, 2) };
	struct skidproof_run run;

	call(file, SKIDPROOF_IOC_CLAIM, &claim, CLAIM);
	give(file, 0);
	if (take(file, 0, SKIDPROOF_CODE, 4096))
		return;
	memcpy(views[file][0], code[FOREVER], 8);
	if (any)
		any_program(state, views[file][0], 256);

	/* Nothing else may interrupt, or take every counter: the guard would be lost. */
	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 }, { 0x1d9, 1, 0, 0 }, { 0x834, 1, 0, 0x400 },
		{ 0x38d, 1, 0, 0 }, { 0x186, 1, 0, 0x4300c0 }, { 0x38f, 1, 0, 1 },
	};

	run = (struct skidproof_run){
		.entry = blocks[file][0].address,
		.enable = (unsigned long long)enable, .enable_count = 7,
		.status_msr = 0x38e,
		.field_bytes = 8,
		.deadline_ms = 1 + below(state, 30),
		.iterations = next(state),
		.data = value(state, file),
		.ring = any ? 3 : below(state, 2) * 3,
	};
	if (call(file, SKIDPROOF_IOC_RUN, &run, ENDLESS))
		return;
	count_run(&run);
	if (run.outcome == SKIDPROOF_RETURNED && !any)
		complain("an endless program ended", run.outcome);
}

/* A mapping keeps its file open. */
static void unmap_all(int file)
{
	unsigned int n;

	for (n = 0; n < BLOCKS; n++) {
		if (views[file][n])
			munmap(views[file][n], blocks[file][n].bytes);
	}
	memset(blocks[file], 0, sizeof(blocks[file]));
	memset(views[file], 0, sizeof(views[file]));
}

static void random_call(unsigned long long *state)
{
	int file = below(state, FILES);
	struct skidproof_rdpmc rdpmc = { .index = value(state, file), .cr4_pce = below(state, 3),
					 .ring = below(state, 2) * 3 };
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = below(state, 4) };
	unsigned long request;
	char junk[512];
	unsigned int i;

	/* Most of what there is to go wrong needs a CPU. */
	if (owner >= 0 && below(state, 2))
		file = owner;
	spoil = below(state, 3) == 0;
	for (i = 0; i < sizeof(junk); i++)
		junk[i] = next(state);
	switch (below(state, 32)) {
	case 0:
	case 1:
		if (spoiled(state, 4))
			claim.abi = next(state);
		if (spoiled(state, 4))
			claim.cpu = next(state);
		call(file, SKIDPROOF_IOC_CLAIM, &claim, CLAIM);
		break;
	case 2:
		if (below(state, 2) == 0)
			call(file, SKIDPROOF_IOC_RELEASE, NULL, RELEASE);
		break;
	case 3:
	case 4:
		call(file, SKIDPROOF_IOC_RDPMC, &rdpmc, RDPMC);
		break;
	case 5:
		/* Sizes and numbers that are nobody's, and pointers that lead nowhere. */
		request = _IOC(below(state, 4), SKIDPROOF_IOC_MAGIC, below(state, 16), below(state, 512));
		call(file, below(state, 2) ? next(state) : request, (void *)pointer(state, junk), JUNK);
		break;
	case 6:
		spoil = 1;
		call(file, SKIDPROOF_IOC_RUN, (void *)pointer(state, junk), UNMAPPED);
		break;
	case 7:
		if (below(state, 8) == 0) {
			/* Another takes the number at once; threads find it closed meanwhile. */
			close(files[file]);
			unmap_all(file);
			files[file] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
			add(&counts->closes, 1);
		}
		break;
	case 8:
	case 9:
	case 10:
	case 11:
	case 12:
		random_memory(state, file);
		break;
	case 13:
	case 14:
	case 15:
	case 16:
	case 17:
	case 18:
		random_run(state, file);
		break;
	case 19:
		sampling_run(state, file, below(state, 2), 1 + below(state, 2000),
			     4 + below(state, 60), 0);
		break;
	case 20:
		if (below(state, 32) == 0)
			endless_run(state, file, 0);
		else if (below(state, 2))
			endless_run(state, file, 1);
		break;
	default:
		random_msrs(state, file);
	}
}

static unsigned long calls(void)
{
	unsigned long sum = 0;
	int i;

	for (i = 0; i < KINDS; i++)
		sum += counts->done[i] + counts->failed[i];
	return sum;
}

static unsigned long racing(void)
{
	return counts->done[RACING_MSRS] + counts->failed[RACING_MSRS] +
	       counts->done[RACING_CLAIM] + counts->failed[RACING_CLAIM];
}

static unsigned long wanted;

/* Calls on the same files while the main thread works with them, and closes them. */
static void *racer(void *argument)
{
	unsigned long long state = (unsigned long long)argument;
	unsigned int i;

	while (calls() < wanted) {
		/* The mix is the main thread's to decide. */
		if (racing() > calls() / 8) {
			usleep(1000);
			continue;
		}
		for (i = 0; i < 4; i++) {
			int file = below(&state, FILES);
			struct skidproof_msr one = { .msr = 0x38e };
			struct skidproof_msrs msrs = { (unsigned long long)&one, 1, 0 };
			struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };

			claim.cpu = below(&state, 3);

			if (below(&state, 4))
				call(file, SKIDPROOF_IOC_MSRS, &msrs, RACING_MSRS);
			else
				call(file, SKIDPROOF_IOC_CLAIM, &claim, RACING_CLAIM);
		}
	}
	return NULL;
}

static void be_hostile(unsigned long long state)
{
	pthread_t racers[RACERS];
	int i;

	for (i = 0; i < FILES; i++) {
		if (i != SHARED)
			files[i] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	}
	for (i = 0; i < RACERS; i++)
		pthread_create(&racers[i], NULL, racer, (void *)next(&state));
	while (calls() < wanted) {
		for (i = 0; i < 16; i++)
			random_call(&state);
	}
	for (i = 0; i < RACERS; i++)
		pthread_join(racers[i], NULL);
	_exit(0);
}

/*
 * The registers that a released CPU must have got back: all that the driver lets
 * through for writing, but those that a claim sets, only take a 1, or go on to
 * change while branches are recorded. Absent ones read as 0 whenever they do.
 */
#define REGISTERS 46
#define CPUS 2

static unsigned int registers[REGISTERS];

static void list_registers(void)
{
	static const unsigned int ranges[][2] = {
		{ 0xc1, 0xc8 }, { 0x186, 0x18d }, { 0x1a0, 0x1a0 }, { 0x1a6, 0x1a7 }, { 0x1c8, 0x1c8 },
		{ 0x1d9, 0x1d9 }, { 0x309, 0x310 }, { 0x345, 0x345 }, { 0x38d, 0x38e },
		{ 0x3f1, 0x3f2 }, { 0x3f6, 0x3f7 }, { 0x4c1, 0x4c8 }, { 0x600, 0x600 },
		{ 0x834, 0x834 },
	};
	unsigned int range, at, n = 0;

	for (range = 0; range < sizeof(ranges) / sizeof(ranges[0]); range++) {
		for (at = ranges[range][0]; at <= ranges[range][1]; at++)
			registers[n++] = at;
	}
}

/* Of each CPU that there is; -1 with the reason on standard error. */
static int snapshot(unsigned long long values[CPUS][REGISTERS])
{
	unsigned int cpu, i;

	list_registers();
	memset(values, 0, sizeof(unsigned long long) * CPUS * REGISTERS);
	for (cpu = 0; cpu < CPUS; cpu++) {
		struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = cpu };
		struct skidproof_msr reads[REGISTERS];
		struct skidproof_msrs msrs = { (unsigned long long)reads, REGISTERS, 0 };
		int file = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);

		memset(reads, 0, sizeof(reads));
		for (i = 0; i < REGISTERS; i++)
			reads[i].msr = registers[i];
		if (file < 0 || ioctl(file, SKIDPROOF_IOC_CLAIM, &claim)) {
			if (file >= 0)
				close(file);
			if (file >= 0 && cpu > 0 && errno == ENXIO)
				return 0;
			fprintf(stderr, "hostile: cannot claim CPU %u: %s\n", cpu, strerror(errno));
			return -1;
		}
		if (ioctl(file, SKIDPROOF_IOC_MSRS, &msrs)) {
			perror("hostile: cannot read the registers");
			return -1;
		}
		for (i = 0; i < REGISTERS; i++)
			values[cpu][i] = reads[i].value;
		close(file);
	}
	return 0;
}

static int run_long(unsigned long times)
{
	unsigned long long state = times;
	int failed = 0;

	while (times-- && !failed) {
		files[0] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
		failed = sampling_run(&state, 0, 0, 2000000, 5000, 1);
		unmap_all(0);
		close(files[0]);
	}
	printf("hostile: long runs, %lu at ring 3: %lu PMIs, %lu NMIs of others\n", counts->user,
	       counts->pmis, counts->nmis);
	return failed ? 1 : 0;
}

/* Any programs at ring 3, one after the other. */
static int run_any(unsigned long times, unsigned long long state)
{
	files[0] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	while (times--)
		endless_run(&state, 0, 1);
	printf("hostile: any programs: %lu at ring 3, %lu faulted, %lu did not end, %lu wrong\n",
	       counts->user, counts->faults, counts->timeouts, counts->wrong);
	unmap_all(0);
	close(files[0]);
	return counts->wrong != 0;
}

/* Brings CPU 1 there or away; 0 where there is none, or it is in use just now. */
static int bring(int online)
{
	int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC), done;

	if (file < 0)
		return 0;
	done = write(file, online ? "1" : "0", 1) == 1;
	close(file);
	return done;
}

/* What goes on outside of the two processes, and how far they are. */
static unsigned long look_after(void)
{
	unsigned long report = REPORT_EVERY, offline = OFFLINE_EVERY, times = 0;
	int status, running = PROCESSES;

	while (running > 0) {
		while (waitpid(-1, &status, WNOHANG) > 0) {
			running--;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				complain("a process ended with status", status);
		}
		usleep(100000);
		/* Files are open, so it must stay. */
		if (!syscall(SYS_delete_module, "skidproof", O_NONBLOCK) ||
		    (errno != EWOULDBLOCK && errno != EBUSY))
			complain("unloading the module while it is in use", errno);
		if (calls() >= offline) {
			offline += OFFLINE_EVERY;
			times += bring(0);
			usleep(20000);
			bring(1);
		}
		if (calls() >= report) {
			report += REPORT_EVERY;
			printf("hostile: %lu calls, %lu wrong\n", calls(), counts->wrong);
			fflush(stdout);
		}
	}
	return times;
}

static unsigned long long seed_of(int argc, char **argv, int n)
{
	return argc > n ? strtoull(argv[n], NULL, 0) : 1;
}

int main(int argc, char **argv)
{
	unsigned long long seed = seed_of(argc, argv, 2), state = seed;
	unsigned long long before[CPUS][REGISTERS], after[CPUS][REGISTERS];
	unsigned long offline;
	int i, cpu;

	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (counts == MAP_FAILED)
		return 2;
	if (argc > 2 && !strcmp(argv[1], "long"))
		return run_long(strtoul(argv[2], NULL, 0));
	if (argc > 2 && !strcmp(argv[1], "any"))
		return run_any(strtoul(argv[2], NULL, 0), seed_of(argc, argv, 3));
	if (snapshot(before))
		return 2;
	if (argc > 1 && !strcmp(argv[1], "registers")) {
		for (i = 0; i < CPUS * REGISTERS; i++)
			printf("%llx ", before[i / REGISTERS][i % REGISTERS]);
		printf("\n");
		return 0;
	}
	wanted = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000;
	files[SHARED] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	for (i = 0; i < PROCESSES; i++) {
		unsigned long long own = next(&state);
		pid_t child = fork();

		if (child < 0) {
			perror("fork");
			return 2;
		}
		if (!child)
			be_hostile(own);
	}
	offline = look_after();
	close(files[SHARED]);
	if (snapshot(after))
		return 2;
	for (cpu = 0; cpu < CPUS; cpu++) {
		for (i = 0; i < REGISTERS; i++) {
			if (before[cpu][i] == after[cpu][i])
				continue;
			fprintf(stderr, "hostile: wrong: CPU %d, MSR %x was %llx and is %llx\n",
				cpu, registers[i], before[cpu][i], after[cpu][i]);
			counts->wrong++;
		}
	}
	printf("hostile: seed %llu\n", seed);
	for (i = 0; i < KINDS; i++)
		printf("  %-16s %8lu answered %8lu refused\n", names[i], counts->done[i],
		       counts->failed[i]);
	printf("  %lu closes, CPU 1 offline %lu times\n", counts->closes, offline);
	printf("  runs: %lu at ring 3, %lu PMIs, %lu faults, %lu timeouts; "
	       "%lu debug stores elsewhere refused\n",
	       counts->user, counts->pmis, counts->faults, counts->timeouts, counts->outside);
	printf("hostile: %lu calls, %lu wrong\n", calls(), counts->wrong);
	return counts->wrong != 0;
}
