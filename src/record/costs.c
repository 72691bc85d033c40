/* SPDX-License-Identifier: MIT */
/*
 * What a hook costs, measured at the start of each recording by the very trampolines that the program will get.
 *
 * A thread of the controller maps for itself what a hooked thread has: a stack with its return store, a control page
 * that gs points to, a byte table, a segment, functions and trampolines. Then it calls a function that does nothing,
 * in a loop, and reads the segment. With e and r for the events of enter and return:
 *
 *   loop of a leaf     e r e r ...       e to r: return_before + enter_after;  r to e: return_after + enter_before
 *   loop of a pair     e e r r ...       e to e: enter_after + enter_before;   r to r: return_after + return_before
 *   the same unhooked                    a call that does nothing, which is taken off each stretch
 *
 * A second thread reads the segments after the first one, as the drain does: a line that the other processor has read
 * costs more to write to than one that nobody else has.
 *
 * These are four equations of which three are independent, and only such sums are ever needed: what is before the first
 * clock reading is set to half of what lies between two calls. Each number is the lower quartile of some rounds, so
 * that an interrupt costs nothing.
 */
#include "record/costs.h"

#include "base/worker.h"
#include "x86/trampoline.h"

#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  ROUNDS = 12,
  WARM_ROUNDS = 1,
  SEGMENTS = 16,
  USED_BYTES = CT_SEGMENT_BYTES / 2, /* of a segment: more events take longer to measure and tell no more */
  EVENTS = USED_BYTES / CT_EVENT_BYTES - 8,
  PLAIN_CALLS = 1024,
  SKIPPED = 16, /* of the calls of a round: they bring caches and predictors up */
  UNIT = 1 << CT_TABLE_SHIFT,
  STACK_BYTES = 1 << 20, /* with all that is thread-local, whatever the limit on stacks is */
  FUNCTION_BYTES = 32,
  TAG = 1,
};

/* What is called in a loop. */
enum subject { PLAIN, PLAIN_PAIR, FULL, VALUES, POINT, SAMPLED, COUNTED, OUTSIDE, PAIR, PAIR_INNER, SUBJECTS };

struct bench {
  int64_t store_delta;
  size_t store_bytes;
  uint8_t *stack, *store, *table, *segments,
      *text; /* text: a unit of functions, one of nothing, one of trampolines, one of descriptors */
  struct ct_control_page *control;
  struct ct_code functions, trampolines;
  struct ct_hook_desc *descs; /* in the last unit: trampolines reach them */
  void (*loops[SUBJECTS])(long);
  /* For the second thread: how many segments were written. It is read by it (release, acquire), and may miss some. */
  _Atomic uint32_t written;
  _Atomic uint32_t over;
  struct ct_hook_costs costs;
};

static void *
map(uint64_t at, size_t size, int flags)
{
  void *p = mmap((void *)at, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | flags | (at != 0 ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void
unmap(void *p, size_t size)
{
  if (p != NULL) {
    munmap(p, size);
  }
}

/* A multiple of `align` within twice as much address space. */
static uint8_t *
map_aligned(size_t size, size_t align)
{
  uint8_t *p = map(0, size + align, MAP_NORESERVE);
  if (p == NULL) {
    return NULL;
  }
  uint8_t *at = (uint8_t *)(((uint64_t)p + align - 1) & ~(uint64_t)(align - 1));
  if (at != p) {
    munmap(p, (size_t)(at - p));
  }
  if (at + size != p + size + align) {
    munmap(at + size, (size_t)(p + align - at));
  }
  return at;
}

static void
align_code(struct ct_code *code)
{
  while (code->length % FUNCTION_BYTES != 0) {
    ct_emit_int3(code);
  }
}

/* A function: five bytes that do nothing, a call of callee or none, ret. Its address. */
static uint64_t
emit_function(struct ct_code *code, uint64_t callee)
{
  align_code(code);
  uint64_t at = ct_code_pc(code);
  ct_emit_nop5(code);
  if (callee != 0) {
    ct_emit_call(code, callee);
  }
  ct_emit_ret(code);
  return at;
}

/* void loop(long n): calls it n times. */
static uint64_t
emit_loop(struct ct_code *code, uint64_t callee)
{
  align_code(code);
  uint64_t at = ct_code_pc(code);
  struct ct_code_label again = {0};
  ct_emit_push(code, CT_RBX);
  ct_emit_mov(code, CT_RBX, CT_RDI);
  ct_code_label_bind(code, &again);
  ct_emit_call(code, callee);
  ct_emit_dec(code, CT_RBX);
  ct_emit_jcc_label(code, CT_JNE, &again);
  ct_emit_pop(code, CT_RBX);
  ct_emit_ret(code);
  return at;
}

/* A trampoline for the function, which is patched. False: it cannot be had. */
static bool
hook(struct bench *bench, uint64_t function, enum subject subject)
{
  static const uint8_t modes[SUBJECTS] = {
      [FULL] = CT_HOOK_FULL,    [VALUES] = CT_HOOK_FULL,  [POINT] = CT_HOOK_ENTER, [SAMPLED] = CT_HOOK_SAMPLED,
      [COUNTED] = CT_HOOK_FULL, [OUTSIDE] = CT_HOOK_FULL, [PAIR] = CT_HOOK_FULL,   [PAIR_INNER] = CT_HOOK_FULL};
  struct ct_window window;
  uint8_t *code = bench->functions.bytes + (function - bench->functions.address);
  uint8_t original[FUNCTION_BYTES];
  memcpy(original, code, sizeof(original));
  struct ct_hook_desc *desc = &bench->descs[subject];
  struct ct_trampoline_spec spec = {.fn = subject,
                                    .mode = modes[subject],
                                    .values = subject == VALUES ? CT_HOOK_VALUES_FEW : CT_HOOK_VALUES_NONE,
                                    .form = {.integers = 3, .results = CT_VALUES_RAX},
                                    .has_gate = subject == COUNTED || subject == OUTSIDE,
                                    .gate.level =
                                        subject == OUTSIDE ? CT_LEVEL_OUT : CT_LEVEL_COUNTING, /* none is recorded */
                                    .store_delta = bench->store_delta,
                                    .table = (uint64_t)bench->table,
                                    .function = function,
                                    .head = bench->trampolines.address,
                                    .desc = (uint64_t)desc,
                                    .code = original,
                                    .window = &window};
  align_code(&bench->trampolines);
  return ct_window_find(original, sizeof(original), function, CT_JUMP_BYTES, &window) == CT_WINDOW_OK &&
         window.length == CT_JUMP_BYTES && ct_trampoline_emit(&spec, &bench->trampolines, desc) == CT_WINDOW_OK &&
         ct_jump_bytes(function, desc->start, code) == 0;
}

static bool
emit_all(struct bench *bench)
{
  uint8_t *away = bench->text + 2 * UNIT;
  bench->functions = (struct ct_code){.bytes = bench->text, .capacity = UNIT, .address = (uint64_t)bench->text};
  bench->trampolines = (struct ct_code){
      .bytes = away, .length = sizeof(struct ct_region_head), .capacity = UNIT, .address = (uint64_t)away};
  bench->descs = (struct ct_hook_desc *)(bench->text + 3 * UNIT);
  /* Slow paths are not taken. Should one be, the call goes on unrecorded, and the round does not count. */
  uint64_t skip_enter = ct_code_pc(&bench->functions);
  ct_emit_jmp_load(&bench->functions, ct_mem(CT_R11, offsetof(struct ct_hook_desc, relocated)));
  uint64_t skip_return = ct_code_pc(&bench->functions);
  ct_emit_jmp_load(&bench->functions, ct_mem(CT_R11, offsetof(struct ct_hook_desc, ret_done)));
  *(struct ct_region_head *)away = (struct ct_region_head){.slow_enter = skip_enter,
                                                           .slow_return = skip_return,
                                                           .not_module = skip_enter,
                                                           .restore_ra_slot = skip_enter,
                                                           .restore_passthrough = skip_enter,
                                                           .sample_due = skip_enter,
                                                           .detail_full = skip_enter,
                                                           .detail_tail = skip_enter};
  uint64_t functions[SUBJECTS];
  for (enum subject s = PLAIN; s < SUBJECTS; s++) {
    functions[s] = emit_function(&bench->functions, s == PLAIN_PAIR ? functions[PLAIN] : 0);
  }
  functions[PAIR] = emit_function(&bench->functions, functions[PAIR_INNER]);
  bool ok = true;
  for (enum subject s = PLAIN; s < SUBJECTS; s++) {
    bench->loops[s] = (void (*)(long))emit_loop(&bench->functions, functions[s]);
    ok = ok && (s <= PLAIN_PAIR || hook(bench, functions[s], s));
  }
  return ok && !bench->functions.overflow && !bench->trampolines.overflow &&
         mprotect(bench->text, 4 * UNIT, PROT_READ | PROT_EXEC) == 0;
}

static bool
set_up(struct bench *bench)
{
  bench->stack = map(0, STACK_BYTES, 0);
  struct ct_store_range store =
      ct_store_of((uint64_t)bench->stack, (uint64_t)bench->stack + STACK_BYTES, bench->store_delta);
  bench->store = bench->stack != NULL ? map(store.lo, store.hi - store.lo, 0) : NULL;
  bench->store_bytes = store.hi - store.lo;
  bench->table = map(0, CT_TABLE_BYTES, MAP_NORESERVE);
  bench->segments = map_aligned(SEGMENTS * CT_SEGMENT_STRIDE, CT_SEGMENT_STRIDE);
  bench->control = map(0, CT_PAGE_BYTES, 0);
  bench->text = map_aligned(4 * UNIT, UNIT);
  if (bench->store == NULL || bench->table == NULL || bench->segments == NULL || bench->control == NULL ||
      bench->text == NULL) {
    return false;
  }
  bench->table[(uint64_t)bench->text >> CT_TABLE_SHIFT] = CT_TEXT_MODULE;
  bench->table[((uint64_t)bench->text >> CT_TABLE_SHIFT) + 2] = CT_TEXT_TRAMPOLINE;
  /* As in a program that is recorded: CT_CURSOR_VALID is set in the address of each entry. */
  *bench->control = (struct ct_control_page){.stack_lo = (uint64_t)bench->stack,
                                             .stack_len = STACK_BYTES,
                                             .table = (uint64_t)bench->table,
                                             .magic = CT_CONTROL_MAGIC,
                                             .mode = CT_MODE_ON,
                                             .countdown = 1,
                                             .counters = (uint64_t)bench->control + CT_PAGE_BYTES / 2};
  return emit_all(bench);
}

static void
tear_down(struct bench *bench)
{
  unmap(bench->store, bench->store_bytes);
  unmap(bench->stack, STACK_BYTES);
  unmap(bench->table, CT_TABLE_BYTES);
  unmap(bench->segments, SEGMENTS * CT_SEGMENT_STRIDE);
  unmap(bench->control, CT_PAGE_BYTES);
  unmap(bench->text, 4 * UNIT);
}

/* As in a program that is recorded: CT_CURSOR_VALID is set in the address of each entry. */
static uint64_t
segment_base(const struct bench *bench, uint32_t number)
{
  return (uint64_t)bench->segments + number % SEGMENTS * CT_SEGMENT_STRIDE + CT_CURSOR_VALID;
}

/*
 * Calls a subject as often as a segment has room for its events, of which each call must give so many; they are at the
 * segment's begin then. Ticks a call.
 */
static double
call(struct bench *bench, enum subject subject, unsigned events, bool *ok)
{
  struct ct_control_page *control = bench->control;
  long calls = events != 0 ? EVENTS / events : PLAIN_CALLS;
  control->segment_base = segment_base(bench, atomic_load_explicit(&bench->written, memory_order_relaxed));
  control->cursor = control->segment_base | TAG;
  uint64_t begin = __builtin_ia32_rdtsc();
  bench->loops[subject](calls);
  uint64_t end = __builtin_ia32_rdtsc();
  *ok = *ok && control->cursor - (control->segment_base | TAG) == (uint64_t)calls * events * CT_EVENT_BYTES;
  if (events != 0) {
    atomic_fetch_add_explicit(&bench->written, 1, memory_order_release);
  }
  return (double)(end - begin) / (double)calls;
}

static void *
reader_main(void *context)
{
  struct bench *bench = context;
  uint8_t copy[USED_BYTES];
  uint32_t seen = 0;
  while (atomic_load_explicit(&bench->over, memory_order_acquire) == 0) {
    uint32_t written = atomic_load_explicit(&bench->written, memory_order_acquire);
    if (written == seen) {
      __builtin_ia32_pause();
      continue;
    }
    memcpy(copy, (const void *)segment_base(bench, written - 1), sizeof(copy));
    __asm__ volatile("" : : "r"(copy) : "memory");
    seen = written;
  }
  return NULL;
}

/*
 * The mean time from event `from` of a call to event `to`, counted from its first one, of calls with so many events.
 * Without what is far longer than the shortest one: there the thread was interrupted. On a busy machine that happens in
 * most rounds, for milliseconds. A line that the other processor has read costs a tenth of that limit.
 */
static double
stretch(const struct bench *bench, unsigned events, unsigned from, unsigned to)
{
  enum { TIMES = 16, MORE = 1000 };
  const struct ct_ring_event *all = (const struct ct_ring_event *)bench->control->segment_base;
  unsigned calls = EVENTS / events - 1;
  uint64_t least = UINT64_MAX, sum = 0, count = 0;
  for (unsigned i = SKIPPED; i < calls; i++) {
    uint64_t ticks = all[i * events + to].tsc - all[i * events + from].tsc;
    least = ticks < least ? ticks : least;
  }
  for (unsigned i = SKIPPED; i < calls; i++) {
    uint64_t ticks = all[i * events + to].tsc - all[i * events + from].tsc;
    if (ticks <= TIMES * least + MORE) {
      sum += ticks;
      count++;
    }
  }
  return (double)sum / (double)count;
}

/* What one round has measured. */
enum stretch_kind {
  BODY,
  BODIES,
  IN,
  OUT,
  DOWN,
  UP,
  IN_VALUES,
  WHOLE_POINT,
  WHOLE_SAMPLED,
  WHOLE_PASSED,
  WHOLE_COUNTED,
  WHOLE_OUT,
  STRETCHES
};

static void
measure(struct bench *bench, double got[STRETCHES], bool *ok)
{
  got[BODY] = call(bench, PLAIN, 0, ok);
  got[BODIES] = call(bench, PLAIN_PAIR, 0, ok);
  call(bench, FULL, 2, ok);
  got[IN] = stretch(bench, 2, 0, 1);
  got[OUT] = stretch(bench, 2, 1, 2);
  call(bench, PAIR, 4, ok);
  got[DOWN] = stretch(bench, 4, 0, 1);
  got[UP] = stretch(bench, 4, 2, 3);
  call(bench, VALUES, 5, ok);
  got[IN_VALUES] = stretch(bench, 5, 0, 4);
  call(bench, POINT, 1, ok);
  got[WHOLE_POINT] = stretch(bench, 1, 0, 1);
  bench->control->countdown = 1;
  call(bench, SAMPLED, 1, ok);
  got[WHOLE_SAMPLED] = stretch(bench, 1, 0, 1);
  bench->control->countdown = INT32_MAX;
  got[WHOLE_PASSED] = call(bench, SAMPLED, 0, ok);
  bench->control->countdown = 1;
  got[WHOLE_COUNTED] = call(bench, COUNTED, 0, ok);
  got[WHOLE_OUT] = call(bench, OUTSIDE, 0, ok);
}

static int
compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double
not_below_0(double x)
{
  return x > 0 ? x : 0;
}

static struct ct_hook_costs
solve(double all[STRETCHES][ROUNDS])
{
  double m[STRETCHES];
  for (int i = 0; i < STRETCHES; i++) {
    qsort(all[i], ROUNDS, sizeof(double), compare);
    m[i] = all[i][ROUNDS / 4];
  }
  /* The unhooked call: half of it is on each side of the events that stand around its middle. */
  double half = m[BODY] / 2, pair_half = not_below_0(m[BODIES] - m[BODY]) / 2;
  double in = not_below_0(m[IN] - half), out = not_below_0(m[OUT] - half);
  double down = not_below_0(m[DOWN] - pair_half), up = not_below_0(m[UP] - pair_half);
  double rest = (down + up - in - out) / 2; /* the fourth equation is dropped */
  struct ct_hook_costs costs = {.known = true};
  costs.enter_before = out / 2;
  costs.return_after = out / 2;
  costs.enter_after = down - rest - costs.enter_before;
  costs.return_before = in - costs.enter_after;
  costs.value = not_below_0(m[IN_VALUES] - m[IN]) / 3;
  costs.point = not_below_0(m[WHOLE_POINT] - m[BODY]);
  costs.sampled = not_below_0(m[WHOLE_SAMPLED] - m[BODY]);
  costs.passed_over = not_below_0(m[WHOLE_PASSED] - m[BODY]);
  costs.counted = not_below_0(m[WHOLE_COUNTED] - m[BODY]);
  costs.out = not_below_0(m[WHOLE_OUT] - m[BODY]);
  return costs;
}

/* That we may run on. */
static int
processors(void)
{
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void *
bench_main(void *context)
{
  struct bench *bench = context;
  double all[STRETCHES][ROUNDS], got[STRETCHES];
  uint64_t base = 0;
  bool ok = syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0 && base == 0 && /* else we are recorded ourselves */
            syscall(SYS_arch_prctl, ARCH_SET_GS, bench->control) == 0;
  pthread_t reader;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  bool has_reader = ok && processors() > 1 && ct_worker_create(&reader, &attributes, reader_main, bench) == 0;
  pthread_attr_destroy(&attributes);
  for (int round = -WARM_ROUNDS; ok && round < ROUNDS; round++) {
    measure(bench, got, &ok);
    for (int i = 0; i < STRETCHES && round >= 0; i++) {
      all[i][round] = got[i];
    }
  }
  atomic_store_explicit(&bench->over, 1, memory_order_release);
  if (has_reader) {
    pthread_join(reader, NULL);
  }
  if (base == 0) {
    syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
  }
  if (ok) {
    bench->costs = solve(all);
  }
  return NULL;
}

struct ct_hook_costs
ct_measure_hook_costs(int64_t store_delta)
{
  struct bench bench = {.store_delta = store_delta};
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t every, old;
  if (set_up(&bench)) {
    sigfillset(&every);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, bench.stack, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    if (ct_worker_create(&thread, &attributes, bench_main, &bench) == 0) {
      pthread_join(thread, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
  }
  tear_down(&bench);
  return bench.costs;
}

json_t *
ct_hook_costs_json(const struct ct_hook_costs *costs)
{
  if (!costs->known) {
    return json_null();
  }
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "enter_before", costs->enter_before,
                   "enter_after", costs->enter_after, "return_before", costs->return_before, "return_after",
                   costs->return_after, "value", costs->value, "point", costs->point, "sampled", costs->sampled,
                   "passed_over", costs->passed_over, "counted", costs->counted, "out", costs->out);
}
