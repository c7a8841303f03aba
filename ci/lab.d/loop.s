# A loop for Linux' perf to sample, and nothing else in user mode: loads, a store, arithmetic, a branch, between
# loop_begin and loop_end. loop_load and loop_second_load mark its loads, loop_branch its branch.
	.text
	.globl	_start, loop_begin, loop_load, loop_second_load, loop_branch, loop_end
_start:
	movl	$200000, %edi
	leaq	data(%rip), %rsi
loop_begin:
loop_load:
	movq	(%rsi), %rax
loop_second_load:
	addq	8(%rsi), %rax
	movq	%rax, 16(%rsi)
	imulq	$3, %rax, %rdx
	xorq	%rdx, %rcx
	subq	$1, %rdi
loop_branch:
	jnz	loop_begin
loop_end:
	movl	$60, %eax
	xorl	%edi, %edi
	syscall
	.data
	.balign	64
data:	.fill	8, 8, 0
