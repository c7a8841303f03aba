// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks of memory that the kernel and user space both see: a program's code
 * and data, the DS area and its buffers. Each is a mapping of its own in the
 * vmalloc area, where an unmapped page stands behind every one, so that no two
 * touch and code shares no page with anything.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/pgtable.h>
#include <asm/tlbflush.h>

#include "skidproof.h"

static unsigned int memory_mib = 1024;
module_param(memory_mib, uint, 0644);
MODULE_PARM_DESC(memory_mib, "most memory of one open file, in MiB (default 1024)");

#define MAX_BLOCKS 4096

static void flush_all(void *unused)
{
	__flush_tlb_all();
}

/*
 * vmap() never maps executable pages, and what would change that is not
 * exported. The block is not in use yet, so its entries are simply written:
 * executable, and read-only, since user space writes through its own mapping.
 */
static int make_code(struct skidproof_block *block)
{
	unsigned long i;

	for (i = 0; i < block->count; i++) {
		unsigned int level;
		pte_t *pte = lookup_address((unsigned long)block->address + i * PAGE_SIZE, &level);

		if (!pte || level != PG_LEVEL_4K)
			return -EOPNOTSUPP;
		WRITE_ONCE(pte->pte, pte->pte & ~(_PAGE_NX | _PAGE_RW));
	}
	on_each_cpu(flush_all, NULL, 1);
	return 0;
}

static void put_pages(struct skidproof_block *block)
{
	unsigned long i;

	if (block->address)
		vunmap(block->address);
	for (i = 0; i < block->count && block->pages[i]; i++)
		__free_page(block->pages[i]);
	kvfree(block->pages);
	kfree(block);
}

struct skidproof_block *skidproof_block_new(struct skidproof_file *file, u64 bytes, u32 use)
{
	unsigned long pages_limit = (unsigned long)memory_mib << (20 - PAGE_SHIFT);
	struct skidproof_block *block, *each;
	unsigned long i, count, blocks = 0;
	int error;

	if (!bytes || bytes > SKIDPROOF_MAX_BLOCK_BYTES || use > SKIDPROOF_DEBUG_STORE)
		return ERR_PTR(-EINVAL);
	count = DIV_ROUND_UP(bytes, PAGE_SIZE);
	list_for_each_entry(each, &file->blocks, list)
		blocks++;
	if (blocks >= MAX_BLOCKS || count > pages_limit || file->pages > pages_limit - count)
		return ERR_PTR(-ENOSPC);

	block = kzalloc(sizeof(*block), GFP_KERNEL_ACCOUNT);
	if (!block)
		return ERR_PTR(-ENOMEM);
	block->use = use;
	block->count = count;
	block->pages = kvcalloc(count, sizeof(*block->pages), GFP_KERNEL_ACCOUNT);
	if (!block->pages) {
		kfree(block);
		return ERR_PTR(-ENOMEM);
	}
	error = -ENOMEM;
	for (i = 0; i < count; i++) {
		/* Rather no memory than the OOM killer's attention. */
		block->pages[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
					     __GFP_RETRY_MAYFAIL);
		if (!block->pages[i])
			goto fail;
		if (!(i & 255)) {
			cond_resched();
			if (fatal_signal_pending(current)) {
				error = -EINTR;
				goto fail;
			}
		}
	}
	block->address = vmap(block->pages, count, VM_MAP, PAGE_KERNEL);
	if (!block->address)
		goto fail;
	if (use == SKIDPROOF_CODE) {
		/* INT3, wherever no program is. */
		memset(block->address, 0xcc, count * PAGE_SIZE);
		error = make_code(block);
		if (error)
			goto fail;
	}

	mutex_lock(&file->blocks_lock);
	block->offset = file->next_offset;
	file->next_offset += (u64)(count + 1) * PAGE_SIZE;
	file->pages += count;
	list_add(&block->list, &file->blocks);
	mutex_unlock(&file->blocks_lock);
	return block;

fail:
	put_pages(block);
	return ERR_PTR(error);
}

/* Mappings of user space keep the pages until they go; the kernel's goes now. */
void skidproof_block_free(struct skidproof_file *file, struct skidproof_block *block)
{
	mutex_lock(&file->blocks_lock);
	list_del(&block->list);
	file->pages -= block->count;
	mutex_unlock(&file->blocks_lock);
	put_pages(block);
}

/* The block that holds all of these bytes. Called under file->lock. */
struct skidproof_block *skidproof_block_at(struct skidproof_file *file, u64 address, u64 bytes)
{
	struct skidproof_block *block;

	list_for_each_entry(block, &file->blocks, list) {
		u64 begin = (u64)(uintptr_t)block->address;
		u64 size = (u64)block->count * PAGE_SIZE;

		if (address >= begin && address - begin <= size &&
		    bytes <= size - (address - begin))
			return block;
	}
	return NULL;
}

void skidproof_blocks_free(struct skidproof_file *file)
{
	struct skidproof_block *block, *next;

	list_for_each_entry_safe(block, next, &file->blocks, list)
		skidproof_block_free(file, block);
}

int skidproof_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct skidproof_file *file = filp->private_data;
	unsigned long count = vma_pages(vma);
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	struct skidproof_block *block;
	unsigned long i;
	int error = -EINVAL;

	/* A private mapping would be a copy; nothing here is for user space to execute. */
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
#else
	vma->vm_flags |= VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP;
	vma->vm_flags &= ~VM_MAYEXEC;
#endif

	mutex_lock(&file->blocks_lock);
	list_for_each_entry(block, &file->blocks, list) {
		if (block->offset != offset)
			continue;
		if (block->count != count)
			break;
		error = 0;
		for (i = 0; i < count && !error; i++)
			error = vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE, block->pages[i]);
		break;
	}
	mutex_unlock(&file->blocks_lock);
	return error;
}
