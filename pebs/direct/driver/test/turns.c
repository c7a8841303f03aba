// SPDX-License-Identifier: GPL-2.0
/*
 * A long run gives its CPU up again and again: turns. A process that shares the
 * CPU must be served at least every 100 ms, and when the program goes on it must
 * find its x87 and vector registers, its segments and its flags, whatever that
 * process does with its own. Exits 1 where it does not. For a guest with two CPUs.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define ADDRESS(x) ((unsigned long long)(x))
#define MOST_MS 100
#define ITERATIONS 20000000

/*
 * MOV RAX, 1122334455667788H; MOVQ XMM15, RAX; FLDPI; MOV EAX, 2BH; MOV ES, EAX;
 * STD; 1: DEC RDI; JNZ 1b; PUSHF; POP RCX; AND ECX, 400H (DF); MOVQ RAX, XMM15;
 * ADD RAX, RCX; MOV ECX, ES; ADD RAX, RCX; FISTP dword [RSP-8]; MOV ECX, [RSP-8];
 * ADD RAX, RCX; CLD; RET
 */
static const unsigned char program[] = {
	0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x66, 0x4c, 0x0f, 0x6e, 0xf8,
	0xd9, 0xeb, 0xb8, 0x2b, 0, 0, 0, 0x8e, 0xc0, 0xfd, 0x48, 0xff, 0xcf, 0x75, 0xfb,
	0x9c, 0x59, 0x81, 0xe1, 0, 4, 0, 0, 0x66, 0x4c, 0x0f, 0x7e, 0xf8, 0x48, 0x01, 0xc8,
	0x8c, 0xc1, 0x48, 0x01, 0xc8, 0xdb, 0x5c, 0x24, 0xf8, 0x8b, 0x4c, 0x24, 0xf8,
	0x48, 0x01, 0xc8, 0xfc, 0xc3,
};
#define RESULT (0x1122334455667788ULL + 0x400 + 0x2b + 3)

static int failures;
static double most_ms = MOST_MS;

static void verdict(int held, const char *what, double value)
{
	printf("%s  %s: %g\n", held ? "held  " : "failed", what, value);
	failures += !held;
}

static void must(int held, const char *what)
{
	if (held)
		return;
	perror(what);
	exit(2);
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set) == 0, "affinity");
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

struct neighbour {
	volatile int stop;
	volatile double longest; /* ms that it was not served */
	volatile unsigned long spoiled, looks;
};

/* Keeps values in its registers and looks at the clock. */
static void live(struct neighbour *shared)
{
	double last;

	stay_on(0);
	last = now();
	while (!shared->stop) {
		unsigned long long in = 0x5a5a0000 + shared->looks, out;
		double time;

		asm volatile("movq %1, %%xmm15\n\t"
			     "mov $3000, %%ecx\n"
			     "1: dec %%ecx\n\t"
			     "jnz 1b\n\t"
			     "movq %%xmm15, %0"
			     : "=r" (out)
			     : "r" (in)
			     : "rcx", "xmm15");
		shared->spoiled += in != out;
		time = now();
		if (time - last > shared->longest)
			shared->longest = time - last;
		last = time;
		shared->looks++;
	}
	_exit(0);
}

static void turns(int device, const struct skidproof_alloc *code, unsigned int ring, int cpu)
{
	struct skidproof_msr enable[] = { { 0x38f, 1, 0, 0 } };
	struct skidproof_run run = {
		.entry = code->address, .iterations = ITERATIONS, .enable = ADDRESS(enable),
		.enable_count = 1, .status_msr = 0x38e, .field_bytes = 8, .deadline_ms = 10000,
		.ring = ring,
	};
	struct neighbour *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char what[80];
	double begin;
	pid_t child;

	must(shared != MAP_FAILED, "mmap");
	printf("at ring %u, called on %s CPU\n", ring, cpu ? "another" : "the same");
	child = fork();
	must(child >= 0, "fork");
	if (!child)
		live(shared);
	while (shared->looks < 100)
		usleep(1000);
	shared->longest = 0;
	stay_on(cpu);
	begin = now();
	must(ioctl(device, SKIDPROOF_IOC_RUN, &run) == 0, "RUN");
	begin = now() - begin;
	shared->stop = 1;
	waitpid(child, NULL, 0);
	verdict(run.outcome == SKIDPROOF_RETURNED && run.result == RESULT,
		"the program finds what it left (outcome)", run.outcome);
	verdict(begin > 3 * MOST_MS && run.slices > 3, "it ran for several turns (ms)", begin);
	snprintf(what, sizeof(what), "its neighbour is served (of %lu looks the longest wait, ms)",
		 shared->looks);
	verdict(shared->longest <= most_ms, what, shared->longest);
	verdict(!shared->spoiled, "and finds its registers (spoiled)", shared->spoiled);
	munmap(shared, 4096);
}

int main(void)
{
	struct skidproof_alloc code = { .use = SKIDPROOF_CODE, .bytes = 4096 };
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	int device = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);
	void *view;

	must(device >= 0, SKIDPROOF_DEVICE);
	must(ioctl(device, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	/* No turn is shorter than the time with interrupts off. */
	if (claim.limit_us / 1000 + 1 > MOST_MS)
		most_ms = claim.limit_us / 1000 + 1;
	must(ioctl(device, SKIDPROOF_IOC_ALLOC, &code) == 0, "ALLOC");
	view = mmap(NULL, code.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, code.offset);
	must(view != MAP_FAILED, "mmap");
	memcpy(view, program, sizeof(program));
	turns(device, &code, 0, 1);
	turns(device, &code, 0, 0);
	turns(device, &code, 3, 1);
	turns(device, &code, 3, 0);
	printf("turns: %d failures\n", failures);
	return failures != 0;
}
