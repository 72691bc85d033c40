/* SPDX-License-Identifier: MIT */
/* Which functions patterns match, and what is selected by that; see select_internal.h. */
#include "select/select_internal.h"

#include "target/source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void
ct_select_free_module(struct ct_select_module *module)
{
  for (size_t i = 0; i < module->matches_size; i++) {
    free(module->matches[i].functions);
  }
  free(module->matches);
  free(module->outcomes);
  free(module->path);
  free(module);
}

/* ---- counting ---- */

static struct ct_select_module *
find_module(const struct ct_selection *selection, const struct ct_plan *plan, const char *path)
{
  for (size_t i = 0; i < selection->module_count; i++) {
    struct ct_select_module *module = selection->modules[i];
    if (module->plan == plan && module->plan_ns == plan->plan_ns && strcmp(module->path, path) == 0) {
      return module;
    }
  }
  return NULL;
}

static struct ct_select_module *
add_module(struct ct_selection *selection, const struct ct_plan *plan, const char *path)
{
  if (selection->module_count == selection->module_capacity) {
    size_t grown = selection->module_capacity == 0 ? 16 : selection->module_capacity * 2;
    struct ct_select_module **modules = reallocarray(selection->modules, grown, sizeof(struct ct_select_module *));
    if (modules == NULL) {
      return NULL;
    }
    selection->modules = modules;
    selection->module_capacity = grown;
  }
  struct ct_select_module *module = calloc(1, sizeof(*module));
  if (module == NULL) {
    return NULL;
  }
  module->plan = plan;
  module->plan_ns = plan->plan_ns;
  module->path = strdup(path);
  module->function_count = plan->count;
  module->outcomes = malloc(plan->count + 1);
  if (module->path == NULL || module->outcomes == NULL) {
    ct_select_free_module(module);
    return NULL;
  }
  for (size_t i = 0; i < plan->count; i++) {
    module->outcomes[i] = plan->functions[i].refusal;
  }
  selection->modules[selection->module_count++] = module;
  return module;
}

/* Room for the matches of all rules. */
static int
grow_matches(struct ct_selection *selection, struct ct_select_module *module)
{
  size_t needed = 0;
  for (size_t i = 0; i < selection->count; i++) {
    needed = selection->patterns[i].rule >= needed ? selection->patterns[i].rule + 1 : needed;
  }
  if (needed <= module->matches_size) {
    return 0;
  }
  struct ct_matches *matches = reallocarray(module->matches, needed, sizeof(*matches));
  if (matches == NULL) {
    return CT_ENOMEM;
  }
  memset(matches + module->matches_size, 0, (needed - module->matches_size) * sizeof(*matches));
  module->matches = matches;
  module->matches_size = needed;
  return 0;
}

static int
add_match(struct ct_matches *matches, size_t function)
{
  if (matches->count == matches->capacity) {
    size_t grown = matches->capacity == 0 ? 16 : matches->capacity * 2;
    uint32_t *functions = reallocarray(matches->functions, grown, sizeof(*functions));
    if (functions == NULL) {
      return CT_ENOMEM;
    }
    matches->functions = functions;
    matches->capacity = grown;
  }
  matches->functions[matches->count++] = (uint32_t)function;
  return 0;
}

/* What cannot be called is meant only by who writes down its name in the symbol table. */
static bool
is_meant(const struct ct_selection *selection, uint32_t rule, const struct ct_planned *planned)
{
  const char *plain = ct_names_plain(selection->names, rule);
  return ct_refusal_is_callable((enum ct_refusal)planned->refusal) ||
         (plain != NULL && planned->name != NULL && strcmp(plain, planned->name) == 0);
}

static int
count_names(struct ct_selection *selection, struct ct_select_module *module)
{
  const struct ct_plan *plan = module->plan;
  int code = 0;
  for (size_t i = 0; ct_names_has_active(selection->names) && i < plan->count && code == 0; i++) {
    const uint32_t *rules;
    size_t count = ct_names_match(selection->names, &plan->functions[i], &rules);
    for (size_t n = 0; n < count && code == 0; n++) {
      if (is_meant(selection, rules[n], &plan->functions[i])) {
        code = add_match(&module->matches[rules[n]], i);
      }
    }
  }
  return code;
}

/* A relative path is one that the compiler was asked to write so: it counts from the root when there is such a file. */
static bool
is_users(const struct ct_selection *selection, const char *path)
{
  char real[PATH_MAX], whole[PATH_MAX];
  if (path[0] != '/') {
    int length = snprintf(whole, sizeof(whole), "%s/%s", selection->real_root, path);
    path = length > 0 && (size_t)length < sizeof(whole) && access(whole, F_OK) == 0 ? whole : NULL;
  } else if (ct_path_is_below(path, selection->root) || ct_path_is_below(path, selection->real_root)) {
    return true;
  }
  return path != NULL && realpath(path, real) != NULL && ct_path_is_below(real, selection->real_root);
}

/* @file: and @usercode. */
static int
count_sources(struct ct_selection *selection, const struct ct_pattern *pattern, struct ct_select_module *module)
{
  const struct ct_plan *plan = module->plan;
  const struct ct_sources *sources = ct_plan_sources(plan);
  module->has_sources = sources != NULL;
  if (sources == NULL) {
    return 0;
  }
  bool *wanted = calloc(sources->file_count + 1, sizeof(*wanted));
  if (wanted == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < sources->file_count; i++) {
    wanted[i] = pattern->kind == CT_SELECT_FILE ? ct_source_glob_matches(&pattern->file, sources->files[i])
                                                : is_users(selection, sources->files[i]);
  }
  int code = 0;
  for (size_t i = 0; i < plan->count && code == 0; i++) {
    uint32_t file = sources->functions[i].file;
    if (file != CT_NO_SOURCE && wanted[file] && ct_refusal_is_callable((enum ct_refusal)plan->functions[i].refusal)) {
      code = add_match(&module->matches[pattern->rule], i);
    }
  }
  free(wanted);
  return code;
}

bool
ct_select_is_about_sources(const struct ct_pattern *pattern)
{
  return pattern->kind == CT_SELECT_FILE || pattern->kind == CT_SELECT_USERCODE;
}

/* So many matches and no more are hooked in full if nothing else is said. */
static size_t
few_of(const struct ct_pattern *pattern)
{
  bool by_file = pattern->kind == CT_SELECT_FILE || pattern->kind == CT_SELECT_USERCODE;
  return by_file ? CT_SELECT_FEW_BY_FILE : CT_SELECT_FEW;
}

/* The matches of a pattern are all there. */
static void
note_counted(struct ct_selection *selection, struct ct_pattern *pattern, struct ct_matches *matches)
{
  bool was_none = pattern->matched == 0;
  matches->counted = true;
  pattern->matched += matches->count;
  if (!pattern->many && pattern->matched > few_of(pattern)) {
    pattern->many = true;
    selection->generation++;
  }
  /* Until now @usercode stood for the program. */
  selection->generation += pattern->kind == CT_SELECT_USERCODE && was_none && matches->count != 0;
}

static int
count_all(struct ct_selection *selection, struct ct_select_module *module, bool *skip)
{
  bool any = false;
  for (size_t i = 0; i < selection->count; i++) {
    struct ct_matches *matches = &module->matches[selection->patterns[i].rule];
    skip[selection->patterns[i].rule] = matches->counted;
    any |= !matches->counted;
    if (!matches->counted) {
      matches->count = 0; /* of a try that failed */
    }
  }
  if (!any) {
    return 0;
  }
  ct_names_begin(selection->names, module->plan, module->path, skip);
  int code = count_names(selection, module);
  for (size_t i = 0; i < selection->count && code == 0; i++) {
    struct ct_pattern *pattern = &selection->patterns[i];
    struct ct_matches *matches = &module->matches[pattern->rule];
    if (matches->counted) {
      continue;
    }
    matches->active = ct_names_is_active(selection->names, pattern->rule);
    if (matches->active && ct_select_is_about_sources(pattern)) {
      code = count_sources(selection, pattern, module);
    }
    if (code == 0) {
      note_counted(selection, pattern, matches);
    }
  }
  return code;
}

/* The module counts no longer. */
static void
drop_module(struct ct_selection *selection, size_t n)
{
  struct ct_select_module *module = selection->modules[n];
  for (size_t i = 0; i < selection->count; i++) {
    struct ct_pattern *pattern = &selection->patterns[i];
    bool counted = pattern->rule < module->matches_size && module->matches[pattern->rule].counted;
    pattern->matched -= counted ? module->matches[pattern->rule].count : 0;
  }
  selection->modules[n] = selection->modules[--selection->module_count];
  ct_select_free_module(module);
}

static int
count_module(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
             struct ct_select_module **out)
{
  struct ct_select_module *module = find_module(selection, plan, path);
  for (size_t i = selection->module_count; module == NULL && i > 0; i--) { /* of an earlier session */
    if (selection->modules[i - 1]->plan == NULL) {
      drop_module(selection, i - 1);
    }
  }
  if (module == NULL) {
    module = add_module(selection, plan, path);
  }
  if (module == NULL || grow_matches(selection, module) != 0) {
    return CT_ENOMEM;
  }
  module->is_program = is_program;
  *out = module;
  bool *skip = calloc(module->matches_size + 1, sizeof(*skip));
  int code = skip != NULL ? count_all(selection, module, skip) : CT_ENOMEM;
  free(skip);
  return code;
}

void
ct_select_forget(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path)
{
  struct ct_select_module *module = selection != NULL ? find_module(selection, plan, module_path) : NULL;
  for (size_t i = 0; module != NULL && i < selection->module_count; i++) {
    if (selection->modules[i] == module) {
      drop_module(selection, i);
      break;
    }
  }
  if (selection != NULL) {
    ct_select_forget(selection->detail, plan, module_path);
  }
  for (size_t i = 0; selection != NULL && i < CT_RULES_MAX; i++) {
    ct_select_forget(selection->watched[i], plan, module_path);
    ct_select_forget(selection->rule_details[i], plan, module_path);
  }
  for (size_t i = 0; selection != NULL && i < CT_ITRACE_PROBES; i++) {
    ct_select_forget(selection->itraced[i], plan, module_path);
  }
}

void
ct_select_end(struct ct_selection *selection)
{
  for (size_t i = 0; selection != NULL && i < selection->module_count; i++) {
    selection->modules[i]->plan = NULL;
  }
  if (selection != NULL) {
    ct_select_end(selection->detail);
  }
  for (size_t i = 0; selection != NULL && i < CT_RULES_MAX; i++) {
    ct_select_end(selection->watched[i]);
    ct_select_end(selection->rule_details[i]);
  }
  for (size_t i = 0; selection != NULL && i < CT_ITRACE_PROBES; i++) {
    ct_select_end(selection->itraced[i]);
  }
}

/* ---- choosing ---- */

bool
ct_select_is_program(const struct ct_pattern *pattern)
{
  return pattern->kind == CT_SELECT_USERCODE && pattern->matched == 0;
}

void
ct_select_each(const struct ct_pattern *pattern, const struct ct_select_module *module,
               void (*visit)(void *context, size_t function), void *context)
{
  if (pattern->rule >= module->matches_size || !module->matches[pattern->rule].active) {
    return;
  }
  const struct ct_matches *matches = &module->matches[pattern->rule];
  for (size_t i = 0; i < matches->count; i++) {
    visit(context, matches->functions[i]);
  }
  for (size_t i = 0; ct_select_is_program(pattern) && module->is_program && i < module->function_count; i++) {
    if (ct_refusal_is_callable((enum ct_refusal)module->outcomes[i])) {
      visit(context, i);
    }
  }
}

static void
add_one(void *context, size_t function)
{
  ++*(size_t *)context;
}

static size_t
total_matches(const struct ct_selection *selection, const struct ct_pattern *pattern)
{
  size_t total = 0;
  if (!ct_select_is_program(pattern)) {
    return pattern->matched;
  }
  for (size_t i = 0; i < selection->module_count; i++) {
    ct_select_each(pattern, selection->modules[i], add_one, &total);
  }
  return total;
}

enum ct_select_mode
ct_select_mode_of(const struct ct_selection *selection, const struct ct_pattern *pattern)
{
  enum ct_select_mode asked = pattern->asked != CT_SELECT_AUTO ? pattern->asked : selection->mode;
  if (asked != CT_SELECT_AUTO) {
    return asked;
  }
  if (selection->has_budget || pattern->kind == CT_SELECT_EXACT || pattern->kind == CT_SELECT_SCOPE) {
    return CT_SELECT_FULL;
  }
  return pattern->many || total_matches(selection, pattern) > few_of(pattern) ? CT_SELECT_LIGHT : CT_SELECT_FULL;
}

#define WANTED_VALUES 0x80u
#define WANTED_DETAIL 0x40u
#define WANTED_RESULT 0x20u /* of these: rax, whatever is known of it */
#define WANTED_MORE   (WANTED_VALUES | WANTED_DETAIL | WANTED_RESULT)

struct marking {
  uint8_t *wanted; /* enum ct_select_mode, perhaps with WANTED_VALUES, WANTED_DETAIL; 0: not selected */
  enum ct_select_mode mode;
  uint8_t values;  /* of these, or 0 */
  uint8_t *itrace; /* as struct ct_filter_result has it; NULL: of none */
  uint8_t probe;   /* plus 1; 0: none */
};

static void
mark(void *context, size_t function)
{
  struct marking *marking = context;
  uint8_t *wanted = &marking->wanted[function];
  if ((*wanted & ~WANTED_MORE) != CT_SELECT_FULL) {
    *wanted = (uint8_t)marking->mode;
  }
  if (marking->mode == CT_SELECT_FULL) {
    *wanted |= marking->values;
  }
  if (marking->probe != 0 && marking->itrace[function] == 0) {
    marking->itrace[function] = marking->probe;
  }
}

void
ct_select_forks(struct ct_selection *selection, bool followed)
{
  selection->forks = followed;
}

void
ct_select_for_budget(struct ct_selection *selection, bool has_budget)
{
  selection->has_budget = has_budget;
}

static void
mark_forks(const struct ct_selection *selection, const struct ct_plan *plan, uint8_t *wanted)
{
  for (size_t i = 0; selection->forks && i < plan->count; i++) {
    if (plan->functions[i].callout == CT_CALLOUT_PARK && (wanted[i] & ~WANTED_MORE) != CT_SELECT_FULL) {
      wanted[i] = CT_SELECT_FULL;
    }
  }
}

/* What becomes of one function that has a hook: by its requested mode, which is that of exclusion so far, and what is
 * wanted. */
static void
choose_one(const struct ct_planned *planned, uint8_t wanted, uint8_t *requested, uint8_t *reason,
           struct ct_filter_result *filter_result)
{
  if (*requested != CT_REQUESTED_HOOK) {
    *reason = CT_REFUSED_EXCLUDED;
  } else if (wanted == CT_SELECT_AUTO) {
    *requested = (uint8_t)ct_requested_for_none(planned);
    *reason = CT_REFUSED_UNSELECTED;
    filter_result->excluded++;
    filter_result->unselected++;
    filter_result->passthrough += *requested == CT_REQUESTED_PASSTHROUGH;
  } else if (wanted == CT_SELECT_LIGHT) {
    *requested = CT_REQUESTED_LIGHT;
    filter_result->light++;
  } else if ((wanted & WANTED_DETAIL) != 0) {
    *requested = CT_REQUESTED_DETAIL;
  } else if ((wanted & WANTED_VALUES) != 0) {
    *requested = CT_REQUESTED_VALUES;
  }
}

/*
 * Reads the prototypes of functions whose values are wanted, and of those that detail is wanted of by name. What is not
 * found there is recorded as if nothing were known.
 */
static void
read_prototypes(const struct ct_selection *selection, const struct ct_plan *plan, const uint8_t *wanted)
{
  bool has_all = selection->detail != NULL && ct_selection_is_everything(selection->detail);
  uint8_t *asked = calloc(plan->count + 1, 1);
  size_t count = 0;
  for (size_t i = 0; asked != NULL && i < plan->count; i++) {
    uint8_t kinds = has_all ? WANTED_VALUES : WANTED_VALUES | WANTED_DETAIL;
    asked[i] = (wanted[i] & kinds) != 0 && plan->functions[i].refusal == CT_REFUSED_NOT;
    count += asked[i];
  }
  if (count != 0) {
    (void)ct_plan_prototypes_read(plan, asked);
  }
  free(asked);
}

/* Adds what is wanted (struct marking) to the filter result of exclusion. */
static int
choose(const struct ct_selection *selection, const struct ct_plan *plan, const uint8_t *wanted,
       struct ct_filter_result *filter_result)
{
  filter_result->requested_modes =
      filter_result->requested_modes != NULL ? filter_result->requested_modes : calloc(plan->count + 1, 1);
  filter_result->reasons = calloc(plan->count + 1, 1);
  filter_result->more = calloc(plan->count + 1, sizeof(*filter_result->more));
  if (filter_result->requested_modes == NULL || filter_result->reasons == NULL || filter_result->more == NULL) {
    return CT_ENOMEM;
  }
  bool has_all = selection->detail != NULL && ct_selection_is_everything(selection->detail);
  read_prototypes(selection, plan, wanted);
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].refusal == CT_REFUSED_NOT) {
      choose_one(&plan->functions[i], wanted[i], &filter_result->requested_modes[i], &filter_result->reasons[i],
                 filter_result);
      if (filter_result->requested_modes[i] == CT_REQUESTED_DETAIL) {
        filter_result->more[i] = ct_select_texts(plan, i, has_all, selection->members);
      } else if (filter_result->requested_modes[i] == CT_REQUESTED_VALUES) {
        filter_result->more[i] = ct_select_values_form(plan, i, (wanted[i] & WANTED_RESULT) != 0);
      }
    }
  }
  return 0;
}

static void
note_outcomes(struct ct_select_module *module, const struct ct_filter_result *filter_result)
{
  module->filtered = true;
  for (size_t i = 0; i < module->function_count; i++) {
    bool left_out = module->plan->functions[i].refusal == CT_REFUSED_NOT &&
                    !ct_requested_has_event(filter_result->requested_modes[i]);
    module->outcomes[i] = left_out ? filter_result->reasons[i] : module->plan->functions[i].refusal;
  }
}

static int
mark_matches(struct ct_selection *detail, const struct ct_plan *plan, const char *path, bool is_program,
             struct marking *marking)
{
  struct ct_select_module *module;
  int code = count_module(detail, plan, path, is_program, &module);
  for (size_t i = 0; code == 0 && i < detail->count; i++) {
    ct_select_each(&detail->patterns[i], module, mark, marking);
    module->filtered = true;
  }
  return code;
}

/* Which functions are recorded with detail, by these rules too: they are hooked in full then, whatever else selects
 * them. */
static int
mark_detail(struct ct_selection *selection, uint32_t rules, const struct ct_plan *plan, const char *path,
            bool is_program, struct marking *marking)
{
  struct ct_selection *detail = selection->detail;
  int code = 0;
  marking->mode = CT_SELECT_FULL;
  marking->values = WANTED_DETAIL;
  if (detail != NULL && ct_selection_is_everything(detail)) {
    for (size_t i = 0; i < plan->count; i++) {
      marking->wanted[i] |= (marking->wanted[i] & ~WANTED_MORE) == CT_SELECT_FULL ? WANTED_DETAIL : 0;
    }
  } else if (detail != NULL) {
    code = mark_matches(detail, plan, path, is_program, marking);
  }
  for (; rules != 0 && code == 0; rules &= rules - 1) {
    code = mark_matches(selection->rule_details[__builtin_ctz(rules)], plan, path, is_program, marking);
  }
  return code;
}

/* What patterns select. */
static void
mark_selected(const struct ct_selection *selection, const struct ct_select_module *module, struct marking *marking)
{
  for (size_t i = 0; i < selection->count; i++) {
    const struct ct_pattern *pattern = &selection->patterns[i];
    bool narrow = ct_select_is_narrow(pattern);
    marking->mode = ct_select_mode_of(selection, pattern);
    marking->values =
        selection->values == CT_VALUES_ALL || (selection->values == CT_VALUES_AUTO && narrow) ? WANTED_VALUES : 0;
    ct_select_each(pattern, module, mark, marking);
  }
}

/* Also reads what debug information has of functions whose values are wanted, which takes long. */
int
ct_select_count(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path, bool is_program)
{
  struct ct_select_module *module = NULL;
  bool is_everything = ct_selection_is_everything(selection);
  int code = is_everything ? 0 : count_module(selection, plan, module_path, is_program, &module);
  if (code != 0 || selection == NULL ||
      (is_everything && selection->values != CT_VALUES_ALL && selection->detail == NULL &&
       selection->details_all == 0)) {
    return code;
  }
  struct marking marking = {.wanted = calloc(plan->count + 1, 1)};
  if (marking.wanted == NULL) {
    return CT_ENOMEM;
  }
  if (!is_everything) {
    mark_selected(selection, module, &marking);
  } else if (selection->values == CT_VALUES_ALL && selection->mode != CT_SELECT_LIGHT) {
    memset(marking.wanted, CT_SELECT_FULL | WANTED_VALUES, plan->count);
  }
  code = mark_detail(selection, selection->details_all, plan, module_path, is_program, &marking);
  if (code == 0) {
    read_prototypes(selection, plan, marking.wanted);
  }
  free(marking.wanted);
  return code;
}

int
ct_select_each_watched(struct ct_selection *selection, uint32_t slot, const struct ct_plan *plan,
                       const char *module_path, bool is_program, void (*visit)(void *context, size_t function),
                       void *context)
{
  struct ct_selection *watched = selection != NULL ? selection->watched[slot] : NULL;
  struct ct_select_module *module;
  int code = watched != NULL ? count_module(watched, plan, module_path, is_program, &module) : 0;
  for (size_t i = 0; watched != NULL && code == 0 && i < watched->count; i++) {
    ct_select_each(&watched->patterns[i], module, visit, context);
  }
  return code;
}

struct ruling {
  const struct ct_plan *plan;
  uint8_t *ruled; /* as struct ct_filter_result has it, and BY_THIS_RULE */
  size_t count;
};
#define BY_THIS_RULE 2u

static void
rule_on(void *context, size_t function)
{
  struct ruling *ruling = context;
  bool is_new = (ruling->ruled[function] & BY_THIS_RULE) == 0;
  ruling->count += is_new && ruling->plan->functions[function].refusal == CT_REFUSED_NOT;
  ruling->ruled[function] |= BY_THIS_RULE;
}

/* Which functions are to be seen by a rule from their first call on. */
static int
mark_ruled(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
           struct ct_filter_result *filter_result)
{
  struct ruling ruling = {.plan = plan};
  int code = 0;
  if (!selection->has_budget || selection->watched_count == 0) {
    return 0;
  }
  ruling.ruled = filter_result->ruled = calloc(plan->count + 1, 1);
  for (uint32_t slot = 0; slot < CT_RULES_MAX && code == 0 && ruling.ruled != NULL; slot++) {
    if (selection->watched[slot] == NULL) {
      continue;
    }
    ruling.count = 0;
    code = ct_select_each_watched(selection, slot, plan, path, is_program, rule_on, &ruling);
    for (size_t i = 0; i < plan->count; i++) {
      bool is_ruled = ruling.ruled[i] == BY_THIS_RULE ? ruling.count <= CT_RULED_MOST : ruling.ruled[i] != 0;
      ruling.ruled[i] = is_ruled;
    }
  }
  return ruling.ruled != NULL ? code : CT_ENOMEM;
}

/* Which functions rules are about: likewise. */
static int
mark_watched(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
             struct marking *marking)
{
  int code = 0;
  for (uint32_t slot = 0; slot < CT_RULES_MAX && code == 0; slot++) {
    marking->mode = CT_SELECT_FULL;
    marking->values = (selection->watched_values >> slot & 1) != 0 ? WANTED_VALUES | WANTED_RESULT : 0;
    code = ct_select_each_watched(selection, slot, plan, path, is_program, mark, marking);
  }
  return code;
}

/* Whose calls are recorded as instructions. */
static int
mark_itraced(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
             struct marking *marking)
{
  int code = 0;
  if (selection->itraced_count == 0) {
    return 0;
  }
  marking->itrace = calloc(plan->count + 1, 1);
  marking->mode = CT_SELECT_FULL;
  marking->values = 0;
  for (uint32_t probe = CT_ITRACE_PROBES; probe-- > 0 && marking->itrace != NULL && code == 0;) {
    if (selection->itraced[probe] != NULL) {
      marking->probe = (uint8_t)(probe + 1);
      code = mark_matches(selection->itraced[probe], plan, path, is_program, marking);
    }
  }
  return marking->itrace != NULL ? code : CT_ENOMEM;
}

/* What is marked, and what rules, the watch and itrace want besides. */
static int
choose_marked(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
              struct marking *marking, struct ct_filter_result *filter_result)
{
  int code = mark_detail(selection, selection->details_on, plan, path, is_program, marking);
  if (code != 0) {
    return code;
  }
  code = mark_watched(selection, plan, path, is_program, marking);
  if (code == 0) {
    code = mark_ruled(selection, plan, path, is_program, filter_result);
  }
  if (code != 0) {
    return code;
  }
  code = mark_itraced(selection, plan, path, is_program, marking);
  filter_result->itrace = marking->itrace;
  return code == 0 ? choose(selection, plan, marking->wanted, filter_result) : code;
}

/* While there is no pattern: all, in the mode that is for all. */
static int
choose_everything(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
                  struct ct_filter_result *filter_result)
{
  if (selection == NULL ||
      (selection->mode != CT_SELECT_LIGHT && selection->values != CT_VALUES_ALL && selection->detail == NULL &&
       selection->watched_count == 0 && selection->details_on == 0 && selection->itraced_count == 0)) {
    return 0;
  }
  uint8_t all = selection->mode == CT_SELECT_LIGHT ? CT_SELECT_LIGHT : CT_SELECT_FULL;
  all |= selection->mode != CT_SELECT_LIGHT && selection->values == CT_VALUES_ALL ? WANTED_VALUES : 0;
  uint8_t *wanted = malloc(plan->count + 1);
  if (wanted == NULL) {
    return CT_ENOMEM;
  }
  memset(wanted, all, plan->count + 1);
  mark_forks(selection, plan, wanted);
  struct marking marking = {.wanted = wanted};
  int code = choose_marked(selection, plan, path, is_program, &marking, filter_result);
  free(wanted);
  return code;
}

static int
choose_by_patterns(struct ct_selection *selection, const struct ct_plan *plan, const char *path, bool is_program,
                   struct ct_filter_result *filter_result)
{
  struct ct_select_module *module;
  int code = count_module(selection, plan, path, is_program, &module);
  if (code != 0) {
    return code;
  }
  struct marking marking = {.wanted = calloc(plan->count + 1, 1)};
  if (marking.wanted == NULL) {
    return CT_ENOMEM;
  }
  mark_selected(selection, module, &marking);
  mark_forks(selection, plan, marking.wanted);
  code = choose_marked(selection, plan, path, is_program, &marking, filter_result);
  if (code == 0) {
    note_outcomes(module, filter_result);
  }
  free(marking.wanted);
  return code;
}

int
ct_select_filter(struct ct_selection *selection, struct ct_exclude *exclude, const struct ct_plan *plan,
                 const char *module_path, bool is_program, struct ct_filter_result *filter_result)
{
  int code = ct_exclude_filter(exclude, plan, module_path, filter_result);
  if (code == 0) {
    code = ct_selection_is_everything(selection)
               ? choose_everything(selection, plan, module_path, is_program, filter_result)
               : choose_by_patterns(selection, plan, module_path, is_program, filter_result);
  }
  if (code != 0) {
    ct_filter_result_free(filter_result);
  }
  return code;
}

void
ct_select_reconcile(struct ct_selection *selection, const struct ct_plan *plan, const char *module_path,
                    const uint8_t *install_refusals)
{
  struct ct_select_module *module = selection != NULL ? find_module(selection, plan, module_path) : NULL;
  for (size_t i = 0; module != NULL && module->filtered && install_refusals != NULL && i < plan->count; i++) {
    if (module->outcomes[i] == CT_REFUSED_NOT) {
      module->outcomes[i] = install_refusals[i];
    }
  }
  if (selection != NULL && selection->detail != NULL) {
    ct_select_reconcile(selection->detail, plan, module_path, install_refusals);
  }
}
