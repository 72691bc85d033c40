/* SPDX-License-Identifier: MIT */
/*
 * The calls of a thread's file of steps (steps_file.h): functions are told before their events, steps and times go
 * forward, and on each stack as many calls end as have begun.
 */
#include "steps_file.h"

#include "steps/calls.h"

enum { STACKS = 4097 };

struct reported {
  uint32_t functions, current;
  uint64_t step, tsc, events, ends_at;
  uint32_t open[STACKS];
};

static int
take_function(void *context, const struct ct_steps_call_function *function)
{
  struct reported *reported = context;
  CHECK(function->id == reported->functions);
  reported->functions++;
  return 0;
}

static void
take_end(struct reported *reported, uint32_t stack)
{
  CHECK(reported->open[stack] > 0);
  reported->open[stack]--;
}

static int
take_event(void *context, const struct ct_steps_call *event)
{
  struct reported *reported = context;
  CHECK(event->stack < STACKS && event->step >= reported->step && event->tsc >= reported->tsc);
  reported->step = event->step;
  reported->tsc = event->tsc;
  switch (event->kind) {
  case CT_STEPS_CALL_ENTER:
  case CT_STEPS_CALL_TAIL:
    CHECK(event->fn < reported->functions && event->stack == reported->current);
    if (event->kind == CT_STEPS_CALL_TAIL) {
      take_end(reported, event->stack);
    }
    reported->open[event->stack]++;
    break;
  case CT_STEPS_CALL_RETURN:
  case CT_STEPS_CALL_UNWOUND:
  case CT_STEPS_CALL_GONE:
    CHECK(event->stack == reported->current);
    take_end(reported, event->stack);
    break;
  case CT_STEPS_CALL_SWITCH:
    reported->current = event->stack;
    break;
  case CT_STEPS_CALL_EXEC:
    memset(reported->open, 0, sizeof(reported->open));
    reported->current = 0;
    break;
  default:
    CHECK(event->kind == CT_STEPS_CALL_LOST);
  }
  return ++reported->events == reported->ends_at ? CT_ETIMEOUT : 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct reported reported;
  struct ct_steps_calls_facts facts;
  struct ct_diag diag = {""};
  struct ct_steps_calls_callbacks callbacks = {take_function, take_event, &reported};
  make_file(data, size);
  memset(&reported, 0, sizeof(reported));
  int code = ct_steps_calls_read(path, &callbacks, &facts, &diag);
  CHECK(code == 0 || diag.text[0] != 0);
  if (code != 0 || reported.events == 0) {
    return 0;
  }
  CHECK(reported.step <= facts.steps && strlen(facts.damage) < sizeof(facts.damage));
  uint64_t events = reported.events;
  memset(&reported, 0, sizeof(reported));
  reported.ends_at = events; /* what the callbacks says ends it */
  CHECK(ct_steps_calls_read(path, &callbacks, &facts, &diag) == CT_ETIMEOUT && reported.events == events);
  return 0;
}
