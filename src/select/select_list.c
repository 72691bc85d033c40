/* SPDX-License-Identifier: MIT */
/* The list of patterns, and what is reported about them; see select_internal.h. */
#include "select/select_internal.h"

#include "base/sized.h"
#include "target/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ct_selection *
ct_selection_create(void)
{
  struct ct_selection *selection = calloc(1, sizeof(*selection));
  if (selection != NULL && (selection->names = ct_names_create(CT_NAMES_SCOPES)) == NULL) {
    free(selection);
    return NULL;
  }
  return selection;
}

static void
clear_pattern(struct ct_pattern *pattern)
{
  free(pattern->text);
  ct_source_glob_free(&pattern->file);
  free(pattern->suggestion);
}

void
ct_selection_free(struct ct_selection *selection)
{
  if (selection == NULL) {
    return;
  }
  for (size_t i = 0; i < selection->count; i++) {
    clear_pattern(&selection->patterns[i]);
  }
  for (size_t i = 0; i < selection->module_count; i++) {
    ct_select_free_module(selection->modules[i]);
  }
  ct_selection_free(selection->detail);
  for (size_t i = 0; i < CT_RULES_MAX; i++) {
    ct_selection_free(selection->watched[i]);
    ct_selection_free(selection->rule_details[i]);
  }
  for (size_t i = 0; i < CT_ITRACE_PROBES; i++) {
    ct_selection_free(selection->itraced[i]);
  }
  ct_names_free(selection->names);
  free(selection->patterns);
  free(selection->modules);
  free(selection->root);
  free(selection->real_root);
  free(selection);
}

/* ---- the project's root ---- */

/* The current directory as the shell shows it, by way of symbolic links, when it says so rightly. */
static char *
current_directory(void)
{
  const char *shown = getenv("PWD");
  struct stat a, b;
  if (shown != NULL && shown[0] == '/' && stat(shown, &a) == 0 && stat(".", &b) == 0 && a.st_dev == b.st_dev &&
      a.st_ino == b.st_ino) {
    return strdup(shown);
  }
  return getcwd(NULL, 0);
}

int
ct_selection_set_root(struct ct_selection *selection, const char *directory, struct ct_diag *diag)
{
  struct stat file;
  char *root = NULL;
  if (directory == NULL) {
    root = current_directory();
  } else if (directory[0] == '/') {
    root = strdup(directory);
  } else {
    char *here = current_directory();
    if (here == NULL || asprintf(&root, "%s/%s", here, directory) < 0) {
      root = NULL;
    }
    free(here);
  }
  if (root == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  char *real = realpath(root, NULL);
  if (real == NULL || stat(real, &file) != 0 || !S_ISDIR(file.st_mode)) {
    free(root);
    free(real);
    return ct_fail(diag, CT_EINVAL, "no such directory");
  }
  ct_source_path_normalize(root);
  free(selection->root);
  free(selection->real_root);
  selection->root = root;
  selection->real_root = real;
  return 0;
}

/* ---- the list ---- */

void
ct_selection_set_mode(struct ct_selection *selection, enum ct_select_mode mode)
{
  selection->generation += selection->mode != mode;
  selection->mode = mode;
}

void
ct_selection_set_values(struct ct_selection *selection, enum ct_select_values values)
{
  selection->generation += selection->values != values;
  selection->values = values;
}

int
ct_selection_add_detail(struct ct_selection *selection, const char *pattern, struct ct_diag *diag)
{
  if (selection->detail == NULL && (selection->detail = ct_selection_create()) == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  selection->generation++;
  selection->has_lane = true;
  return pattern != NULL ? ct_selection_add(selection->detail, pattern, CT_SELECT_FULL, diag) : 0;
}

void
ct_selection_set_members(struct ct_selection *selection)
{
  selection->members = true;
}

const struct ct_selection *
ct_selection_detail(const struct ct_selection *selection)
{
  return selection != NULL ? selection->detail : NULL;
}

bool
ct_select_has_lane(const struct ct_selection *selection)
{
  return selection != NULL && selection->has_lane;
}

static struct ct_selection *
selection_of(const char *pattern, int *code, struct ct_diag *diag)
{
  struct ct_selection *selection = ct_selection_create();
  *code = selection != NULL ? ct_selection_add(selection, pattern, CT_SELECT_FULL, diag) : CT_ENOMEM;
  if (*code != 0) {
    ct_selection_free(selection);
    return NULL;
  }
  return selection;
}

int
ct_select_rule_detail(struct ct_selection *selection, uint32_t slot, const char *pattern, struct ct_diag *diag)
{
  int code;
  struct ct_selection *detail = selection_of(pattern, &code, diag);
  if (detail != NULL) {
    ct_selection_free(selection->rule_details[slot]);
    selection->rule_details[slot] = detail;
    selection->details_all |= 1u << slot;
    selection->has_lane = true;
    selection->generation++;
  }
  return code;
}

int
ct_select_itrace(struct ct_selection *selection, uint32_t probe, const char *pattern, struct ct_diag *diag)
{
  int code = 0;
  struct ct_selection *itraced = pattern != NULL ? selection_of(pattern, &code, diag) : NULL;
  if (code != 0) {
    return code;
  }
  selection->itraced_count -= selection->itraced[probe] != NULL;
  ct_selection_free(selection->itraced[probe]);
  selection->itraced[probe] = itraced;
  selection->itraced_count += itraced != NULL;
  selection->generation++;
  return 0;
}

void
ct_select_details_on(struct ct_selection *selection, uint32_t slots)
{
  if (selection != NULL) {
    selection->details_on = slots & selection->details_all;
  }
}

int
ct_select_watch(struct ct_selection *selection, uint32_t slot, const char *pattern, bool result, struct ct_diag *diag)
{
  int code;
  struct ct_selection *watched = selection_of(pattern, &code, diag);
  if (watched == NULL) {
    return code;
  }
  ct_select_unwatch(selection, slot);
  selection->watched[slot] = watched;
  selection->watched_count++;
  selection->watched_values |= result ? 1u << slot : 0;
  selection->generation++;
  return 0;
}

void
ct_select_unwatch(struct ct_selection *selection, uint32_t slot)
{
  if (selection->watched[slot] != NULL) {
    ct_selection_free(selection->watched[slot]);
    selection->watched[slot] = NULL;
    selection->watched_count--;
    selection->watched_values &= ~(1u << slot);
    selection->generation++;
  }
  if (selection->rule_details[slot] != NULL) {
    ct_selection_free(selection->rule_details[slot]);
    selection->rule_details[slot] = NULL;
    selection->details_all &= ~(1u << slot);
    selection->details_on &= ~(1u << slot);
    selection->generation++;
  }
}

static struct ct_pattern *
find_pattern(const struct ct_selection *selection, const char *text)
{
  for (size_t i = 0; i < selection->count; i++) {
    if (strcmp(selection->patterns[i].text, text) == 0) {
      return &selection->patterns[i];
    }
  }
  return NULL;
}

static int
parse(struct ct_selection *selection, const char *text, struct ct_pattern *pattern, struct ct_diag *diag)
{
  const char *separator = ct_glob_separator(text);
  const char *function = separator != NULL ? separator + 1 : text;
  int code = 0;
  if (function[0] == '@') {
    code = ct_source_glob_compile(function, &pattern->file, diag);
    pattern->kind = pattern->file.glob != NULL ? CT_SELECT_FILE : CT_SELECT_USERCODE;
    function = NULL;
  }
  if (code == 0) {
    code = ct_names_add(selection->names, text, function, &pattern->rule, diag);
  }
  if (code == 0 && function != NULL) {
    bool exact = ct_names_plain(selection->names, pattern->rule) != NULL;
    bool deep = ct_names_is_deep(selection->names, pattern->rule);
    pattern->kind = exact ? CT_SELECT_EXACT : deep ? CT_SELECT_DEEP : CT_SELECT_SCOPE;
  }
  return code;
}

int
ct_selection_add(struct ct_selection *selection, const char *text, enum ct_select_mode mode, struct ct_diag *diag)
{
  struct ct_pattern *known = find_pattern(selection, text);
  if (known != NULL) {
    selection->generation += known->asked != mode;
    known->asked = mode;
    return 0;
  }
  if (selection->count == selection->capacity) {
    size_t grown = selection->capacity == 0 ? 16 : selection->capacity * 2;
    struct ct_pattern *patterns = reallocarray(selection->patterns, grown, sizeof(*patterns));
    if (patterns == NULL) {
      return ct_fail(diag, CT_ENOMEM, "out of memory");
    }
    selection->patterns = patterns;
    selection->capacity = grown;
  }
  struct ct_pattern pattern = {.text = strdup(text), .asked = mode};
  int code = pattern.text != NULL ? parse(selection, text, &pattern, diag) : ct_fail(diag, CT_ENOMEM, "out of memory");
  if (code == 0 && pattern.kind == CT_SELECT_USERCODE && selection->root == NULL) {
    code = ct_selection_set_root(selection, NULL, diag);
    if (code != 0) {
      ct_names_remove(selection->names, pattern.rule);
    }
  }
  if (code != 0) {
    clear_pattern(&pattern);
    return code;
  }
  selection->patterns[selection->count++] = pattern;
  selection->had_patterns = true;
  selection->generation++;
  return 0;
}

void
ct_selection_set_none(struct ct_selection *selection)
{
  selection->generation += !selection->had_patterns;
  selection->had_patterns = true;
}

int
ct_selection_remove(struct ct_selection *selection, const char *text)
{
  struct ct_pattern *pattern = find_pattern(selection, text);
  if (pattern == NULL) {
    return CT_ENOENT;
  }
  for (size_t i = 0; i < selection->module_count; i++) {
    struct ct_select_module *module = selection->modules[i];
    if (pattern->rule < module->matches_size) {
      free(module->matches[pattern->rule].functions);
      module->matches[pattern->rule] = (struct ct_matches){NULL};
    }
  }
  ct_names_remove(selection->names, pattern->rule);
  clear_pattern(pattern);
  size_t after = selection->count - (size_t)(pattern - selection->patterns) - 1;
  memmove(pattern, pattern + 1, after * sizeof(*pattern));
  selection->count--;
  selection->generation++;
  return 0;
}

bool
ct_selection_is_everything(const struct ct_selection *selection)
{
  return selection == NULL || !selection->had_patterns;
}

bool
ct_select_has_values(const struct ct_selection *selection)
{
  if (selection == NULL || selection->mode == CT_SELECT_LIGHT || selection->values == CT_VALUES_NONE) {
    return false;
  }
  bool any = selection->values == CT_VALUES_ALL;
  for (size_t i = 0; i < selection->count; i++) {
    any |= ct_select_is_narrow(&selection->patterns[i]);
  }
  return any;
}

uint64_t
ct_selection_generation(const struct ct_selection *selection)
{
  return selection->generation;
}

/* ---- what is reported ---- */

struct numbers {
  const struct ct_select_module *module;
  size_t matched, hooked;
  size_t refused[CT_REFUSED_COUNT];
};

static void
add_to_numbers(void *context, size_t function)
{
  struct numbers *numbers = context;
  const struct ct_select_module *module = numbers->module;
  uint8_t outcome = module->outcomes[function];
  numbers->matched++;
  numbers->hooked += module->filtered && outcome == CT_REFUSED_NOT;
  numbers->refused[outcome]++;
}

static struct numbers
numbers_of(const struct ct_selection *selection, const struct ct_pattern *pattern)
{
  struct numbers numbers = {NULL};
  for (size_t i = 0; i < selection->module_count; i++) {
    numbers.module = selection->modules[i];
    ct_select_each(pattern, selection->modules[i], add_to_numbers, &numbers);
  }
  return numbers;
}

static void
report_sources(const struct ct_selection *selection, const struct ct_pattern *pattern, struct ct_select_info *info)
{
  bool counted = false, has_sources = false, program_has_sources = false;
  for (size_t i = 0; i < selection->module_count; i++) {
    const struct ct_select_module *module = selection->modules[i];
    if (pattern->rule < module->matches_size && module->matches[pattern->rule].active) {
      counted = true;
      has_sources |= module->has_sources;
      program_has_sources |= module->is_program && module->has_sources;
    }
  }
  if (!counted) {
    return;
  }
  if (pattern->kind == CT_SELECT_FILE && !has_sources) {
    snprintf(info->note, sizeof(info->note), "no module has debug information, so no source file is known");
  } else if (pattern->kind == CT_SELECT_USERCODE && !ct_select_is_program(pattern)) {
    snprintf(info->note, sizeof(info->note), "functions written below %s", selection->root);
  } else if (pattern->kind == CT_SELECT_USERCODE) {
    snprintf(info->note, sizeof(info->note), "all of the program itself: %s %s",
             program_has_sources ? "no function is written below" : "it has no debug information, to look for",
             selection->root);
  }
}

int
ct_selection_info(const struct ct_selection *selection, size_t n, struct ct_select_info *info)
{
  if (selection == NULL || n >= selection->count) {
    return CT_ERANGE;
  }
  const struct ct_pattern *pattern = &selection->patterns[n];
  struct numbers numbers = numbers_of(selection, pattern);
  struct ct_select_info own = {
      .pattern = pattern->text,
      .kind = pattern->kind,
      .asked = pattern->asked != CT_SELECT_AUTO ? pattern->asked : selection->mode,
      .mode = ct_select_mode_of(selection, pattern),
      .matched = numbers.matched,
      .hooked = numbers.hooked,
      .likely = numbers.matched == 0 && pattern->suggestion != NULL ? pattern->suggestion->text : "",
  };
  if (ct_select_is_about_sources(pattern)) {
    report_sources(selection, pattern, &own);
  }
  return ct_sized_give(info, &own, sizeof(own), NULL);
}

void
ct_select_suggest(struct ct_selection *selection, const struct ct_plan *plan, const char *path)
{
  size_t unmatched = 0;
  ct_names_begin(selection->names, plan, path, NULL);
  for (size_t i = 0; i < selection->count && unmatched < CT_SUGGESTIONS_MAX; i++) {
    struct ct_pattern *pattern = &selection->patterns[i];
    if (pattern->kind == CT_SELECT_USERCODE || numbers_of(selection, pattern).matched != 0) {
      continue;
    }
    unmatched++;
    if (pattern->suggestion == NULL) {
      pattern->suggestion = ct_suggestion_create(pattern->text);
    }
    if (pattern->suggestion != NULL) {
      ct_suggestion_match(pattern->suggestion, plan, path, ct_names_is_active(selection->names, pattern->rule));
    }
  }
}

size_t
ct_selection_refused(const struct ct_selection *selection, size_t n, enum ct_refusal refusal)
{
  if (selection == NULL || n >= selection->count || refusal <= CT_REFUSED_NOT || refusal >= CT_REFUSED_COUNT) {
    return 0;
  }
  return numbers_of(selection, &selection->patterns[n]).refused[refusal];
}

const char *
ct_select_kind_name(enum ct_select_kind kind)
{
  static const char *const names[] = {"exact", "level", "deep", "file", "usercode"};
  return names[kind];
}

const char *
ct_select_mode_name(enum ct_select_mode mode)
{
  static const char *const names[] = {"auto", "full", "light"};
  return names[mode];
}
