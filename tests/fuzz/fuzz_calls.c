/* SPDX-License-Identifier: MIT */
/*
 * The calls of a thread's file of steps (steps_file.h): functions are told before their events, steps and times go
 * forward, and on each stack as many calls end as have begun.
 */
#include "steps_file.h"

#include "steps/calls.h"

enum { STACKS = 4097 };

struct told {
  uint32_t functions, current;
  uint64_t step, tsc, events, ends_at;
  uint32_t open[STACKS];
};

static int
take_function(void *context, const struct ct_steps_call_function *function)
{
  struct told *told = context;
  CHECK(function->id == told->functions);
  told->functions++;
  return 0;
}

static void
take_end(struct told *told, uint32_t stack)
{
  CHECK(told->open[stack] > 0);
  told->open[stack]--;
}

static int
take_event(void *context, const struct ct_steps_call *event)
{
  struct told *told = context;
  CHECK(event->stack < STACKS && event->step >= told->step && event->tsc >= told->tsc);
  told->step = event->step;
  told->tsc = event->tsc;
  switch (event->kind) {
  case CT_STEPS_CALL_ENTER:
  case CT_STEPS_CALL_TAIL:
    CHECK(event->fn < told->functions && event->stack == told->current);
    if (event->kind == CT_STEPS_CALL_TAIL) {
      take_end(told, event->stack);
    }
    told->open[event->stack]++;
    break;
  case CT_STEPS_CALL_RETURN:
  case CT_STEPS_CALL_UNWOUND:
  case CT_STEPS_CALL_GONE:
    CHECK(event->stack == told->current);
    take_end(told, event->stack);
    break;
  case CT_STEPS_CALL_SWITCH:
    told->current = event->stack;
    break;
  case CT_STEPS_CALL_EXEC:
    memset(told->open, 0, sizeof(told->open));
    told->current = 0;
    break;
  default:
    CHECK(event->kind == CT_STEPS_CALL_LOST);
  }
  return ++told->events == told->ends_at ? CT_ETIMEOUT : 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct told told;
  struct ct_steps_calls_facts facts;
  struct ct_diag diag = {""};
  struct ct_steps_calls_visitor visitor = {take_function, take_event, &told};
  make_file(data, size);
  memset(&told, 0, sizeof(told));
  int code = ct_steps_calls_read(path, &visitor, &facts, &diag);
  CHECK(code == 0 || diag.text[0] != 0);
  if (code != 0 || told.events == 0) {
    return 0;
  }
  CHECK(told.step <= facts.steps && strlen(facts.damage) < sizeof(facts.damage));
  uint64_t events = told.events;
  memset(&told, 0, sizeof(told));
  told.ends_at = events; /* what the visitor says ends it */
  CHECK(ct_steps_calls_read(path, &visitor, &facts, &diag) == CT_ETIMEOUT && told.events == events);
  return 0;
}
