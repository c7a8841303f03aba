// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that the kernel took for good and counts nowhere: held_pages prints two
 * figures in kB. Who compares a kernel's memory before and after must know them.
 *
 * First what the stack depot holds. With slub_debug=U the kernel keeps each
 * distinct way to an allocation or to its end in a slab; an interrupt may come
 * upon any instruction, so there is always one more. 0 where the kernel has no
 * depot or nothing uses it. Linux 6.9 and later say it in debugfs (pools).
 * Before, it is in the depot's own variables (lib/stackdepot.c: depot_index, the
 * slab that is being filled, and stack_slabs, in which the next one may stand
 * already).
 *
 * Then the last level of the page tables for the kernel's half of the address
 * space: a page for every 2 MiB in which something was ever mapped by pages. It
 * goes on to stand when that is unmapped (mm/vmalloc.c: vunmap). Tables above it
 * are one in 512 of those, and the middle ones are among PageTables.
 *
 * Everything but the debugfs file is read through /proc/kcore. Exits 2 with a
 * message when something cannot be read.
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
#define TABLE_KB 4
#define ENTRIES 512
#define PRESENT 0x1ull
#define LEAF 0x80ull /* maps 1 GiB or 2 MiB itself: SDM volume 3, 4.5 "4-Level Paging and 5-Level Paging" */
#define FRAME 0x000ffffffffff000ull
/* espfix: the same few tables again and again (Documentation/arch/x86/x86_64/mm.rst) */
#define ESPFIX 0xffffff0000000000ull

enum { DEPOT_INDEX, STACK_SLABS, TOP_TABLE, DIRECT_MAP, TOP_SHIFT, SYMBOLS };
static const char *const names[SYMBOLS] = {
	"depot_index", "stack_slabs", "init_top_pgt", "page_offset_base", "pgdir_shift",
};
static uint64_t symbols[SYMBOLS]; /* 0 where the kernel has none of that name */

static int kcore;
static Elf64_Phdr ranges[64];
static int range_count;
static uint64_t direct_map = 0xffff888000000000ull; /* of 4-level paging without randomisation */

static void cannot(const char *what)
{
	fprintf(stderr, "held_pages: cannot read %s: %s\n", what, strerror(errno));
	exit(2);
}

static void read_symbols(void)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[512];

	if (!file)
		cannot("/proc/kallsyms");
	while (fgets(line, sizeof(line), file)) {
		/* "ffffffff82a3c0e0 b depot_index", and a module's name behind a tab */
		char *name = strrchr(line, ' ');

		if (!name || strchr(name, '\t'))
			continue;
		name[strcspn(name, "\n")] = 0;
		for (int i = 0; i < SYMBOLS; i++)
			if (!strcmp(name + 1, names[i]))
				symbols[i] = strtoull(line, NULL, 16);
	}
	fclose(file);
}

/* The kernel's memory is an ELF file: each program header is a range of addresses. */
static void open_kernel(void)
{
	Elf64_Ehdr header;
	ssize_t bytes;

	kcore = open("/proc/kcore", O_RDONLY);
	if (kcore < 0 || pread(kcore, &header, sizeof(header), 0) != sizeof(header))
		cannot("/proc/kcore");
	range_count = header.e_phnum;
	bytes = range_count * sizeof(ranges[0]);
	if (bytes > (ssize_t)sizeof(ranges)) {
		errno = E2BIG;
		cannot("/proc/kcore's ranges");
	}
	if (pread(kcore, ranges, bytes, header.e_phoff) != bytes)
		cannot("/proc/kcore's ranges");
}

static void read_kernel(uint64_t address, void *to, size_t bytes)
{
	char what[64];

	snprintf(what, sizeof(what), "the kernel's memory at %#llx", (unsigned long long)address);
	for (int i = 0; i < range_count; i++) {
		const Elf64_Phdr *range = &ranges[i];

		if (range->p_type != PT_LOAD || address < range->p_vaddr ||
		    address + bytes > range->p_vaddr + range->p_memsz)
			continue;
		if (pread(kcore, to, bytes, range->p_offset + address - range->p_vaddr) != (ssize_t)bytes)
			cannot(what);
		return;
	}
	errno = EFAULT;
	cannot(what);
}

static unsigned long depot_kb(void)
{
	static const char path[] = "/sys/kernel/debug/stackdepot/stats";
	FILE *stats = fopen(path, "r");
	unsigned long pools = 0;
	int index;

	if (stats) {
		if (fscanf(stats, "pools: %lu", &pools) != 1)
			cannot(path);
		fclose(stats);
		return pools * POOL_KB;
	}
	if (!symbols[DEPOT_INDEX] || !symbols[STACK_SLABS])
		return 0;
	read_kernel(symbols[DEPOT_INDEX], &index, sizeof(index));
	for (int i = 0; i <= index + 1; i++) {
		uint64_t slab;

		read_kernel(symbols[STACK_SLABS] + i * sizeof(slab), &slab, sizeof(slab));
		pools += slab != 0;
	}
	return pools * POOL_KB;
}

/*
 * Tables of the last level below one whose entries map 1 << shift bytes each, of
 * which the first is for address.
 */
static unsigned long last_level(uint64_t table, uint64_t address, int shift, int first)
{
	uint64_t entries[ENTRIES];
	unsigned long found = 0;

	read_kernel(table, entries, sizeof(entries));
	for (int i = first; i < ENTRIES; i++) {
		uint64_t entry = entries[i], at = address + ((uint64_t)i << shift);

		if (!(entry & PRESENT) || (shift <= 30 && (entry & LEAF)) || (shift == 39 && at == ESPFIX))
			continue;
		found += shift == 21 ? 1 : last_level(direct_map + (entry & FRAME), at, shift - 9, 0);
	}
	return found;
}

static unsigned long tables_kb(void)
{
	uint32_t shift = 39;

	if (!symbols[TOP_TABLE]) {
		errno = ENOENT;
		cannot("where the kernel's page tables are");
	}
	if (symbols[DIRECT_MAP])
		read_kernel(symbols[DIRECT_MAP], &direct_map, sizeof(direct_map));
	if (symbols[TOP_SHIFT])
		read_kernel(symbols[TOP_SHIFT], &shift, sizeof(shift));
	/* The upper half; with the sign's bits above what the entries map. */
	return TABLE_KB * last_level(symbols[TOP_TABLE], ~0ull << (shift + 9), shift, ENTRIES / 2);
}

int main(void)
{
	read_symbols();
	open_kernel();
	printf("%lu %lu\n", depot_kb(), tables_kb());
	return 0;
}
