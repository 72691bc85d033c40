/* SPDX-License-Identifier: MIT */
/*
 * What a hook costs, alone: the real trampolines, emitted by ct_trampoline_emit and jumped to from patched functions,
 * in a process with a control page, byte table, return store and one warm segment, but without agent and controller.
 * The slow path is a stub that sets the cursor back to the segment's start.
 *
 *   hook_bench [--cpu N] [--rounds N] [--json FILE]
 *
 * Each function of a set exists once for every mode, so that nothing is patched between two measurements:
 *   leaf       one empty function, called from a loop
 *   chain 8    eight functions, each calling the next: the return predictor has to follow
 *   fib        recursion: two calls per frame
 *   many 512   512 empty functions one after the other: trampolines out of the instruction cache's first level
 *
 * detail is full with a record of the registers and 128 bytes of the stack for each call, and one for each return; per
 * event of these two it costs what is in the column /rdtsc.
 *
 * skipped is a light hook under sampling, of the calls that are passed over.
 *
 * A round measures the bare rdtsc and then every set in every mode; a ratio is taken within a round, and the median of
 * the rounds is printed, so that a clock which changes its speed or a busy neighbour does not enter it. A cost is what
 * a call takes more than the untraced one; its min is the difference of the two fastest rounds.
 *
 * Requirements: N1 full <= 1.6 x two rdtsc; N2 light <= 1.4 x rdtsc; N4 80 M events per second into the ring.
 * Exit status 1 when a function returned something wrong or events are missing; speed is no matter of success.
 */
#include "ring/layout.h"
#include "x86/relocate.h"
#include "x86/trampoline.h"

#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define STORE_DELTA (-(1ll << 46))
#define MANY        512
#define MANY_TEXT   "512"
#define ROUNDS_MAX  1001

enum mode { UNTRACED, QUIET, SKIPPED, LIGHT, ENTER, FULL, DETAIL, MODES };
static const char *const mode_names[MODES] = {"untraced", "quiet", "skipped", "light", "enter", "full", "detail"};
static const uint8_t hook_modes[MODES] = {
    0, CT_HOOK_PASSTHROUGH, CT_HOOK_SAMPLED, CT_HOOK_SAMPLED, CT_HOOK_ENTER, CT_HOOK_FULL, CT_HOOK_FULL};

/* The functions: six copies of each, in a section whose pages can be made writable. */
#define HOOKED(mode) __attribute__((noinline, noclone, aligned(32), section(".text.hooked." #mode)))
#define LINK(mode, name, next)                                                                                         \
  HOOKED(mode) static long name##_##mode(long a, long b)                                                               \
  {                                                                                                                    \
    long c = next##_##mode(a, 0);                                                                                      \
    __asm__ volatile("" : "+r"(c)::"memory");                                                                          \
    return c + b;                                                                                                      \
  }
#define COPY(mode)                                                                                                     \
  HOOKED(mode) static long leaf_##mode(long a, long b)                                                                 \
  {                                                                                                                    \
    __asm__ volatile("" ::: "memory");                                                                                 \
    return a + b;                                                                                                      \
  }                                                                                                                    \
  HOOKED(mode) static long end_##mode(long a, long b)                                                                  \
  {                                                                                                                    \
    __asm__ volatile("" ::: "memory");                                                                                 \
    return a + b;                                                                                                      \
  }                                                                                                                    \
  LINK(mode, link6, end)                                                                                               \
  LINK(mode, link5, link6)                                                                                             \
  LINK(mode, link4, link5)                                                                                             \
  LINK(mode, link3, link4)                                                                                             \
  LINK(mode, link2, link3)                                                                                             \
  LINK(mode, link1, link2)                                                                                             \
  LINK(mode, chain, link1)                                                                                             \
  HOOKED(mode) static long fib_##mode(long n)                                                                          \
  {                                                                                                                    \
    __asm__ volatile("" : "+r"(n)::"memory");                                                                          \
    if (n < 2)                                                                                                         \
      return n;                                                                                                        \
    long sum = fib_##mode(n - 1);                                                                                      \
    sum += fib_##mode(n - 2);                                                                                          \
    __asm__ volatile("" : "+r"(sum)::"memory"); /* or the second call becomes a loop */                                \
    return sum;                                                                                                        \
  }                                                                                                                    \
  extern char many_##mode[];                                                                                           \
  void all_##mode(void);                                                                                               \
  __asm__("  .section .text.hooked." #mode ", \"ax\"\n"                                                                \
          "  .p2align 5\n"                                                                                             \
          "many_" #mode ":\n"                                                                                          \
          "  .rept " MANY_TEXT "\n"                                                                                    \
          "  lea 1(%rax), %rax\n"                                                                                      \
          "  nopl (%rax)\n"                                                                                            \
          "  ret\n"                                                                                                    \
          "  .p2align 4\n"                                                                                             \
          "  .endr\n"                                                                                                  \
          "  .text\n"                                                                                                  \
          "all_" #mode ":\n"                                                                                           \
          "  push %rax\n"                                                                                              \
          "  xor %eax, %eax\n"                                                                                         \
          "  .set i, 0\n"                                                                                              \
          "  .rept " MANY_TEXT "\n"                                                                                    \
          "  call many_" #mode " + 16 * i\n"                                                                           \
          "  .set i, i + 1\n"                                                                                          \
          "  .endr\n"                                                                                                  \
          "  pop %rcx\n"                                                                                               \
          "  ret\n");                                                                                                  \
  static long run_leaf_##mode(long n)                                                                                  \
  {                                                                                                                    \
    long sum = 0;                                                                                                      \
    for (long i = 0; i < n; i++)                                                                                       \
      sum = leaf_##mode(sum, 1);                                                                                       \
    return sum;                                                                                                        \
  }                                                                                                                    \
  static long run_chain_##mode(long n)                                                                                 \
  {                                                                                                                    \
    long sum = 0;                                                                                                      \
    for (long i = 0; i < n / 8; i++)                                                                                   \
      sum = chain_##mode(sum, 1);                                                                                      \
    return sum;                                                                                                        \
  }                                                                                                                    \
  static long run_many_##mode(long n)                                                                                  \
  {                                                                                                                    \
    for (long i = 0; i < n / MANY; i++)                                                                                \
      all_##mode();                                                                                                    \
    return n / MANY * MANY;                                                                                            \
  }

/* clang-format off */
COPY(untraced)
COPY(quiet)
COPY(light)
COPY(enter)
COPY(full)
COPY(detail)

#define EACH(mode) {run_leaf_##mode, run_chain_##mode, fib_##mode, run_many_##mode}
/* clang-format on */

enum set { LEAF, CHAIN, FIB, MANY_SET, SETS };
static const char *const set_names[SETS] = {"leaf", "chain 8", "fib", "many 512"};
static long (*const runs[MODES][SETS])(long) = {EACH(untraced), EACH(quiet), EACH(light), EACH(light),
                                                EACH(enter),    EACH(full),  EACH(detail)};

#define CALLS     20480L /* of one measurement: short enough to fit between two interrupts, or two slices */
#define FIB_N     19
#define FIB_CALLS 13529L
static const long turns[SETS] = {CALLS, CALLS, FIB_N, CALLS / MANY *MANY};
static const long calls[SETS] = {CALLS, CALLS, FIB_CALLS, CALLS / MANY *MANY};
static const long results[SETS] = {CALLS, CALLS, 4181, CALLS / MANY *MANY};

/* The slow path: the segment begins again. r11 is the trampoline's descriptor, rsp = S. */
#define TEXT(x)    #x
#define VALUE(x)   TEXT(x)
#define SEGMENT_AT 0x7e9000010000 /* as in a program that is recorded: CT_CURSOR_VALID is set */
uint64_t bench_segment, bench_swaps;
void bench_slow_enter(void), bench_slow_return(void), bench_never(void);
__asm__("  .text\n"
        "bench_slow_enter:\n"
        "  mov bench_segment(%rip), %rax\n"
        "  mov %rax, %gs:" VALUE(
            CT_GS_CURSOR) "\n"
                          "  incq bench_swaps(%rip)\n"
                          "  mov " VALUE(CT_DESC_ENTER) "(%r11), %rax\n"
                                                        "  mov %rax, -104(%rsp)\n"
                                                        "  mov -8(%rsp), %rax\n"
                                                        "  mov -16(%rsp), %rdx\n"
                                                        "  mov -24(%rsp), %r11\n"
                                                        "  mov -32(%rsp), %r10\n"
                                                        "  jmp *-104(%rsp)\n"
                                                        "bench_slow_return:\n"
                                                        "  mov bench_segment(%rip), %rax\n"
                                                        "  mov %rax, %gs:" VALUE(
                                                            CT_GS_CURSOR) "\n"
                                                                          "  incq bench_swaps(%rip)\n"
                                                                          "  mov " VALUE(
                                                                              CT_DESC_RET) "(%r11), %rax\n"
                                                                                           "  mov %rax, -104(%rsp)\n"
                                                                                           "  mov -8(%rsp), %rax\n"
                                                                                           "  mov -16(%rsp), %rdx\n"
                                                                                           "  mov -24(%rsp), %r11\n"
                                                                                           "  jmp *-104(%rsp)\n"
                                                                                           "bench_never:\n"
                                                                                           "  ud2\n");

/* No room for a detail record: its segment begins again. What is saved below rsp stays as it is. */
#define DETAILS_AT 0x7e9000030000
uint64_t bench_details = DETAILS_AT;
void bench_detail_full(void);
__asm__("  .text\n"
        "bench_detail_full:\n"
        "  mov bench_details(%rip), %r11\n"
        "  mov %r11, %gs:" VALUE(CT_GS_DETAIL_CURSOR) "\n"
                                                      "  jmp *%rax\n");

static void
die(const char *what)
{
  perror(what);
  exit(1);
}

/* Memory, touched, at a given address or anywhere. */
static void *
map(uint64_t at, size_t size, int protection, int flags)
{
  void *p =
      mmap((void *)at, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  if (p == MAP_FAILED) {
    die("hook_bench: mmap");
  }
  return p;
}

struct place {
  struct ct_control_page *control;
  uint8_t *table;
  struct ct_region_head *head;
  struct ct_code code; /* after the head, one 64 KiB unit or more away from this program's text */
  struct ct_hook_desc *descs;
  uint32_t count;
};

static void
make_place(struct place *place)
{
  enum { REGION = 4 << 20 }; /* trampolines, then descriptors */
  pthread_attr_t attributes;
  void *stack;
  size_t stack_bytes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &stack_bytes);
  map((uint64_t)stack + STORE_DELTA, stack_bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
  place->table = map(0, CT_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_NORESERVE);
  bench_segment = (uint64_t)map(SEGMENT_AT, CT_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_POPULATE) | 1; /* its tag */
  place->control = map(0, CT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_POPULATE);
  *place->control = (struct ct_control_page){
      .cursor = bench_segment,
      .stack_lo = (uint64_t)stack,
      .stack_len = stack_bytes,
      .stack_hi = (uint64_t)stack + stack_bytes,
      .detail_cursor = (uint64_t)map(DETAILS_AT, CT_SEGMENT_STRIDE, PROT_READ | PROT_WRITE, MAP_POPULATE),
      .table = (uint64_t)place->table,
      .magic = CT_CONTROL_MAGIC,
      .mode = CT_MODE_ON,
      .countdown = 1,
      .segment_base = SEGMENT_AT,
  };
  if (syscall(SYS_arch_prctl, ARCH_SET_GS, place->control) != 0) {
    die("hook_bench: arch_prctl");
  }
  uint64_t text = (uint64_t)all_full & ~0xffffull;
  for (int unit = -16; unit <= 16; unit++) {
    place->table[(text >> CT_TABLE_SHIFT) + (uint64_t)(int64_t)unit] = CT_TEXT_MODULE;
  }
  uint64_t at = text + (64 << 20);
  place->head = map(at, REGION, PROT_READ | PROT_WRITE | PROT_EXEC, 0);
  memset(place->table + (at >> CT_TABLE_SHIFT), CT_TEXT_TRAMPOLINE, REGION >> CT_TABLE_SHIFT);
  *place->head = (struct ct_region_head){.slow_enter = (uint64_t)bench_slow_enter,
                                         .slow_return = (uint64_t)bench_slow_return,
                                         .not_module = (uint64_t)bench_never,
                                         .restore_ra_slot = (uint64_t)bench_never,
                                         .restore_passthrough = (uint64_t)bench_never,
                                         .detail_full = (uint64_t)bench_detail_full,
                                         .sample_due = (uint64_t)bench_never};
  place->code = (struct ct_code){
      .bytes = (uint8_t *)place->head, .length = sizeof(*place->head), .capacity = REGION / 2, .address = at};
  place->descs = (struct ct_hook_desc *)(at + REGION / 2);
}

static void
hook(struct place *place, void *function, enum mode which)
{
  uint8_t mode = hook_modes[which];
  struct ct_window window;
  uint8_t code[32], *at = function;
  memcpy(code, at, sizeof(code));
  struct ct_hook_desc *desc = &place->descs[place->count];
  struct ct_trampoline_spec spec = {.fn = ++place->count,
                                    .mode = mode,
                                    .values = which == DETAIL ? CT_HOOK_VALUES_DETAIL : CT_HOOK_VALUES_NONE,
                                    .detail = {.stack = 128},
                                    .store_delta = STORE_DELTA,
                                    .table = (uint64_t)place->table,
                                    .function = (uint64_t)at,
                                    .head = (uint64_t)place->head,
                                    .desc = (uint64_t)desc,
                                    .code = code,
                                    .window = &window};
  while (place->code.length % 16 != 0) {
    ct_emit_u8(&place->code, 0xcc);
  }
  uint64_t page = (uint64_t)at & ~(uint64_t)(CT_PAGE_BYTES - 1);
  if (ct_window_find(code, sizeof(code), (uint64_t)at, CT_JUMP_BYTES, &window) != CT_WINDOW_OK ||
      window.length < CT_JUMP_BYTES || ct_trampoline_emit(&spec, &place->code, desc) != CT_WINDOW_OK ||
      mprotect((void *)page, 2 * CT_PAGE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC) != 0 ||
      ct_jump_bytes((uint64_t)at, desc->enter, at) != 0) {
    fprintf(stderr, "hook_bench: cannot hook a function\n");
    exit(1);
  }
}

#define HOOK_ALL(place, name, mode)                                                                                    \
  do {                                                                                                                 \
    void *const all[] = {leaf_##name,  chain_##name, link1_##name, link2_##name, link3_##name,                         \
                         link4_##name, link5_##name, link6_##name, end_##name,   fib_##name};                          \
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)                                                          \
      hook(place, all[i], mode);                                                                                       \
    for (int i = 0; i < MANY; i++)                                                                                     \
      hook(place, many_##name + 16 * i, mode);                                                                         \
  } while (0)

static double
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double
time_rdtsc(void)
{
  double begin = now_ns();
  for (long i = 0; i < CALLS / 4; i++) {
    __asm__ volatile("rdtsc\nrdtsc\nrdtsc\nrdtsc" ::: "rax", "rdx");
  }
  return (now_ns() - begin) / (double)CALLS;
}

static bool wrong;

static double
time_set(const struct place *place, enum mode mode, enum set set)
{
  uint64_t events_before = bench_swaps * CT_SEGMENT_EVENTS + (place->control->cursor - bench_segment) / CT_EVENT_BYTES;
  place->control->countdown = mode == SKIPPED ? INT32_MAX : 1;
  double begin = now_ns();
  long result = runs[mode][set](turns[set]);
  double ns = (now_ns() - begin) / (double)calls[set];
  uint64_t events =
      bench_swaps * CT_SEGMENT_EVENTS + (place->control->cursor - bench_segment) / CT_EVENT_BYTES - events_before;
  uint64_t expected = mode <= SKIPPED ? 0 : (uint64_t)calls[set] * (mode == DETAIL ? 4 : mode == FULL ? 2 : 1);
  if (set == CHAIN) {
    result *= 8;
  }
  if (result != results[set] || events != expected) {
    fprintf(stderr, "hook_bench: %s %s: result %ld, expected %ld; %lu events, expected %lu\n", mode_names[mode],
            set_names[set], result, results[set], events, expected);
    wrong = true;
  }
  return ns;
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct spread {
  double median, min;
};

static struct spread
spread(const double *values, int count)
{
  double sorted[ROUNDS_MAX];
  memcpy(sorted, values, (size_t)count * sizeof(*values));
  qsort(sorted, (size_t)count, sizeof(*sorted), compare);
  return (struct spread){sorted[count / 2], sorted[0]};
}

static double rdtsc_ns[ROUNDS_MAX], call_ns[MODES][SETS][ROUNDS_MAX];

/* One line of the table; in json as an object. */
static void
print_line(FILE *json, enum set set, enum mode mode, int rounds)
{
  double cost[ROUNDS_MAX], ratio[ROUNDS_MAX], slower[ROUNDS_MAX];
  int events = mode >= FULL ? 2 : 1;
  for (int r = 0; r < rounds; r++) {
    cost[r] = call_ns[mode][set][r] - call_ns[UNTRACED][set][r];
    ratio[r] = cost[r] / (events * rdtsc_ns[r]);
    slower[r] = call_ns[mode][set][r] / call_ns[UNTRACED][set][r];
  }
  struct spread total = spread(call_ns[mode][set], rounds), costs = spread(cost, rounds),
                ratios = spread(ratio, rounds);
  costs.min = total.min - spread(call_ns[UNTRACED][set], rounds).min;
  double rate = events * 1e3 / total.median;
  double times = spread(slower, rounds).median;
  if (mode == UNTRACED) {
    printf("%-10s %-9s %8.2f %8.2f %8s %8s %8s %8s %8s\n", set_names[set], mode_names[mode], total.median, total.min,
           "", "", "", "", "");
  } else {
    printf("%-10s %-9s %8.2f %8.2f %8.2f %8.2f %8.2f %8.1f %8.1f\n", "", mode_names[mode], total.median, total.min,
           costs.median, costs.min, ratios.median, times, rate);
  }
  if (json != NULL && mode != UNTRACED) {
    fprintf(json,
            ",\n \"%s %s\": {\"call_ns\": %.3f, \"hook_ns\": %.3f, \"hook_min_ns\": %.3f, \"per_rdtsc\": %.3f, "
            "\"per_untraced_call\": %.2f, \"events_per_second\": %.0f}",
            set_names[set], mode_names[mode], total.median, costs.median, costs.min, ratios.median, times, rate * 1e6);
  }
}

static void
pin(int cpu)
{
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0) {
    die("hook_bench: sched_setaffinity");
  }
}

int
main(int argc, char **argv)
{
  int cpu = (int)sysconf(_SC_NPROCESSORS_ONLN) - 1, rounds = 301;
  const char *json_path = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--cpu") == 0) {
      cpu = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--rounds") == 0) {
      rounds = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--json") == 0) {
      json_path = argv[i + 1];
    }
  }
  rounds = rounds < 3 ? 3 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
  pin(cpu);
  alarm(120); /* a trampoline that is wrong may run for ever */
  struct place place = {0};
  make_place(&place);
  HOOK_ALL(&place, quiet, QUIET);
  HOOK_ALL(&place, light, LIGHT);
  HOOK_ALL(&place, enter, ENTER);
  HOOK_ALL(&place, full, FULL);
  HOOK_ALL(&place, detail, DETAIL);

  for (int r = -1; r < rounds && !wrong; r++) { /* round -1 warms up */
    int at = r < 0 ? 0 : r;
    rdtsc_ns[at] = time_rdtsc();
    for (int set = 0; set < SETS; set++) {
      for (int mode = 0; mode < MODES; mode++) {
        call_ns[mode][set][at] = time_set(&place, (enum mode)mode, (enum set)set);
      }
    }
  }
  if (wrong) {
    return 1;
  }

  FILE *json = json_path == NULL ? NULL : fopen(json_path, "we");
  struct spread rdtsc = spread(rdtsc_ns, rounds);
  printf("bare rdtsc %.2f ns (min %.2f); %d rounds on processor %d; ns per call\n", rdtsc.median, rdtsc.min, rounds,
         cpu);
  printf("%-10s %-9s %8s %8s %8s %8s %8s %8s %8s\n", "", "", "total", "min", "hook", "min", "/rdtsc", "/call", "Mev/s");
  if (json != NULL) {
    fprintf(json, "{\"rdtsc_ns\": %.3f", rdtsc.median);
  }
  for (int set = 0; set < SETS; set++) {
    for (int mode = 0; mode < MODES; mode++) {
      print_line(json, (enum set)set, (enum mode)mode, rounds);
    }
  }
  printf("/rdtsc: cost of the hook by one rdtsc per event. N1 full at most 1.60, N2 light at most 1.40, N4 80 Mev/s\n");
  if (json != NULL) {
    fprintf(json, "}\n");
    fclose(json);
  }
  return 0;
}
