// SPDX-License-Identifier: GPL-2.0
/*
 * Every wrong call of the driver with the errno that it must get, one line for
 * each. Exits 1 when one got another answer. Needs root; what needs a second
 * CPU is left out where there is none.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define KERNEL ((void *)0xffffffff81000000ULL)
#define ADDRESS(x) ((unsigned long long)(x))

static int checks, failures;

static void verdict(int held, const char *what, const char *got)
{
	checks++;
	failures += !held;
	printf("%-7s %s: %s\n", held ? "held" : "failed", what, got);
}

/* The call answered with this errno; 0: it succeeded. */
static void expect(int result, int error, const char *what)
{
	int got = result < 0 ? errno : 0;

	verdict(got == error, what, got ? strerrorname_np(got) : "accepted");
}

static void expect_value(unsigned long long value, unsigned long long wanted, const char *what)
{
	char text[64];

	snprintf(text, sizeof(text), "%#llx", value);
	verdict(value == wanted, what, text);
}

static int device(void)
{
	return open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
}

static int claim(int file, unsigned int cpu, unsigned int *refusal)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = cpu };
	int result = ioctl(file, SKIDPROOF_IOC_CLAIM, &claim);

	if (refusal)
		*refusal = claim.refusal;
	return result;
}

static int access_msr(int file, unsigned int msr, int write, unsigned long long *value, int *fault)
{
	struct skidproof_msr one = { msr, write, 0, *value };
	struct skidproof_msrs msrs = { ADDRESS(&one), 1, 0 };
	int result = ioctl(file, SKIDPROOF_IOC_MSRS, &msrs);

	*value = one.value;
	if (fault)
		*fault = one.fault;
	return result;
}

static int write_msr(int file, unsigned int msr, unsigned long long value)
{
	return access_msr(file, msr, 1, &value, NULL);
}

static int read_msr(int file, unsigned int msr)
{
	unsigned long long value = 0;

	return access_msr(file, msr, 0, &value, NULL);
}

static void commands(int file)
{
	char bytes[512] = { 0 };

	expect(ioctl(file, _IO(SKIDPROOF_IOC_MAGIC, 99), bytes), ENOTTY,
	       "a command that there is not");
	expect(ioctl(file, _IOWR(SKIDPROOF_IOC_MAGIC, 6, char[8]), bytes), ENOTTY,
	       "RUN of another size");
	expect(ioctl(file, _IOWR(SKIDPROOF_IOC_MAGIC, 1, char[511]), bytes), ENOTTY,
	       "CLAIM of another size");
	expect(ioctl(file, _IOW('x', 1, struct skidproof_claim), bytes), ENOTTY, "another magic");
}

static void pointers(int file)
{
	static const struct {
		unsigned long request;
		const char *what;
	} all[] = {
		{ SKIDPROOF_IOC_ABI, "ABI" }, { SKIDPROOF_IOC_CLAIM, "CLAIM" },
		{ SKIDPROOF_IOC_MSRS, "MSRS" }, { SKIDPROOF_IOC_ALLOC, "ALLOC" },
		{ SKIDPROOF_IOC_FREE, "FREE" }, { SKIDPROOF_IOC_RUN, "RUN" },
		{ SKIDPROOF_IOC_RDPMC, "RDPMC" },
	};
	/* The last bytes before a page that is not there, and a page that cannot be written. */
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct skidproof_alloc *frozen = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;
	char what[80];

	munmap(edge + 4096, 4096);
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(what, sizeof(what), "%s at address 0", all[i].what);
		expect(ioctl(file, all[i].request, NULL), EFAULT, what);
		snprintf(what, sizeof(what), "%s at a kernel address", all[i].what);
		expect(ioctl(file, all[i].request, KERNEL), EFAULT, what);
		snprintf(what, sizeof(what), "%s over the end of what is mapped", all[i].what);
		expect(ioctl(file, all[i].request, edge + 4096 - 2), EFAULT, what);
	}
	frozen->bytes = 4096;
	mprotect(frozen, 4096, PROT_READ);
	expect(ioctl(file, SKIDPROOF_IOC_ALLOC, frozen), EFAULT,
	       "ALLOC where the answer cannot be written");
	munmap(edge, 4096);
	munmap(frozen, 4096);
}

static void without_a_claim(int file)
{
	struct skidproof_run run = { .field_bytes = 8, .deadline_ms = 1 };
	struct skidproof_rdpmc rdpmc = { 0 };

	expect(read_msr(file, 0x38f), ENODEV, "MSRS without a claim");
	expect(ioctl(file, SKIDPROOF_IOC_RUN, &run), ENODEV, "RUN without a claim");
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &rdpmc), ENODEV, "RDPMC without a claim");
	expect(ioctl(file, SKIDPROOF_IOC_RELEASE, NULL), ENODEV, "RELEASE without a claim");
}

static int set_online(int online)
{
	int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC), done;

	if (file < 0)
		return 0;
	done = write(file, online ? "1" : "0", 1) == 1;
	close(file);
	return done;
}

/* In a child: what a process without one of its capabilities is told. */
static void without_the_capability(int file, int capability, const char *name)
{
	char what[80];

	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	int status, child;
	unsigned int refusal;

	fflush(stdout);
	child = fork();
	if (!child) {
		checks = failures = 0;
		syscall(SYS_capget, &header, data);
		data[0].effective &= ~(1U << capability);
		syscall(SYS_capset, &header, data);
		snprintf(what, sizeof(what), "opening without %s", name);
		expect(device(), EPERM, what);
		snprintf(what, sizeof(what), "CLAIM without %s", name);
		expect(claim(file, 0, &refusal), EPERM, what);
		expect_value(refusal, SKIDPROOF_NO_RAW_IO, "… says so");
		fflush(stdout);
		_exit(failures);
	}
	waitpid(child, &status, 0);
	checks += 3;
	failures += WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static void claims(int file)
{
	struct skidproof_claim bad = { .abi = SKIDPROOF_ABI + 1 };
	unsigned int refusal;
	int other = device(), child, status;

	expect(ioctl(file, SKIDPROOF_IOC_CLAIM, &bad), EINVAL, "CLAIM of another ABI");
	bad = (struct skidproof_claim){ .abi = SKIDPROOF_ABI, .flags = 1 };
	expect(ioctl(file, SKIDPROOF_IOC_CLAIM, &bad), EINVAL, "CLAIM with a reserved field");
	expect(claim(file, 4000, &refusal), ENXIO, "CLAIM of a CPU that there is not");
	expect(claim(file, ~0U, &refusal), ENXIO, "CLAIM of CPU 4294967295");
	expect_value(refusal, SKIDPROOF_CPU_OFFLINE, "… says so");
	without_the_capability(file, CAP_SYS_RAWIO, "CAP_SYS_RAWIO");
	without_the_capability(file, CAP_SYS_ADMIN, "CAP_SYS_ADMIN");
	if (set_online(0)) {
		expect(claim(file, 1, &refusal), ENXIO, "CLAIM of an offline CPU");
		expect_value(refusal, SKIDPROOF_CPU_OFFLINE, "… says so");
		set_online(1);
		expect(claim(other, 1, &refusal), 0, "CLAIM of it when it is back");
		set_online(0);
		expect(read_msr(other, 0x38f), ESHUTDOWN, "MSRS when the claimed CPU went offline");
		set_online(1);
		expect(ioctl(other, SKIDPROOF_IOC_RELEASE, NULL), 0,
		       "RELEASE of a CPU that was lost");
	}
	expect(claim(file, 0, &refusal), 0, "CLAIM");
	expect(claim(file, 0, &refusal), EBUSY, "CLAIM again by the same file");
	expect_value(refusal, SKIDPROOF_FILE_OWNS, "… says so");
	expect(claim(other, 0, &refusal), EBUSY, "CLAIM by another file");
	expect_value(refusal, SKIDPROOF_CPU_OWNED, "… says so");
	fflush(stdout);
	child = fork();
	if (!child) {
		struct skidproof_claim own = { .abi = SKIDPROOF_ABI };
		int third = device();

		checks = failures = 0;
		expect(ioctl(third, SKIDPROOF_IOC_CLAIM, &own), EBUSY, "CLAIM by another process");
		expect_value(own.detail, getppid(), "… which is told whose it is");
		fflush(stdout);
		_exit(failures);
	}
	waitpid(child, &status, 0);
	checks += 2;
	failures += WIFEXITED(status) ? WEXITSTATUS(status) : 2;
	close(other);
}

static void registers(int file)
{
	static const unsigned int unlisted[] = { 0x10, 0x79, 0x174, 0x277, 0xc0000080, 0xc0000082 };
	static const unsigned int read_only[] = { 0x1b, 0x8b, 0x34, 0xce, 0x17a, 0x401 };
	struct skidproof_msr list[SKIDPROOF_MAX_MSRS + 1];
	struct skidproof_msrs msrs = { ADDRESS(list), 0, 0 };
	unsigned long long value = 0;
	unsigned int i;
	int fault = 0;
	char what[80];

	memset(list, 0, sizeof(list));
	for (i = 0; i < sizeof(unlisted) / sizeof(unlisted[0]); i++) {
		snprintf(what, sizeof(what), "reading MSR %x, outside the list", unlisted[i]);
		expect(read_msr(file, unlisted[i]), EPERM, what);
		snprintf(what, sizeof(what), "writing MSR %x, outside the list", unlisted[i]);
		expect(write_msr(file, unlisted[i], 0), EPERM, what);
	}
	for (i = 0; i < sizeof(read_only) / sizeof(read_only[0]); i++) {
		snprintf(what, sizeof(what), "writing MSR %x, which may be read", read_only[i]);
		expect(write_msr(file, read_only[i], 0), EPERM, what);
	}
	list[0] = (struct skidproof_msr){ 0xc1, 1, 0, 77 };
	list[1].msr = 0x10;
	msrs.count = 2;
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EPERM,
	       "an unlisted MSR behind a listed one");
	access_msr(file, 0xc1, 0, &value, NULL);
	expect_value(value == 77, 0, "… of which nothing was executed");
	memset(list, 0, sizeof(list));
	for (i = 0; i <= SKIDPROOF_MAX_MSRS; i++)
		list[i].msr = 0x38f;
	msrs.count = 0;
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EINVAL, "MSRS of none");
	msrs.count = SKIDPROOF_MAX_MSRS + 1;
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), E2BIG, "MSRS of too many");
	msrs = (struct skidproof_msrs){ ADDRESS(list), 1, 1 };
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EINVAL, "MSRS with an answer in it");
	msrs = (struct skidproof_msrs){ ADDRESS(KERNEL), 1, 0 };
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EFAULT, "MSRS whose list is the kernel's");
	msrs = (struct skidproof_msrs){ 0, 1, 0 };
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EFAULT, "MSRS whose list is nowhere");
	msrs = (struct skidproof_msrs){ ADDRESS(list), 1, 0 };
	list[0].write = 2;
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EINVAL,
	       "an access that neither reads nor writes");
	list[0].write = 0;
	list[0].fault = 1;
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), EINVAL, "an access that has faulted before");

	value = ~0ULL;
	expect(access_msr(file, 0x186, 1, &value, &fault), 0, "a value that raises #GP");
	expect_value(fault, 1, "… which comes back as data");
	expect(write_msr(file, 0x834, 0x31), EPERM, "an LVT entry with a vector of someone else's");
	expect(write_msr(file, 0x834, 0x100000400ULL), EPERM, "an LVT entry of more than 32 bits");
	value = 0;
	access_msr(file, 0x1a0, 0, &value, NULL);
	expect(write_msr(file, 0x1a0, value ^ 1), EPERM,
	       "IA32_MISC_ENABLE with another bit changed");
}

/* What one call leaves on stands still until the next, which finds it on. */
static void between_calls(int file)
{
	struct skidproof_msr on[] = {
		{ 0x38f, 1, 0, 0 }, { 0x186, 1, 0, 0x4300c0 }, { 0xc1, 1, 0, 0 }, { 0x38f, 1, 0, 1 },
	};
	struct skidproof_msr later[] = { { 0xc1 }, { 0x38f }, { 0x38f, 1, 0, 0 }, { 0x186, 1, 0, 0 } };
	struct skidproof_msrs msrs = { ADDRESS(on), 4, 0 };
	volatile unsigned int i;

	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), 0, "counting from one call …");
	for (i = 0; i < 1000000; i++)
		;
	msrs = (struct skidproof_msrs){ ADDRESS(later), 4, 0 };
	expect(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs), 0, "… to the next");
	expect_value(later[0].value < 100000, 1, "… counts nothing of user space between them");
	expect_value(later[1].value, 1, "… which finds it on");
}

static void counters(int file)
{
	struct skidproof_rdpmc read = { .ring = 1 };

	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), EINVAL, "RDPMC at ring 1");
	read = (struct skidproof_rdpmc){ .cr4_pce = 2 };
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), EINVAL, "RDPMC with CR4.PCE of 2");
	read = (struct skidproof_rdpmc){ .value = 1 };
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), EINVAL, "RDPMC with an answer in it");
	read = (struct skidproof_rdpmc){ .index = 0x1234 };
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), 0, "RDPMC of a counter that there is not");
	expect_value(read.fault, 1, "… is #GP, as data");
	read = (struct skidproof_rdpmc){ .ring = 3, .cr4_pce = 1 };
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), 0, "RDPMC at ring 3");
	expect_value(read.fault, 0, "… is allowed by CR4.PCE");
	read = (struct skidproof_rdpmc){ .ring = 3 };
	expect(ioctl(file, SKIDPROOF_IOC_RDPMC, &read), 0, "RDPMC at ring 3 without CR4.PCE");
	expect_value(read.fault, 1, "… is #GP, as data");
}

static int allocate(int file, unsigned long long bytes, unsigned int use,
		    struct skidproof_alloc *block)
{
	*block = (struct skidproof_alloc){ .bytes = bytes, .use = use };
	return ioctl(file, SKIDPROOF_IOC_ALLOC, block);
}

static int release(int file, unsigned long long address)
{
	struct skidproof_free given = { address };

	return ioctl(file, SKIDPROOF_IOC_FREE, &given);
}

static int map(int file, unsigned long long bytes, int protection, int flags,
	       unsigned long long offset)
{
	void *view = mmap(NULL, bytes, protection, flags, file, offset);

	if (view == MAP_FAILED)
		return -1;
	munmap(view, bytes);
	return 0;
}

static void memory(int file)
{
	struct skidproof_alloc block, other;
	int another = device(), i;

	expect(allocate(file, 0, SKIDPROOF_DATA, &block), EINVAL, "a block of nothing");
	expect(allocate(file, SKIDPROOF_MAX_BLOCK_BYTES + 1, SKIDPROOF_DATA, &block), EINVAL,
	       "a block that is too big");
	expect(allocate(file, ~0ULL, SKIDPROOF_DATA, &block), EINVAL, "a block of 2^64 - 1 bytes");
	expect(allocate(file, 4096, 4, &block), EINVAL, "a block for a use that there is not");
	block = (struct skidproof_alloc){ .bytes = 4096, .reserved = 1 };
	expect(ioctl(file, SKIDPROOF_IOC_ALLOC, &block), EINVAL, "a block with a reserved field");
	block = (struct skidproof_alloc){ .bytes = 4096, .address = 4096 };
	expect(ioctl(file, SKIDPROOF_IOC_ALLOC, &block), EINVAL, "a block with an address in it");
	for (i = 0; i < 5000 && !allocate(another, 1, SKIDPROOF_DATA, &block); i++)
		;
	expect(i < 5000 ? -1 : 0, ENOSPC, "more blocks than a file may have");
	expect(allocate(file, 4096, SKIDPROOF_DATA, &block), 0, "a block");
	expect(release(file, block.address + 8), EINVAL, "FREE of the middle of a block");
	expect(release(file, 0), EINVAL, "FREE of address 0");
	expect(release(another, block.address), EINVAL, "FREE of another file's block");
	expect(map(file, 4096, PROT_READ, MAP_PRIVATE, block.offset), EINVAL, "a private mapping");
	/* What a claim takes first stands where the file's memory begins. */
	expect(map(file, 65536, PROT_READ, MAP_SHARED, 0), EINVAL, "the driver's own stack for programs");
	expect(map(file, 4096, PROT_READ, MAP_SHARED, 65536 + 4096), EINVAL, "the driver's own landing");
	expect(map(file, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, block.offset), EPERM,
	       "a mapping that can be executed");
	expect(map(file, 8192, PROT_READ, MAP_SHARED, block.offset), EINVAL,
	       "a mapping of another length");
	expect(map(file, 4096, PROT_READ, MAP_SHARED, block.offset + (1ULL << 40)), EINVAL,
	       "a mapping of no block");
	expect(allocate(file, 4096, SKIDPROOF_DATA, &other), 0, "another block");
	expect(release(file, block.address), 0, "FREE");
	expect(release(file, block.address), EINVAL, "FREE a second time");
	expect(map(file, 4096, PROT_READ, MAP_SHARED, block.offset), EINVAL,
	       "a mapping of a block that is gone");
	release(file, other.address);
	close(another);
}

/* The DS area in 64-bit mode. */
struct debug_store {
	unsigned long long bts_base, bts_index, bts_maximum, bts_threshold;
	unsigned long long pebs_base, pebs_index, pebs_maximum, pebs_threshold, reset[4];
};

#define DS_BYTES 16384

struct bench {
	int file;
	struct skidproof_alloc code, data, store;
	unsigned char *text;
	struct debug_store *area;
};

static struct skidproof_run plan(const struct bench *b)
{
	return (struct skidproof_run){
		.entry = b->code.address,
		.status_msr = 0x38e,
		.field_bytes = 8,
		.deadline_ms = 20,
	};
}

static int run(const struct bench *b, struct skidproof_run *run)
{
	return ioctl(b->file, SKIDPROOF_IOC_RUN, run);
}

static void plans(const struct bench *b)
{
	struct skidproof_msr writes[] = { { 0x186, 1, 0, 0 } }, reads[] = { { 0x38e, 0, 0, 0 } };
	struct skidproof_msr bad[] = { { 0xc0000082, 1, 0, 0 } };
	static const struct {
		size_t offset;
		unsigned int size;
		unsigned long long value;
		int error;
		const char *what;
	} all[] = {
#define FIELD(f) offsetof(struct skidproof_run, f), sizeof(((struct skidproof_run *)0)->f)
		{ FIELD(entry), 0, EFAULT, "an entry at 0" },
		{ FIELD(entry), 0xffffffff81000000ULL, EFAULT, "an entry in the kernel" },
		{ FIELD(status_msr), 0x10, EPERM, "an unlisted status register" },
		{ FIELD(field_bytes), 3, EINVAL, "fields of 3 bytes" },
		{ FIELD(pmi_flags), 1U << 31, EINVAL, "a flag that there is not" },
		{ FIELD(deadline_ms), 0, EINVAL, "no deadline" },
		{ FIELD(deadline_ms), 60001, EINVAL, "a deadline of more than a minute" },
		{ FIELD(ring), 1, EINVAL, "ring 1" },
		{ FIELD(log_capacity), SKIDPROOF_MAX_PMIS + 1, E2BIG, "a log that is too long" },
		{ FIELD(enable_count), 1, EFAULT, "writes before, from nowhere" },
		{ FIELD(disable_count), 1, EFAULT, "writes after, from nowhere" },
		{ FIELD(acknowledge_count), 1, EFAULT, "writes of the handler, from nowhere" },
		{ FIELD(read_count), 1, EFAULT, "reads from nowhere" },
		{ FIELD(enable_count), SKIDPROOF_MAX_MSRS + 1, E2BIG, "too many writes before" },
		{ FIELD(read_count), ~0U, E2BIG, "too many reads" },
		{ FIELD(pebs_index_address), 0xffffffff81000000ULL, EFAULT,
		  "a PEBS index in the kernel" },
		{ FIELD(pebs_base_address), 8, EFAULT, "a PEBS base in user space" },
		{ FIELD(bts_index_address), ~0ULL, EFAULT, "a BTS index at the end of everything" },
		{ FIELD(bts_base_address), 0xffff888000000000ULL, EFAULT,
		  "a BTS base in other memory" },
#undef FIELD
	};
	struct skidproof_run one;
	unsigned int i;
	char what[80];

	memcpy(b->text, "\xc3", 1); /* RET */
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		one = plan(b);
		memcpy((char *)&one + all[i].offset, &all[i].value, all[i].size);
		snprintf(what, sizeof(what), "RUN with %s", all[i].what);
		expect(run(b, &one), all[i].error, what);
	}
	one = plan(b);
	one.entry = b->data.address;
	expect(run(b, &one), EFAULT, "RUN of data");
	one = plan(b);
	one.entry = b->code.address + b->code.bytes;
	expect(run(b, &one), EFAULT, "RUN behind the code");
	one = plan(b);
	one.pebs_index_address = b->data.address;
	expect(run(b, &one), EFAULT, "RUN with a PEBS index in a block for data");
	one = plan(b);
	one.enable = ADDRESS(bad);
	one.enable_count = 1;
	expect(run(b, &one), EPERM, "RUN that writes an unlisted register");
	one.enable = ADDRESS(reads);
	expect(run(b, &one), EINVAL, "RUN with a read among the writes");
	one = plan(b);
	one.read = ADDRESS(writes);
	one.read_count = 1;
	expect(run(b, &one), EINVAL, "RUN with a write among the reads");
	one = plan(b);
	expect(run(b, &one), 0, "RUN of a program that returns");
	expect_value(one.outcome, SKIDPROOF_RETURNED, "… returns");
}

static void programs(const struct bench *b)
{
	struct skidproof_msr enable[] = { { 0x834, 1, 0, 0x400 }, { 0x38d, 1, 0, 0 } };
	struct skidproof_run one = plan(b);
	struct skidproof_alloc other;
	int second;

	memcpy(b->text, "\x0f\x0b", 2); /* UD2 */
	expect(run(b, &one), 0, "RUN of what is no instruction");
	expect_value(one.outcome, SKIDPROOF_FAULTED, "… ends with a fault");
	expect_value(one.fault_vector, 6, "… of vector");
	one = plan(b);
	memcpy(b->text, "\x48\x8b\x04\x25\x08\x00\x00\x00", 8); /* MOV RAX, [8] */
	expect(run(b, &one), 0, "RUN of a load from nowhere");
	expect_value(one.fault_vector, 14, "… ends with a fault of vector");
	expect_value(one.fault_address, 8, "… at address");
	one = plan(b);
	memcpy(b->text, "\xeb\xfe", 2); /* JMP to itself */
	one.enable = ADDRESS(enable);
	one.enable_count = 2;
	expect(run(b, &one), 0, "RUN of a loop without an end");
	expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
	one = plan(b);
	one.enable = ADDRESS(enable);
	one.enable_count = 2;
	if (!allocate(b->file, 4096, SKIDPROOF_CODE, &other)) {
		unsigned char *text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b->file,
					   other.offset);

		memcpy(text, b->text, 2);
		memcpy(b->text, "\xff\xe6", 2); /* JMP RSI */
		one.data = other.address;
		expect(run(b, &one), 0, "RUN of a loop without an end in another block");
		expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
		memcpy(b->text, text, 2);
		munmap(text, 4096);
		release(b->file, other.address);
	}
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
		/* A masked LVT entry keeps every PMI away. */
		enable[0].value = 0x10400;
		one = plan(b);
		one.enable = ADDRESS(enable);
		one.enable_count = 2;
		expect(run(b, &one), 0, "RUN of a loop without an end, and without PMIs");
		expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
		set_online(0);
		expect(run(b, &one), EDEADLK, "RUN of it with one CPU, where nothing would end it");
		enable[0].value = 0x400;
		expect(run(b, &one), 0, "RUN of it with PMIs");
		expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
		expect_value(one.guard != ~0U, 1, "… of a counter");
		set_online(1);
		enable[0].value = 0x10400;
		expect(run(b, &one), 0, "RUN of it without PMIs, with the CPU back");
		expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
		expect_value(one.guard == ~0U, 1, "… by the other CPU");
		/* Of two that are claimed neither could end the other's. */
		second = device();
		expect(claim(second, 1, NULL), 0, "CLAIM of the other CPU");
		expect(run(b, &one), EDEADLK, "RUN of it without PMIs");
		enable[0].value = 0x400;
		expect(run(b, &one), 0, "RUN of it with PMIs");
		expect_value(one.outcome, SKIDPROOF_TIMED_OUT, "… ends at the deadline");
		expect_value(one.guard != ~0U, 1, "… of a counter");
		close(second);
	}
}

#define RETURNS 0x100
#define ENDS 0x101 /* by a fault of whatever vector */
#define STAYS 0x102

/* What a program at ring 3 may try. */
static void escapes(const struct bench *b)
{
	static const struct {
		const char *what, *code;
		unsigned int bytes, end;
	} all[] = {
#define CODE(x) x, sizeof(x) - 1
		{ "that returns", CODE("\xc3"), RETURNS },
		{ "UD2", CODE("\x0f\x0b"), 6 },
		{ "INT3", CODE("\xcc"), 3 },
		{ "INT1", CODE("\xf1"), 1 },
		{ "INT 2", CODE("\xcd\x02"), 13 },
		{ "INT 14", CODE("\xcd\x0e"), 13 },
		{ "INT 20H", CODE("\xcd\x20"), 13 },
		{ "INT 80H", CODE("\xcd\x80"), 13 },
		{ "INT 0FFH", CODE("\xcd\xff"), 13 },
		{ "SYSCALL", CODE("\x0f\x05"), 6 },
		{ "SYSENTER", CODE("\x0f\x34"), 13 },
		{ "SYSEXIT", CODE("\x0f\x35"), 13 },
		{ "HLT", CODE("\xf4"), 13 },
		{ "CLI", CODE("\xfa"), 13 },
		{ "STI", CODE("\xfb"), 13 },
		{ "IN", CODE("\xe4\x80"), 13 },
		{ "RDMSR", CODE("\x0f\x32"), 13 },
		{ "WRMSR", CODE("\x0f\x30"), 13 },
		{ "RDPMC", CODE("\x31\xc9\x0f\x33"), 13 },
		{ "MOV from CR3", CODE("\x0f\x20\xd8"), 13 },
		{ "MOV to DR0", CODE("\x0f\x23\xc0"), 13 },
		{ "SWAPGS", CODE("\x0f\x01\xf8"), 13 },
		{ "IRETQ of nothing",
		  CODE("\x6a\x00\x6a\x00\x6a\x02\x6a\x00\x6a\x00\x48\xcf"), 13 },
		{ "DIV by 0", CODE("\x31\xc9\xf7\xf1"), 0 },
		{ "a load from the kernel", CODE("\x48\x8b\x04\x25\x00\x00\x00\x81"), 14 },
		{ "a jump to the kernel", CODE("\x48\xc7\xc0\x00\x00\x00\x81\xff\xe0"), 14 },
		{ "a jump to no address",
		  CODE("\x48\xb8\x00\x00\x00\x00\x00\x00\x00\x80\xff\xe0"), 13 },
		{ "a jump to its stack", CODE("\xff\xe4"), 14 },
		{ "a store to its code", CODE("\x48\x89\x05\x00\x00\x00\x00"), 14 },
		{ "a return without a stack", CODE("\x31\xe4\xc3"), 14 },
		{ "a push to no address",
		  CODE("\x48\xbc\x00\x00\x00\x00\x00\x00\x00\x80\x50"), 12 },
		{ "a far return to ring 0", CODE("\x6a\x10\x6a\x00\x48\xcb"), 13 },
		{ "a far return to 32-bit code", CODE("\x6a\x23\x6a\x00\x48\xcb"), ENDS },
		{ "MOV SS and INT3", CODE("\x8c\xd0\x8e\xd0\xcc"), 3 },
		{ "TF", CODE("\x9c\x80\x4c\x24\x01\x01\x9d\x90\xc3"), 1 },
		{ "TF, MOV SS and SYSCALL",
		  CODE("\x8c\xd0\x9c\x80\x4c\x24\x01\x01\x9d\x8e\xd0\x0f\x05"), ENDS },
		{ "NT", CODE("\x9c\x80\x4c\x24\x01\x40\x9d\xc3"), RETURNS },
		{ "AC", CODE("\x9c\x80\x4c\x24\x02\x04\x9d\xc3"), RETURNS },
		{ "AC and a load across words",
		  CODE("\x9c\x80\x4c\x24\x02\x04\x9d\x8b\x44\x24\x01"), 17 },
		{ "DF", CODE("\xfd\xc3"), RETURNS },
		{ "another GS", CODE("\xb8\x2b\x00\x00\x00\x8e\xe8\xc3"), RETURNS },
		{ "no data segments",
		  CODE("\x31\xc0\x8e\xd8\x8e\xc0\x8e\xe0\x8e\xe8\xc3"), RETURNS },
		{ "another GS and a fault", CODE("\xb8\x2b\x00\x00\x00\x8e\xe8\xcc"), 3 },
		{ "another base of GS and no end",
		  CODE("\x31\xc0\x8e\xe8\xeb\xfe"), STAYS },
		{ "no stack and no end", CODE("\x31\xe4\xeb\xfe"), STAYS },
		{ "NT, DF and no end",
		  CODE("\x9c\x80\x4c\x24\x01\x44\x9d\xeb\xfe"), STAYS },
#undef CODE
	};
	struct skidproof_msr enable[] = { { 0x834, 1, 0, 0x400 }, { 0x38d, 1, 0, 0 } };
	unsigned int i, selectors[2][4];
	struct skidproof_run one;
	char what[80];

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int held, error;

		memcpy(b->text, all[i].code, all[i].bytes);
		one = plan(b);
		one.ring = 3;
		one.data = b->data.address;
		one.enable = ADDRESS(enable);
		one.enable_count = 2;
		asm volatile("mov %%ds, %0; mov %%es, %1; mov %%fs, %2; mov %%gs, %3"
			     : "=r" (selectors[0][0]), "=r" (selectors[0][1]),
			       "=r" (selectors[0][2]), "=r" (selectors[0][3]));
		error = run(b, &one) ? errno : 0;
		asm volatile("mov %%ds, %0; mov %%es, %1; mov %%fs, %2; mov %%gs, %3"
			     : "=r" (selectors[1][0]), "=r" (selectors[1][1]),
			       "=r" (selectors[1][2]), "=r" (selectors[1][3]));
		switch (all[i].end) {
		case RETURNS:
			held = one.outcome == SKIDPROOF_RETURNED;
			break;
		case ENDS:
			held = one.outcome == SKIDPROOF_FAULTED;
			break;
		case STAYS:
			held = one.outcome == SKIDPROOF_TIMED_OUT && one.slices;
			break;
		default:
			held = one.outcome == SKIDPROOF_FAULTED && one.fault_vector == all[i].end;
		}
		held = held && !error && !memcmp(selectors[0], selectors[1], sizeof(selectors[0]));
		snprintf(what, sizeof(what), "RUN at ring 3 of %s", all[i].what);
		verdict(held, what, error ? strerrorname_np(error) :
			one.outcome == SKIDPROOF_FAULTED ? "faulted" :
			one.outcome == SKIDPROOF_RETURNED ? "returned" : "ended");
		if (!held)
			printf("        outcome %u, vector %u, at %#llx, slices %llu\n",
			       one.outcome, one.fault_vector, one.fault_ip, one.slices);
	}
	memcpy(b->text, "\x8c\xc8\xc3", 3); /* MOV EAX, CS */
	one = plan(b);
	one.ring = 3;
	expect(run(b, &one), 0, "RUN at ring 3");
	expect_value(one.result & 3, 3, "… is at ring");
	one = plan(b);
	expect(run(b, &one), 0, "RUN of the same at ring 0");
	expect_value(one.result & 3, 0, "… is at ring");
}

/* On the claimed CPU, where this process' own registers are at stake, and from another one. */
static void escapes_here_and_there(const struct bench *b)
{
	cpu_set_t here, all;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&here);
	CPU_SET(0, &here);
	sched_setaffinity(0, sizeof(here), &here);
	escapes(b);
	if (CPU_COUNT(&all) > 1) {
		CPU_CLR(0, &all);
		sched_setaffinity(0, sizeof(all), &all);
		escapes(b);
		CPU_SET(0, &all);
	}
	sched_setaffinity(0, sizeof(all), &all);
}

/* PEBS of conditional branches in a loop, an interrupt for each record. */
static int sample(const struct bench *b, unsigned long long area, void *log,
		  struct skidproof_run *one)
{
	const unsigned long long reload = (1ULL << 48) - 10;
	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x38d, 1, 0, 0 }, { 0x834, 1, 0, 0x400 },
		{ 0x390, 1, 0, 0x400000070000000fULL }, { 0x600, 1, 0, area },
		{ 0x186, 1, 0, 0x4301c4 }, { 0x4c1, 1, 0, reload }, { 0x3f1, 1, 0, 1 }, { 0x38f, 1, 0, 1 },
	};
	struct skidproof_msr disable[] = { { 0x38f, 1, 0, 0 }, { 0x3f1, 1, 0, 0 } };

	memcpy(b->text, "\x48\xff\xcf\x75\xfb\xc3", 6); /* DEC RDI, JNZ back, RET */
	*one = plan(b);
	one->iterations = 100;
	one->enable = ADDRESS(enable);
	one->enable_count = sizeof(enable) / sizeof(enable[0]);
	one->disable = ADDRESS(disable);
	one->disable_count = 2;
	one->pmi_flags = SKIDPROOF_PMI_ALL;
	one->log = ADDRESS(log);
	one->log_capacity = 16;
	one->keep_status = 0xff;
	one->pebs_index_address = b->store.address + offsetof(struct debug_store, pebs_index);
	one->pebs_base_address = b->store.address + offsetof(struct debug_store, pebs_base);
	return run(b, one);
}

static void reset_area(const struct bench *b)
{
	const unsigned long long buffer = b->store.address + 4096;

	memset(b->area, 0, sizeof(*b->area));
	b->area->pebs_base = b->area->pebs_index = buffer;
	b->area->pebs_maximum = b->store.address + DS_BYTES;
	b->area->pebs_threshold = buffer + 1;
	b->area->reset[0] = (1ULL << 48) - 10;
}

static void debug_stores(const struct bench *b)
{
	struct skidproof_pmi log[16];
	struct skidproof_run one;

	reset_area(b);
	expect(sample(b, b->store.address, log, &one), 0, "a run that samples");
	expect_value(one.pmis > 1, 1, "… has interrupts");
	reset_area(b);
	expect(sample(b, b->store.address, KERNEL, &one), EFAULT, "a log in the kernel");
	reset_area(b);
	b->area->pebs_maximum++;
	expect(sample(b, b->store.address, log, &one), EPERM,
	       "a PEBS buffer that ends behind its block");
	reset_area(b);
	b->area->pebs_index = b->store.address + DS_BYTES + 1;
	expect(sample(b, b->store.address, log, &one), EPERM, "a PEBS index behind its block");
	reset_area(b);
	b->area->pebs_index = b->store.address - 192;
	expect(sample(b, b->store.address, log, &one), EPERM, "a PEBS index before its block");
	reset_area(b);
	b->area->pebs_base = b->data.address;
	expect(sample(b, b->store.address, log, &one), EPERM, "a PEBS buffer in a block for data");
	reset_area(b);
	b->area->pebs_base = b->area->pebs_index = ADDRESS(KERNEL);
	expect(sample(b, b->store.address, log, &one), EPERM, "a PEBS buffer in the kernel");
	reset_area(b);
	expect(sample(b, b->data.address, log, &one), EPERM, "a DS area in a block for data");
	expect(sample(b, ADDRESS(KERNEL), log, &one), EPERM, "a DS area in the kernel");
	expect(sample(b, b->store.address + DS_BYTES - 8, log, &one), EPERM,
	       "a DS area over the end of its block");
	reset_area(b);
	b->area->pebs_maximum++;
	write_msr(b->file, 0x38f, 0);
	write_msr(b->file, 0x600, b->store.address);
	write_msr(b->file, 0x3f1, 1);
	expect(write_msr(b->file, 0x38f, 1), EPERM,
	       "enabling counters with a PEBS buffer elsewhere");
	b->area->bts_base = ADDRESS(KERNEL);
	expect(write_msr(b->file, 0x1d9, 0xc0), EPERM, "tracing into a BTS buffer elsewhere");
	write_msr(b->file, 0x3f1, 0);
	reset_area(b);
	expect(sample(b, b->store.address, log, &one), 0, "after all this a run that samples");
}

/* GLOBAL_CTRL refuses its value when the branches are recorded already: nothing goes on. */
static void refused_last(const struct bench *b)
{
	struct skidproof_msr enable[] = {
		{ 0x38f, 1, 0, 0 }, { 0x600, 1, 0, b->store.address }, { 0x1d9, 1, 0, 0xc0 },
		{ 0x38f, 1, 0, 1ULL << 60 },
	};
	struct skidproof_run one = plan(b);
	unsigned long long debugctl = 0;

	reset_area(b);
	b->area->bts_base = b->area->bts_index = b->store.address + 8192;
	b->area->bts_maximum = b->store.address + DS_BYTES;
	b->area->bts_threshold = b->area->bts_maximum + 1;
	memcpy(b->text, "\xc3", 1); /* RET */
	one.enable = ADDRESS(enable);
	one.enable_count = 4;
	expect(run(b, &one), 0, "RUN whose last write raises #GP behind one that starts a trace");
	expect_value(one.outcome, SKIDPROOF_MSR_FAULT, "… ends with that");
	expect_value(one.fault_msr, 0x38f, "… which it names");
	expect(access_msr(b->file, 0x1d9, 0, &debugctl, NULL), 0, "IA32_DEBUGCTL after it");
	expect_value(debugctl & 0xc0, 0, "… traces nothing");
}

/* A program finds nothing of the vectors that a process on its CPU had. */
static void vectors(const struct bench *b)
{
	unsigned long long *seen, mark[8], i, found = 0;
	struct skidproof_run one;
	cpu_set_t all, here;

	if (!__builtin_cpu_supports("avx512f"))
		return;
	seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b->file, b->data.offset);
	if (seen == MAP_FAILED)
		return verdict(0, "mapping data", "failed");
	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&here);
	CPU_SET(0, &here);
	sched_setaffinity(0, sizeof(here), &here);
	/* VMOVDQU64 [RSI], ZMM31; KMOVW EAX, K7; RET */
	memcpy(b->text, "\x62\x61\xfe\x48\x7f\x3e\xc5\xf8\x93\xc7\xc3", 11);
	memset(mark, 0x5a, sizeof(mark));
	one = plan(b);
	one.data = b->data.address;
	asm volatile("vmovdqu64 %0, %%zmm31\n\tkmovw %1, %%k7" : : "m" (mark), "r" (0x5a5a));
	expect(run(b, &one), 0, "RUN that looks at zmm31 and k7");
	for (i = 0; i < 8; i++)
		found |= seen[i];
	expect_value(one.outcome, SKIDPROOF_RETURNED, "… ends");
	expect_value(found | (one.result & 0xffff), 0, "… finds nothing of the process'");
	sched_setaffinity(0, sizeof(all), &all);
	munmap(seen, 4096);
}

static int amid_error;

static void *run_amid(void *data)
{
	struct bench *b = data;
	struct skidproof_run one = plan(b);

	one.deadline_ms = 10000;
	amid_error = run(b, &one) ? errno : 0;
	return NULL;
}

/* The CPU goes offline while a program without an end runs there: at the end of a turn. */
static void goes_amid_a_run(void)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI, .cpu = 1 };
	struct bench b = { .file = device() };
	struct timespec begin, end;
	pthread_t thread;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	expect(ioctl(b.file, SKIDPROOF_IOC_CLAIM, &claim), 0, "CLAIM of the other CPU");
	expect(allocate(b.file, 4096, SKIDPROOF_CODE, &b.code), 0, "a block of code there");
	b.text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b.file, b.code.offset);
	if (b.text == MAP_FAILED || memcpy(b.text, "\xeb\xfe", 2) != b.text ||
	    pthread_create(&thread, NULL, run_amid, &b))
		return verdict(0, "a thread that runs there", "failed");
	usleep(300000);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	set_online(0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	pthread_join(thread, NULL);
	expect_value(amid_error, ESHUTDOWN, "RUN without an end, amid which the CPU goes offline, errno");
	/* Most of which is the kernel's; the run alone would be 10 s long. */
	expect_value(end.tv_sec - begin.tv_sec < 5, 1, "… within 5 s");
	set_online(1);
	munmap(b.text, 4096);
	close(b.file);
}

int main(void)
{
	struct bench b;
	int file = device();

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (file < 0) {
		perror(SKIDPROOF_DEVICE);
		return 2;
	}
	commands(file);
	pointers(file);
	without_a_claim(file);
	claims(file);
	expect(syscall(SYS_delete_module, "skidproof", O_NONBLOCK), EWOULDBLOCK,
	       "unloading while it is open");
	registers(file);
	between_calls(file);
	counters(file);
	memory(file);
	b.file = file;
	if (allocate(file, 4096, SKIDPROOF_CODE, &b.code) ||
	    allocate(file, 4096, SKIDPROOF_DATA, &b.data) ||
	    allocate(file, DS_BYTES, SKIDPROOF_DEBUG_STORE, &b.store)) {
		perror("allocate");
		return 2;
	}
	b.text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, b.code.offset);
	b.area = mmap(NULL, DS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, b.store.offset);
	if (b.text == MAP_FAILED || b.area == MAP_FAILED) {
		perror("map");
		return 2;
	}
	plans(&b);
	programs(&b);
	escapes_here_and_there(&b);
	debug_stores(&b);
	refused_last(&b);
	vectors(&b);
	goes_amid_a_run();
	printf("refusals: %d checks, %d failed\n", checks, failures);
	return failures != 0;
}
