/* SPDX-License-Identifier: MIT */
/*
 * A function that is too short for a jump, with no padding in reach: instructions of its neighbour move out for it.
 * They follow a system call, in which the thread waits for a byte; for each it calls both and writes a line. Not
 * position independent: so no jump made of the bytes after its first instruction leads anywhere.
 */
#include <stdio.h>

long small(long n);
long neighbour(int fd, void *to, unsigned long bytes);

#define FUNCTION(name, body)                                                                                           \
  ".globl " #name "\n .type " #name ",@function\n" #name ":\n .cfi_startproc\n" body " .cfi_endproc\n .size " #name    \
  ",.-" #name "\n"
/* An indirect branch may lead anywhere: nothing of it moves out. */
#define FILL " .rept 60\n inc %eax\n .endr\n jmp *%rax\n"

__asm__(FUNCTION(before, FILL) FUNCTION(small, " xor %eax, %eax\n1: inc %eax\n nop\n dec %edi\n jg 1b\n ret\n")
            FUNCTION(neighbour,
                     " mov $0, %eax\n syscall\n1: mov %rax, %r8\n mov %r8, %r9\n mov %r9, %r10\n mov %r10, %r11\n"
                     " mov %r11, %rax\n dec %ecx\n jg 1b\n ret\n") FUNCTION(after, FILL));

int
main(void)
{
  char byte;
  long calls = 0, sum = 0;
  while (neighbour(0, &byte, 1) == 1) {
    sum += small(3);
    printf("%ld\n", ++calls);
    fflush(stdout);
  }
  return sum == 3 * calls ? 7 : 8;
}
