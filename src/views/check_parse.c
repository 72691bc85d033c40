/* SPDX-License-Identifier: MIT */
/*
 * The parser of checks. What is known of a line's form is at its right end: a number with its unit, an operator, a
 * field, a dot. So it is cut off from there, and all that is left is the pattern, whatever characters that has.
 *
 *   Text::operator<.p99 <= 1.5ms
 *   pattern--------|fld|op|num|unit
 */
#include "views/check.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLES "; examples: 'f.p99 < 1ms', 'f.calls <= 3', 'no losses', 'no crash', 'no open f', 'exit == 0'"

enum { LINE_MAX_BYTES = 4096 };

static const char *const field_names[] = {
    [CT_FIELD_CALLS] = "calls", [CT_FIELD_OPEN] = "open", [CT_FIELD_TOTAL] = "total", [CT_FIELD_SELF] = "self",
    [CT_FIELD_MIN] = "min",     [CT_FIELD_AVG] = "avg",   [CT_FIELD_P50] = "p50",     [CT_FIELD_P95] = "p95",
    [CT_FIELD_P99] = "p99",     [CT_FIELD_MAX] = "max",
};

/* A piece of the line; parts are cut off its end. */
struct rest {
  const char *text;
  size_t length;
};

static void
trim(struct rest *rest)
{
  while (rest->length != 0 && isspace((unsigned char)rest->text[rest->length - 1])) {
    rest->length--;
  }
  while (rest->length != 0 && isspace((unsigned char)rest->text[0])) {
    rest->text++;
    rest->length--;
  }
}

static bool
is_word(const struct rest *rest, const char *word)
{
  return rest->length == strlen(word) && memcmp(rest->text, word, rest->length) == 0;
}

/* Cuts off the longest end that is made of what `belongs` says. */
static struct rest
cut_end(struct rest *rest, bool (*belongs)(unsigned char c))
{
  size_t length = rest->length;
  while (length != 0 && belongs((unsigned char)rest->text[length - 1])) {
    length--;
  }
  struct rest end = {rest->text + length, rest->length - length};
  rest->length = length;
  return end;
}

static bool
in_unit(unsigned char c)
{
  return isalpha(c) != 0;
}

static bool
in_number(unsigned char c)
{
  return isdigit(c) != 0 || c == '.';
}

static bool
in_field(unsigned char c)
{
  return isalnum(c) != 0 || c == '_';
}

static bool
take_number(struct rest *rest, double *number, struct rest *unit)
{
  char text[32], *end;
  *unit = cut_end(rest, in_unit);
  trim(rest);
  struct rest digits = cut_end(rest, in_number);
  if (digits.length == 0 || digits.length >= sizeof(text) || digits.text[0] == '.') {
    return false;
  }
  memcpy(text, digits.text, digits.length);
  text[digits.length] = '\0';
  *number = strtod(text, &end);
  return *end == '\0' && isfinite(*number);
}

static bool
take_op(struct rest *rest, enum ct_check_op *op)
{
  static const struct {
    const char *text;
    enum ct_check_op op;
  } ops[] = {{"<=", CT_CHECK_LESS_EQUAL}, {">=", CT_CHECK_MORE_EQUAL}, {"==", CT_CHECK_EQUAL},
             {"!=", CT_CHECK_NOT_EQUAL},  {"<", CT_CHECK_LESS},        {">", CT_CHECK_MORE}};
  trim(rest);
  for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
    size_t length = strlen(ops[i].text);
    if (rest->length >= length && memcmp(rest->text + rest->length - length, ops[i].text, length) == 0) {
      rest->length -= length;
      *op = ops[i].op;
      return true;
    }
  }
  return false;
}

static bool
apply_unit(const struct rest *unit, bool is_count, double *number)
{
  static const struct {
    const char *unit;
    double factor;
    bool of_counts;
  } units[] = {{"ns", 1, false}, {"us", 1e3, false}, {"ms", 1e6, false}, {"s", 1e9, false},
               {"", 1, true},    {"k", 1e3, true},   {"M", 1e6, true},   {"G", 1e9, true}};
  if (!is_count && unit->length == 0 && *number == 0) {
    return true;
  }
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
    if (units[i].of_counts == is_count && is_word(unit, units[i].unit)) {
      *number *= units[i].factor;
      return true;
    }
  }
  return false;
}

static int
keep_pattern(struct ct_check *check, const struct rest *pattern, struct ct_diag *diag)
{
  if (pattern->length == 0) {
    return ct_fail(diag, CT_EINVAL, "no function is named" EXAMPLES);
  }
  check->pattern = strndup(pattern->text, pattern->length);
  return check->pattern != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the check");
}

/* "no losses", "no crash", "no open F". */
static int
parse_no(struct rest what, struct ct_check *check, struct ct_diag *diag)
{
  trim(&what);
  if (is_word(&what, "losses")) {
    check->kind = CT_CHECK_NO_LOSSES;
    return 0;
  }
  if (is_word(&what, "crash")) {
    check->kind = CT_CHECK_NO_CRASH;
    return 0;
  }
  if (what.length < 4 || strncmp(what.text, "open", 4) != 0 ||
      (what.length > 4 && !isspace((unsigned char)what.text[4]))) {
    return ct_fail(diag, CT_EINVAL, "'no' is followed by losses, crash or open F" EXAMPLES);
  }
  what.text += 4;
  what.length -= 4;
  trim(&what);
  check->kind = CT_CHECK_FIELD;
  check->field = CT_FIELD_OPEN;
  check->op = CT_CHECK_EQUAL;
  return keep_pattern(check, &what, diag);
}

/* What stands before the operator: "F.field", or "exit". */
static int
parse_subject(struct rest *rest, struct ct_check *check, struct ct_diag *diag)
{
  trim(rest);
  if (is_word(rest, "exit")) {
    check->kind = CT_CHECK_EXIT;
    return 0;
  }
  struct rest field = cut_end(rest, in_field);
  if (rest->length == 0 || rest->text[rest->length - 1] != '.') {
    return ct_fail(diag, CT_EINVAL, "no field is named before the operator" EXAMPLES);
  }
  rest->length--;
  trim(rest);
  for (size_t i = 0; i < sizeof(field_names) / sizeof(field_names[0]); i++) {
    if (is_word(&field, field_names[i])) {
      check->kind = CT_CHECK_FIELD;
      check->field = (enum ct_check_field)i;
      return keep_pattern(check, rest, diag);
    }
  }
  return ct_fail(diag, CT_EINVAL, "'%.*s' is no field: calls, open, total, self, min, avg, p50, p95, p99 or max",
                 (int)(field.length < 50 ? field.length : 50), field.text);
}

static int
parse_comparison(struct rest rest, struct ct_check *check, struct ct_diag *diag)
{
  struct rest unit;
  if (!take_number(&rest, &check->number, &unit)) {
    return ct_fail(diag, CT_EINVAL, "it does not end in a number with its unit" EXAMPLES);
  }
  if (!take_op(&rest, &check->op)) {
    return ct_fail(diag, CT_EINVAL, "no operator before the number: < <= > >= == !=" EXAMPLES);
  }
  int code = parse_subject(&rest, check, diag);
  if (code != 0) {
    return code;
  }
  if (!apply_unit(&unit, ct_check_is_count(check), &check->number)) {
    return ct_check_is_count(check) ? ct_fail(diag, CT_EINVAL, "'%.*s' is no unit of a count: none, or k, M, G",
                                              (int)(unit.length < 50 ? unit.length : 50), unit.text)
                                    : ct_fail(diag, CT_EINVAL, "a time needs a unit: ns, us, ms or s" EXAMPLES);
  }
  return 0;
}

int
ct_check_parse(const char *text, struct ct_check *check, struct ct_diag *diag)
{
  struct rest rest = {text, strlen(text)};
  struct ct_check parsed = {.kind = CT_CHECK_FIELD};
  trim(&rest);
  if (rest.length > LINE_MAX_BYTES) {
    return ct_fail(diag, CT_EINVAL, "it is too long");
  }
  if (rest.length == 0) {
    return ct_fail(diag, CT_EINVAL, "it is empty" EXAMPLES);
  }
  parsed.text = strndup(rest.text, rest.length);
  if (parsed.text == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the check");
  }
  bool is_no = rest.length > 3 && strncmp(rest.text, "no", 2) == 0 && isspace((unsigned char)rest.text[2]);
  int code = is_no ? parse_no((struct rest){rest.text + 2, rest.length - 2}, &parsed, diag)
                   : parse_comparison(rest, &parsed, diag);
  if (code != 0) {
    ct_check_destroy(&parsed);
    return code;
  }
  *check = parsed;
  return 0;
}

void
ct_check_destroy(struct ct_check *check)
{
  free(check->pattern);
  free(check->text);
  *check = (struct ct_check){0};
}

/* ---- answers ---- */

static bool
compare(enum ct_check_op op, double value, double number)
{
  switch (op) {
  case CT_CHECK_LESS:
    return value < number;
  case CT_CHECK_LESS_EQUAL:
    return value <= number;
  case CT_CHECK_MORE:
    return value > number;
  case CT_CHECK_MORE_EQUAL:
    return value >= number;
  case CT_CHECK_EQUAL:
    return value == number;
  default:
    return value != number;
  }
}

/*
 * A value that is at least so much can only grow, and one that is at most so much only shrink: the answer stands where
 * it is the same for the bound and for all that is beyond.
 */
enum ct_check_result
ct_check_answer(const struct ct_check *check, double value, enum ct_check_bound bound)
{
  bool holds = compare(check->op, value, check->number);
  bool at_least = bound == CT_BOUND_AT_LEAST;
  if (bound == CT_BOUND_EXACT) {
    return holds ? CT_CHECK_HOLDS : CT_CHECK_FAILS;
  }
  if (bound == CT_BOUND_NONE) {
    return CT_CHECK_UNANSWERED;
  }
  switch (check->op) {
  case CT_CHECK_LESS:
  case CT_CHECK_LESS_EQUAL:
    return holds != at_least ? holds ? CT_CHECK_HOLDS : CT_CHECK_FAILS : CT_CHECK_UNANSWERED;
  case CT_CHECK_MORE:
  case CT_CHECK_MORE_EQUAL:
    return holds == at_least ? holds ? CT_CHECK_HOLDS : CT_CHECK_FAILS : CT_CHECK_UNANSWERED;
  default: {
    bool is_beyond = at_least ? value > check->number : value < check->number;
    return !is_beyond ? CT_CHECK_UNANSWERED : check->op == CT_CHECK_EQUAL ? CT_CHECK_FAILS : CT_CHECK_HOLDS;
  }
  }
}

double
ct_check_badness(const struct ct_check *check, double value)
{
  switch (check->op) {
  case CT_CHECK_LESS:
  case CT_CHECK_LESS_EQUAL:
    return value - check->number;
  case CT_CHECK_MORE:
  case CT_CHECK_MORE_EQUAL:
    return check->number - value;
  case CT_CHECK_EQUAL:
    return fabs(value - check->number);
  default:
    return -fabs(value - check->number);
  }
}

/* ---- lists ---- */

struct ct_checks *
ct_checks_create(void)
{
  return calloc(1, sizeof(struct ct_checks));
}

void
ct_checks_free(struct ct_checks *checks)
{
  for (size_t i = 0; checks != NULL && i < checks->count; i++) {
    ct_check_destroy(&checks->list[i]);
  }
  if (checks != NULL) {
    free(checks->list);
  }
  free(checks);
}

int
ct_checks_add(struct ct_checks *checks, const char *line, struct ct_diag *diag)
{
  struct ct_check check;
  struct ct_diag why = {""};
  int code = ct_check_parse(line, &check, &why);
  if (code != 0) {
    return ct_fail(diag, code, "check '%.150s': %s", line, why.text);
  }
  struct ct_check *list = reallocarray(checks->list, checks->count + 1, sizeof(*list));
  if (list == NULL) {
    ct_check_destroy(&check);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the checks");
  }
  checks->list = list;
  checks->list[checks->count++] = check;
  return 0;
}

/* Cuts a comment off the line; false when nothing is left. */
static bool
strip_comment(char *line)
{
  for (char *at = line; *at != '\0'; at++) {
    if (*at == '#' && (at == line || isspace((unsigned char)at[-1]))) {
      *at = '\0';
      break;
    }
  }
  return line[strspn(line, " \t\r\n\f\v")] != '\0';
}

int
ct_checks_add_file(struct ct_checks *checks, const char *path, struct ct_diag *diag)
{
  FILE *file = fopen(path, "re");
  struct ct_diag why = {""};
  char *line = NULL;
  size_t size = 0, number = 0;
  int code = 0;
  if (file == NULL) {
    return ct_fail(diag, errno == ENOENT ? CT_ENOENT : CT_EIO, "%.200s: %s", path, strerror(errno));
  }
  while (code == 0 && getline(&line, &size, file) >= 0) {
    number++;
    if (strip_comment(line)) {
      line[strcspn(line, "\r\n")] = '\0';
      code = ct_checks_add(checks, line, &why);
    }
  }
  if (code != 0) {
    ct_fail(diag, code, "%.150s, line %zu: %s", path, number, why.text);
  } else if (ferror(file)) {
    code = ct_fail(diag, CT_EIO, "%.200s: %s", path, strerror(errno));
  }
  free(line);
  fclose(file);
  return code;
}

size_t
ct_checks_count(const struct ct_checks *checks)
{
  return checks->count;
}
