/* SPDX-License-Identifier: MIT */
/*
 * The functions of a budget, and where their levels are: a gate each (x86/trampoline_gate.c), of the hooks that they
 * have had. See budget_tick.c.
 *
 * A level that is to be set waits until all of a tick are known. They lie among trampolines, in pages that the process
 * cannot write to, so /proc/PID/mem is the only way, and that takes one stretch of memory a call. Where many gates lie
 * close together, the stretch with all of them is read and written back: what lies between them is written as it is.
 * Threads may be running through it meanwhile: each byte of an instruction has the same value before, after and at any
 * time in between. Nobody else writes there: trampolines are written before they are used, by this thread. A mask that
 * is half an old one makes one call more or less be recorded, besides being counted.
 */
#include "base/test_point.h"
#include "record/budget_internal.h"

#include <stdlib.h>
#include <string.h>

#define STRETCH_BYTES 16384u
#define STRETCH_LEAST 4u /* gates; fewer are written one by one */

struct budget_stretch {
  uint64_t at;
  size_t size;
  uint8_t bytes[STRETCH_BYTES];
};

/* ---- the functions ---- */

/* Another number when its gates may be others, or new ones, whose levels nobody has set. */
static uint64_t
sign_module(const struct ct_module *module)
{
  return (module->loads * 2u + module->loaded + module->layer_count * 7u + module->installed.region) | 1ull << 63;
}

static uint64_t
sign(const struct ct_modules *modules)
{
  uint64_t sum = modules->count * 31 + ct_budget_rules_sign(modules);
  for (size_t i = 0; i < modules->count; i++) {
    sum = sum * 31 + sign_module(&modules->items[i]);
  }
  return sum | 1;
}

/* Each begins a line of memory. */
static struct ct_budget_function *
grow_functions(const struct session_budget *budget, size_t count)
{
  struct ct_budget_function *functions = aligned_alloc(CT_BUDGET_FUNCTION_LINE, count * sizeof(*functions));
  if (functions != NULL && budget->function_count != 0) {
    memcpy(functions, budget->functions, budget->function_count * sizeof(*functions));
  }
  if (functions != NULL) {
    free(budget->functions);
  }
  return functions;
}

static bool
grow(struct session_budget *budget, size_t count)
{
  if (count <= budget->function_count) {
    return true;
  }
  struct ct_budget_function *functions = grow_functions(budget, count);
  budget->functions = functions != NULL ? functions : budget->functions;
  uint8_t *was_out = realloc(budget->was_out, count);
  budget->was_out = was_out != NULL ? was_out : budget->was_out;
  uint32_t *places = reallocarray(budget->places, count, sizeof(*places));
  budget->places = places != NULL ? places : budget->places;
  struct ct_budget_function **sorted = reallocarray(budget->sorted, count, sizeof(struct ct_budget_function *));
  budget->sorted = sorted != NULL ? sorted : budget->sorted;
  struct ct_budget_rank *ranks = reallocarray(budget->ranks, count, 2 * sizeof(*ranks));
  budget->ranks = ranks != NULL ? ranks : budget->ranks;
  uint32_t *first_gate = reallocarray(budget->first_gate, count, sizeof(*first_gate));
  budget->first_gate = first_gate != NULL ? first_gate : budget->first_gate;
  size_t runs = count / CT_DRAIN_TALLY_RUN + 1, had = budget->function_count / CT_DRAIN_TALLY_RUN;
  uint8_t *is_alive = realloc(budget->is_alive, runs);
  budget->is_alive = is_alive != NULL ? is_alive : budget->is_alive;
  uint8_t *is_settled = realloc(budget->is_settled, runs);
  budget->is_settled = is_settled != NULL ? is_settled : budget->is_settled;
  if (functions == NULL || was_out == NULL || places == NULL || sorted == NULL || ranks == NULL || first_gate == NULL ||
      is_alive == NULL || is_settled == NULL) {
    return false;
  }
  size_t more = count - budget->function_count;
  memset(functions + budget->function_count, 0, more * sizeof(*functions));
  memset(was_out + budget->function_count, 0, more);
  memset(places + budget->function_count, 0, more * sizeof(*places));
  memset(first_gate + budget->function_count, 0, more * sizeof(*first_gate));
  memset(is_alive + had, 0xff, runs - had);
  memset(is_settled + had, 0, runs - had);
  budget->function_count = count;
  return true;
}

static bool
add_gate(struct session_budget *budget, size_t *capacity, uint64_t at, uint32_t fn, bool is_set)
{
  if (budget->gate_count == *capacity) {
    size_t grown = *capacity * 2 + 1024;
    struct budget_gate *gates = reallocarray(budget->gates, grown, sizeof(*gates));
    if (gates == NULL) {
      return false;
    }
    budget->gates = gates;
    *capacity = grown;
  }
  budget->gates[budget->gate_count++] = (struct budget_gate){at, fn, is_set, budget->first_gate[fn]};
  budget->first_gate[fn] = (uint32_t)budget->gate_count;
  return true;
}

/* Of Go's functions only the calls are recorded: a patch, and no gate. (What keeps its patch anyway is recorded
 * always.) */
static void
add_point(struct session_budget *budget, const struct ct_planned *planned, uint32_t fn)
{
  struct ct_budget_function *function = &budget->functions[fn];
  if (budget->has_points && !function->has_gate && planned->mode != CT_HOOK_FULL && fn < CT_DRAIN_TALLIES &&
      ct_requested_for_none(planned) == CT_REQUESTED_NONE) {
    function->has_gate = function->is_point = true;
    function->seen = CT_SEEN_FULL;
    budget->seen[CT_SEEN_FULL]++;
  }
}

static bool
add_module(struct session_budget *budget, const struct ct_modules *modules, const struct ct_module *module,
           const struct ct_agent_layout *layout, size_t *capacity)
{
  const struct ct_plan *plan = module->plan;
  uint32_t rules = ct_budget_rules_of(modules, module);
  uint32_t fn = module->installed.first_fn;
  bool ok = true, is_same = module->gates_seen == sign_module(module);
  for (size_t i = 0; i < plan->count && ok; i++) {
    if (plan->functions[i].refusal != CT_REFUSED_NOT) {
      continue;
    }
    struct ct_budget_function *function = &budget->functions[fn];
    budget->places[fn] = (uint32_t)i;
    function->is_ruled = rules != 0 && (rules_mask(modules->rules, fn) & rules) != 0;
    bool is_set = function->has_gate ? is_same : !function->is_ruled; /* a new one begins as is decided here */
    for (size_t which = 1; which < module->layer_count + 2 && ok; which++) {
      const struct ct_installed *installed = ct_module_installed(module, which);
      if (installed->gates != NULL && installed->gates[i] != 0) {
        ok = add_gate(budget, capacity, installed->gates[i], fn, is_set);
        if (!function->has_gate) {
          function->has_counter =
              fn - layout->first_counted < ct_counters_by_id(layout->counter_blocks) && !plan->functions[i].self_branch;
          function->counter = function->has_counter ? ct_counter_by_id(fn - layout->first_counted) + 1 : 0;
          function->takes_counter = budget->moves_counters && !function->has_counter && !plan->functions[i].self_branch;
          function->seen = function->has_counter && !function->is_ruled ? CT_SEEN_SAMPLED : CT_SEEN_FULL;
          function->has_gate = fn < CT_DRAIN_TALLIES;
          function->keeps_patch = ct_requested_for_none(&plan->functions[i]) != CT_REQUESTED_NONE;
          budget->seen[function->seen] += function->has_gate;
        }
      }
    }
    add_point(budget, &plan->functions[i], fn);
    fn++;
  }
  return ok;
}

/* ---- levels are written ---- */

static struct ct_gate
make_gate(uint8_t seen)
{
  return (struct ct_gate){.mask = seen == CT_SEEN_SAMPLED ? CT_SEEN_SAMPLED_CALLS - 1 : UINT32_MAX,
                          .level = seen == CT_SEEN_FULL  ? CT_LEVEL_FULL
                                   : seen == CT_SEEN_OUT ? CT_LEVEL_OUT
                                                         : CT_LEVEL_COUNTING};
}

static bool
write_one(const struct ct_process *process, const struct budget_level *level)
{
  struct ct_gate gate = make_gate(level->seen);
  return ct_process_write(process, level->at, &gate, offsetof(struct ct_gate, pad)) == 0;
}

static bool
write_stretch(const struct ct_process *process, const struct budget_level *levels, size_t count)
{
  uint8_t bytes[STRETCH_BYTES];
  uint64_t first = levels[0].at;
  size_t size = levels[count - 1].at + offsetof(struct ct_gate, pad) - first;
  if (ct_process_read(process, first, bytes, size) != 0) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    struct ct_gate gate = make_gate(levels[i].seen);
    memcpy(bytes + (levels[i].at - first), &gate, offsetof(struct ct_gate, pad));
  }
  return ct_process_write(process, first, bytes, size) == 0;
}

static int
compare_places(const void *a, const void *b)
{
  const struct budget_level *left = a, *right = b;
  return left->at < right->at ? -1 : left->at > right->at;
}

/* How many from the first one on fit into a stretch. */
static size_t
find_stretch(const struct budget_level *levels, size_t count)
{
  size_t end = 1;
  while (end < count && levels[end].at - levels[0].at <= STRETCH_BYTES - sizeof(struct ct_gate)) {
    end++;
  }
  return end;
}

void
ct_budget_write_levels(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  size_t count = budget->level_count, n;
  budget->level_count = 0;
  qsort(budget->levels, count, sizeof(*budget->levels), compare_places);
  for (size_t i = 0; i < count && !budget->failed; i += n) {
    n = find_stretch(budget->levels + i, count - i);
    bool is_one = n < STRETCH_LEAST;
    n = is_one ? 1 : n;
    budget->failed = is_one ? !write_one(&session->target.process, &budget->levels[i])
                            : !write_stretch(&session->target.process, budget->levels + i, n);
    ct_test_point("budget step");
  }
}

/* There is room for each gate once. */
static void
put_level(struct ct_session *session, const struct budget_gate *gate, uint8_t seen)
{
  struct session_budget *budget = session->budget;
  if (budget->level_count == budget->gate_count) {
    ct_budget_write_levels(session);
  }
  budget->levels[budget->level_count++] = (struct budget_level){gate->at, seen};
}

/* Where the drain is to look for counts: before a function counts. */
static void
mark_counting(struct ct_session *session, const struct ct_budget_function *function)
{
  if (function->counter != 0) {
    atomic_store_explicit(
        &ct_drain_counting(session->recording.drain)[(function->counter - 1u) / CT_DRAIN_COUNTING_RUN], 1,
        memory_order_relaxed);
  }
}

void
ct_budget_put_levels(struct ct_session *session, const struct ct_budget_function *function, uint8_t seen)
{
  struct session_budget *budget = session->budget;
  size_t fn = (size_t)(function - budget->functions);
  if (ct_budget_is_counting(seen)) {
    mark_counting(session, function);
  }
  for (uint32_t n = budget->first_gate[fn]; n != 0; n = budget->gates[n - 1].next) {
    put_level(session, &budget->gates[n - 1], seen);
  }
}

/* ---- all gates ---- */

/* How the process has it. One look at the process is for many gates: they are in the order of their places. */
static bool
read_level(const struct ct_session *session, size_t at, struct budget_stretch *stretch, uint8_t *level)
{
  const struct session_budget *budget = session->budget;
  uint64_t place = budget->gates[at].at;
  if (place < stretch->at || place + sizeof(struct ct_gate) > stretch->at + stretch->size) {
    size_t end = at + 1;
    while (end < budget->gate_count && budget->gates[end].at > place &&
           budget->gates[end].at - place <= STRETCH_BYTES - sizeof(struct ct_gate)) {
      end++;
    }
    stretch->at = place;
    stretch->size = budget->gates[end - 1].at + sizeof(struct ct_gate) - place;
    if (ct_process_read(&session->target.process, place, stretch->bytes, stretch->size) != 0) {
      stretch->size = 0;
      return false;
    }
  }
  *level = stretch->bytes[place - stretch->at + offsetof(struct ct_gate, level)];
  return true;
}

/* A forked child has begun with its parent's levels: what was out there was not seen here so far. */
static void
note_parents_levels(const struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  struct budget_stretch stretch = {.size = 0};
  for (size_t i = 0; i < budget->gate_count; i++) {
    uint8_t level;
    if (read_level(session, i, &stretch, &level) && level == CT_LEVEL_OUT) {
      struct ct_budget_function *function = &budget->functions[budget->gates[i].fn];
      budget->was_out[budget->gates[i].fn] = 1;
      function->out_from_ns = 1; /* since whenever its parent had it so */
      function->out_until_ns = UINT64_MAX;
    }
  }
}

static void
note_parents_ends(struct session_budget *budget)
{
  for (size_t i = 0; i < budget->gate_count; i++) {
    ct_budget_note_return(&budget->functions[budget->gates[i].fn]);
  }
}

static void
write_moved_counters(struct ct_session *session)
{
  const struct session_budget *budget = session->budget;
  for (uint32_t n = 0; n < budget->counters.used; n++) {
    const struct ct_budget_function *function = &budget->functions[budget->counters.of[n].fn];
    if (function->counter == n + 1) {
      ct_budget_write_counters(session, function);
    }
  }
}

static bool
has_gates(const struct ct_module *module)
{
  return module->loaded && module->plan != NULL && module->installed.region != 0;
}

/* All of them: what is of the functions before is copied when there is to be room for more, so that is done once. */
static size_t
count_functions(const struct ct_modules *modules)
{
  size_t count = 0;
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    size_t end = has_gates(module) ? module->installed.first_fn + module->plan->hooked : 0;
    count = end > count ? end : count;
  }
  return count;
}

bool
ct_budget_find_gates(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  struct ct_modules *modules = &session->recording.modules;
  uint64_t signature = sign(modules);
  size_t capacity = 0;
  if (signature == budget->modules_seen) {
    return true;
  }
  bool is_childs_first = budget->modules_seen == 0 && session->node.is_child;
  free(budget->gates);
  budget->gates = NULL;
  budget->gate_count = 0;
  budget->whole_ns = 0;
  if (budget->function_count != 0) {
    memset(budget->is_settled, 0, budget->function_count / CT_DRAIN_TALLY_RUN + 1);
    memset(budget->first_gate, 0, budget->function_count * sizeof(*budget->first_gate));
  }
  if (!grow(budget, count_functions(modules))) {
    return false;
  }
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (has_gates(module) && !add_module(budget, modules, module, &session->recording.image.layout, &capacity)) {
      return false;
    }
    module->gates_seen = has_gates(module) ? sign_module(module) : 0;
  }
  struct budget_level *levels = reallocarray(budget->levels, budget->gate_count + 1, sizeof(*levels));
  if (levels == NULL) {
    return false;
  }
  budget->levels = levels;
  if (is_childs_first) {
    note_parents_levels(session);
  }
  write_moved_counters(session); /* before one of these counts */
  for (size_t i = 0; i < budget->gate_count; i++) {
    if (is_childs_first || !budget->gates[i].is_set) {
      put_level(session, &budget->gates[i], budget->functions[budget->gates[i].fn].seen);
    }
  }
  ct_budget_write_levels(session);
  if (is_childs_first) {
    note_parents_ends(budget);
  }
  budget->modules_seen = signature;
  budget->has_opened = false; /* of those that are new nobody has called one */
  budget->was_once = true;
  return !budget->failed;
}

void
session_budget_rehooked(struct ct_session *session)
{
  struct session_budget *budget = session->budget;
  if (budget != NULL && budget->has_begun && !budget->failed && ct_drain_tallies(session->recording.drain) != NULL) {
    budget->failed = !ct_budget_find_gates(session);
  }
}
