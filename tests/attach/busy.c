/* SPDX-License-Identifier: MIT */
/*
 * The thread waits in the first bytes of a function, which begins with its system call: no jump can be put there. With
 * each other byte it waits elsewhere.
 */
#include <stdio.h>
#include <unistd.h>

long waits(long fd, void *to, long bytes);
long reads(long fd, void *to, long bytes);
__asm__("  .text\n  .p2align 4\n  .globl waits\n  .type waits, @function\nwaits:\n  .cfi_startproc\n"
        "  syscall\n  lea 0(%rax), %rax\n  ret\n  .cfi_endproc\n  .size waits, . - waits\n"
        "  .p2align 4\n  .globl reads\n  .type reads, @function\nreads:\n  .cfi_startproc\n"
        "  xor %eax, %eax\n  call waits\n  ret\n  .cfi_endproc\n  .size reads, . - reads\n");

int
main(void)
{
  char byte;
  puts("ready");
  fflush(stdout);
  while (reads(0, &byte, 1) == 1) {
    puts("read");
    fflush(stdout);
    if (read(0, &byte, 1) == 1) {
      puts("between");
      fflush(stdout);
    }
  }
  return 0;
}
