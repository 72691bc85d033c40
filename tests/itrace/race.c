/* SPDX-License-Identifier: MIT */
/* Instructions that read memory which another thread changes all the time: what is recorded is what they have read. */
#include <pthread.h>
#include <stdio.h>

static volatile int word;
static volatile char byte;
static volatile long quad;
static volatile int stop;

static void *
change(void *none)
{
  while (!stop) {
    word ^= 1;
    byte++;
    quad += 3;
  }
  return NULL;
}

int
main(void)
{
  pthread_t thread;
  long taken = 0;
  pthread_create(&thread, NULL, change, NULL);
  for (int i = 0; i < 1000000; i++) {
    __asm__ goto("cmpl $0, %0; je %l2; testb $4, %1; je %l2" ::"m"(word), "m"(byte)::odd);
    taken++;
  odd:
    __asm__ volatile("cmpb %%al, %1; adcl %0, %%edx; imull $3, %0, %%ecx; addl %0, %%ecx; cmovne %0, %%esi;"
                     "pushq %2; popq %%rax; testl %%eax, %0; sbbw $7, %%dx; cmpw $5, %2; bsfl %0, %%edi" ::"m"(word),
                     "m"(byte), "m"(quad)
                     : "rax", "rdx", "rcx", "rsi", "rdi", "cc");
  }
  stop = 1;
  pthread_join(thread, NULL);
  puts(taken >= 0 ? "race: all right" : "");
  return 0;
}
