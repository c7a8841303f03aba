/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way into a program and out of it, and the stubs that stand in the IDT
 * meanwhile. Between the WRMSR that starts the counters and the program, and
 * between the program and the WRMSR that stops them, nothing loads, stores or
 * branches but the RET or IRET into the program, and what the processor does by
 * itself when a program at ring 3 ends: these instructions are counted. That is
 * why they are no RET through the kernel's return thunk.
 */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <linux/version.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/segment.h>
#include <asm/unwind_hints.h>

#include "skidproof.h"

#define MSR_GLOBAL_CTRL	0x38f
#define MSR_DEBUGCTL	0x1d9

	/*
	 * For objtool, which older kernels keep from this file altogether: nobody
	 * can tell who called.
	 */
	.macro no_caller
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	UNWIND_HINT_UNDEFINED
#endif
	.endm

	/* An address that handlers compare with, or send programs to. */
	.macro landmark name
	.globl	\name
\name:
	ANNOTATE_NOENDBR
	.endm

	.text

	.macro save_callee
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%rdi
	movq	%rsp, ENTRY_KERNEL_SP(%rdi)
	movq	ENTRY_SLOTS(%rdi), %rax
	movq	%rsp, (%rax)
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

	/* In a handler, with `cs` where the interrupted code segment stands. */
	.macro kernel_gs cs
	testb	$3, \cs(%rsp)
	jz	.Lkernel_gs\@
	swapgs
.Lkernel_gs\@:
	.endm

	/* The C ABI's alignment, which the IST stack need not have here. */
	.macro call_aligned function
	cld
	movq	%rsp, %rdi
	movq	%rsp, %rbx
	andq	$-16, %rsp
	call	\function
	.endm

	.macro write_msr refused
100:	wrmsr
	_ASM_EXTABLE(100b, \refused)
	.endm

	/*
	 * The recording of branches where it is wanted, then the counters. What
	 * comes after is the program; MOV leaves its flags alone.
	 */
	.macro start traced, refused
	.if \traced
	movl	ENTRY_CTRL(%rdi), %r8d
	movl	ENTRY_CTRL + 4(%rdi), %r9d
	movl	ENTRY_DEBUGCTL(%rdi), %eax
	movl	ENTRY_DEBUGCTL + 4(%rdi), %edx
	movl	$MSR_DEBUGCTL, %ecx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	write_msr \refused
	movl	%r8d, %eax
	movl	%r9d, %edx
	movl	$0, %r8d
	movl	$0, %r9d
	.else
	movl	ENTRY_CTRL(%rdi), %eax
	movl	ENTRY_CTRL + 4(%rdi), %edx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	.endif
	movl	$MSR_GLOBAL_CTRL, %ecx
	write_msr \refused
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	.endm

	/* Ring 0 is entered by a return. */
	.macro start_kernel traced
	pushq	$2
	popfq
	start	\traced, refused
	ANNOTATE_UNRET_SAFE
	ret
	int3
	.endm

	landmark skidproof_window_begin
SYM_CODE_START(skidproof_enter)
	no_caller
	endbr64
	save_callee
	clear_registers
	movq	ENTRY_DATA(%rdi), %rsi
	cmpq	$0, ENTRY_USER(%rdi)
	jne	user
	movq	ENTRY_STACK(%rdi), %rsp
	cmpq	$0, ENTRY_TRACED(%rdi)
	jne	traced
	start_kernel 0
traced:
	start_kernel 1

	/* Ring 3 is entered as if it had been interrupted at its first instruction. */
user:
	pushq	$__USER_DS
	pushq	ENTRY_STACK(%rdi)
	pushq	$2
	pushq	$__USER_CS
	pushq	ENTRY_RIP(%rdi)
	cmpq	$0, ENTRY_TRACED(%rdi)
	jne	user_traced
	start	0, user_refused
	iretq
user_traced:
	start	1, user_refused
	iretq
SYM_CODE_END(skidproof_enter)

	/* Goes on where an NMI took the program's registers to `frame`. */
SYM_CODE_START(skidproof_resume)
	no_caller
	endbr64
	save_callee
	movq	ENTRY_FRAME(%rdi), %rsi
	subq	$FRAME_BYTES, %rsp
	movq	%rsp, %rdi
	movl	$FRAME_BYTES / 8, %ecx
	cld
	rep movsq
	pop_registers
	jmp	restart
	int3
SYM_CODE_END(skidproof_resume)

	/*
	 * NMI. Until the counters stop, and from when they run again, nothing is
	 * stored or loaded: RAX, RCX, RDX and GLOBAL_CTRL stand in the debug
	 * registers meanwhile, which the run saved. What the kernel's own stack for
	 * NMIs holds is as the processor left it whenever this hands on to the
	 * kernel's entry.
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
	kernel_gs FRAME_CS
	call_aligned skidproof_nmi
	movq	%rbx, %rsp
	testq	%rax, %rax
	pop_registers
	jnz	foreign
restart:
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
	movq	%rax, %db0
	movl	%edx, %eax
	shrq	$32, %rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	movq	%db2, %rdx
	movq	%db1, %rcx
	movq	%db0, %rax
	iretq
foreign:
	popq	%rax
	popq	%rdx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	popq	%rax
	movq	%rax, %rdx
	shrq	$32, %rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	popq	%rdx
	popq	%rcx
	popq	%rax
	ANNOTATE_RETPOLINE_SAFE
	jmpq	*skidproof_kernel_nmi(%rip)
	int3
SYM_CODE_END(skidproof_nmi_entry)
	landmark skidproof_window_end

	/* Programs return to one of these; above their stack stands the kernel's. */
	.macro stop_counters
	movq	%rax, %r8
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	.endm

SYM_CODE_START(skidproof_landing)
	no_caller
	ANNOTATE_NOENDBR
	stop_counters
	landmark skidproof_landing_end
	jmp	landed
	int3
SYM_CODE_END(skidproof_landing)

SYM_CODE_START(skidproof_landing_traced)
	no_caller
	ANNOTATE_NOENDBR
	stop_counters
	landmark skidproof_landing_traced_end
	movl	8(%rsp), %eax
	movl	12(%rsp), %edx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
landed:
	movq	(%rsp), %rsp
	movq	%r8, %rax
	jmp	skidproof_left
	int3

	/* A write that starts the counters raised #GP; which one is in ECX. */
refused:
	movq	16(%rsp), %rsp
	jmp	not_started
	int3
user_refused:
	addq	$40, %rsp
not_started:
	movq	(%rsp), %rdi
	movq	%rcx, ENTRY_REFUSED(%rdi)
	jmp	skidproof_left
	int3
SYM_CODE_END(skidproof_landing_traced)

	/* The handlers send a program here that is to be left where it is. */
SYM_CODE_START(skidproof_left)
	no_caller
	ANNOTATE_NOENDBR
	cld
	popq	%rdi
	movq	%rax, ENTRY_RESULT(%rdi)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	RET
SYM_CODE_END(skidproof_left)

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
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	landmark skidproof_ud_stopped
	movl	$MSR_DEBUGCTL, %ecx
	rdmsr
	andl	$~DEBUGCTL_RECORDS, %eax
	wrmsr
	popq	%rdx
	popq	%rcx
	popq	%rax
	jmp	skidproof_fault_entries + 6 * SKIDPROOF_FAULT_ENTRY_BYTES
	int3
SYM_CODE_END(skidproof_ud_entry)

	/* One for each exception, 16 bytes apart. */
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
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	push_registers
	kernel_gs FAULT_CS
	call_aligned skidproof_fault
	movq	%rax, %rsp
	pop_registers
	popq	%rdx
	popq	%rcx
	popq	%rax
	ANNOTATE_UNRET_SAFE
	ret
	int3
SYM_CODE_END(skidproof_fault_entries)

SYM_CODE_START(skidproof_iret)
	no_caller
	ANNOTATE_NOENDBR
	iretq
SYM_CODE_END(skidproof_iret)

	.section .note.GNU-stack, "", @progbits
