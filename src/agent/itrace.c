/* SPDX-License-Identifier: MIT */
/*
 * Calls that are to be recorded as instructions (struct ct_itrace_probe). The thread asks the controller at the call's
 * begin, once its event is written, and waits; the controller traces it, and has it go on from here in
 * translated code.
 */
#include "agent/agent.h"

enum { EVENTS_BACK = CT_VALUES_MAX + 4 };

/* A register as it is at the call's begin: entry.S has saved those that may change since. 0: it is not kept. */
static int
register_at(uint64_t sp, uint8_t reg, int64_t *value)
{
  /* In the order of enum ct_reg: rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11. */
  static const uint8_t below[] = {8, 40, 16, 80, 0, 0, 48, 56, 64, 72, 32, 24};
  if (reg >= sizeof(below) || (below[reg] == 0 && reg != 4)) {
    return 0;
  }
  *value = reg == 4 ? (int64_t)sp : *(const int64_t *)(sp - below[reg]);
  return 1;
}

static int
holds(const struct ct_itrace_probe *probe, uint64_t sp)
{
  int64_t value, other = probe->value;
  if (probe->op == CT_PROBE_ALWAYS) {
    return 1;
  }
  if (!register_at(sp, probe->reg, &value)) {
    return 0;
  }
  return probe->op == CT_PROBE_EQUAL        ? value == other
         : probe->op == CT_PROBE_UNEQUAL    ? value != other
         : probe->op == CT_PROBE_LESS       ? value < other
         : probe->op == CT_PROBE_LESS_EQUAL ? value <= other
         : probe->op == CT_PROBE_MORE       ? value > other
                                            : value >= other;
}

static int
take(struct ct_itrace_probe *probe)
{
  uint32_t calls = __atomic_load_n(&probe->calls, __ATOMIC_RELAXED);
  while (calls != 0) {
    if (__atomic_compare_exchange_n(&probe->calls, &calls, calls - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      return 1;
    }
  }
  return 0;
}

/* The clock of the call's event, which is one of the last ones of this thread. */
static uint64_t
event_of(const struct ct_control_page *control, const struct ct_hook_desc *desc, uint64_t sp)
{
  if (control->segment == CT_SEGMENT_NONE || control->cursor <= control->segment_base ||
      control->cursor - control->segment_base > CT_SEGMENT_BYTES) {
    return 0;
  }
  uint64_t at = control->cursor & ~(uint64_t)(CT_EVENT_BYTES - 1), first = control->segment_base;
  for (int n = 0; n < EVENTS_BACK && at > first; n++) {
    at -= CT_EVENT_BYTES;
    const struct ct_ring_event *event = (const struct ct_ring_event *)at;
    uint32_t kind = event->word >> CT_WORD_KIND_SHIFT & 3, fn = (uint32_t)event->word >> CT_WORD_FN_SHIFT;
    int is_point = kind == CT_KIND_OTHER && (fn & CT_FN_POINT_BIT) != 0;
    if ((kind == CT_KIND_ENTER || kind == CT_KIND_TAIL || is_point) && (fn & CT_FN_MAX) == desc->fn &&
        event->word >> 32 == (uint32_t)sp) {
      return event->tsc;
    }
  }
  return 0;
}

int
agent_itrace(const struct ct_control_page *control, const struct ct_hook_desc *desc, uint64_t sp)
{
  struct ct_ring_header *r = agent_ring();
  if (desc->itrace == 0 || desc->itrace > CT_ITRACE_PROBES || agent_is_silent() || r->closed != 0 ||
      !controller_answers()) {
    return 0;
  }
  struct ct_itrace_probe *probe = &r->itrace[desc->itrace - 1];
  if (__atomic_load_n(&slot_of(control)->itraced, __ATOMIC_RELAXED) != 0) {
    return 0; /* this call is within another one */
  }
  if (!holds(probe, sp) || !take(probe)) {
    return 0;
  }
  struct ct_slot *slot = slot_of(control);
  struct ct_request *request = &slot->request;
  request->kind = CT_REQUEST_ITRACE;
  request->arg[CT_ITRACE_ARG_PLACE] = desc->after_callout;
  request->arg[CT_ITRACE_ARG_FUNCTION] = desc->function;
  request->arg[CT_ITRACE_ARG_FN] = desc->fn;
  request->arg[CT_ITRACE_ARG_PROBE] = desc->itrace - 1u;
  request->arg[CT_ITRACE_ARG_TSC] = event_of(control, desc, sp);
  return agent_ask(slot);
}
