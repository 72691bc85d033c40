/* SPDX-License-Identifier: MIT */
/*
 * Restartable sequences: threads count in a word of their processor, by a load, a wait and a store that the kernel
 * restarts when it interrupts them, while signals arrive. No count may be missing, and no handler may see the program
 * inside of a sequence.
 *
 *   rseq [COUNT OF EACH THREAD]
 */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/rseq.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 4, PROCESSORS = 4096 };

static struct {
  uint64_t count, unused[7];
} counts[PROCESSORS];
static volatile int inside, signals, aborted_ever;
static unsigned long most;

extern char sequence_begin[], sequence_end[], short_begin[], short_end[];

static void
handler(int signal, siginfo_t *info, void *context)
{
  uintptr_t rip = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  inside |= (rip >= (uintptr_t)sequence_begin && rip < (uintptr_t)sequence_end) ||
            (rip >= (uintptr_t)short_begin && rip < (uintptr_t)short_end);
  signals++;
}

#define DESCRIPTOR(name)                                                                                               \
  ".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n" #name "_cs:\n\t.long 0, 0\n\t.quad " #name "_begin, " #name         \
  "_end - " #name "_begin, " #name "_abort\n\t.popsection\n\t"
#define ABORT(name)                                                                                                    \
  ".pushsection .text.unlikely\n\t.byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n" #name "_abort:\n\tjmp %l[aborted]\n\t" \
  ".popsection\n"

/* With a loop inside, and a branch out of it. */
__attribute__((noinline)) static int
count_slowly(struct rseq *rseq, uint32_t cpu, uint64_t *count)
{
  __asm__ goto(DESCRIPTOR(sequence) "leaq sequence_cs(%%rip), %%rax\n\t"
                                    "movq %%rax, 8(%[rseq])\n"
                                    ".globl sequence_begin, sequence_end\n"
                                    "sequence_begin:\n\t"
                                    "cmpl %[cpu], 4(%[rseq])\n\t"
                                    "jne %l[moved]\n\t"
                                    "movq (%[count]), %%rcx\n\t"
                                    "movl $10, %%edx\n"
                                    "3:\tpause\n\t"
                                    "decl %%edx\n\t"
                                    "jnz 3b\n\t"
                                    "addq $1, %%rcx\n\t"
                                    "movq %%rcx, (%[count])\n"
                                    "sequence_end:\n\t" ABORT(sequence)
               :
               : [rseq] "r"(rseq), [cpu] "r"(cpu), [count] "r"(count)
               : "rax", "rcx", "rdx", "memory", "cc"
               : aborted, moved);
  return 0;
aborted:
  aborted_ever = 1;
moved:
  return 1;
}

/* Straight. r10 and r11, which the tracer has uses for, are what was there before. */
__attribute__((noinline)) static int
count_fast(struct rseq *rseq, uint32_t cpu, uint64_t *count)
{
  __asm__ goto(DESCRIPTOR(short) "movl $0x1234, %%r10d\n\tmovl $0x5678, %%r11d\n\t"
                                 "leaq short_cs(%%rip), %%rax\n\t"
                                 "movq %%rax, 8(%[rseq])\n"
                                 ".globl short_begin, short_end\n"
                                 "short_begin:\n\t"
                                 "cmpl %[cpu], 4(%[rseq])\n\t"
                                 "jne %l[moved]\n\t"
                                 "movq (%[count]), %%rcx\n\t"
                                 "pause\n\tpause\n\tpause\n\t"
                                 "leaq -0x68ac(%%rcx, %%r10), %%rcx\n\t"
                                 "leaq (%%rcx, %%r11), %%rcx\n\t"
                                 "addq $0x1, %%rcx\n\t"
                                 "movq %%rcx, (%[count])\n"
                                 "short_end:\n\t" ABORT(short)
               :
               : [rseq] "r"(rseq), [cpu] "r"(cpu), [count] "r"(count)
               : "rax", "rcx", "r10", "r11", "memory", "cc"
               : aborted, moved);
  return 0;
aborted:
  aborted_ever = 1;
moved:
  return 1;
}

static void *
run(void *unused)
{
  struct rseq *rseq = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
  for (unsigned long i = 0; i < most; i++) {
    for (int failed = 1; failed != 0;) {
      uint32_t cpu = *(volatile uint32_t *)&rseq->cpu_id_start;
      uint64_t *count = &counts[cpu].count;
      failed = (i & 1) != 0 ? count_slowly(rseq, cpu, count) : count_fast(rseq, cpu, count);
    }
  }
  return NULL;
}

int
main(int argc, char **argv)
{
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct itimerval often = {{0, 2000}, {0, 2000}};
  pthread_t threads[THREADS];
  uint64_t sum = 0;
  most = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000;
  if (__rseq_size == 0) {
    puts("rseq: none is registered");
    return 77;
  }
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < THREADS; i++) {
    pthread_create(&threads[i], NULL, run, NULL);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < PROCESSORS; i++) {
    sum += counts[i].count;
  }
  fprintf(stderr, "%d signals, %s\n", signals, aborted_ever ? "some aborted" : "none aborted");
  if (inside) {
    puts("rseq: a handler has seen a sequence");
  } else if (sum != THREADS * most) {
    printf("rseq: %lld are missing\n", (long long)(THREADS * most - sum));
  } else {
    puts("rseq: all right");
  }
  return 0;
}
