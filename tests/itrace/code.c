/* SPDX-License-Identifier: MIT */
/* Code that changes, and instructions that a translator may get wrong; `code CASE`, played by tests/itrace.py. */
#include "../fixtures/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

typedef int number_fn(void);

/* mov $value, %eax; ret */
static void
write_number(uint8_t *at, uint32_t value)
{
  at[0] = 0xb8;
  memcpy(at + 1, &value, 4);
  at[5] = 0xc3;
}

static uint8_t *
pages(int prot)
{
  return mmap(NULL, 8192, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void
rewritten(void)
{
  uint8_t *page = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
  for (uint32_t i = 0; i < 3000; i++) {
    write_number(page + i % 7 * 16, i);
    CHECK(((number_fn *)(page + i % 7 * 16))() == (int)i);
  }
  /* A file that is written to by way of another mapping. */
  int fd = memfd_create("code", 0);
  CHECK(ftruncate(fd, 4096) == 0);
  uint8_t *shown = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  uint8_t *run = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  for (uint32_t i = 0; i < 500; i++) {
    write_number(shown, i);
    CHECK(((number_fn *)run)() == (int)i);
  }
  printf("rewritten\n");
}

/* The second instruction of a block is written by the first, and so on. */
static void
rewritten_ahead(void)
{
  uint8_t *page = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
  for (uint32_t i = 0; i < 200; i++) {
    uint8_t *at = page;
    *at++ = 0xc7; /* movl $value, the next but one's immediate(%rip) */
    *at++ = 0x05;
    int32_t distance = 1 + 1;
    memcpy(at, &distance, 4);
    memcpy(at + 4, &i, 4);
    at += 8;
    *at++ = 0x90;
    write_number(at, 0xdead);
    CHECK(((number_fn *)page)() == (int)i);
  }
  /* The same by a register, and an instruction in between after which the processor has what was stored. */
  static const uint8_t stores[] = {0x53, 0x89, 0x37, 0x0f, 0xa2, 0x5b}; /* push; mov %esi, (%rdi); cpuid; pop */
  for (uint32_t i = 0; i < 200; i++) {
    memcpy(page, stores, sizeof(stores));
    write_number(page + sizeof(stores), 0xdead);
    CHECK(((int (*)(uint8_t *, uint32_t))page)(page + sizeof(stores) + 1, i) == (int)i);
  }
  printf("rewritten ahead\n");
}

static void protected(void)
{
  uint8_t *page = pages(PROT_READ | PROT_WRITE);
  for (uint32_t i = 0; i < 300; i++) {
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    write_number(page + i % 5 * 16, i);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    CHECK(((number_fn *)(page + i % 5 * 16))() == (int)i);
  }
  for (uint32_t i = 0; i < 100; i++) {
    uint8_t *fresh =
        mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(fresh == page);
    write_number(page, i * 3);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    CHECK(((number_fn *)page)() == (int)(i * 3));
    if (i % 2 == 0) {
      munmap(page, 4096);
    } else {
      uint8_t *moved = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page + 4096);
      CHECK(moved == page + 4096 && ((number_fn *)moved)() == (int)(i * 3));
    }
  }
  printf("protected\n");
}

/* Another thread writes, and is believed after the two have met. */
static uint8_t *shared_page;
static _Atomic uint32_t written, read_to;

static void *
writer(void *last)
{
  for (uint32_t i = 1; i <= *(uint32_t *)last; i++) {
    write_number(shared_page, i);
    written = i;
    while (read_to != i) {
      sched_yield();
    }
  }
  return NULL;
}

static void *
protecting_writer(void *last)
{
  for (uint32_t i = 1; i <= *(uint32_t *)last; i++) {
    mprotect(shared_page, 4096, PROT_READ | PROT_WRITE);
    write_number(shared_page, i);
    mprotect(shared_page, 4096, PROT_READ | PROT_EXEC);
    written = i;
    while (read_to != i) {
      sched_yield();
    }
  }
  return NULL;
}

static void
by_thread(void *(*main)(void *))
{
  pthread_t thread;
  uint32_t last = 300;
  written = read_to = 0;
  shared_page = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
  pthread_create(&thread, NULL, main, &last);
  for (uint32_t i = 1; i <= last; i++) {
    while (written != i) {
      sched_yield();
    }
    CHECK(((number_fn *)shared_page)() == (int)i);
    read_to = i;
  }
  pthread_join(thread, NULL);
  printf("by a thread\n");
}

static void
libraries(const char *one, const char *two)
{
  const char *names[2] = {one, two};
  void *at[2] = {NULL, NULL};
  int same = 0;
  for (int i = 0; i < 200; i++) {
    void *library = dlopen(names[i % 2], RTLD_NOW);
    CHECK(library != NULL);
    if (library == NULL) {
      return;
    }
    int (*which)(int) = (int (*)(int))dlsym(library, "which");
    same += (void *)which == at[(i + 1) % 2];
    at[i % 2] = (void *)which;
    CHECK(which(i) == (i % 2 == 0 ? i + 1 : i * 2 + 1000));
    dlclose(library);
  }
  CHECK(same > 100);
  printf("libraries\n");
}

/* ---- instructions ---- */

#define ASM_FUNCTION(name, body)                                                                                       \
  __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" body "\n.size " #name       \
          ", . - " #name "\n.popsection\n");                                                                           \
  uint64_t name(uint64_t a, uint64_t b)

ASM_FUNCTION(ret_bytes, "mov %rsp, %rax\n push %rdi\n push %rdi\n call 1f\n2: sub %rsp, %rax\n ret\n1: ret $16");
ASM_FUNCTION(call_from_stack, "lea 1f(%rip), %rax\n push %rax\n push %rdi\n call *8(%rsp)\n add $16, %rsp\n ret\n"
                              "1: mov (%rsp), %rax\n lea -4(%rsp), %rsp\n lea 4(%rsp), %rsp\n ret");
ASM_FUNCTION(call_through_rsp,
             "lea 1f(%rip), %rax\n push %rax\n call *(%rsp)\n pop %rcx\n ret\n1: mov $77, %eax\n ret");
ASM_FUNCTION(jump_stack, "lea 1f(%rip), %rax\n push %rax\n jmp *(%rsp)\n ud2\n1: pop %rax\n mov $78, %eax\n ret");
ASM_FUNCTION(push_rsp,
             "mov %rsp, %rcx\n push %rsp\n pop %rax\n sub %rcx, %rax\n push %rcx\n push %rsp\n pop (%rsp)\n pop %rdx\n"
             " lea 8(%rax), %rax\n ret");
ASM_FUNCTION(pop_rsp, "mov %rsp, %rcx\n push %rcx\n pop %rsp\n mov $5, %eax\n ret");
ASM_FUNCTION(pop_memory, "push %rdi\n push %rsi\n popq (%rsp)\n pop %rax\n ret");
ASM_FUNCTION(return_address, "call 1f\n2: lea 2b(%rip), %rcx\n sub %rcx, %rax\n ret\n1: mov (%rsp), %rax\n ret");
ASM_FUNCTION(call_pop, "call 1f\n1: pop %rax\n lea 1b(%rip), %rcx\n sub %rcx, %rax\n ret");
ASM_FUNCTION(
    loops,
    "xor %eax, %eax\n mov $9, %ecx\n1: inc %eax\n loop 1b\n mov $9, %ecx\n2: inc %eax\n cmp $12, %eax\n loopne 2b\n"
    " lea (%rax, %rcx, 8), %eax\n mov $7, %ecx\n3: inc %eax\n cmp %eax, %eax\n loope 3b\n"
    " mov $0x100000000, %rcx\n jecxz 4f\n ud2\n4: jrcxz 5f\n inc %eax\n5: xor %ecx, %ecx\n jrcxz 6f\n ud2\n6: "
    " mov $0x300000003, %rcx\n7: inc %eax\n addr32 loop 7b\n ret");
ASM_FUNCTION(
    far_conditions,
    "xor %eax, %eax\n cmp %rsi, %rdi\n ja 1f\n jb 2f\n je 3f\n ud2\n .skip 4096, 0x90\n1: or $1, %eax\n jg 4f\n"
    " or $2, %eax\n4: jns 5f\n or $4, %eax\n5: ret\n .skip 4096, 0x90\n2: or $8, %eax\n jo 6f\n or $16, %eax\n"
    "6: jp 7f\n or $32, %eax\n7: ret\n3: or $64, %eax\n ret");
ASM_FUNCTION(flags_live,
             "mov %edi, %eax\n add %esi, %eax\n call 1f\n adc $0, %edx\n pushf\n pop %rax\n and $0x8d5, %eax\n ret\n"
             "1: jo 2f\n jmp 3f\n2: lea 4f(%rip), %rcx\n jmp *%rcx\n3: lea 4f(%rip), %rcx\n push %rcx\n ret\n"
             "4: mov $0, %edx\n ret");
ASM_FUNCTION(flags_pushed, "pushf\n pushf\n orl $0x40cd5, (%rsp)\n popf\n pushf\n jmp 1f\n1: pop %rax\n popf\n ret");
ASM_FUNCTION(direction, "std\n mov %rdi, %rax\n mov %rsi, %rcx\n call 1f\n lea -8(%rsp), %rdi\n xor %eax, %eax\n mov "
                        "$2, %ecx\n mov %rdi, %rdx\n"
                        " rep stosq\n sub %rdi, %rdx\n cld\n mov %rdx, %rax\n ret\n1: ret");
ASM_FUNCTION(
    through_table,
    "lea 9f(%rip), %rax\n and $3, %edi\n jmp *(%rax, %rdi, 8)\n1: mov $11, %eax\n ret\n2: mov $12, %eax\n ret\n"
    "3: mov $13, %eax\n ret\n4: mov $14, %eax\n ret\n.pushsection .data.rel, \"aw\"\n9: .quad 1b, 2b, 3b, "
    "4b\n.popsection");
ASM_FUNCTION(
    through_rcx,
    "lea 1f(%rip), %rcx\n push %rcx\n mov %rsp, %rcx\n call *(%rcx)\n pop %rcx\n mov %rcx, %rax\n lea 1f(%rip), %rdx\n"
    " sub %rdx, %rax\n ret\n1: ret");
ASM_FUNCTION(
    red_zone,
    "mov %rdi, -8(%rsp)\n mov %rsi, -128(%rsp)\n lea 1f(%rip), %rax\n jmp *%rax\n1: jmp 2f\n2: mov -8(%rsp), %rax\n"
    " xor -128(%rsp), %rax\n ret");
ASM_FUNCTION(below_red_zone, "mov %rdi, -512(%rsp)\n mov %rsi, -1024(%rsp)\n lea 1f(%rip), %rax\n jmp *%rax\n1: jmp "
                             "2f\n2: mov $107, %eax\n syscall\n"
                             " mov -512(%rsp), %rax\n xor -1024(%rsp), %rax\n ret");
ASM_FUNCTION(short_sizes,
             "mov %rdi, %rax\n push %ax\n pop %cx\n movzwl %cx, %eax\n lea (%edi, %esi), %ecx\n add %rcx, %rax\n"
             " lea 1f(%eip), %ecx\n lea 1f(%rip), %rdx\n sub %edx, %ecx\n add %rcx, %rax\n .byte 0x66, 0x66\n rex.W "
             "call 2f\n notrack jmp *3f(%rip)\n"
             "2: repz ret\n1: .long 0x1234567\n4: ret\n.pushsection .data.rel, \"aw\"\n3: .quad 4b\n.popsection");
ASM_FUNCTION(syscall_registers, "mov $107, %eax\n stc\n syscall\n1: lea 1b(%rip), %rdx\n xor %rdx, %rcx\n mov %r11, "
                                "%rax\n and $0x1d5, %eax\n or %rcx, %rax\n ret");
/* mmap over the own, fresh page at rdi: the tracer makes a step of it. */
ASM_FUNCTION(stepped_registers,
             "push %r12\n mov $4096, %esi\n mov $3, %edx\n mov $0x32, %r10d\n mov $-1, %r8\n xor %r9d, %r9d\n"
             " mov $9, %eax\n stc\n syscall\n1: lea 1b(%rip), %rdx\n xor %rdx, %rcx\n mov %r11, %rax\n and $0x1d5, "
             "%eax\n or %rcx, %rax\n pop %r12\n ret");
ASM_FUNCTION(
    int80,
    "push %rbx\n mov $0x31, %eax\n mov $0x1122334455667788, %r8\n int $0x80\n mov %r8, %rax\n pop %rbx\n ret"); /* geteuid
                                                                                                                 */
ASM_FUNCTION(far_return, "lea 1f(%rip), %rax\n mov %cs, %ecx\n push %rcx\n push %rax\n lretq\n1: mov $79, %eax\n ret");
ASM_FUNCTION(interrupt_return, "mov %rsp, %rdx\n mov %ss, %eax\n push %rax\n push %rdx\n pushf\n mov %cs, %eax\n push "
                               "%rax\n lea 1f(%rip), %rax\n push %rax\n iretq\n"
                               "1: mov $80, %eax\n ret");
ASM_FUNCTION(itself, "lea itself(%rip), %rcx\n mov (%rcx), %eax\n mov 3f(%rip), %edx\n3: xor %edx, %eax\n ret");
ASM_FUNCTION(segment_call, "mov %fs:0, %rax\n call *%fs:(%rdi)\n ret");
ASM_FUNCTION(shifted, "mov %esi, %ecx\n stc\n mov %rdi, %rax\n shl %cl, %rax\n jmp 1f\n1: setc %cl\n movzbl %cl, "
                      "%ecx\n xor %rcx, %rax\n ret");

static __thread number_fn *by_segment;

static int
seven(void)
{
  return 7;
}

#define SAY(name, ...) printf(#name " %llx\n", (unsigned long long)name(__VA_ARGS__))

static void
instructions(void)
{
  for (int turn = 0; turn < 3; turn++) {
    SAY(ret_bytes, 1, 2);
    CHECK(call_from_stack(1, 2) > 4096);
    SAY(call_through_rsp, 1, 2);
    SAY(jump_stack, 1, 2);
    SAY(push_rsp, 1, 2);
    SAY(pop_rsp, 1, 2);
    SAY(pop_memory, 3, 4);
    SAY(return_address, 0, 0);
    SAY(call_pop, 0, 0);
    SAY(loops, 0, 0);
    for (uint64_t i = 0; i < 9; i++) {
      SAY(far_conditions, i / 3 - 1, i % 3 - 1);
      SAY(flags_live, i * 0x20000001, i * 0x1fffffff);
      SAY(through_table, i, 0);
      SAY(shifted, i, i * 11);
    }
    SAY(flags_pushed, 0, 0);
    SAY(direction, 0, 0);
    SAY(through_rcx, 0, 0);
    SAY(red_zone, 5, 9);
    SAY(below_red_zone, 5, 9);
    SAY(short_sizes, 0x123456789, 0x87654321);
    SAY(syscall_registers, 0, 0);
    SAY(stepped_registers, (uint64_t)pages(PROT_READ), 0);
    SAY(far_return, 0, 0);
    SAY(interrupt_return, 0, 0);
    SAY(itself, 0, 0);
    by_segment = seven;
    uint64_t thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    SAY(segment_call, (uint64_t)&by_segment - thread, 0);
  }
}

static void
old_system_calls(void)
{
  SAY(int80, 0, 0);
  SAY(int80, 0, 0);
}

/* getpid, time and getcpu at the addresses that they have had for ever, if this kernel still has them. */
static void
vsyscall(void)
{
  FILE *file = fopen("/proc/self/maps", "r");
  char line[512];
  bool is_there = false;
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    is_there |= strstr(line, "[vsyscall]") != NULL;
  }
  fclose(file);
  if (!is_there) {
    printf("no vsyscall\n");
    return;
  }
  long (*old_time)(long *) = (long (*)(long *))0xffffffffff600400;
  for (int i = 0; i < 5; i++) {
    long now = old_time(NULL), other = time(NULL);
    CHECK(other - now >= 0 && other - now < 5);
  }
  printf("vsyscall\n");
}

static void
vdso(void)
{
  struct timespec before = {0, 0}, now;
  unsigned cpu;
  for (int i = 0; i < 1000; i++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    CHECK(now.tv_sec > before.tv_sec || (now.tv_sec == before.tv_sec && now.tv_nsec >= before.tv_nsec));
    before = now;
    CHECK(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0);
  }
  printf("vdso\n");
}

#if defined(__x86_64__)
__attribute__((target("rtm"))) static void
transactions(void)
{
  int done = 0, gone = 0;
  for (int i = 0; i < 100; i++) {
    if (_xbegin() == _XBEGIN_STARTED) {
      done++;
      _xend();
    } else {
      gone++;
    }
  }
  CHECK(done + gone == 100);
  printf("transactions\n");
}
#endif

static ucontext_t main_context, contexts[3];
static int turns;

static void
coroutine(int number)
{
  for (int i = 0; i < 1000; i++) {
    turns += number;
    swapcontext(&contexts[number], &contexts[(number + 1) % 3]);
  }
}

static void
coroutines(void)
{
  for (int i = 0; i < 3; i++) {
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = malloc(65536);
    contexts[i].uc_stack.ss_size = 65536;
    contexts[i].uc_link = &main_context;
    makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
  }
  swapcontext(&main_context, &contexts[0]);
  printf("coroutines %d\n", turns);
}

/* x87's own notion of where its last instruction was. */
static void
x87(void)
{
  struct {
    uint32_t control, status, tags, ip, cs_op, data, ds;
  } environment;
  __asm__ volatile("fldpi\n1: fstp %%st\n fnstenv %0\n fldenv %0" : "=m"(environment)::"memory");
  printf("x87 %x\n", environment.tags & 0xffff);
}

int
main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(name, "rewritten") == 0) {
    rewritten();
  } else if (strcmp(name, "rewritten_ahead") == 0) {
    rewritten_ahead();
  } else if (strcmp(name, "protected") == 0) {
    protected();
  } else if (strcmp(name, "by_thread") == 0) {
    by_thread(writer);
  } else if (strcmp(name, "by_protecting_thread") == 0) {
    by_thread(protecting_writer);
  } else if (strcmp(name, "libraries") == 0) {
    libraries(argv[2], argv[3]);
  } else if (strcmp(name, "instructions") == 0) {
    instructions();
  } else if (strcmp(name, "old_system_calls") == 0) {
    old_system_calls();
  } else if (strcmp(name, "vsyscall") == 0) {
    vsyscall();
  } else if (strcmp(name, "vdso") == 0) {
    vdso();
  } else if (strcmp(name, "transactions") == 0) {
    transactions();
  } else if (strcmp(name, "coroutines") == 0) {
    coroutines();
  } else if (strcmp(name, "x87") == 0) {
    x87();
  } else {
    CHECK(!"a case");
  }
  return check_done(name);
}
