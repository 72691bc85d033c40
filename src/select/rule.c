/* SPDX-License-Identifier: MIT */
/*
 * The parser of rules. A text is cut into an action, after the last ": ", and a condition; the condition into its
 * words. Where the last word but one is an operator the rest before it is a pattern, perhaps after off-cpu or rate, or
 * before returns; else the first word says what it is. So functions may be called signal or call, and be C++ operators.
 */
#include "select/rule.h"

#include "base/error.h"
#include "select/select.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLES                                                                                                       \
  "; examples: 'call F', 'F > 1ms', 'F returns < 0', 'off-cpu F > 10ms', 'rate F > 1000/s', 'signal SIGUSR1', "        \
  "'crash', 'every 10s', 'F > 1ms: dump'"
#define WORDS_MAX 64
#define RATE_MAX  1000000000000ll

struct words {
  char *list[WORDS_MAX];
  size_t count;
};

static bool
is(const char *word, const char *other)
{
  return strcmp(word, other) == 0;
}

static bool
find_op(const char *word, enum ct_rule_op *op)
{
  static const char *const names[] = {"<", "<=", ">", ">=", "==", "!="};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (is(word, names[i])) {
      *op = (enum ct_rule_op)i;
      return true;
    }
  }
  return false;
}

static bool
parse_time(const char *word, uint64_t *ns)
{
  static const struct {
    const char *unit;
    double ns;
  } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  char *end;
  if (!isdigit((unsigned char)word[0]) || word[1] == 'x' || word[1] == 'X') { /* strtod would take 0x10ms */
    return false;
  }
  double number = strtod(word, &end);
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
    if (is(end, units[i].unit)) {
      number *= units[i].ns;
      *ns = number >= 1 && number < 1e18 ? (uint64_t)number : 0;
      return *ns != 0;
    }
  }
  return false;
}

/* Decimal or 0x; also such as 0xffffffffffffffff, which is -1. */
static bool
parse_number(const char *word, int64_t *number)
{
  char *end;
  if (!isdigit((unsigned char)word[word[0] == '-' ? 1 : 0])) {
    return false;
  }
  errno = 0;
  bool is_hex = strncmp(word, "0x", 2) == 0;
  *number = is_hex ? (int64_t)strtoull(word, &end, 16) : strtoll(word, &end, 10);
  return *end == '\0' && errno == 0;
}

static int
parse_signal(const char *word)
{
  char *end;
  for (int number = 1; number < NSIG; number++) {
    const char *name = sigabbrev_np(number);
    if (name != NULL && is(strncmp(word, "SIG", 3) == 0 ? word + 3 : word, name)) {
      return number;
    }
  }
  long number = strtol(word, &end, 10);
  return *end == '\0' && number >= 1 && number <= SIGRTMAX ? (int)number : 0;
}

/* Words from first on, count of them, with a blank between. What they were cut out of has room for that. */
static void
join(char *to, const struct words *words, size_t first, size_t count)
{
  to[0] = '\0';
  for (size_t i = first; i < first + count; i++) {
    strcat(to, words->list[i]);
    strcat(to, i + 1 < first + count ? " " : "");
  }
}

static int
check_pattern(const char *pattern, struct ct_diag *diag)
{
  struct ct_diag why = {""};
  struct ct_selection *selection = ct_selection_create();
  int code = selection != NULL ? ct_selection_add(selection, pattern, CT_SELECT_FULL, &why) : CT_ENOMEM;
  ct_selection_free(selection);
  return code == 0 ? 0 : ct_fail(diag, code, "pattern '%.200s': %s", pattern, why.text);
}

static int
set_pattern(struct ct_rule *rule, const struct words *words, size_t first, size_t count, struct ct_diag *diag)
{
  if (count == 0) {
    return ct_fail(diag, CT_EINVAL, "no function is named" EXAMPLES);
  }
  join(rule->pattern, words, first, count);
  return check_pattern(rule->pattern, diag);
}

/* "F > 1ms", "F returns < 0", "off-cpu F > 10ms", "rate F > 1000/s". */
static int
parse_comparison(const struct words *words, struct ct_rule *rule, struct ct_diag *diag)
{
  const char *last = words->list[words->count - 1];
  size_t first = 0, count = words->count - 2;
  bool is_more = rule->op == CT_OP_MORE || rule->op == CT_OP_MORE_EQUAL;
  if (count > 1 && is(words->list[count - 1], "returns")) {
    rule->kind = CT_RULE_RETURNS;
    return !parse_number(last, &rule->number)
               ? ct_fail(diag, CT_EINVAL, "'%.50s' is no whole number; example: 'F returns < 0'", last)
               : set_pattern(rule, words, 0, count - 1, diag);
  }
  if (count > 1 && (is(words->list[0], "call") || is(words->list[0], "every") || is(words->list[0], "signal"))) {
    return ct_fail(diag, CT_EINVAL, "'%s' takes no operator" EXAMPLES, words->list[0]);
  }
  if (count > 1 && is(words->list[0], "rate")) {
    char text[32] = "";
    size_t length = strlen(last);
    bool is_rate = length > 2 && length < sizeof(text) && is(last + length - 2, "/s");
    memcpy(text, last, is_rate ? length - 2 : 0);
    rule->kind = CT_RULE_RATE;
    return !is_rate || !parse_number(text, &rule->number) || rule->number < 0 || rule->number > RATE_MAX
               ? ct_fail(diag, CT_EINVAL, "'%.50s' is no rate; example: 'rate F > 1000/s'", last)
           : !is_more ? ct_fail(diag, CT_EINVAL, "a rate is compared with > or >=; example: 'rate F > 1000/s'")
                      : set_pattern(rule, words, 1, count - 1, diag);
  }
  bool is_off = count > 1 && is(words->list[0], "off-cpu");
  rule->kind = is_off ? CT_RULE_OFF_CPU : CT_RULE_TIME;
  first += is_off;
  if (!parse_time(last, &rule->ns)) {
    return ct_fail(diag, CT_EINVAL, "'%.50s' is no time (a number with ns, us, ms, s, m or h)" EXAMPLES, last);
  }
  if (rule->op == CT_OP_EQUAL || rule->op == CT_OP_NOT_EQUAL || (is_off && !is_more)) {
    return ct_fail(diag, CT_EINVAL, "%s",
                   is_off ? "a time off the processor is compared with > or >="
                          : "a time is compared with <, <=, > or >=");
  }
  return set_pattern(rule, words, first, count - first, diag);
}

static int
parse_condition(const struct words *words, struct ct_rule *rule, struct ct_diag *diag)
{
  const char *first = words->count != 0 ? words->list[0] : "";
  const char *second = words->count > 1 ? words->list[1] : "";
  if (words->count > 2 && find_op(words->list[words->count - 2], &rule->op)) {
    return parse_comparison(words, rule, diag);
  }
  if (is(first, "call")) {
    rule->kind = CT_RULE_CALL;
    return set_pattern(rule, words, 1, words->count - 1, diag);
  }
  if (is(first, "crash") && words->count == 1) {
    rule->kind = CT_RULE_CRASH;
    return 0;
  }
  if (is(first, "signal") && words->count <= 2) {
    rule->kind = CT_RULE_SIGNAL;
    rule->signal = words->count == 2 ? parse_signal(second) : 0;
    return words->count == 1 || rule->signal != 0
               ? 0
               : ct_fail(diag, CT_EINVAL, "there is no signal '%.50s'; example: 'signal SIGUSR1'", second);
  }
  if (is(first, "every") && words->count == 2) {
    rule->kind = CT_RULE_EVERY;
    return parse_time(second, &rule->ns) && rule->ns >= 1000000
               ? 0
               : ct_fail(diag, CT_EINVAL, "'%.50s' is no time of 1ms or more; example: 'every 10s'", second);
  }
  return words->count == 0
             ? ct_fail(diag, CT_EINVAL, "no condition" EXAMPLES)
             : ct_fail(diag, CT_EINVAL, "no operator with a threshold after it, in words of their own" EXAMPLES);
}

/* "itrace", "itrace 3", "itrace G", "itrace 3 G". */
static int
parse_itrace(const char *rest, struct ct_rule *rule, struct ct_diag *diag)
{
  char *end;
  rule->action = CT_ACTION_ITRACE;
  rule->calls = 1;
  rest += strspn(rest, " ");
  unsigned long calls = strtoul(rest, &end, 10);
  if (end != rest && (*end == ' ' || *end == '\0')) {
    if (calls < 1 || calls > CT_RULE_CALLS_MAX || rest[0] == '-') {
      return ct_fail(diag, CT_EINVAL, "itrace takes a number of calls from 1 to %d, not '%.20s'", CT_RULE_CALLS_MAX,
                     rest);
    }
    rule->calls = (uint32_t)calls;
    rest = end + strspn(end, " ");
  }
  strcpy(rule->detail, rest);
  return rest[0] != '\0' ? check_pattern(rest, diag) : 0;
}

static int
parse_action(const char *word, struct ct_rule *rule, struct ct_diag *diag)
{
  static const char *const names[] = {"mark", "dump", "stop"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    if (is(word, names[i])) {
      rule->action = (enum ct_rule_action)i;
      return 0;
    }
  }
  if (strncmp(word, "detail", 6) == 0 && (word[6] == '\0' || word[6] == ' ')) {
    const char *pattern = word + 6 + strspn(word + 6, " ");
    rule->action = CT_ACTION_DETAIL;
    strcpy(rule->detail, pattern);
    return pattern[0] != '\0' ? check_pattern(pattern, diag)
                              : ct_fail(diag, CT_EINVAL, "detail of which functions? example: 'F > 1ms: detail G'");
  }
  if (strncmp(word, "itrace", 6) == 0 && (word[6] == '\0' || word[6] == ' ')) {
    return parse_itrace(word + 6, rule, diag);
  }
  return ct_fail(diag, CT_EINVAL,
                 "no such action: '%.50s'; actions are mark, dump, stop, detail PATTERN and itrace [N] [PATTERN]",
                 word);
}

/* The last colon with a blank, or nothing, after it, and no colon before it. NULL: there is no action. */
static char *
find_action(char *text)
{
  for (char *at = text + strlen(text); at-- > text;) {
    if (*at == ':' && (at[1] == ' ' || at[1] == '\0') && (at == text || at[-1] != ':')) {
      return at;
    }
  }
  return NULL;
}

static void
cut(char *text, struct words *words)
{
  char *rest = text;
  words->count = 0;
  for (char *word; words->count < WORDS_MAX && (word = strsep(&rest, " \t\n")) != NULL;) {
    if (word[0] != '\0') {
      words->list[words->count++] = word;
    }
  }
}

int
ct_rule_parse(const char *text, struct ct_rule *rule, struct ct_diag *diag)
{
  struct ct_rule own = {.action = CT_ACTION_MARK};
  struct words words;
  char whole[CT_RULE_CHARS], condition[CT_RULE_CHARS];
  if (strlen(text) >= sizeof(whole)) {
    return ct_fail(diag, CT_EINVAL, "it is longer than %d characters", CT_RULE_CHARS - 1);
  }
  strcpy(whole, text);
  cut(whole, &words);
  if (words.count == WORDS_MAX) {
    return ct_fail(diag, CT_EINVAL, "it has more than %d words", WORDS_MAX - 1);
  }
  join(own.text, &words, 0, words.count);
  strcpy(condition, own.text);
  char *action = find_action(condition);
  if (action != NULL) {
    *action++ = '\0';
    int code = parse_action(action + strspn(action, " "), &own, diag);
    if (code != 0) {
      return code;
    }
  }
  cut(condition, &words);
  int code = parse_condition(&words, &own, diag);
  if (code == 0 && own.action == CT_ACTION_ITRACE && own.detail[0] == '\0') {
    strcpy(own.detail, own.pattern);
    code = own.detail[0] != '\0' ? 0 : ct_fail(diag, CT_EINVAL, "itrace of which function? example: 'crash: itrace G'");
  }
  if (code == 0) {
    *rule = own;
  }
  return code;
}

int
ct_rule_check(const char *text, struct ct_diag *diag)
{
  struct ct_rule rule;
  return ct_rule_parse(text, &rule, diag);
}
