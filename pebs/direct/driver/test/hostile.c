// SPDX-License-Identifier: GPL-2.0
/*
 * Random and hostile calls of the driver: hostile [COUNT [SEED]]. With the
 * argument `registers` it prints what CPU 0 holds instead.
 *
 * Wrong sizes, unmapped pointers, unlisted registers, buffers that are not the
 * caller's, calls that race with one another and with close(). Every one must
 * answer 0 or an errno; afterwards the registers must be as they were. Meant
 * for a kernel that panics on warnings. Exits 1 when a call did what it must
 * not.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define FILES 4
#define BLOCKS 8
#define THREADS 3

static int files[FILES];
static struct skidproof_alloc blocks[FILES][BLOCKS];
static void *views[FILES][BLOCKS];
static unsigned long done[64], failed[64];
static unsigned long long wrong;

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
		/* From here on they are absent, read-only or not on the list. */
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

static int call(int file, unsigned long request, void *argument, unsigned int kind)
{
	int result = ioctl(files[file], request, argument);

	if (result == 0)
		__atomic_add_fetch(&done[kind], 1, __ATOMIC_RELAXED);
	else
		__atomic_add_fetch(&failed[kind], 1, __ATOMIC_RELAXED);
	if (result != 0 && result != -1)
		wrong++;
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
	if (call(file, SKIDPROOF_IOC_MSRS, &msrs, 3) == 0) {
		for (i = 0; i < msrs.done && i < 8; i++) {
			/* Never let through. */
			if (list[i].msr == 0x10 || list[i].msr == 0x79 || list[i].msr >= 0xc0000000)
				wrong++;
		}
	}
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
		if (call(file, SKIDPROOF_IOC_FREE, &given, 5) == 0 && given.address == block->address) {
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
	block->use = spoil ? below(state, 4) : below(state, 3);
	block->bytes = spoiled(state, 4) ? value(state, file) : 8 + below(state, 65536);
	block->reserved = spoiled(state, 16);
	if (call(file, SKIDPROOF_IOC_ALLOC, block, 4) != 0) {
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

static void random_run(unsigned long long *state, int file)
{
	/* RET; UD2; a load from 8; DEC RDI, JNZ back, RET. */
	static const unsigned char code[][8] = {
		{ 0xc3 }, { 0x0f, 0x0b }, { 0x48, 0x8b, 0x04, 0x25, 8, 0, 0, 0 },
		{ 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 },
	};
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
	/* Only code that was put there is entered: at its beginning, or somewhere that is refused. */
	for (i = 0; i < BLOCKS && blocks[file][n].use != SKIDPROOF_CODE; i++)
		n = (n + 1) % BLOCKS;
	if (blocks[file][n].use == SKIDPROOF_CODE && views[file][n] && blocks[file][n].address &&
	    blocks[file][n].bytes >= 8) {
		memcpy(views[file][n], code[below(state, 4)], 8);
		run.entry = blocks[file][n].address;
	} else {
		run.entry = below(state, 2) ? 0 : next(state);
	}
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
	call(file, SKIDPROOF_IOC_RUN, &run, 6);
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
	struct skidproof_rdpmc rdpmc = { .index = value(state, file), .cr4_pce = below(state, 3) };
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = below(state, 4) };
	char junk[512];
	unsigned int i;

	spoil = below(state, 3) == 0;
	switch (below(state, 16)) {
	case 0:
		if (spoiled(state, 4))
			claim.abi = next(state);
		if (spoiled(state, 4))
			claim.cpu = next(state);
		call(file, SKIDPROOF_IOC_CLAIM, &claim, 1);
		break;
	case 1:
		if (below(state, 16) == 0)
			call(file, SKIDPROOF_IOC_RELEASE, NULL, 2);
		break;
	case 2:
		call(file, SKIDPROOF_IOC_RDPMC, &rdpmc, 7);
		break;
	case 3:
		/* Sizes and numbers that are nobody's, and pointers that lead nowhere. */
		for (i = 0; i < sizeof(junk); i++)
			junk[i] = next(state);
		call(file, below(state, 2) ? next(state) : _IOC(below(state, 4), SKIDPROOF_IOC_MAGIC,
								below(state, 16), below(state, 512)),
		     (void *)pointer(state, junk), 8);
		break;
	case 4:
		call(file, _IOWR(SKIDPROOF_IOC_MAGIC, 6, struct skidproof_run),
		     (void *)pointer(state, junk), 9);
		break;
	case 5:
		if (below(state, 256) == 0) {
			/* Another one takes the number at once; the threads find it closed meanwhile. */
			close(files[file]);
			unmap_all(file);
			files[file] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
		}
		break;
	case 6:
	case 7:
	case 8:
		random_memory(state, file);
		break;
	case 9:
	case 10:
	case 11:
		random_run(state, file);
		break;
	default:
		random_msrs(state, file);
	}
}

/* Calls on the same files while the main thread works with them, and closes them. */
static void *racer(void *argument)
{
	unsigned long long state = (unsigned long long)argument;
	unsigned long count = state >> 32, i;

	for (i = 0; i < count; i++) {
		int file = below(&state, FILES);
		struct skidproof_msr one = { .msr = 0x38e };
		struct skidproof_msrs msrs = { .list = (unsigned long long)&one, .count = 1 };
		struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = below(&state, 3) };

		if (below(&state, 4))
			call(file, SKIDPROOF_IOC_MSRS, &msrs, 10);
		else
			call(file, SKIDPROOF_IOC_CLAIM, &claim, 11);
	}
	return NULL;
}

/* The registers that a released CPU must have got back. */
static int snapshot(unsigned long long *values)
{
	static const unsigned int list[] = { 0xc1, 0xc2, 0xc3, 0xc4, 0x186, 0x187, 0x188, 0x189, 0x1d9,
					     0x309, 0x30a, 0x30b, 0x38d, 0x38e, 0x3f1, 0x600, 0x834 };
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	struct skidproof_msr reads[17];
	struct skidproof_msrs msrs = { .list = (unsigned long long)reads, .count = 17 };
	int file = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC), i;

	memset(reads, 0, sizeof(reads));
	for (i = 0; i < 17; i++)
		reads[i].msr = list[i];
	if (file < 0 || ioctl(file, SKIDPROOF_IOC_CLAIM, &claim)) {
		perror("claim CPU 0");
		return -1;
	}
	if (ioctl(file, SKIDPROOF_IOC_MSRS, &msrs)) {
		perror("read the registers");
		return -1;
	}
	for (i = 0; i < 17; i++)
		values[i] = reads[i].value;
	close(file);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000, i;
	unsigned long long seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, state = seed;
	unsigned long long before[17], after[17];
	pthread_t racers[THREADS];
	unsigned long sum = 0;

	if (snapshot(before))
		return 2;
	if (argc > 1 && !strcmp(argv[1], "registers")) {
		for (i = 0; i < 17; i++)
			printf("%llx%c", before[i], i == 16 ? '\n' : ' ');
		return 0;
	}
	for (i = 0; i < FILES; i++)
		files[i] = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	for (i = 0; i < THREADS; i++) {
		unsigned long long share = count / 8 / THREADS;

		pthread_create(&racers[i], NULL, racer,
			       (void *)(share << 32 | (next(&state) & 0xffffffff)));
	}
	for (i = 0; i < count - count / 8; i++)
		random_call(&state);
	for (i = 0; i < THREADS; i++)
		pthread_join(racers[i], NULL);
	for (i = 0; i < FILES; i++) {
		close(files[i]);
		unmap_all(i);
	}
	if (snapshot(after))
		return 2;
	for (i = 0; i < 17; i++) {
		if (before[i] != after[i]) {
			printf("register %lu was %llx and is %llx\n", i, before[i], after[i]);
			wrong++;
		}
	}
	printf("hostile: seed %llu\n", seed);
	for (i = 0; i < 12; i++) {
		sum += done[i] + failed[i];
		if (done[i] + failed[i])
			printf("  kind %2lu: %lu answered, %lu refused\n", i, done[i], failed[i]);
	}
	printf("hostile: %lu calls, %llu wrong\n", sum, wrong);
	return wrong != 0;
}
