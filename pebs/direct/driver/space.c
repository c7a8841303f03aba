// SPDX-License-Identifier: GPL-2.0
/*
 * The page tables under which programs run. Their upper half is the kernel's, so
 * that the debug store and the handlers are there at every ring, also where the
 * kernel keeps itself out of the tables of user space. Their lower half holds
 * the file's code and data and nothing else. No process has these tables, and
 * they are loaded only while interrupts are off.
 */
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/pgtable.h>
#include <asm/processor-flags.h>
#include <asm/special_insns.h>

#include "skidproof.h"

#define ENTRIES 512
#define TABLE (_PAGE_PRESENT | _PAGE_RW | _PAGE_USER | _PAGE_ACCESSED)
#define PAGE (_PAGE_PRESENT | _PAGE_USER | _PAGE_ACCESSED)
/* No process' and not 0; the kernel's bit for user space's tables is clear. */
#define OUR_PCID 0x7ffUL
/* Linear address space separation: ring 0 would have no lower half. */
#define CR4_LASS BIT_ULL(27)
/* The kernel tells a pair of tables, its own and user space's, by the lowest bit of their page. */
#define ROOT_ORDER 1

static void write_cr4(u64 value)
{
	asm volatile("mov %0, %%cr4" : : "r" (value) : "memory");
}

/* The entry of the lowest level for an address; NULL without memory. */
static u64 *entry_for(struct skidproof_file *file, u64 address)
{
	int level = native_read_cr4() & X86_CR4_LA57 ? 4 : 3;
	u64 *table = file->root;

	for (; level > 0; level--) {
		u64 *entry = &table[address >> (PAGE_SHIFT + 9 * level) & (ENTRIES - 1)];

		if (!*entry) {
			u64 *next = (u64 *)get_zeroed_page(GFP_KERNEL_ACCOUNT);

			if (!next)
				return NULL;
			list_add(&virt_to_page(next)->lru, &file->tables);
			*entry = __pa(next) | TABLE;
		}
		table = __va(*entry & PHYSICAL_PAGE_MASK);
	}
	return &table[address >> PAGE_SHIFT & (ENTRIES - 1)];
}

static int add(struct skidproof_file *file, const struct skidproof_block *block)
{
	u64 no_execute = boot_cpu_has(X86_FEATURE_NX) ? _PAGE_NX : 0;
	/* User space writes code through its own mapping. */
	u64 data = PAGE | _PAGE_RW | _PAGE_DIRTY | no_execute;
	u64 flags = block->use == SKIDPROOF_CODE ? PAGE : data;
	unsigned long i;

	for (i = 0; i < block->count; i++) {
		u64 *entry = entry_for(file, block->address + i * PAGE_SIZE);

		if (!entry)
			return -ENOMEM;
		*entry = (u64)page_to_pfn(block->pages[i]) << PAGE_SHIFT | flags;
	}
	return 0;
}

void skidproof_space_free(struct skidproof_file *file)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, &file->tables, lru) {
		list_del(&page->lru);
		__free_page(page);
	}
	free_pages((unsigned long)file->root, ROOT_ORDER);
	file->root = NULL;
}

/* Under file->lock. Anew where blocks have come or gone. */
int skidproof_space_build(struct skidproof_file *file)
{
	struct skidproof_block *block;
	int error = 0;

	if (file->root && !file->blocks_changed)
		return 0;
	skidproof_space_free(file);
	file->root = (u64 *)__get_free_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO, ROOT_ORDER);
	if (!file->root)
		return -ENOMEM;
	list_for_each_entry(block, &file->blocks, list) {
		if (!error && block->use < SKIDPROOF_DEBUG_STORE)
			error = add(file, block);
	}
	if (error)
		skidproof_space_free(file);
	else
		file->blocks_changed = false;
	return error;
}

/* With interrupts off. The lower half is user space's, or ring 0's alone. */
void skidproof_space_enter(const struct skidproof_file *file, struct skidproof_space *found,
			   bool user, bool user_rdpmc)
{
	u64 *kernel, cr4;
	int i;

	found->cr3 = __native_read_cr3();
	found->cr4 = native_read_cr4();
	kernel = __va(found->cr3 & PHYSICAL_PAGE_MASK);
	for (i = 0; i < ENTRIES / 2; i++) {
		if (file->root[i])
			file->root[i] = user ? file->root[i] | _PAGE_USER :
					       file->root[i] & ~(u64)_PAGE_USER;
	}
	memcpy(file->root + ENTRIES / 2, kernel + ENTRIES / 2, ENTRIES / 2 * sizeof(*kernel));
	cr4 = found->cr4 & ~(CR4_LASS | (user ? X86_CR4_PCE : 0));
	write_cr4(cr4 | (user_rdpmc ? X86_CR4_PCE : 0));
	native_write_cr3(__pa(file->root) | (cr4 & X86_CR4_PCIDE ? OUR_PCID : 0));
}

void skidproof_space_leave(const struct skidproof_space *found)
{
	native_write_cr3(found->cr3);
	write_cr4(found->cr4);
}
