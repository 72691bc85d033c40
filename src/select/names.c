/* SPDX-License-Identifier: MIT */
/* Rules about names; see names.h. */
#include "select/names.h"

#include "base/demangle.h"
#include "base/glob.h"
#include "base/scopes.h"
#include "target/elf.h"
#include "target/functions.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define NO_RULE   UINT32_MAX
#define HINTS_MAX 16 /* more different ones: demangle everything */

struct rule {
  bool used;
  char *text;             /* of the function */
  struct ct_glob *module; /* NULL: any */
  struct ct_glob *function;
  const char *plain; /* the function's name when there is no wildcard */
  const char *hint;  /* an identifier that every mangled name of what matches contains; NULL when none is sure */
  size_t hint_length;
  uint32_t next;  /* plain: in the same entry of the table; else: active, with the same first character */
  uint32_t stamp; /* of the last function it matched */
  bool raw;       /* only for names that are not mangled */
  bool mangled;   /* also for names that are */
  bool active, reconciled;
};

struct ct_names {
  enum ct_names_style style;
  struct rule *rules;
  uint32_t count, capacity; /* free ones included ... */
  uint32_t holes;           /* ... and how many there are of them */
  uint32_t *table;          /* first rule with that hash of its plain name */
  uint32_t table_size;
  uint32_t *hits;
  uint32_t hit_count, stamp;
  /* of the module being looked at */
  const struct ct_plan *plan;
  const char *path;
  bool all;             /* an active rule matches every function */
  bool any_name;        /* an active rule is about names */
  uint32_t globs[257];  /* first active rule with wildcards that begins with this character; 256: with a wildcard */
  bool demangle_always; /* an active rule needs every demangled name ... */
  uint32_t hints[HINTS_MAX]; /* ... or only of names that contain what one of these rules has as hint */
  uint32_t hint_count;
  /* of the name being looked at, with levels */
  struct ct_scope_marks marks;
  bool has_marks;
};

struct ct_names *
ct_names_create(enum ct_names_style style)
{
  struct ct_names *names = calloc(1, sizeof(*names));
  if (names != NULL) {
    names->style = style;
  }
  return names;
}

static void
clear(struct rule *rule)
{
  free(rule->text);
  ct_glob_free(rule->module);
  ct_glob_free(rule->function);
  *rule = (struct rule){.used = false};
}

void
ct_names_free(struct ct_names *names)
{
  if (names == NULL) {
    return;
  }
  for (uint32_t i = 0; i < names->count; i++) {
    clear(&names->rules[i]);
  }
  free(names->rules);
  free(names->table);
  free(names->hits);
  free(names->marks.bytes);
  free(names);
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

static uint32_t *
entry_of(struct ct_names *names, const char *name, size_t length)
{
  return &names->table[hash(name, length) & (names->table_size - 1)];
}

static void
enter_into_table(struct ct_names *names, uint32_t index)
{
  struct rule *rule = &names->rules[index];
  uint32_t *entry = entry_of(names, rule->plain, strlen(rule->plain));
  rule->next = *entry;
  *entry = index;
}

/* Room for one more rule; the table has at least twice as many entries as there are rules. */
static int
grow(struct ct_names *names)
{
  if (names->count < names->capacity) {
    return 0;
  }
  uint32_t capacity = names->capacity == 0 ? 64 : names->capacity * 2;
  struct rule *rules = reallocarray(names->rules, capacity, sizeof(*rules));
  if (rules == NULL) {
    return CT_ENOMEM;
  }
  names->rules = rules;
  uint32_t *hits = reallocarray(names->hits, capacity, sizeof(*hits));
  if (hits == NULL) {
    return CT_ENOMEM;
  }
  names->hits = hits;
  uint32_t *table = reallocarray(NULL, 2 * (size_t)capacity, sizeof(*table));
  if (table == NULL) {
    return CT_ENOMEM;
  }
  free(names->table);
  names->table = table;
  names->capacity = capacity;
  names->table_size = 2 * capacity;
  for (uint32_t i = 0; i < names->table_size; i++) {
    table[i] = NO_RULE;
  }
  for (uint32_t i = 0; i < names->count; i++) {
    if (rules[i].plain != NULL) {
      enter_into_table(names, i);
    }
  }
  return 0;
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
find_hint(struct rule *rule)
{
  const char *text = rule->text + (rule->text[0] == '<'); /* <core::fmt::Formatter as ...> */
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
    end = strstr(text, "operator") == NULL && text == rule->text ? end : 0;
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

static bool
looks_mangled(const char *name)
{
  return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

static int
compile_function(struct ct_names *names, const char *function, struct rule *rule, struct ct_diag *diag)
{
  bool all = function[0] == '\0';
  const char *text = !all ? function : names->style == CT_NAMES_SCOPES ? "**" : "*";
  int code = names->style == CT_NAMES_SCOPES ? ct_glob_compile_scopes(text, strlen(text), &rule->function, diag)
                                             : ct_glob_compile(text, strlen(text), &rule->function, diag);
  rule->text = NULL;
  if (code != 0) {
    return code;
  }
  rule->text = strdup(text);
  if (rule->text == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  rule->plain = ct_glob_plain(rule->function);
  rule->mangled = names->style == CT_NAMES_FREE || rule->plain != NULL || looks_mangled(text);
  find_hint(rule);
  return 0;
}

int
ct_names_add(struct ct_names *names, const char *pattern, const char *function, uint32_t *number, struct ct_diag *diag)
{
  if (grow(names) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  const char *separator = ct_glob_separator(pattern);
  if (pattern[0] == '\0') {
    return ct_fail(diag, CT_EINVAL, "it is empty");
  }
  if (separator == pattern) {
    return ct_fail(diag, CT_EINVAL, "no module before the '!' (all modules: leave the '!' out)");
  }
  struct rule rule = {.used = true, .next = NO_RULE, .stamp = names->stamp};
  int code = separator != NULL ? ct_glob_compile(pattern, (size_t)(separator - pattern), &rule.module, diag) : 0;
  if (code == 0 && function != NULL) {
    code = compile_function(names, function, &rule, diag);
  }
  if (code != 0) {
    clear(&rule);
    return code;
  }
  uint32_t index = names->holes != 0 ? 0 : names->count;
  while (index < names->count && names->rules[index].used) {
    index++;
  }
  names->holes -= index < names->count;
  names->count += index == names->count;
  names->rules[index] = rule;
  if (rule.plain != NULL) {
    enter_into_table(names, index);
  }
  *number = index;
  return 0;
}

void
ct_names_remove(struct ct_names *names, uint32_t number)
{
  struct rule *rule = &names->rules[number];
  if (rule->plain != NULL) {
    uint32_t *link = entry_of(names, rule->plain, strlen(rule->plain));
    while (*link != number) {
      link = &names->rules[*link].next;
    }
    *link = rule->next;
  }
  clear(rule);
  names->holes++;
  while (names->count > 0 && !names->rules[names->count - 1].used) {
    names->count--;
    names->holes--;
  }
}

void
ct_names_set_raw(struct ct_names *names, uint32_t rule)
{
  names->rules[rule].raw = true;
}

const char *
ct_names_plain(const struct ct_names *names, uint32_t rule)
{
  return names->rules[rule].plain;
}

bool
ct_names_is_deep(const struct ct_names *names, uint32_t rule)
{
  return names->rules[rule].function != NULL && ct_glob_is_deep(names->rules[rule].function);
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
need_hint(struct ct_names *names, uint32_t index)
{
  const struct rule *rule = &names->rules[index];
  for (uint32_t i = 0; rule->hint != NULL && !names->demangle_always && i < names->hint_count; i++) {
    const struct rule *other = &names->rules[names->hints[i]];
    if (other->hint_length == rule->hint_length && memcmp(other->hint, rule->hint, rule->hint_length) == 0) {
      return;
    }
  }
  if (rule->hint == NULL || names->hint_count == HINTS_MAX) {
    names->demangle_always = true;
  } else {
    names->hints[names->hint_count++] = index;
  }
}

static void
activate(struct ct_names *names, uint32_t index)
{
  struct rule *rule = &names->rules[index];
  bool is_all = ct_glob_is_all(rule->function);
  names->any_name = true;
  names->all |= is_all;
  if (rule->plain == NULL) {
    int first = ct_glob_first(rule->function);
    rule->next = names->globs[first];
    names->globs[first] = index;
  }
  if (!rule->raw && !is_all) {
    need_hint(names, index);
  }
}

void
ct_names_begin(struct ct_names *names, const struct ct_plan *plan, const char *path, const bool *skip)
{
  const char *soname = ct_elf_soname(plan->elf);
  names->plan = plan;
  names->path = path;
  names->all = false;
  names->any_name = false;
  names->demangle_always = false;
  names->hint_count = 0;
  for (size_t i = 0; i < sizeof(names->globs) / sizeof(names->globs[0]); i++) {
    names->globs[i] = NO_RULE;
  }
  for (uint32_t i = 0; i < names->count; i++) {
    struct rule *rule = &names->rules[i];
    rule->active = rule->used && (skip == NULL || !skip[i]) && module_matches(rule, path, soname);
    if (rule->active && rule->function != NULL) {
      activate(names, i);
    }
  }
}

bool
ct_names_is_active(const struct ct_names *names, uint32_t rule)
{
  return names->rules[rule].active;
}

bool
ct_names_has_active(const struct ct_names *names)
{
  return names->any_name;
}

bool
ct_names_has_all(const struct ct_names *names)
{
  return names->all;
}

void
ct_names_reconcile(struct ct_names *names, uint32_t rule)
{
  names->rules[rule].reconciled = true;
}

static void
hit(struct ct_names *names, uint32_t index)
{
  if (names->rules[index].stamp != names->stamp) {
    names->rules[index].stamp = names->stamp;
    names->hits[names->hit_count++] = index;
  }
}

static bool
glob_matches(struct ct_names *names, const struct rule *rule, const char *name, size_t length)
{
  if (names->style == CT_NAMES_FREE) {
    return ct_glob_matches(rule->function, name, length);
  }
  if (ct_glob_is_all(rule->function)) {
    return true;
  }
  if (!names->has_marks) {
    if (!ct_scope_marks_make(&names->marks, name, length)) {
      return false;
    }
    names->has_marks = true;
  }
  return ct_glob_matches_scopes(rule->function, name, length, names->marks.bytes);
}

static void
try_globs(struct ct_names *names, int first, const char *name, size_t length, bool mangled)
{
  for (uint32_t i = names->globs[first]; i != NO_RULE; i = names->rules[i].next) {
    const struct rule *rule = &names->rules[i];
    bool fits = !mangled || (!rule->raw && (rule->mangled || ct_glob_is_all(rule->function)));
    bool known = rule->stamp == names->stamp || (rule->reconciled && names->hit_count != 0);
    if (fits && !known && glob_matches(names, rule, name, length)) {
      hit(names, i);
    }
  }
}

/* Tries one form of a function's name. */
static void
try_name(struct ct_names *names, const char *name, size_t length, bool mangled)
{
  names->has_marks = false;
  for (uint32_t i = *entry_of(names, name, length); i != NO_RULE; i = names->rules[i].next) {
    const struct rule *rule = &names->rules[i];
    if (rule->active && strncmp(rule->plain, name, length) == 0 && rule->plain[length] == '\0') {
      hit(names, i);
    }
  }
  if (length != 0) {
    try_globs(names, (unsigned char)name[0], name, length, mangled);
  }
  try_globs(names, CT_GLOB_FIRST_ANY, name, length, mangled);
}

/* A name of std:: begins with an abbreviation, perhaps after what a nested name and its qualifiers begin with. */
static bool
has_std_name(const char *name)
{
  return name[1] == 'Z' && name[2 + strspn(name + 2, "NKVrRO")] == 'S';
}

static bool
needs_demangling(const struct ct_names *names, const char *name)
{
  for (uint32_t i = 0; i < names->hint_count && !names->demangle_always; i++) {
    const struct rule *rule = &names->rules[names->hints[i]];
    bool is_std = rule->hint_length == 1 && rule->hint[0] == 'S';
    if (is_std ? has_std_name(name) : memmem(name, strlen(name), rule->hint, rule->hint_length) != NULL) {
      return true;
    }
  }
  return names->demangle_always;
}

static void
try_demangled(struct ct_names *names, const char *name, size_t length)
{
  char *bare = strndup(name, length);
  char *text = ct_demangle_name(bare);
  if (text != NULL) {
    size_t full = strlen(text), plain = ct_demangled_name_length(text);
    try_name(names, text, full, false);
    if (plain != full) {
      try_name(names, text, plain, false);
    }
  } else if (bare != NULL) { /* not mangled after all */
    try_name(names, bare, length, false);
  }
  free(text);
  free(bare);
}

/* All forms of one name. */
static void
try_forms(struct ct_names *names, const char *name)
{
  size_t whole = strlen(name), length = strcspn(name, "@");
  bool mangled = looks_mangled(name);
  try_name(names, name, whole, mangled);
  if (length != whole && length != 0) {
    try_name(names, name, length, mangled);
  }
  if (mangled) {
    if (needs_demangling(names, name)) {
      try_demangled(names, name, length);
    }
    return;
  }
  size_t stem = strcspn(name, ".@");
  if (stem != 0 && stem != length) {
    try_name(names, name, stem, false);
  }
}

size_t
ct_names_match(struct ct_names *names, const struct ct_planned *planned, const uint32_t **rules)
{
  char label[512];
  const char *alias;
  names->hit_count = 0;
  *rules = names->hits;
  if (!names->any_name) {
    return 0;
  }
  if (++names->stamp == 0) { /* after 2^32 functions */
    for (uint32_t i = 0; i < names->count; i++) {
      names->rules[i].stamp = 0;
    }
    names->stamp = 1;
  }
  struct ct_function function = {.address = planned->address};
  try_forms(names,
            planned->name != NULL ? planned->name : ct_function_label(label, sizeof(label), names->path, &function));
  for (size_t n = 0; (alias = ct_plan_alias(names->plan, planned, n)) != NULL; n++) {
    try_forms(names, alias);
  }
  return names->hit_count;
}
