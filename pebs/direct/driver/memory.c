// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks of memory that user space sees as well: a program's code and data, in
 * the lower half of memory, where only the page tables under which programs run
 * have them, and the DS area and its buffers, in the vmalloc area. Of a buffer of
 * architectural PEBS only physical memory knows. An unmapped
 * page stands behind every one, so that no two touch and code shares no page
 * with anything.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/pgtable.h>

#include "skidproof.h"

static unsigned int memory_mib = 1024;
module_param(memory_mib, uint, 0644);
MODULE_PARM_DESC(memory_mib, "most memory of one open file, in MiB (default 1024)");

#define MAX_BLOCKS 4096
#ifndef MAX_PAGE_ORDER /* before Linux 6.8 it was called otherwise, and one more before 6.4 */
#define MAX_PAGE_ORDER (MAX_ORDER - 1)
#endif
/*
 * Where programs find what is not the debug store: as far above as in the file.
 * Linux has no process' memory there unless it is asked to.
 */
#define BLOCKS_BEGIN BIT_ULL(46)
#define BLOCKS_SPAN BIT_ULL(44)

int skidproof_memory_init(void)
{
	if (memory_mib)
		return 0;
	pr_err("skidproof: memory_mib=0 leaves no memory for programs; it is from 1 on\n");
	return -EINVAL;
}

static void put_pages(struct skidproof_block *block)
{
	unsigned long i;

	if (block->view)
		vunmap(block->view);
	for (i = 0; i < block->count && block->pages[i]; i++)
		__free_page(block->pages[i]);
	kvfree(block->pages);
	kfree(block);
}

/* Pages behind one another; each is freed by itself. */
static bool take_one_piece(struct skidproof_block *block)
{
	size_t bytes = block->count * PAGE_SIZE;
	char *piece = NULL;
	unsigned long i;

	if (get_order(bytes) <= MAX_PAGE_ORDER)
		piece = alloc_pages_exact(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
						 __GFP_RETRY_MAYFAIL);
	for (i = 0; i < block->count && piece; i++)
		block->pages[i] = virt_to_page(piece + i * PAGE_SIZE);
	block->physical = piece ? __pa(piece) : 0;
	return piece;
}

struct skidproof_block *skidproof_block_new(struct skidproof_file *file, u64 bytes, u32 use)
{
	unsigned long pages_limit = (unsigned long)memory_mib << (20 - PAGE_SHIFT);
	struct skidproof_block *block, *each;
	unsigned long i, count, blocks = 0;
	int error;

	if (!bytes || bytes > SKIDPROOF_MAX_BLOCK_BYTES || use > SKIDPROOF_PEBS_BUFFER)
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
	if (use == SKIDPROOF_PEBS_BUFFER && !take_one_piece(block))
		goto fail;
	for (i = 0; i < count && !block->physical; i++) {
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
	if (use == SKIDPROOF_DEBUG_STORE) {
		block->view = vmap(block->pages, count, VM_MAP, PAGE_KERNEL);
		if (!block->view)
			goto fail;
	}
	/* INT3, wherever no program is. */
	for (i = 0; i < count && use == SKIDPROOF_CODE; i++)
		memset(page_address(block->pages[i]), 0xcc, PAGE_SIZE);
	error = -ENOSPC;
	if (file->next_offset + (u64)(count + 1) * PAGE_SIZE > BLOCKS_SPAN)
		goto fail;

	mutex_lock(&file->blocks_lock);
	block->offset = file->next_offset;
	block->address = block->view ? (u64)(uintptr_t)block->view : BLOCKS_BEGIN + block->offset;
	file->next_offset += (u64)(count + 1) * PAGE_SIZE;
	file->blocks_changed = true;
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
	file->blocks_changed = true;
	mutex_unlock(&file->blocks_lock);
	put_pages(block);
}

/* The block that holds all of these bytes. Called under file->lock. */
struct skidproof_block *skidproof_block_at(struct skidproof_file *file, u64 address, u64 bytes)
{
	struct skidproof_block *block;

	list_for_each_entry(block, &file->blocks, list) {
		u64 size = (u64)block->count * PAGE_SIZE, at = address - block->address;

		if (address >= block->address && at <= size && bytes <= size - at)
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
		if (block->count != count || block->internal)
			break;
		error = 0;
		for (i = 0; i < count && !error; i++)
			error = vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE, block->pages[i]);
		break;
	}
	mutex_unlock(&file->blocks_lock);
	return error;
}
