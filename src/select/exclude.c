/* SPDX-License-Identifier: MIT */
/*
 * Exclusion; see exclude.h. Names are matched by names.c; @leaf: rules, by the code. All of it happens in the
 * controller: an excluded function is not patched, so it costs the program nothing.
 */
#include "select/excluding.h"

#include "base/glob.h"
#include "select/names.h"
#include "select/suggest.h"
#include "target/elf.h"
#include "x86/leaf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES     8192
#define LEAF_BYTES_MAX 1024

struct rule {
  char *text;          /* as given */
  uint32_t number;     /* in names */
  uint32_t leaf_bytes; /* @leaf:BYTES; it has no name then */
  bool hot;
  bool matched;
  struct ct_suggestion *suggestion; /* NULL: it was not looked for */
};

struct ct_exclude {
  struct ct_names *names;
  struct rule *rules; /* in the order in which they were added */
  uint32_t count, capacity;
  uint32_t *by_number; /* index of the rule that has this number in names */
  bool has_hot;
  uint32_t leaf_bytes; /* the most that a rule says that is active for the module being looked at */
};

struct ct_exclude *
ct_exclude_create(void)
{
  struct ct_exclude *exclude = calloc(1, sizeof(*exclude));
  if (exclude != NULL && (exclude->names = ct_names_create(CT_NAMES_FREE)) == NULL) {
    free(exclude);
    return NULL;
  }
  return exclude;
}

void
ct_exclude_free(struct ct_exclude *exclude)
{
  if (exclude == NULL) {
    return;
  }
  for (uint32_t i = 0; i < exclude->count; i++) {
    free(exclude->rules[i].text);
    free(exclude->rules[i].suggestion);
  }
  ct_names_free(exclude->names);
  free(exclude->rules);
  free(exclude->by_number);
  free(exclude);
}

static int
grow(struct ct_exclude *exclude)
{
  if (exclude->count < exclude->capacity) {
    return 0;
  }
  uint32_t capacity = exclude->capacity == 0 ? 64 : exclude->capacity * 2;
  struct rule *rules = reallocarray(exclude->rules, capacity, sizeof(*rules));
  if (rules == NULL) {
    return CT_ENOMEM;
  }
  exclude->rules = rules;
  uint32_t *by_number = reallocarray(exclude->by_number, capacity, sizeof(*by_number));
  if (by_number == NULL) {
    return CT_ENOMEM;
  }
  exclude->by_number = by_number;
  exclude->capacity = capacity;
  return 0;
}

static int
parse_class(const char *text, struct rule *rule, struct ct_diag *diag)
{
  static const char leaf[] = "@leaf:";
  char *end;
  if (strncmp(text, leaf, sizeof(leaf) - 1) != 0) {
    return ct_fail(diag, CT_EINVAL, "only @leaf:BYTES begins with @");
  }
  const char *digits = text + sizeof(leaf) - 1;
  unsigned long bytes = digits[0] >= '0' && digits[0] <= '9' ? strtoul(digits, &end, 10) : 0;
  if (bytes == 0 || bytes > LEAF_BYTES_MAX || *end != '\0') {
    return ct_fail(diag, CT_EINVAL, "@leaf: takes 1 to %u bytes", LEAF_BYTES_MAX);
  }
  rule->leaf_bytes = (uint32_t)bytes;
  return 0;
}

static int
add(struct ct_exclude *exclude, const char *pattern, const struct ct_hot *hot, struct ct_diag *diag)
{
  const char *separator = ct_glob_separator(pattern);
  const char *function = separator != NULL ? separator + 1 : pattern;
  struct rule rule = {.text = strdup(pattern), .hot = hot != NULL};
  int code = rule.text == NULL || grow(exclude) != 0 ? ct_fail(diag, CT_ENOMEM, "out of memory") : 0;
  if (code == 0 && function[0] == '@') {
    code = parse_class(function, &rule, diag);
    function = NULL;
  }
  if (code == 0) {
    code = ct_names_add(exclude->names, pattern, function, &rule.number, diag);
  }
  if (code != 0) {
    free(rule.text);
    return code;
  }
  if (hot != NULL && !hot->mangled && function != NULL && strpbrk(function, ":(< ") == NULL) {
    ct_names_set_raw(exclude->names, rule.number);
  }
  exclude->by_number[rule.number] = exclude->count;
  exclude->rules[exclude->count++] = rule;
  return 0;
}

int
ct_exclude_add(struct ct_exclude *exclude, const char *pattern, struct ct_diag *diag)
{
  return add(exclude, pattern, NULL, diag);
}

int
ct_exclude_remove(struct ct_exclude *exclude, const char *pattern)
{
  for (uint32_t i = exclude->count; i > 0; i--) {
    struct rule *rule = &exclude->rules[i - 1];
    if (rule->hot || strcmp(rule->text, pattern) != 0) {
      continue;
    }
    ct_names_remove(exclude->names, rule->number);
    free(rule->text);
    free(rule->suggestion);
    memmove(rule, rule + 1, (exclude->count - i) * sizeof(*rule));
    exclude->count--;
    for (uint32_t j = i - 1; j < exclude->count; j++) {
      exclude->by_number[exclude->rules[j].number] = j;
    }
    return 0;
  }
  return CT_ENOENT;
}

int
ct_exclude_add_file(struct ct_exclude *exclude, const char *path, struct ct_diag *diag)
{
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    int err = errno;
    return ct_fail(diag, ct_err_from_errno(err), "cannot read %s: %s", path, strerror(err));
  }
  char line[LINE_BYTES];
  struct ct_diag why = {""};
  int code = 0;
  for (unsigned number = 1; code == 0 && fgets(line, sizeof(line), file) != NULL; number++) {
    size_t length = strlen(line);
    while (length > 0 && strchr(" \t\r\n", line[length - 1]) != NULL) {
      line[--length] = '\0';
    }
    const char *pattern = line + strspn(line, " \t");
    if (pattern[0] != '\0' && pattern[0] != '#') {
      code = add(exclude, pattern, NULL, &why);
    }
    if (code != 0) {
      ct_fail(diag, code, "%s:%u: '%.200s': %s", path, number, pattern, why.text);
    }
  }
  if (code == 0 && ferror(file)) {
    int err = errno;
    code = ct_fail(diag, ct_err_from_errno(err), "cannot read %s: %s", path, strerror(err));
  }
  fclose(file);
  return code;
}

int
ct_hot_each(int (*visit)(void *context, const struct ct_hot *group, const char *pattern), void *context)
{
  char pattern[256];
  for (const struct ct_hot *group = ct_hot_list; group->what != NULL; group++) {
    const char *at = group->patterns;
    while (*at != '\0') {
      size_t length = strcspn(at, " ");
      snprintf(pattern, sizeof(pattern), "%s%s%.*s", group->module != NULL ? group->module : "",
               group->module != NULL ? "!" : "", (int)length, at);
      int code = visit(context, group, pattern);
      if (code != 0) {
        return code;
      }
      at += length + strspn(at + length, " ");
    }
  }
  return 0;
}

struct hot_context {
  struct ct_exclude *exclude;
  struct ct_diag *diag;
};

static int
add_hot(void *context, const struct ct_hot *group, const char *pattern)
{
  struct hot_context *to = context;
  return add(to->exclude, pattern, group, to->diag);
}

int
ct_exclude_add_hot(struct ct_exclude *exclude, struct ct_diag *diag)
{
  struct hot_context to = {exclude, diag};
  if (exclude->has_hot) {
    return 0;
  }
  exclude->has_hot = true;
  return ct_hot_each(add_hot, &to);
}

bool
ct_exclude_is_empty(const struct ct_exclude *exclude)
{
  return exclude == NULL || exclude->count == 0;
}

bool
ct_exclude_has_hot(const struct ct_exclude *exclude)
{
  return exclude != NULL && exclude->has_hot;
}

static const struct rule *
given(const struct ct_exclude *exclude, size_t n)
{
  for (uint32_t i = 0; exclude != NULL && i < exclude->count; i++) {
    if (!exclude->rules[i].hot && n-- == 0) {
      return &exclude->rules[i];
    }
  }
  return NULL;
}

const char *
ct_exclude_pattern(const struct ct_exclude *exclude, size_t n)
{
  const struct rule *rule = given(exclude, n);
  return rule != NULL ? rule->text : NULL;
}

bool
ct_exclude_has_matched(const struct ct_exclude *exclude, size_t n)
{
  const struct rule *rule = given(exclude, n);
  return rule != NULL && rule->matched;
}

const char *
ct_exclude_likely(const struct ct_exclude *exclude, size_t n)
{
  const struct rule *rule = given(exclude, n);
  return rule != NULL && !rule->matched && rule->suggestion != NULL ? rule->suggestion->text : "";
}

void
ct_exclude_suggest(struct ct_exclude *exclude, const struct ct_plan *plan, const char *path)
{
  size_t unmatched = 0;
  ct_names_begin(exclude->names, plan, path, NULL);
  for (uint32_t i = 0; i < exclude->count && unmatched < CT_SUGGESTIONS_MAX; i++) {
    struct rule *rule = &exclude->rules[i];
    if (rule->hot || rule->matched || rule->leaf_bytes != 0) {
      continue;
    }
    unmatched++;
    if (rule->suggestion == NULL) {
      rule->suggestion = ct_suggestion_create(rule->text);
    }
    if (rule->suggestion != NULL) {
      ct_suggestion_match(rule->suggestion, plan, path, ct_names_is_active(exclude->names, rule->number));
    }
  }
}

/* ---- one module ---- */

static void
begin(struct ct_exclude *exclude, const struct ct_plan *plan, const char *path)
{
  ct_names_begin(exclude->names, plan, path, NULL);
  exclude->leaf_bytes = 0;
  for (uint32_t i = 0; i < exclude->count; i++) {
    const struct rule *rule = &exclude->rules[i];
    if (rule->leaf_bytes > exclude->leaf_bytes && ct_names_is_active(exclude->names, rule->number)) {
      exclude->leaf_bytes = rule->leaf_bytes;
    }
  }
}

static bool
leaf_matches(struct ct_exclude *exclude, const struct ct_plan *plan, const struct ct_planned *planned)
{
  if (planned->size > exclude->leaf_bytes) {
    return false;
  }
  const uint8_t *code = ct_elf_bytes(plan->elf, planned->address, planned->size);
  if (code == NULL || !ct_is_leaf(code, planned->size)) {
    return false;
  }
  for (uint32_t i = 0; i < exclude->count; i++) {
    struct rule *rule = &exclude->rules[i];
    rule->matched |= planned->size <= rule->leaf_bytes && ct_names_is_active(exclude->names, rule->number);
  }
  return true;
}

static bool
function_matches(struct ct_exclude *exclude, const struct ct_plan *plan, const struct ct_planned *planned)
{
  const uint32_t *numbers;
  bool matches = leaf_matches(exclude, plan, planned);
  size_t count = ct_names_match(exclude->names, planned, &numbers);
  for (size_t i = 0; i < count; i++) {
    exclude->rules[exclude->by_number[numbers[i]]].matched = true;
    ct_names_reconcile(exclude->names, numbers[i]);
  }
  return matches || count != 0;
}

/* True when every function matches, and nothing more can be found out by looking at names. */
static bool
is_reconciled(const struct ct_exclude *exclude)
{
  bool reconciled = ct_names_has_all(exclude->names);
  for (uint32_t i = 0; reconciled && i < exclude->count; i++) {
    const struct rule *rule = &exclude->rules[i];
    reconciled = rule->matched || rule->hot || !ct_names_is_active(exclude->names, rule->number);
  }
  return reconciled;
}

static void
exclude_one(const struct ct_planned *planned, struct ct_filter_result *filter_result, uint8_t *requested)
{
  if (planned->refusal != CT_REFUSED_NOT) {
    return; /* it has no hook anyway */
  }
  *requested = (uint8_t)ct_requested_for_none(planned);
  filter_result->excluded++;
  filter_result->passthrough += *requested == CT_REQUESTED_PASSTHROUGH;
}

int
ct_exclude_filter(struct ct_exclude *exclude, const struct ct_plan *plan, const char *module_path,
                  struct ct_filter_result *filter_result)
{
  *filter_result = (struct ct_filter_result){0};
  if (ct_exclude_is_empty(exclude)) {
    return 0;
  }
  filter_result->requested_modes = calloc(plan->count + 1, 1);
  if (filter_result->requested_modes == NULL) {
    return CT_ENOMEM;
  }
  begin(exclude, plan, module_path);
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    if (is_reconciled(exclude) || function_matches(exclude, plan, planned)) {
      exclude_one(planned, filter_result, &filter_result->requested_modes[i]);
    }
  }
  return 0;
}
