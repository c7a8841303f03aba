// SPDX-License-Identifier: GPL-2.0
/*
 * Skidproof's driver: direct access to the performance monitoring and debug
 * store registers of one processor, and programs at ring 0 or 3 on it, for test
 * suites of precise event based sampling.
 *
 * Whoever may open the device may execute any code in ring 0; the checks here
 * keep mistakes from the rest of the system.
 */
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/asm.h>

#include "skidproof.h"

#define STACK_BYTES 65536

static void release(struct skidproof_file *file)
{
	skidproof_release_cpu(file);
	if (file->stack) {
		skidproof_block_free(file, file->stack);
		file->stack = NULL;
	}
	if (file->landing) {
		skidproof_block_free(file, file->landing);
		file->landing = NULL;
	}
}

static long do_claim(struct skidproof_file *file, void __user *user)
{
	struct skidproof_claim claim;
	int error;

	if (copy_from_user(&claim, user, sizeof(claim)))
		return -EFAULT;
	if (claim.abi != SKIDPROOF_ABI || claim.flags)
		return -EINVAL;
	claim = (struct skidproof_claim){ .abi = claim.abi, .cpu = claim.cpu };
	error = skidproof_claim_cpu(file, &claim);
	if (!error && !file->stack) {
		struct skidproof_block *stack;

		stack = skidproof_block_new(file, STACK_BYTES, SKIDPROOF_DATA);
		if (IS_ERR(stack)) {
			skidproof_release_cpu(file);
			return PTR_ERR(stack);
		}
		stack->internal = true;
		file->stack = stack;
		error = skidproof_landing_new(file);
		if (error) {
			release(file);
			return error;
		}
	}
	if (copy_to_user(user, &claim, sizeof(claim))) {
		if (!error)
			release(file);
		return -EFAULT;
	}
	return error;
}

struct batch {
	struct skidproof_file *file;
	struct skidproof_msr *list;
	u32 count, done;
	int error;
};

static void batch_here(void *data)
{
	struct batch *batch = data;

	skidproof_unpark(batch->file);
	if (batch->file->intruder)
		batch->error = -EBUSY;
	while (!batch->error && batch->done < batch->count) {
		struct skidproof_msr *access = &batch->list[batch->done];

		batch->error = skidproof_msr_access(batch->file, access);
		if (batch->error)
			break;
		batch->done++;
		if (access->write && access->fault)
			break;
	}
	skidproof_park(batch->file);
}

static long do_msrs(struct skidproof_file *file, void __user *user)
{
	struct batch batch = { .file = file };
	struct skidproof_msrs msrs;
	size_t bytes;
	long error;
	u32 i;

	if (copy_from_user(&msrs, user, sizeof(msrs)))
		return -EFAULT;
	if (!msrs.count || msrs.done)
		return -EINVAL;
	if (msrs.count > SKIDPROOF_MAX_MSRS)
		return -E2BIG;
	error = skidproof_check_owner(file);
	if (error)
		return error;
	bytes = (size_t)msrs.count * sizeof(*batch.list);
	batch.list = vmemdup_user(u64_to_user_ptr(msrs.list), bytes);
	if (IS_ERR(batch.list))
		return PTR_ERR(batch.list);
	for (i = 0; i < msrs.count && !error; i++) {
		if (batch.list[i].write > 1 || batch.list[i].fault)
			error = -EINVAL;
		else
			error = skidproof_msr_listed(file, &batch.list[i]);
	}
	if (!error) {
		batch.count = msrs.count;
		error = skidproof_on_claimed_cpu(file, batch_here, &batch) ?: batch.error;
		msrs.done = batch.done;
		if (copy_to_user(u64_to_user_ptr(msrs.list), batch.list, bytes) ||
		    copy_to_user(user, &msrs, sizeof(msrs)))
			error = -EFAULT;
	}
	kvfree(batch.list);
	return error;
}

static long do_alloc(struct skidproof_file *file, void __user *user)
{
	struct skidproof_alloc alloc;
	struct skidproof_block *block;

	if (copy_from_user(&alloc, user, sizeof(alloc)))
		return -EFAULT;
	if (alloc.reserved || alloc.address || alloc.offset || alloc.physical)
		return -EINVAL;
	block = skidproof_block_new(file, alloc.bytes, alloc.use);
	if (IS_ERR(block))
		return PTR_ERR(block);
	alloc.bytes = (u64)block->count * PAGE_SIZE;
	alloc.address = block->address;
	alloc.offset = block->offset;
	alloc.physical = block->physical;
	if (copy_to_user(user, &alloc, sizeof(alloc))) {
		skidproof_block_free(file, block);
		return -EFAULT;
	}
	return 0;
}

static long do_free(struct skidproof_file *file, void __user *user)
{
	struct skidproof_block *block;
	struct skidproof_free given;

	if (copy_from_user(&given, user, sizeof(given)))
		return -EFAULT;
	block = skidproof_block_at(file, given.address, 0);
	if (!block || block->internal || block->address != given.address)
		return -EINVAL;
	skidproof_forget_ds(file, block);
	skidproof_block_free(file, block);
	return 0;
}

static long do_run(struct skidproof_file *file, void __user *user)
{
	struct skidproof_run *run;
	long error;

	run = memdup_user(user, sizeof(*run));
	if (IS_ERR(run))
		return PTR_ERR(run);
	error = skidproof_check_owner(file);
	if (!error) {
		WRITE_ONCE(file->running, true);
		error = skidproof_do_run(file, run);
		WRITE_ONCE(file->running, false);
	}
	if (!error && copy_to_user(user, run, sizeof(*run)))
		error = -EFAULT;
	kfree(run);
	return error;
}

static void rdpmc_here(void *data)
{
	struct skidproof_rdpmc *read = data;
	u32 low = 0, high = 0;
	int fault = 1;

	asm volatile("1: rdpmc\n\t"
		     "xor %[fault], %[fault]\n"
		     "2:\n\t"
		     _ASM_EXTABLE(1b, 2b)
		     : "+a" (low), "+d" (high), [fault] "+r" (fault)
		     : "c" (read->index));
	read->value = low | (u64)high << 32;
	read->fault = fault;
}

static long do_rdpmc(struct skidproof_file *file, void __user *user)
{
	struct skidproof_rdpmc read;
	int error;

	if (copy_from_user(&read, user, sizeof(read)))
		return -EFAULT;
	/* CR4.PCE has no effect in ring 0, so it is left as it is. */
	if ((read.ring && read.ring != 3) || read.cr4_pce > 1 || read.fault || read.value)
		return -EINVAL;
	error = skidproof_check_owner(file);
	if (!error)
		error = read.ring ? skidproof_user_rdpmc(file, &read) :
				    skidproof_on_claimed_cpu(file, rdpmc_here, &read);
	if (!error && copy_to_user(user, &read, sizeof(read)))
		error = -EFAULT;
	return error;
}

static long skidproof_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct skidproof_file *file = filp->private_data;
	void __user *user = (void __user *)argument;
	u32 abi = SKIDPROOF_ABI;
	long result;

	if (command == SKIDPROOF_IOC_ABI)
		return copy_to_user(user, &abi, sizeof(abi)) ? -EFAULT : 0;
	if (mutex_lock_killable(&file->lock))
		return -EINTR;
	switch (command) {
	case SKIDPROOF_IOC_CLAIM:
		result = do_claim(file, user);
		break;
	case SKIDPROOF_IOC_RELEASE:
		result = file->cpu < 0 ? -ENODEV : 0;
		release(file);
		break;
	case SKIDPROOF_IOC_MSRS:
		result = do_msrs(file, user);
		break;
	case SKIDPROOF_IOC_ALLOC:
		result = do_alloc(file, user);
		break;
	case SKIDPROOF_IOC_FREE:
		result = do_free(file, user);
		break;
	case SKIDPROOF_IOC_RUN:
		result = do_run(file, user);
		break;
	case SKIDPROOF_IOC_RDPMC:
		result = do_rdpmc(file, user);
		break;
	default:
		result = -ENOTTY;
	}
	mutex_unlock(&file->lock);
	return result;
}

static int skidproof_open(struct inode *inode, struct file *filp)
{
	struct skidproof_file *file;

	/* Whoever opens it executes any code in ring 0. */
	if (!capable(CAP_SYS_RAWIO) || !capable(CAP_SYS_ADMIN) || security_locked_down(LOCKDOWN_MSR))
		return -EPERM;
	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	mutex_init(&file->lock);
	mutex_init(&file->blocks_lock);
	INIT_LIST_HEAD(&file->blocks);
	INIT_LIST_HEAD(&file->tables);
	file->cpu = -1;
	filp->private_data = file;
	return 0;
}

/* The last user is gone, however: closed, killed, replaced by another program. */
static int skidproof_close(struct inode *inode, struct file *filp)
{
	struct skidproof_file *file = filp->private_data;

	release(file);
	skidproof_blocks_free(file);
	skidproof_space_free(file);
	kfree_rcu(file, rcu);
	return 0;
}

static const struct file_operations skidproof_operations = {
	.owner = THIS_MODULE,
	.open = skidproof_open,
	.release = skidproof_close,
	.unlocked_ioctl = skidproof_ioctl,
	.mmap = skidproof_mmap,
};

static ssize_t owners_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	return skidproof_show_owners(buffer);
}
static DEVICE_ATTR_ADMIN_RO(owners);

static struct attribute *skidproof_attrs[] = { &dev_attr_owners.attr, NULL };
ATTRIBUTE_GROUPS(skidproof);

static struct miscdevice skidproof_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "skidproof",
	.fops = &skidproof_operations,
	.groups = skidproof_groups,
	.mode = 0600,
};

static int __init skidproof_init(void)
{
	int error;

	error = skidproof_memory_init() ?: skidproof_traps_init();
	if (error)
		return error;
	/* Programs at ring 0 come next: whatever the kernel does from here on is theirs as well. */
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	error = skidproof_cpu_init();
	if (error)
		goto no_cpu;
	error = misc_register(&skidproof_device);
	if (error)
		goto no_device;
	return 0;

no_device:
	skidproof_cpu_exit();
no_cpu:
	skidproof_traps_exit();
	return error;
}

static void __exit skidproof_exit(void)
{
	misc_deregister(&skidproof_device);
	skidproof_cpu_exit();
	skidproof_traps_exit();
}

module_init(skidproof_init);
module_exit(skidproof_exit);

MODULE_DESCRIPTION("Direct access to Intel performance monitoring for Skidproof");
MODULE_LICENSE("GPL");
