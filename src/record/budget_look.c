/* SPDX-License-Identifier: MIT */
/*
 * Nobody sees how a function is called whose patch is out. One that takes more than the limit by itself cannot be
 * counted for a second or two to find that out: for that much its share of the limit is saved up in half a minute. But
 * a hundredth of a second is enough to count thousands of calls. So once a second functions that are out are counted
 * for so long, and those that are called so little now that they fit come back. All looks together take a tenth of the
 * limit: a call that costs 4 ns, made 10 million times a second, is twice a limit of 2 %, and looks at it are a
 * fiftieth of that.
 *
 * What is saved up for looks (`allowance`) goes to one function after another, in the order of their rates, from where
 * the last look ended. One for which there is too little now is waited for, but not if it takes too long.
 *
 * Patches go in and out for that with a stop each. The longer that takes, and the more of the recorder's time, the
 * rarer looks are; and much rarer where it ends calls with EINTR (process/again.c), which a program is to see now and
 * then at most. (A process of a tree keeps its patches: there only levels are set.)
 *
 * A moment may be one in which a function is not called, that is called much before and after. Then it comes back, goes
 * out again within a few tenths of a second, and comes back the later the more often that has happened in a row.
 */
#include "record/budget_look.h"

#include "record/budget_policy.h"

#define SHARE          0.1  /* of the limit: for looks */
#define SAVED_MOST     20.0 /* seconds' share */
#define WAIT_MOST      3.0  /* seconds' share: for what costs more the others do not wait */
#define AT_ONCE        64u
#define PAUSE_SHARE    0.1           /* of the limit: for the stops, ... */
#define RECORDER_SHARE 0.05          /* ... and for what the recorder does for looks */
#define BUSY           0.01          /* of a processor: what a process is taken to use at least */
#define ENDED_LEAST    8000000000ull /* between looks where stops end system calls, ... */
#define ENDED_MOST     128000000000ull
#define NS_LEAST       1e6 /* of the process's time, or nothing was seen */

static double
price(const struct ct_budget_function *function, const struct ct_budget_costs *costs)
{
  double call = function->is_point ? costs->full : ct_budget_call_cost(costs, ct_budget_seen_to_look(function));
  return function->rate * (call + function->cold);
}

void
ct_budget_looks_begin(struct ct_budget_looks *looks)
{
  *looks = (struct ct_budget_looks){.every_ns = CT_BUDGET_LOOK_EVERY};
}

void
ct_budget_looks_add(struct ct_budget_looks *looks, double allowed_ns, double used_ns)
{
  double a_second = SHARE * allowed_ns, sum = looks->allowance + a_second * (used_ns / 1e9);
  looks->allowance = sum < SAVED_MOST * a_second ? sum : SAVED_MOST * a_second;
}

size_t
ct_budget_looks_choose(struct ct_budget_looks *looks, struct ct_budget_function *const *functions, size_t count,
                       const struct ct_budget_costs *costs, double allowed_ns, double processors, uint64_t now_ns)
{
  double seconds = (double)CT_BUDGET_LOOK_NS / 1e9 * (processors > 1 ? processors : 1), rest = looks->allowance;
  size_t first = looks->at < count ? looks->at : 0, chosen = 0;
  if (now_ns - looks->begun_ns < looks->every_ns) {
    return 0;
  }
  for (size_t n = 0; n < count && chosen < AT_ONCE; n++) {
    size_t at = (first + n) % count;
    struct ct_budget_function *function = functions[at];
    double cost = price(function, costs) * seconds;
    if (function->seen != CT_SEEN_OUT || function->rate <= 0 || now_ns - function->since_ns < CT_BUDGET_LOOK_EVERY) {
      continue;
    }
    if (cost <= rest) {
      function->is_looked = true;
      rest -= cost;
      chosen++;
    } else if (cost <= WAIT_MOST * SHARE * allowed_ns) {
      looks->at = at;
      break;
    }
    looks->at = at + 1;
  }
  looks->begun_ns = chosen != 0 ? now_ns : looks->begun_ns;
  return chosen;
}

void
ct_budget_looks_read(struct ct_budget_function *function, double used_ns, uint64_t now_ns)
{
  if (!function->is_unpatched && used_ns >= NS_LEAST) {
    function->rate = (function->calls + 1) * (1e9 / used_ns);
    function->looked_ns = now_ns;
  } /* or a thread stood where its patch is to be, or the process had no time: nothing is known */
}

size_t
ct_budget_looks_end(struct ct_budget_looks *looks, struct ct_budget_function *const *functions, size_t count,
                    const struct ct_budget_costs *costs, double allowed_ns, double used_ns, uint64_t now_ns)
{
  size_t out = 0;
  ct_budget_best(functions, count, costs, allowed_ns * CT_BUDGET_AIM);
  for (size_t i = 0; i < count; i++) {
    struct ct_budget_function *function = functions[i];
    if (!function->is_looked) {
      continue;
    }
    bool is_time = now_ns - function->since_ns >= CT_BUDGET_LOOK_EVERY << function->backoff;
    bool returns = function->looked_ns == now_ns && is_time && function->sure != CT_SEEN_OUT;
    function->wanted = returns ? ct_budget_seen_to_look(function) : CT_SEEN_OUT;
    looks->allowance -= price(function, costs) * (used_ns / 1e9);
    out += !returns;
    if (returns) {
      function->because = CT_BUDGET_BECAUSE_LOOK;
      ct_budget_note_look(function, now_ns);
    }
  }
  return out;
}

void
ct_budget_looks_pace(struct ct_budget_looks *looks, const struct ct_budget_look_cost *cost, double limit,
                     double processors)
{
  uint64_t every = looks->every_ns;
  double pause = (double)cost->pause_ns / (PAUSE_SHARE * limit);
  double recorder = (double)cost->recorder_ns / (RECORDER_SHARE * limit * (processors > BUSY ? processors : BUSY));
  pause =
      pause < (double)ENDED_LEAST ? pause : (double)ENDED_LEAST; /* one long stop is not to put off all that follows */
  double least = pause > recorder ? pause : recorder;
  if (cost->ended_calls != 0) {
    every = every < ENDED_LEAST / 2 ? ENDED_LEAST : every < ENDED_MOST / 2 ? 2 * every : ENDED_MOST;
  } else {
    every = every / 2 < CT_BUDGET_LOOK_EVERY ? CT_BUDGET_LOOK_EVERY : every / 2;
  }
  every = (double)every > least ? every : (uint64_t)least;
  looks->every_ns = every < ENDED_MOST ? every : ENDED_MOST;
}
