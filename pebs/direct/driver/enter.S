/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way into a program and out of it, and the stubs that stand in the IDT
 * meanwhile. Between the WRMSR that starts the counters and the program, and
 * between the program and the WRMSR that stops them, nothing loads, stores or
 * branches but the RET or IRET into the program, and what the processor does by
 * itself when a program at ring 3 ends: these instructions are counted. That is
 * why they are no RET through the kernel's return thunk.
 *
 * Our IDT is in use from `window_begin` to `left_end` and nowhere else. Wherever
 * an interrupt comes between the two, what it interrupted can be begun again or
 * gone on with: traps.c says how. GS holds what a program put there; every way
 * back into C sets it to the kernel's, which is found by the processor's number
 * in the GDT alone.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <linux/version.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/segment.h>
#include <asm/unwind_hints.h>

#include "offsets.h"
#include "skidproof.h"

#define MSR_GLOBAL_CTRL	0x38f
#define MSR_DEBUGCTL	0x1d9
#define MSR_GS_BASE	0xc0000101

	/* For objtool: nobody can tell who called. */
	.macro no_caller
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	UNWIND_HINT_UNDEFINED
#else
	UNWIND_HINT_EMPTY
#endif
	.endm

	/* An address that handlers compare with, or send programs to. */
	.macro landmark name
	.globl	\name
\name:
	ANNOTATE_NOENDBR
	.endm

	.section .noinstr.text, "ax"	/* no kprobe */

	.macro save_callee
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%rdi
	movq	%rsp, ENTRY_kernel_sp(%rdi)
	.endm

	/* Interpreter-like beginnings: what is no argument is zero, RFLAGS too. */
	.macro clear_registers
	xorl	%ebx, %ebx
	xorl	%ebp, %ebp
	xorl	%r8d, %r8d
	xorl	%r9d, %r9d
	xorl	%r10d, %r10d
	xorl	%r11d, %r11d
	xorl	%r12d, %r12d
	xorl	%r13d, %r13d
	xorl	%r14d, %r14d
	xorl	%r15d, %r15d
	.endm

	/* struct skidproof_registers. */
	.macro push_registers
	pushq	%rbx
	pushq	%rbp
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	.endm

	.macro pop_registers
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rbp
	popq	%rbx
	.endm

	/* RAX: where this processor's variables are, which is the kernel's GS base. */
	.macro kernel_base
	movl	$__CPUNODE_SEG, %eax
	lsl	%eax, %eax
	andl	$VDSO_CPUNODE_MASK, %eax
	movq	__per_cpu_offset(, %rax, 8), %rax
	.endm

	/* GS becomes the kernel's. Changes RAX, RCX and RDX; RAX is that base. */
	.macro take_gs
	kernel_base
	movq	%rax, %rdx
	shrq	$32, %rdx
	movl	$MSR_GS_BASE, %ecx
	wrmsr
	.endm

	/* The C ABI's alignment, which the IST stack need not have here. */
	.macro call_aligned function
	cld
	movq	%rsp, %rdi
	movq	%rsp, %rbx
	andq	$-16, %rsp
	call	\function
	movq	%rbx, %rsp
	.endm

	.macro stop_counters
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	.endm

	.macro stop_branches
	movl	$MSR_DEBUGCTL, %ecx
	rdmsr
	andl	$~DEBUGCTL_RECORDS, %eax
	wrmsr
	.endm

	/*
	 * The recording of branches where it is wanted, then the counters. What
	 * comes after is the program; MOV leaves its flags alone. Where one of the
	 * writes raises #GP nothing was started.
	 */
	.macro start traced
	.if \traced
	movl	ENTRY_ctrl(%rdi), %r8d
	movl	ENTRY_ctrl + 4(%rdi), %r9d
	movl	ENTRY_debugctl(%rdi), %eax
	movl	ENTRY_debugctl + 4(%rdi), %edx
	movl	$MSR_DEBUGCTL, %ecx
	movq	ENTRY_iterations(%rdi), %rdi
	wrmsr
	movl	%r8d, %eax
	movl	%r9d, %edx
	movl	$0, %r8d
	movl	$0, %r9d
	.else
	movl	ENTRY_ctrl(%rdi), %eax
	movl	ENTRY_ctrl + 4(%rdi), %edx
	movq	ENTRY_iterations(%rdi), %rdi
	.endif
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	.endm

	/* Ring 0 is entered by a return. */
	.macro start_kernel traced
	pushq	$2
	popfq
	start	\traced
	ANNOTATE_UNRET_SAFE
	ret
	int3
	.endm

SYM_CODE_START(skidproof_enter)
	no_caller
	endbr64
	save_callee
	landmark skidproof_window_begin
	lidt	skidproof_idt(%rip)
	clear_registers
	movq	ENTRY_data(%rdi), %rsi
	cmpq	$0, ENTRY_user(%rdi)
	jne	user
	movq	ENTRY_stack(%rdi), %rsp
	cmpq	$0, ENTRY_traced(%rdi)
	jne	traced
	start_kernel 0
traced:
	start_kernel 1

	/* Ring 3 is entered as if it had been interrupted at its first instruction. */
user:
	xorl	%eax, %eax
	xorl	%edx, %edx
	movl	$MSR_GS_BASE, %ecx
	wrmsr
	pushq	$__USER_DS
	pushq	ENTRY_stack(%rdi)
	pushq	$2
	pushq	$__USER_CS
	pushq	ENTRY_rip(%rdi)
	cmpq	$0, ENTRY_traced(%rdi)
	jne	user_traced
	start	0
	iretq
user_traced:
	start	1
	iretq

	/* On with what a handler took to a frame, which stands on the stack. */
restart:
	popq	%rax
	movq	%rax, %rdx
	shrq	$32, %rdx
	movl	$MSR_GS_BASE, %ecx
	wrmsr
	pop_registers
	popq	%rax
	popq	%rdx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	popq	%rdx
	popq	%rax
	movq	%rax, %db2
	popq	%rax
	movq	%rax, %db1
	popq	%rax
	popq	%rax
	movq	%rax, %db0
	movl	%edx, %eax
	shrq	$32, %rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	movq	%db2, %rdx
	movq	%db1, %rcx
	movq	%db0, %rax
	iretq

resume:
	lidt	skidproof_idt(%rip)
	movq	ENTRY_frame(%rdi), %rsi
	subq	$FRAME_BYTES, %rsp
	movq	%rsp, %rdi
	movl	$FRAME_BYTES / 8, %ecx
	cld
	rep movsq
	jmp	restart
	int3
	landmark skidproof_window_end
SYM_CODE_END(skidproof_enter)

	/* Goes on where a program's registers went to `frame`. */
SYM_CODE_START(skidproof_resume)
	no_caller
	endbr64
	save_callee
	jmp	resume
	int3
SYM_CODE_END(skidproof_resume)

	/* Programs at ring 0 return to one of these. Nothing of theirs is relied on. */
	.macro land traced
	movq	%rax, %r8
	stop_counters
	landmark skidproof_landing\traced\()_end
	take_gs
	movq	skidproof_now(%rax), %rdi
	.ifnb	\traced
	movl	RUNNING_debugctl_after(%rdi), %eax
	movl	RUNNING_debugctl_after + 4(%rdi), %edx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	.endif
	movq	RUNNING_kernel_sp(%rdi), %rsp
	movq	%r8, %rax
	jmp	skidproof_left
	int3
	.endm

SYM_CODE_START(skidproof_landing)
	no_caller
	ANNOTATE_NOENDBR
	land
SYM_CODE_END(skidproof_landing)

SYM_CODE_START(skidproof_landing_traced)
	no_caller
	ANNOTATE_NOENDBR
	land	_traced
SYM_CODE_END(skidproof_landing_traced)

	/*
	 * The handlers send a program here that is to be left where it is. From the
	 * landing's end to here R8 or, from here on, RAX is the result; it can be
	 * begun again until it has returned.
	 */
SYM_CODE_START(skidproof_left)
	no_caller
	ANNOTATE_NOENDBR
	lidt	skidproof_kernel_idt(%rip)
	landmark skidproof_left_end
	cld
	popq	%rdi
	movq	%rax, ENTRY_result(%rdi)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	RET
SYM_CODE_END(skidproof_left)

	/*
	 * NMI. Until the counters stop, and from when they run again, nothing is
	 * stored or loaded: RAX, RCX, RDX and GLOBAL_CTRL stand in the debug
	 * registers meanwhile, which the run saved. What the kernel's own stack for
	 * NMIs holds is as the processor left it whenever this hands on to the
	 * kernel's entry. On that stack Linux keeps in the second word below RIP
	 * whether an NMI is being handled: 0 stands there, here and for the kernel.
	 */
SYM_CODE_START(skidproof_nmi_entry)
	no_caller
	endbr64
	movq	%rax, %db0
	movq	%rcx, %db1
	movq	%rdx, %db2
	movl	$MSR_GLOBAL_CTRL, %ecx
	rdmsr
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%rax, %db3
	movl	$0, %eax
	movl	$0, %edx
	wrmsr
	movq	%db0, %rax
	pushq	%rax
	pushq	$0
	movq	%db1, %rax
	pushq	%rax
	movq	%db2, %rax
	pushq	%rax
	movq	%db3, %rax
	pushq	%rax
	movl	$MSR_DEBUGCTL, %ecx
	rdmsr
	pushq	%rdx
	pushq	%rax
	andl	$~DEBUGCTL_RECORDS, %eax
	wrmsr
	push_registers
	movl	$MSR_GS_BASE, %ecx
	rdmsr
	shlq	$32, %rdx
	orq	%rdx, %rax
	pushq	%rax
	take_gs
	call_aligned skidproof_nmi
	testl	%eax, %eax
	jz	restart
	/* GS stays the kernel's, and counters and branches stay off. */
	addq	$8, %rsp
	pop_registers
	addq	$24, %rsp
	popq	%rdx
	popq	%rcx
	addq	$8, %rsp
	popq	%rax
	ANNOTATE_RETPOLINE_SAFE
	jmpq	*skidproof_kernel_nmi(%rip)
	int3
SYM_CODE_END(skidproof_nmi_entry)

	/*
	 * #UD, by which a program at ring 3 returns: first the counters stop, then
	 * the recording of branches.
	 */
SYM_CODE_START(skidproof_ud_entry)
	no_caller
	endbr64
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	stop_counters
	landmark skidproof_ud_stopped
	stop_branches
	popq	%rdx
	popq	%rcx
	popq	%rax
	jmp	skidproof_fault_entries + 6 * SKIDPROOF_FAULT_ENTRY_BYTES
	int3
SYM_CODE_END(skidproof_ud_entry)

	/*
	 * One for each exception, 16 bytes apart. Each ends the run; a machine check,
	 * which may come in any stub, goes to the kernel's entry then.
	 */
	.balign 16
SYM_CODE_START(skidproof_fault_entries)
	vector = 0
	.rept	SKIDPROOF_FAULT_ENTRIES
	.balign 16
	no_caller
	endbr64
	/* Those that push an error code themselves. */
	.if !((1 << vector) & 0x60227d00)
	pushq	$0
	.endif
	pushq	$vector
	jmp	fault
	vector = vector + 1
	.endr
	.balign 16
fault:
	/* An access of our own that is refused: on without an IRET, which would let NMIs in. */
	cmpq	$13, (%rsp)
	jne	not_refused
	cmpq	$skidproof_reads, 16(%rsp)
	je	read_refused
	cmpq	$skidproof_writes, 16(%rsp)
	je	write_refused
not_refused:
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	stop_counters
	stop_branches
	push_registers
	take_gs
	/* A PMI that comes from here on, late, is to start nothing again. */
	movq	skidproof_now(%rax), %rax
	movb	$0, RUNNING_inside(%rax)
	call_aligned skidproof_fault
	testl	%eax, %eax
	pop_registers
	popq	%rdx
	popq	%rcx
	popq	%rax
	leaq	16(%rsp), %rsp
	jnz	machine_check
	iretq
machine_check:
	ANNOTATE_RETPOLINE_SAFE
	jmpq	*skidproof_kernel_mc(%rip)
	int3
read_refused:
	movq	40(%rsp), %rsp
	pushq	$skidproof_read_refused
	RET
write_refused:
	movq	40(%rsp), %rsp
	pushq	$skidproof_write_refused
	RET
	landmark skidproof_stubs_end
SYM_CODE_END(skidproof_fault_entries)

	/*
	 * int skidproof_rdmsr(u32 msr, u64 *value), int skidproof_wrmsr(u32 msr, u64 value):
	 * 0, or 1 where it raises #GP. No tracing, no paravirtual call; the same by
	 * the kernel's IDT and by ours.
	 */
SYM_FUNC_START(skidproof_rdmsr)
	movl	%edi, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	landmark skidproof_reads
	rdmsr
	_ASM_EXTABLE(skidproof_reads, skidproof_read_refused)
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%rax, (%rsi)
	xorl	%eax, %eax
	RET
	landmark skidproof_read_refused
	movl	$1, %eax
	RET
SYM_FUNC_END(skidproof_rdmsr)

SYM_FUNC_START(skidproof_wrmsr)
	movl	%edi, %ecx
	movl	%esi, %eax
	movq	%rsi, %rdx
	shrq	$32, %rdx
	landmark skidproof_writes
	wrmsr
	_ASM_EXTABLE(skidproof_writes, skidproof_write_refused)
	xorl	%eax, %eax
	RET
	landmark skidproof_write_refused
	movl	$1, %eax
	RET
SYM_FUNC_END(skidproof_wrmsr)

	.section .note.GNU-stack, "", @progbits
