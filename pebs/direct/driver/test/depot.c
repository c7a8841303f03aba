// SPDX-License-Identifier: GPL-2.0
/*
 * How much the kernel's stack depot holds: depot prints it in kB, 0 where the
 * kernel has none or nothing uses it.
 *
 * With slub_debug=U the kernel keeps, for good, each distinct way to an
 * allocation or to its end in a slab. An interrupt may come upon any
 * instruction, so there is always one more. The depot takes its pages from the
 * page allocator and counts them nowhere; who compares a kernel's memory before
 * and after must know of them.
 *
 * Linux 6.9 and later say it in debugfs (pools). Before, it is in the depot's
 * own variables (lib/stackdepot.c: depot_index, the slab that is being filled,
 * and stack_slabs, in which the next one may stand already), read through
 * /proc/kcore. Exits 2 with a message when they cannot be read.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_KB 16 /* four pages each: STACK_ALLOC_ORDER, later DEPOT_POOL_ORDER */

static void cannot(const char *what)
{
	fprintf(stderr, "depot: cannot read %s: %s\n", what, strerror(errno));
	exit(2);
}

/* Addresses of these names in the kernel's symbols; 0 stays where there is none. */
static void find(const char *const *names, uint64_t *addresses, int count)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	char line[512];

	if (!symbols)
		cannot("/proc/kallsyms");
	while (fgets(line, sizeof(line), symbols)) {
		/* "ffffffff82a3c0e0 b depot_index", and a module's name behind a tab */
		char *name = strrchr(line, ' ');

		if (!name)
			continue;
		name[strcspn(name, "\t\n")] = 0;
		for (int i = 0; i < count; i++)
			if (!strcmp(name + 1, names[i]))
				addresses[i] = strtoull(line, NULL, 16);
	}
	fclose(symbols);
}

/* The kernel's memory as an ELF file: each program header is a range of addresses. */
static void read_kernel(int kcore, uint64_t address, void *to, size_t bytes)
{
	Elf64_Ehdr header;

	if (pread(kcore, &header, sizeof(header), 0) != sizeof(header))
		cannot("/proc/kcore");
	for (int i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr range;

		if (pread(kcore, &range, sizeof(range), header.e_phoff + i * sizeof(range)) != sizeof(range))
			cannot("/proc/kcore");
		if (range.p_type != PT_LOAD || address < range.p_vaddr ||
		    address + bytes > range.p_vaddr + range.p_memsz)
			continue;
		if (pread(kcore, to, bytes, range.p_offset + address - range.p_vaddr) != (ssize_t)bytes)
			cannot("/proc/kcore");
		return;
	}
	errno = EFAULT;
	cannot("the depot's variables");
}

int main(void)
{
	static const char *const names[] = { "depot_index", "stack_slabs" };
	FILE *stats = fopen("/sys/kernel/debug/stackdepot/stats", "r");
	uint64_t addresses[2] = { 0, 0 };
	unsigned long pools = 0;
	int kcore, index;

	if (stats) {
		if (fscanf(stats, "pools: %lu", &pools) != 1)
			cannot("/sys/kernel/debug/stackdepot/stats");
		printf("%lu\n", pools * POOL_KB);
		return 0;
	}
	find(names, addresses, 2);
	if (!addresses[0] || !addresses[1]) {
		puts("0");
		return 0;
	}
	kcore = open("/proc/kcore", O_RDONLY);
	if (kcore < 0)
		cannot("/proc/kcore");
	read_kernel(kcore, addresses[0], &index, sizeof(index));
	for (int i = 0; i <= index + 1; i++) {
		uint64_t slab;

		read_kernel(kcore, addresses[1] + i * sizeof(slab), &slab, sizeof(slab));
		pools += slab != 0;
	}
	printf("%lu\n", pools * POOL_KB);
	return 0;
}
