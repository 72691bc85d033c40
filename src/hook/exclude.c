/* SPDX-License-Identifier: MIT */
/*
 * Exclusion; see exclude.h. A rule whose function is a plain name is found through a hash table of names, so any number
 * of them costs the same; those with wildcards are tried one after the other. All of it happens in the controller: an
 * excluded function is not patched, so it costs the program nothing.
 *
 * For each module the rules whose module matches are marked active. A name is demangled only when an active rule could
 * match the result: never for the built-in list's rules for C (raw), rarely for plain names.
 */
#include "hook/exclude.h"

#include "base/demangle.h"
#include "base/glob.h"
#include "target/elf.h"
#include "target/functions.h"
#include "x86/leaf.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_RULE        UINT32_MAX
#define HINTS_MAX      16 /* more different ones: demangle everything */
#define LINE_BYTES     8192
#define LEAF_BYTES_MAX 1024

struct rule {
  char *text;             /* as given */
  struct ct_glob *module; /* NULL: any */
  struct ct_glob *function;
  const char *plain; /* the function's name when there is no wildcard */
  const char *hint;  /* an identifier that every mangled name of what matches contains; NULL when none is sure */
  size_t hint_length;
  uint32_t next;       /* plain: with the same place in the table; else: active, with the same first character */
  uint32_t leaf_bytes; /* @leaf:BYTES; function is NULL then */
  bool hot;
  bool raw; /* only for names that are not mangled */
  bool active, matched;
};

struct ct_exclude {
  struct rule *rules;
  uint32_t count, capacity;
  uint32_t *table; /* first rule with that hash of its plain name */
  uint32_t table_size;
  bool has_hot;
  /* of the module being looked at */
  bool all;             /* an active rule matches every function */
  bool any_name;        /* an active rule is about names */
  uint32_t leaf_bytes;  /* the most that an active rule says */
  uint32_t globs[257];  /* first active rule with wildcards that begins with this character; 256: with a wildcard */
  bool demangle_always; /* an active rule needs every demangled name ... */
  uint32_t hints[HINTS_MAX]; /* ... or only of names that contain what one of these rules has as hint */
  uint32_t hint_count;
};

struct ct_exclude *
ct_exclude_create(void)
{
  return calloc(1, sizeof(struct ct_exclude));
}

void
ct_exclude_free(struct ct_exclude *exclude)
{
  if (exclude == NULL) {
    return;
  }
  for (uint32_t i = 0; i < exclude->count; i++) {
    free(exclude->rules[i].text);
    ct_glob_free(exclude->rules[i].module);
    ct_glob_free(exclude->rules[i].function);
  }
  free(exclude->rules);
  free(exclude->table);
  free(exclude);
}

static uint32_t
hash(const char *name, size_t length)
{
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < length; i++) {
    value = (value ^ (unsigned char)name[i]) * 16777619u;
  }
  return value;
}

static void
enter_into_table(struct ct_exclude *exclude, uint32_t index)
{
  struct rule *rule = &exclude->rules[index];
  uint32_t place = hash(rule->plain, strlen(rule->plain)) & (exclude->table_size - 1);
  rule->next = exclude->table[place];
  exclude->table[place] = index;
}

/* Room for one more rule; the table has at least twice as many places as there are rules. */
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
  uint32_t *table = reallocarray(NULL, 2 * (size_t)capacity, sizeof(*table));
  if (table == NULL) {
    return CT_ENOMEM;
  }
  free(exclude->table);
  exclude->table = table;
  exclude->capacity = capacity;
  exclude->table_size = 2 * capacity;
  for (uint32_t i = 0; i < exclude->table_size; i++) {
    table[i] = NO_RULE;
  }
  for (uint32_t i = 0; i < exclude->count; i++) {
    if (rules[i].plain != NULL) {
      enter_into_table(exclude, i);
    }
  }
  return 0;
}

/* Where the module ends: the first '!' that is neither in a set nor part of an operator's name; NULL when none is. */
static const char *
find_separator(const char *pattern)
{
  static const char word[] = "operator";
  const size_t word_length = sizeof(word) - 1;
  bool in_set = false;
  for (const char *p = pattern; *p != '\0'; p++) {
    if (*p == '\\' && p[1] != '\0') {
      p++;
    } else if (in_set) {
      in_set = *p != ']';
    } else if (*p == '[' && p[1] != ']') {
      in_set = true;
    } else if (*p == '!' && ((size_t)(p - pattern) < word_length || memcmp(p - word_length, word, word_length) != 0)) {
      return p;
    }
  }
  return NULL;
}

static bool
is_identifier(char c)
{
  return isalnum((unsigned char)c) || c == '_';
}

/*
 * Of a plain name the last identifier before parameters and template arguments; of a glob the first one, when it is
 * that of a namespace. Names of std:: are mangled by abbreviations: there the hint is "S", at the place where it must
 * be.
 */
static void
find_hint(struct rule *rule, const char *function)
{
  const char *text = function + (function[0] == '<'); /* <core::fmt::Formatter as ...> */
  size_t begin = 0, end = strcspn(text, "*?[\\(<");
  if (strncmp(text, "std::", 5) == 0) {
    rule->hint = "S";
    rule->hint_length = 1;
    return;
  }
  if (rule->plain == NULL) {
    while (begin < end && is_identifier(text[begin])) {
      begin++;
    }
    bool is_namespace = begin != 0 && begin + 2 <= end && text[begin] == ':' && text[begin + 1] == ':';
    end = is_namespace ? begin : 0;
    begin = 0;
  } else {
    end = strstr(text, "operator") == NULL && text == function ? end : 0;
    begin = end;
    while (begin > 0 && is_identifier(text[begin - 1])) {
      begin--;
    }
  }
  if (begin < end) {
    rule->hint = text + begin;
    rule->hint_length = end - begin;
  }
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
  if (grow(exclude) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  const char *separator = find_separator(pattern);
  const char *function = separator != NULL ? separator + 1 : pattern;
  if (pattern[0] == '\0') {
    return ct_fail(diag, CT_EINVAL, "it is empty");
  }
  if (separator == pattern) {
    return ct_fail(diag, CT_EINVAL, "no module before the '!' (all modules: leave the '!' out)");
  }
  struct rule rule = {.text = strdup(pattern), .next = NO_RULE, .hot = hot != NULL};
  int code = rule.text == NULL ? ct_fail(diag, CT_ENOMEM, "out of memory") : 0;
  if (code == 0 && separator != NULL) {
    code = ct_glob_compile(pattern, (size_t)(separator - pattern), &rule.module, diag);
  }
  if (code == 0 && function[0] == '@') {
    code = parse_class(function, &rule, diag);
  } else if (code == 0) {
    bool all = function[0] == '\0';
    code = ct_glob_compile(all ? "*" : function, all ? 1 : strlen(function), &rule.function, diag);
  }
  if (code != 0) {
    free(rule.text);
    ct_glob_free(rule.module);
    return code;
  }
  rule.plain = rule.function != NULL ? ct_glob_plain(rule.function) : NULL;
  rule.raw = hot != NULL && !hot->mangled && strpbrk(function, ":(< ") == NULL;
  if (rule.function != NULL) {
    find_hint(&rule, rule.text + (function - pattern));
  }
  exclude->rules[exclude->count++] = rule;
  if (rule.plain != NULL) {
    enter_into_table(exclude, exclude->count - 1);
  }
  return 0;
}

int
ct_exclude_add(struct ct_exclude *exclude, const char *pattern, struct ct_diag *diag)
{
  return add(exclude, pattern, NULL, diag);
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

/* ---- one module ---- */

static bool
module_matches(const struct rule *rule, const char *path, const char *soname)
{
  if (rule->module == NULL) {
    return true;
  }
  const char *slash = strrchr(path, '/');
  const char *last = slash != NULL ? slash + 1 : path;
  return ct_glob_matches(rule->module, last, strlen(last)) || ct_glob_matches(rule->module, path, strlen(path)) ||
         (soname != NULL && ct_glob_matches(rule->module, soname, strlen(soname)));
}

static void
need_hint(struct ct_exclude *exclude, uint32_t index)
{
  const struct rule *rule = &exclude->rules[index];
  for (uint32_t i = 0; rule->hint != NULL && !exclude->demangle_always && i < exclude->hint_count; i++) {
    const struct rule *other = &exclude->rules[exclude->hints[i]];
    if (other->hint_length == rule->hint_length && memcmp(other->hint, rule->hint, rule->hint_length) == 0) {
      return;
    }
  }
  if (rule->hint == NULL || exclude->hint_count == HINTS_MAX) {
    exclude->demangle_always = true;
  } else {
    exclude->hints[exclude->hint_count++] = index;
  }
}

/* Marks the rules that concern the module, and finds out what has to be looked at. */
static void
activate(struct ct_exclude *exclude, const char *path, const char *soname)
{
  exclude->all = false;
  exclude->any_name = false;
  exclude->leaf_bytes = 0;
  exclude->demangle_always = false;
  exclude->hint_count = 0;
  for (size_t i = 0; i < sizeof(exclude->globs) / sizeof(exclude->globs[0]); i++) {
    exclude->globs[i] = NO_RULE;
  }
  for (uint32_t i = 0; i < exclude->count; i++) {
    struct rule *rule = &exclude->rules[i];
    rule->active = module_matches(rule, path, soname);
    if (!rule->active) {
      continue;
    }
    if (rule->leaf_bytes != 0) {
      exclude->leaf_bytes = rule->leaf_bytes > exclude->leaf_bytes ? rule->leaf_bytes : exclude->leaf_bytes;
      continue;
    }
    exclude->any_name = true;
    exclude->all |= ct_glob_is_all(rule->function);
    if (rule->plain == NULL) {
      int first = ct_glob_first(rule->function);
      rule->next = exclude->globs[first];
      exclude->globs[first] = i;
    }
    if (!rule->raw && !ct_glob_is_all(rule->function)) {
      need_hint(exclude, i);
    }
  }
}

static bool
try_globs(struct ct_exclude *exclude, int first, const char *name, size_t length, bool mangled, bool matches)
{
  for (uint32_t i = exclude->globs[first]; i != NO_RULE; i = exclude->rules[i].next) {
    struct rule *rule = &exclude->rules[i];
    if (!(mangled && rule->raw) && !(matches && rule->matched) && ct_glob_matches(rule->function, name, length)) {
      rule->matched = true;
      matches = true;
    }
  }
  return matches;
}

/* Tries one form of a function's name. Rules that have matched before are tried only while nothing has. */
static bool
try_name(struct ct_exclude *exclude, const char *name, size_t length, bool mangled, bool matches)
{
  for (uint32_t i = exclude->table[hash(name, length) & (exclude->table_size - 1)]; i != NO_RULE;
       i = exclude->rules[i].next) {
    struct rule *rule = &exclude->rules[i];
    if (rule->active && strncmp(rule->plain, name, length) == 0 && rule->plain[length] == '\0') {
      rule->matched = true;
      matches = true;
    }
  }
  if (length != 0) {
    matches = try_globs(exclude, (unsigned char)name[0], name, length, mangled, matches);
  }
  return try_globs(exclude, CT_GLOB_FIRST_ANY, name, length, mangled, matches);
}

/* A name of std:: begins with an abbreviation, perhaps behind what a nested name and its qualifiers begin with. */
static bool
has_std_name(const char *name)
{
  return name[1] == 'Z' && name[2 + strspn(name + 2, "NKVrRO")] == 'S';
}

static bool
needs_demangling(const struct ct_exclude *exclude, const char *name)
{
  for (uint32_t i = 0; i < exclude->hint_count && !exclude->demangle_always; i++) {
    const struct rule *rule = &exclude->rules[exclude->hints[i]];
    bool is_std = rule->hint_length == 1 && rule->hint[0] == 'S';
    if (is_std ? has_std_name(name) : memmem(name, strlen(name), rule->hint, rule->hint_length) != NULL) {
      return true;
    }
  }
  return exclude->demangle_always;
}

/* All forms of one name. */
static bool
try_forms(struct ct_exclude *exclude, const char *name, bool matches)
{
  size_t whole = strlen(name), length = strcspn(name, "@");
  bool mangled = name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
  matches = try_name(exclude, name, whole, mangled, matches);
  if (length != whole && length != 0) {
    matches = try_name(exclude, name, length, mangled, matches);
  }
  if (!mangled) {
    size_t stem = strcspn(name, ".@");
    return stem != 0 && stem != length ? try_name(exclude, name, stem, false, matches) : matches;
  }
  if (!needs_demangling(exclude, name)) {
    return matches;
  }
  char *bare = strndup(name, length);
  char *text = ct_demangle_name(bare);
  free(bare);
  if (text != NULL) {
    size_t full = strlen(text), plain = ct_demangled_name_length(text);
    matches = try_name(exclude, text, full, false, matches);
    matches = plain != full ? try_name(exclude, text, plain, false, matches) : matches;
    free(text);
  }
  return matches;
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
    exclude->rules[i].matched |= exclude->rules[i].active && planned->size <= exclude->rules[i].leaf_bytes;
  }
  return true;
}

static bool
name_matches(struct ct_exclude *exclude, const struct ct_plan *plan, const struct ct_planned *planned, const char *path)
{
  char label[512];
  struct ct_function function = {.address = planned->address};
  const char *name = planned->name != NULL ? planned->name : ct_function_label(label, sizeof(label), path, &function);
  bool matches = try_forms(exclude, name, false);
  const char *alias;
  for (size_t n = 0; (alias = ct_plan_alias(plan, planned, n)) != NULL; n++) {
    matches = try_forms(exclude, alias, matches);
  }
  return matches;
}

static bool
function_matches(struct ct_exclude *exclude, const struct ct_plan *plan, const struct ct_planned *planned,
                 const char *path)
{
  bool matches = leaf_matches(exclude, plan, planned);
  return (exclude->any_name && name_matches(exclude, plan, planned, path)) || matches;
}

/* True when every function matches, and nothing more can be found out by looking at names. */
static bool
is_settled(const struct ct_exclude *exclude)
{
  bool settled = exclude->all;
  for (uint32_t i = 0; settled && i < exclude->count; i++) {
    const struct rule *rule = &exclude->rules[i];
    settled = rule->matched || rule->hot || !rule->active;
  }
  return settled;
}

static void
exclude_one(const struct ct_planned *planned, struct ct_choice *choice, uint8_t *wish)
{
  if (planned->refusal != CT_REFUSED_NOT) {
    return; /* it has no hook anyway */
  }
  *wish = planned->why_enter != 0 || planned->callout != CT_CALLOUT_NONE ? CT_WISH_QUIET : CT_WISH_NONE;
  choice->excluded++;
  choice->quiet += *wish == CT_WISH_QUIET;
}

int
ct_exclude_choose(struct ct_exclude *exclude, const struct ct_plan *plan, const char *module_path,
                  struct ct_choice *choice)
{
  *choice = (struct ct_choice){0};
  if (ct_exclude_is_empty(exclude)) {
    return 0;
  }
  choice->wishes = calloc(plan->count + 1, 1);
  if (choice->wishes == NULL) {
    return CT_ENOMEM;
  }
  activate(exclude, module_path, ct_elf_soname(plan->elf));
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    if (is_settled(exclude) || function_matches(exclude, plan, planned, module_path)) {
      exclude_one(planned, choice, &choice->wishes[i]);
    }
  }
  return 0;
}

void
ct_choice_free(struct ct_choice *choice)
{
  free(choice->wishes);
  *choice = (struct ct_choice){0};
}
