/* SPDX-License-Identifier: MIT */
/* 200,000 functions of three shapes, in a table that main goes through twice; its status is 0 when the sum is right. */
  .set COUNT, 200000

  .macro CALLED number
  .p2align 4
  .type function_\number, @function
function_\number:
  .cfi_startproc
  .if \number % 3 == 0
  lea 1(%rdi), %rax
  ret
  .elseif \number % 3 == 1
  push %rbx
  .cfi_adjust_cfa_offset 8
  mov %rdi, %rbx
  lea 1(%rbx), %rax
  pop %rbx
  .cfi_adjust_cfa_offset -8
  ret
  .else
  mov %rdi, %rax
  add $1, %rax
  ret
  .endif
  .cfi_endproc
  .size function_\number, . - function_\number
  .pushsection .data.rel.ro, "aw"
  .quad function_\number
  .popsection
  .endm

  .section .data.rel.ro, "aw"
  .p2align 3
table:
  .text
  .altmacro
  .set at, 0
  .rept COUNT
  CALLED %at
  .set at, at + 1
  .endr

  .globl main
  .type main, @function
main:
  .cfi_startproc
  push %rbx
  .cfi_adjust_cfa_offset 8
  push %r12
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  xor %edi, %edi
  mov $2, %r12d
1:
  xor %ebx, %ebx
2:
  lea table(%rip), %rax
  call *(%rax,%rbx,8)
  mov %rax, %rdi
  inc %ebx
  cmp $COUNT, %ebx
  jne 2b
  dec %r12d
  jne 1b
  xor %eax, %eax
  cmp $2 * COUNT, %rdi
  setne %al
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %r12
  .cfi_adjust_cfa_offset -8
  pop %rbx
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size main, . - main

  .section .note.GNU-stack, "", @progbits
