/* SPDX-License-Identifier: MIT */
/* See watch.h. */
#include "itrace/watch.h"

#include "itrace/code_cache.h"
#include "process/process.h"
#include "steps/names.h"
#include "x86/emit.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 4096 };

/* "0x401000", or a function and how far after its begin. */
struct place {
  char *function; /* NULL: the address alone */
  uint64_t address;
};

struct ct_watch {
  struct place from, to;
  bool is_function; /* to its return */
  struct ct_condition condition;
  uint64_t most, stretches; /* most 0: all */
  _Atomic uint64_t *all;    /* stretches of all threads */
  struct ct_steps_names *names;
  size_t maps;     /* that have been looked at */
  uint64_t places; /* where it begins */
  /* Of the stretch that is recorded: */
  bool is_open;
  uint64_t stack, back; /* stack pointer at its begin, and where the function returns to */
};

/* ---- what is asked for ---- */

static const char *const registers[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

static bool
register_of(const char *word, uint8_t *reg)
{
  static const uint8_t arguments[] = {CT_RDI, CT_RSI, CT_RDX, CT_RCX, CT_R8, CT_R9};
  if (strncmp(word, "arg", 3) == 0 && word[3] >= '1' && word[3] <= '6' && word[4] == 0) {
    *reg = arguments[word[3] - '1'];
    return true;
  }
  for (uint8_t i = 0; i < 16; i++) {
    if (strcmp(word, registers[i]) == 0) {
      *reg = i;
      return true;
    }
  }
  return false;
}

int
ct_condition_parse(const char *text, struct ct_condition *out, struct ct_diag *diag)
{
  static const char *const ops[] = {
      [CT_EQUAL] = "==",      [CT_UNEQUAL] = "!=", [CT_LESS] = "<",
      [CT_LESS_EQUAL] = "<=", [CT_MORE] = ">",     [CT_MORE_EQUAL] = ">=",
  };
  char word[8] = "", op[3] = "", number[32] = "", rest;
  *out = (struct ct_condition){.op = CT_ALWAYS};
  if (text == NULL) {
    return 0;
  }
  if (sscanf(text, " %7[a-z0-9] %2[=!<>] %31s %c", word, op, number, &rest) == 3 && register_of(word, &out->reg)) {
    char *end;
    errno = 0;
    for (uint8_t i = CT_EQUAL; i <= CT_MORE_EQUAL; i++) {
      out->op = strcmp(op, ops[i]) == 0 ? i : out->op;
    }
    out->value = number[0] == '-' ? strtoll(number, &end, 0) : (int64_t)strtoull(number, &end, 0);
    if (*end == 0 && errno == 0 && out->op != CT_ALWAYS) {
      return 0;
    }
  }
  return ct_fail(diag, CT_EINVAL, "'%s' is no condition: a register or arg1 to arg6, ==, !=, <, <=, > or >=, a number",
                 text);
}

static bool
holds(const struct ct_condition *condition, const struct user_regs_struct *regs)
{
  const uint64_t values[16] = {regs->rax, regs->rcx, regs->rdx, regs->rbx, regs->rsp, regs->rbp, regs->rsi, regs->rdi,
                               regs->r8,  regs->r9,  regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};
  int64_t value = (int64_t)values[condition->reg];
  switch (condition->op) {
  case CT_EQUAL:
    return value == condition->value;
  case CT_UNEQUAL:
    return value != condition->value;
  case CT_LESS:
    return value < condition->value;
  case CT_LESS_EQUAL:
    return value <= condition->value;
  case CT_MORE:
    return value > condition->value;
  case CT_MORE_EQUAL:
    return value >= condition->value;
  default:
    return true;
  }
}

static int
parse_place(const char *text, struct place *out, struct ct_diag *diag)
{
  char *end;
  const char *plus = strrchr(text, '+');
  *out = (struct place){.function = NULL};
  if (isdigit((unsigned char)text[0])) {
    out->address = strtoull(text, &end, 16);
    return *end == 0 ? 0 : ct_fail(diag, CT_EINVAL, "'%s' is no address: hexadecimal, or FUNCTION+0x12", text);
  }
  size_t length = strlen(text);
  if (plus != NULL && plus != text && isdigit((unsigned char)plus[1])) {
    out->address = strtoull(plus + 1, &end, 16);
    length = *end == 0 ? (size_t)(plus - text) : length;
    out->address = *end == 0 ? out->address : 0;
  }
  out->function = strndup(text, length);
  return out->function != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory");
}

static int
parse_places(struct ct_watch *watch, const char *function, const char *from, const char *to, struct ct_diag *diag)
{
  if (function != NULL) {
    watch->from.function = strdup(function);
    return watch->from.function != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = parse_place(from, &watch->from, diag);
  return code != 0 ? code : parse_place(to, &watch->to, diag);
}

int
ct_watch_create(const char *function, const char *from, const char *to, const char *condition, uint64_t most,
                _Atomic uint64_t *all, struct ct_watch **out, struct ct_diag *diag)
{
  struct ct_watch *watch = calloc(1, sizeof(*watch));
  if (watch == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  watch->most = most;
  watch->all = all;
  watch->is_function = function != NULL;
  int code = ct_condition_parse(condition, &watch->condition, diag);
  if (code == 0) {
    code = parse_places(watch, function, from, to, diag);
  }
  if (code != 0) {
    ct_watch_free(watch);
    return code;
  }
  *out = watch;
  return 0;
}

int
ct_watch_create_call(uint64_t place, _Atomic uint64_t *all, struct ct_watch **out, struct ct_diag *diag)
{
  struct ct_watch *watch = calloc(1, sizeof(*watch));
  if (watch == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  watch->from.address = place;
  watch->is_function = true;
  watch->most = 1;
  watch->all = all;
  *out = watch;
  return 0;
}

void
ct_watch_free(struct ct_watch *watch)
{
  if (watch != NULL) {
    ct_steps_names_free(watch->names);
    free(watch->from.function);
    free(watch->to.function);
    free(watch);
  }
}

/* ---- where it is ---- */

/* The functions that have come with the last map. */
static int
watch_place(struct ct_watch *watch, const struct place *place, struct ct_code_cache *cache, uint64_t *found,
            struct ct_diag *diag)
{
  struct ct_steps_range *ranges = NULL;
  size_t count = 0;
  if (place->function == NULL) {
    *found += watch->maps == 0;
    return ct_code_cache_watch(cache, place->address);
  }
  int code = ct_steps_names_find(watch->names, place->function, watch->maps, &ranges, &count, diag);
  for (size_t i = 0; i < count && code == 0; i++) {
    if (*found == PLACES_MAX) {
      code = ct_fail(diag, CT_EINVAL, "'%s' matches more than %d functions", place->function, PLACES_MAX);
      break;
    }
    code = ct_code_cache_watch(cache, ranges[i].start + place->address);
    (*found)++;
  }
  free(ranges);
  return code;
}

int
ct_watch_look(struct ct_watch *watch, struct ct_process *process, struct ct_code_cache *without,
              struct ct_code_cache *with, struct ct_diag *diag)
{
  char path[64], *text = NULL;
  size_t size = 0;
  uint64_t ends = 0;
  if (watch->is_function && watch->from.function == NULL) { /* a call's begin is known */
    return watch->maps++ == 0 ? watch_place(watch, &watch->from, without, &watch->places, diag) : 0;
  }
  ct_code_cache_watch_if(without, &watch->condition);
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)process->pid);
  FILE *file = fopen(path, "re");
  if (file == NULL || getdelim(&text, &size, 0, file) <= 0) {
    free(text);
    if (file != NULL) {
      fclose(file);
    }
    return 0; /* it has ended */
  }
  fclose(file);
  watch->names = watch->names != NULL ? watch->names : ct_steps_names_create(NULL);
  struct ct_steps_modules modules = {.first_step = watch->maps, .text = text};
  int code = watch->names == NULL || ct_steps_names_add(watch->names, &modules) != 0
                 ? ct_fail(diag, CT_ENOMEM, "out of memory")
                 : 0;
  free(text);
  code = code != 0 ? code : watch_place(watch, &watch->from, without, &watch->places, diag);
  if (code == 0 && !watch->is_function) {
    code = watch_place(watch, &watch->to, with, &ends, diag);
  }
  watch->maps++;
  return code;
}

void
ct_watch_forget(struct ct_watch *watch)
{
  ct_steps_names_free(watch->names);
  watch->names = NULL;
  watch->maps = 0;
  watch->places = 0;
  watch->is_open = false;
}

/* ---- what it does ---- */

/* On the same stack, and the frame is gone. */
static bool
is_above(const struct ct_watch *watch, const struct user_regs_struct *regs)
{
  enum { STACK_NEAR = 1 << 16 }; /* further away is another stack */
  return regs->rsp > watch->stack && regs->rsp - watch->stack < STACK_NEAR;
}

enum ct_watch_does
ct_watch_arrived(struct ct_watch *watch, struct ct_process *process, const struct user_regs_struct *regs,
                 struct ct_code_cache *with, bool records)
{
  if (records) {
    bool ends = !watch->is_function || is_above(watch, regs);
    watch->is_open = !ends;
    return ends ? CT_WATCH_END : CT_WATCH_PASS;
  }
  if (ct_watch_is_done(watch) || !holds(&watch->condition, regs)) {
    return CT_WATCH_PASS;
  }
  watch->stack = regs->rsp;
  if (watch->is_function && (ct_process_read(process, regs->rsp, &watch->back, sizeof(watch->back)) != 0 ||
                             ct_code_cache_watch(with, watch->back) != 0)) {
    return CT_WATCH_PASS;
  }
  if (atomic_fetch_add_explicit(watch->all, 1, memory_order_relaxed) >= watch->most && watch->most != 0) {
    return CT_WATCH_PASS; /* another thread has come first */
  }
  watch->is_open = true;
  watch->stretches++;
  return CT_WATCH_BEGIN;
}

bool
ct_watch_has_left(struct ct_watch *watch, const struct ct_process *process, const struct user_regs_struct *regs)
{
  uint64_t back = watch->back;
  bool is_left = is_above(watch, regs);
  if (regs->rsp == watch->stack && ct_process_read(process, regs->rsp, &back, sizeof(back)) == 0) {
    is_left |= back != watch->back; /* an unwinder is about to return to the caller, elsewhere */
  }
  watch->is_open = !(watch->is_function && is_left);
  return !watch->is_open;
}

bool
ct_watch_is_done(const struct ct_watch *watch)
{
  return watch->most != 0 && atomic_load_explicit(watch->all, memory_order_relaxed) >= watch->most && !watch->is_open;
}

uint64_t
ct_watch_stretches(const struct ct_watch *watch)
{
  return watch->stretches;
}

uint64_t
ct_watch_places(const struct ct_watch *watch)
{
  return watch->places;
}
