/* SPDX-License-Identifier: MIT */
/*
 * Rules are evaluated where the drain makes calls of events (thread.c). A function has a word with a bit for each rule
 * that is about it; what is true of most events is found out by that word alone.
 *
 *   call, rate    at the enter; rates count calls of all threads in sixteenths of a second, and mark once when the sum
 *                 of the last second goes over the limit, again after it was below
 *   F > T         at the time enter + T, found at the call's end, and in between where the thread has no events
 *                 (rules_open_calls). A bit of the frame says that it has been marked
 *   F < T         at the call's end
 *   returns       at the result, which comes before the return
 *   off-cpu       since + T, when the interval is encoded
 *   signal        at the call of a function that handles it
 *   every         by the clock
 *
 * A call's time is what the clock says from enter to end: with the hooks of the calls in it, and what the thread was
 * off the processor. Calls whose enter is not known, because events were lost, are no "F < T" and no "F > T".
 *
 * Results. Where the upper half is zero the result is taken for a signed 32-bit number, since most functions that fail
 * return int and leave that half alone; else for a signed 64-bit one.
 */
#include "drain/rules.h"

#include "base/error.h"
#include "drain/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OPEN_MAX                                                                                                       \
  16384u /* calls that are looked at in one go: the others are further in, and at least end some time                  \
          */
#define MASKS_BYTES (((size_t)CT_FN_MAX + 1) * sizeof(uint32_t))

int
ct_rules_create(struct ct_windows *windows, uint64_t ticks_a_second, struct ct_rules **out)
{
  struct ct_rules *rules = calloc(1, sizeof(*rules));
  if (rules == NULL) {
    return CT_ENOMEM;
  }
  rules->windows = windows;
  rules->ticks_a_second = ticks_a_second;
  *out = rules;
  return 0;
}

void
ct_rules_free(struct ct_rules *rules)
{
  if (rules != NULL && rules->masks != NULL) {
    munmap(rules->masks, MASKS_BYTES);
    drain_ordinals_end(&rules->ordinals);
  }
  free(rules);
}

static uint64_t
ticks_of(const struct ct_rules *rules, uint64_t ns)
{
  return (uint64_t)((unsigned __int128)ns * rules->ticks_a_second / 1000000000u);
}

/* What the kinds of all rules together ask for. */
static void
summarise(struct ct_rules *rules)
{
  uint64_t least_slow = UINT64_MAX, least_off = UINT64_MAX;
  uint32_t signals = 0, calls = 0, times = 0, slow = 0, results = 0, offs = 0, others = 0;
  for (uint32_t slot = 0; slot < CT_RULES_MAX; slot++) {
    const struct drain_rule *at = &rules->list[slot];
    uint32_t bit = at->used ? 1u << slot : 0;
    bool is_slow = at->rule.op == CT_OP_MORE || at->rule.op == CT_OP_MORE_EQUAL;
    calls |= at->rule.kind == CT_RULE_CALL || at->rule.kind == CT_RULE_RATE ? bit : 0;
    signals |= at->rule.kind == CT_RULE_SIGNAL ? bit : 0;
    calls |= at->rule.kind == CT_RULE_SIGNAL && rules->masks != NULL ? bit : 0;
    results |= at->rule.kind == CT_RULE_RETURNS ? bit : 0;
    others |= at->rule.pattern[0] == '\0' ? bit : 0;
    if (bit != 0 && at->rule.kind == CT_RULE_TIME) {
      times |= bit;
      slow |= is_slow ? bit : 0;
      least_slow = is_slow && at->ticks < least_slow ? at->ticks : least_slow;
    } else if (bit != 0 && at->rule.kind == CT_RULE_OFF_CPU) {
      offs |= bit;
      least_off = at->ticks < least_off ? at->ticks : least_off;
    }
  }
  rules->signals = signals;
  rules->calls = calls;
  rules->times = times;
  rules->slow = slow;
  rules->results = results;
  rules->offs = offs;
  rules->others = others;
  rules->least_slow = least_slow;
  rules->least_off = least_off;
  rules->any = (calls | times | results | offs | others) != 0;
}

int
ct_rules_add(struct ct_rules *rules, const struct ct_rule *rule, uint32_t number, uint64_t now_tsc)
{
  uint32_t slot = 0;
  while (slot < CT_RULES_MAX && rules->list[slot].used) {
    slot++;
  }
  if (slot == CT_RULES_MAX) {
    return CT_ERANGE;
  }
  if (rules->masks == NULL && (rule->pattern[0] != '\0' || rule->kind == CT_RULE_SIGNAL)) {
    void *masks = mmap(NULL, MASKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (masks == MAP_FAILED) {
      return CT_ENOMEM;
    }
    if (!drain_ordinals_begin(&rules->ordinals)) {
      munmap(masks, MASKS_BYTES);
      return CT_ENOMEM;
    }
    rules->masks = masks;
  }
  struct drain_rule *at = &rules->list[slot];
  *at = (struct drain_rule){.rule = *rule, .used = true, .number = number, .ticks = ticks_of(rules, rule->ns)};
  at->next_tsc = now_tsc + at->ticks;
  summarise(rules);
  return (int)slot;
}

void
ct_rules_begin(struct ct_rules *rules, uint64_t tsc)
{
  for (uint32_t slot = 0; slot < CT_RULES_MAX; slot++) {
    rules->list[slot].next_tsc = tsc + rules->list[slot].ticks;
  }
}

void
ct_rules_remove(struct ct_rules *rules, uint32_t slot)
{
  rules->list[slot].used = false;
  atomic_fetch_and_explicit(&rules->actions, ~(1u << slot), memory_order_relaxed); /* nobody waits for it */
  ct_rules_unwatch(rules, slot);
  summarise(rules);
}

void
ct_rules_watch(struct ct_rules *rules, uint32_t slot, uint32_t fn)
{
  rules->masks[fn] |= 1u << slot;
  rules->last_fn = fn > rules->last_fn ? fn : rules->last_fn;
}

void
ct_rules_watch_late(struct ct_rules *rules, uint32_t slot, uint32_t fn)
{
  if (rules->masks[fn] == 0) {
    drain_ordinals_late(&rules->ordinals, fn);
  }
  ct_rules_watch(rules, slot, fn);
}

void
ct_rules_unwatch(struct ct_rules *rules, uint32_t slot)
{
  for (size_t at = 0; rules->masks != NULL && at <= rules->last_fn; at++) {
    if (rules->masks[at] != 0) {
      rules->masks[at] &= ~(1u << slot);
    }
  }
}

/* The call that a mark is about. */
struct marked_call {
  uint64_t number, tsc; /* number 0: not known */
};

static void
make_mark(struct ct_rules *rules, uint32_t slot, uint64_t tsc, uint32_t thread, struct drain_rolls *rolls, uint32_t fn,
          struct marked_call call)
{
  struct drain_rule *at = &rules->list[slot];
  uint64_t now = __builtin_ia32_rdtsc();
  tsc = tsc < now ? tsc : now; /* it comes from the target */
  struct ct_mark mark = {.tsc = tsc, .thread = thread, .rule = at->number, .function = fn};
  drain_rolls_mark(rolls, rules->windows, &mark);
  if (!ct_windows_mark(rules->windows, &mark)) {
    at->refused++;
    return;
  }
  drain_ordinals_tell(&rules->ordinals, rules->windows, &mark, call.number, call.tsc);
  at->marks++;
  if (at->rule.action != CT_ACTION_MARK) {
    /* release: pairs with the acquire of who does it */
    atomic_fetch_or_explicit(&rules->actions, 1u << slot, memory_order_release);
  }
}

void
ct_rules_mark(struct ct_rules *rules, uint32_t slot, uint64_t tsc, uint32_t thread, struct drain_rolls *rolls,
              uint32_t fn)
{
  make_mark(rules, slot, tsc, thread, rolls, fn, (struct marked_call){0, 0});
}

/* ---- by the events ---- */

/* A mark of the call whose frame that is. */
static void
mark_frame(const struct drain_thread *thread, uint32_t slot, uint64_t tsc, const struct ct_frame *frame)
{
  make_mark(thread->rules, slot, tsc, thread->index, thread->rolls, frame->fn,
            (struct marked_call){(frame->flags & DRAIN_FRAME_NUMBERED) != 0 ? frame->call : 0, frame->enter_tsc});
}

/* So many calls more at tsc, in the second that ends there. */
static void
count_rate(struct drain_thread *thread, uint32_t slot, uint64_t tsc, uint32_t fn, uint64_t calls, uint64_t number)
{
  struct ct_rules *rules = thread->rules;
  struct drain_rule *at = &rules->list[slot];
  uint64_t ticks = rules->ticks_a_second / RULES_RATE_PARTS, part = tsc / (ticks != 0 ? ticks : 1), sum = 0;
  size_t n = part % (RULES_RATE_PARTS + 1);
  if (at->parts[n].part < part || at->parts[n].part - part > RULES_RATE_PARTS) { /* an old one, or nonsense */
    at->parts[n].part = part;
    at->parts[n].calls = 0;
  }
  at->parts[n].calls += at->parts[n].part == part ? calls : 0; /* else it comes too late to count */
  for (size_t i = 0; i <= RULES_RATE_PARTS; i++) {
    sum += part - at->parts[i].part < RULES_RATE_PARTS ? at->parts[i].calls : 0;
  }
  bool is_over = ct_rule_compare(at->rule.op, (int64_t)sum, at->rule.number);
  if (is_over && !at->is_over) {
    make_mark(rules, slot, tsc, thread->index, thread->rolls, fn, (struct marked_call){number, tsc});
  }
  at->is_over = is_over;
}

uint64_t
rules_call(struct drain_thread *thread, uint32_t mask, uint64_t tsc, uint32_t fn, uint64_t calls)
{
  struct ct_rules *rules = thread->rules;
  uint64_t number = drain_ordinals_count(&rules->ordinals, rules->windows, thread->index, fn, tsc, calls);
  for (mask &= rules->calls; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    if (rules->list[slot].rule.kind == CT_RULE_RATE) {
      count_rate(thread, slot, tsc, fn, calls, number);
    } else {
      make_mark(rules, slot, tsc, thread->index, thread->rolls, fn, (struct marked_call){number, tsc});
    }
  }
  return number;
}

void
rules_counted(struct drain_thread *thread, uint32_t mask, uint32_t fn, uint64_t calls)
{
  struct ct_rules *rules = thread->rules;
  uint64_t now = __builtin_ia32_rdtsc();
  drain_ordinals_counted(&rules->ordinals, fn, calls);
  for (; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    if ((rules->calls >> slot & 1) == 0) {
      rules->list[slot].unseen += calls;
    } else if (rules->list[slot].rule.kind == CT_RULE_RATE) {
      count_rate(thread, slot, now, fn, calls, 0);
    } else {
      make_mark(rules, slot, now, thread->index, thread->rolls, fn, (struct marked_call){0, now});
    }
  }
}

static void
mark_slow(struct drain_thread *thread, struct ct_frame *frame, uint32_t mask, uint64_t now_tsc)
{
  uint64_t took = now_tsc > frame->enter_tsc ? now_tsc - frame->enter_tsc : 0;
  mask &= ~(frame->flags >> RULES_FRAME_SHIFT);
  for (; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    const struct drain_rule *at = &thread->rules->list[slot];
    if (ct_rule_compare(at->rule.op, (int64_t)took, (int64_t)at->ticks)) {
      frame->flags |= 1u << (RULES_FRAME_SHIFT + slot);
      mark_frame(thread, slot, frame->enter_tsc + at->ticks, frame);
    }
  }
}

void
rules_end(struct drain_thread *thread, struct ct_frame *frame, uint32_t mask, uint64_t tsc)
{
  if ((frame->flags & CT_FRAME_UNCERTAIN) != 0) {
    return;
  }
  mark_slow(thread, frame, mask & thread->rules->slow, tsc);
  uint64_t took = tsc > frame->enter_tsc ? tsc - frame->enter_tsc : 0;
  bool is_before = (frame->flags & DRAIN_FRAME_BEFORE) != 0; /* it has taken longer than that */
  for (mask &= is_before ? 0 : ~thread->rules->slow; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    const struct drain_rule *at = &thread->rules->list[slot];
    if (ct_rule_compare(at->rule.op, (int64_t)took, (int64_t)at->ticks)) {
      mark_frame(thread, slot, tsc, frame);
    }
  }
}

void
rules_result(struct drain_thread *thread, const struct ct_frame *frame, uint64_t value)
{
  struct ct_rules *rules = thread->rules;
  uint32_t mask = rules_about(rules, rules->results, frame->fn);
  mask |= frame->root_fn <= CT_FN_MAX ? rules_about(rules, rules->results, frame->root_fn) : 0;
  int64_t number = value >> 32 == 0 ? (int32_t)(uint32_t)value : (int64_t)value;
  for (; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    const struct ct_rule *rule = &rules->list[slot].rule;
    if (ct_rule_compare(rule->op, number, rule->number)) {
      mark_frame(thread, slot, thread->encoder->columns.last_tsc, frame);
    }
  }
}

void
rules_off(struct drain_thread *thread, uint64_t since, uint64_t until)
{
  struct ct_rules *rules = thread->rules;
  uint32_t done = 0;
  if (until - since < rules->least_off) {
    return;
  }
  for (const struct ct_frame *frame = thread->encoder->columns.top; frame-- > thread->encoder->columns.frames;) {
    for (uint32_t mask = rules_about(rules, rules->offs, frame->fn) & ~done; mask != 0; mask &= mask - 1) {
      uint32_t slot = (uint32_t)__builtin_ctz(mask);
      const struct drain_rule *at = &rules->list[slot];
      if (ct_rule_compare(at->rule.op, (int64_t)(until - since), (int64_t)at->ticks)) {
        mark_frame(thread, slot, since + at->ticks, frame);
        done |= 1u << slot;
      }
    }
  }
}

/* ---- by the clock ---- */

/* Of the rules about calls that go on those that are true of this one by now, and have not been before. */
static uint32_t
true_of_open(const struct ct_rules *rules, const struct ct_frame *frame, uint64_t now_tsc)
{
  uint64_t took = now_tsc - frame->enter_tsc;
  uint32_t mask = (frame->flags & CT_FRAME_UNCERTAIN) != 0 ? 0 : rules_about(rules, rules->slow, frame->fn), found = 0;
  for (mask &= ~(frame->flags >> RULES_FRAME_SHIFT); mask != 0; mask &= mask - 1) {
    const struct drain_rule *at = &rules->list[__builtin_ctz(mask)];
    found |= ct_rule_compare(at->rule.op, (int64_t)took, (int64_t)at->ticks) ? mask & -mask : 0;
  }
  return found;
}

/*
 * Frames further in began later. So the outermost ones are looked at, up to the first that is too young; and where the
 * thread has not left the innermost of those that were checked before, these need no second check.
 */
static size_t
first_unchecked(const struct drain_thread *thread)
{
  size_t at = thread->rules_checked;
  bool holds = at != 0 && at <= ct_encoder_depth(thread->encoder) &&
               thread->encoder->columns.frames[at - 1].enter_tsc == thread->rules_checked_tsc &&
               thread->rules_context == ct_encoder_context(thread->encoder);
  return holds ? at : 0;
}

/* The end of those that are looked at, from `at` on. */
static size_t
end_of_old(const struct drain_thread *thread, size_t at, uint64_t now_tsc)
{
  size_t depth = ct_encoder_depth(thread->encoder), most = depth - at < OPEN_MAX ? depth : at + OPEN_MAX;
  const struct ct_frame *frames = thread->encoder->columns.frames;
  while (at < most && frames[at].enter_tsc <= now_tsc - thread->rules->least_slow) {
    at++;
  }
  return at;
}

bool
rules_have_open_call(const struct drain_thread *thread, uint64_t now_tsc)
{
  const struct ct_rules *rules = thread->rules;
  if (rules->slow == 0 || now_tsc < rules->least_slow) {
    return false;
  }
  size_t at = first_unchecked(thread), end = end_of_old(thread, at, now_tsc);
  while (at < end && true_of_open(rules, &thread->encoder->columns.frames[at], now_tsc) == 0) {
    at++;
  }
  return at < end;
}

void
rules_open_calls(struct drain_thread *thread, uint64_t now_tsc)
{
  struct ct_rules *rules = thread->rules;
  struct ct_frame *frames = thread->encoder->columns.frames;
  if (rules->slow == 0 || now_tsc < rules->least_slow) {
    return;
  }
  size_t at = first_unchecked(thread), end = end_of_old(thread, at, now_tsc), marked = at;
  bool all_marked = true;
  for (; at < end; at++) {
    uint32_t mask = (frames[at].flags & CT_FRAME_UNCERTAIN) != 0 ? 0 : rules_about(rules, rules->slow, frames[at].fn);
    if (mask != 0) {
      mark_slow(thread, &frames[at], mask, now_tsc);
      all_marked &= (mask & ~(frames[at].flags >> RULES_FRAME_SHIFT)) == 0;
    }
    marked = all_marked ? at + 1 : marked;
  }
  thread->rules_checked = marked;
  thread->rules_checked_tsc = marked != 0 ? frames[marked - 1].enter_tsc : 0;
  thread->rules_context = ct_encoder_context(thread->encoder);
}

void
rules_time(struct ct_rules *rules, uint64_t now_tsc)
{
  for (uint32_t mask = rules->others; mask != 0; mask &= mask - 1) {
    uint32_t slot = (uint32_t)__builtin_ctz(mask);
    struct drain_rule *at = &rules->list[slot];
    while (at->rule.kind == CT_RULE_EVERY && at->ticks != 0 && now_tsc >= at->next_tsc) {
      ct_rules_mark(rules, slot, at->next_tsc, UINT32_MAX, NULL, UINT32_MAX);
      at->next_tsc += at->ticks;
    }
  }
}
