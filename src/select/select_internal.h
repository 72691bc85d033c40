/* SPDX-License-Identifier: MIT */
/*
 * What select.c and select_list.c share. For each module and pattern the functions that match are found once and kept
 * (struct ct_matches), so that adding a pattern looks at names for that pattern alone, and removing one looks at none.
 * Choosing goes through these lists; the numbers that the user sees are counted from them when they are asked for, with
 * what became of each function (outcomes).
 */
#ifndef CT_SELECT_INTERNAL_H
#define CT_SELECT_INTERNAL_H

#include "select/select.h"

#include <contrail/rule.h>

#include "base/source_glob.h"
#include "ring/layout.h"
#include "select/names.h"
#include "select/suggest.h"

struct ct_pattern {
  char *text;
  enum ct_select_kind kind;
  enum ct_select_mode asked;
  uint32_t rule;                    /* in names; of no function with @file: and @usercode */
  struct ct_source_glob file;       /* CT_SELECT_FILE */
  size_t matched;                   /* in all modules that were counted */
  bool many;                        /* has been more than CT_SELECT_FEW */
  struct ct_suggestion *suggestion; /* NULL: it was not looked for */
};

/* The functions of a module that a pattern matches: indexes in the plan, ascending. */
struct ct_matches {
  uint32_t *functions;
  size_t count, capacity;
  bool counted;
  bool active; /* the pattern's module is this one */
};

struct ct_select_module {
  const struct ct_plan *plan; /* NULL: it is gone, and what follows is kept for reports */
  uint64_t plan_ns;           /* distinguishes it from another one at the same address */
  char *path;
  bool is_program, has_sources;
  bool filtered;              /* at least once */
  struct ct_matches *matches; /* by rule */
  size_t matches_size;
  size_t function_count;
  uint8_t *outcomes; /* enum ct_refusal of each function: the plan's; when filtered, what has become of it */
};

struct ct_selection {
  struct ct_pattern *patterns;
  size_t count, capacity;
  bool had_patterns;
  struct ct_names *names;
  struct ct_select_module **modules;
  size_t module_count, module_capacity;
  enum ct_select_mode mode;
  enum ct_select_values values;
  struct ct_selection *detail;                /* of functions that are recorded with detail; NULL: none */
  struct ct_selection *watched[CT_RULES_MAX]; /* of functions that a rule is about; NULL: none */
  uint32_t watched_count;
  uint32_t watched_values;                         /* rules that need the result: a bit for each */
  struct ct_selection *rule_details[CT_RULES_MAX]; /* of functions that have detail in a rule's windows; NULL: none */
  uint32_t details_all, details_on;                /* rules with such functions; those in whose window we are */
  struct ct_selection *itraced[CT_ITRACE_PROBES];  /* of functions whose calls are recorded as instructions; NULL */
  uint32_t itraced_count;
  bool members;           /* with detail: what structures hold that arguments point to */
  bool has_lane;          /* there have been functions with detail */
  bool forks;             /* what makes processes is always selected */
  bool has_budget;        /* CT_SELECT_AUTO is full */
  char *root, *real_root; /* as given; without symbolic links. Normalized */
  uint64_t generation;
};

/* It is exact, or of one level: what it selects has values unless that was asked for otherwise. */
static inline bool
ct_select_is_narrow(const struct ct_pattern *pattern)
{
  return pattern->kind == CT_SELECT_EXACT || pattern->kind == CT_SELECT_SCOPE;
}

/* The mode of a pattern as things stand: full or light. */
enum ct_select_mode ct_select_mode_of(const struct ct_selection *selection, const struct ct_pattern *pattern);
/* Calls visit with each function of the module that the pattern matches. */
void ct_select_each(const struct ct_pattern *pattern, const struct ct_select_module *module,
                    void (*visit)(void *context, size_t function), void *context);
/* @usercode that no source was found for: it stands for the program itself. */
bool ct_select_is_program(const struct ct_pattern *pattern);
bool ct_select_is_about_sources(const struct ct_pattern *pattern);
/* values.c, of a plan's function i. With detail: which registers point to texts, as struct ct_filter_result has it. */
uint32_t ct_select_texts(const struct ct_plan *plan, size_t i, bool has_all, bool members);
/* With values: struct ct_values_form. needs_result: rax, whatever it returns. */
uint64_t ct_select_values_form(const struct ct_plan *plan, size_t i, bool needs_result);
void ct_select_free_module(struct ct_select_module *module);

#endif
