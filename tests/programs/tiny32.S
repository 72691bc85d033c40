/* SPDX-License-Identifier: MIT */
/* A 32-bit program: exit(5). */
  .globl _start
_start:
  mov $1, %eax
  mov $5, %ebx
  int $0x80
