/* SPDX-License-Identifier: MIT */
/*
 * Questions about many spans whose answer the index knows. A virtual table can only give rows: to count a billion calls
 * SQLite asks for a billion rows. So a statement of a few forms, and no other, is written anew before it is prepared:
 *
 *   sums        SELECT function, count(*) FROM spans WHERE module = 'm' GROUP BY function
 *            -> SELECT function, coalesce(sum(of_rows), 0) AS "count(*)" FROM function_sums WHERE ...
 *               where nothing is asked of spans but their function, or their thread, and sums
 *   extremes    SELECT min(start), max("end") FROM spans WHERE thread = 0
 *            -> SELECT (SELECT max(x) FROM (SELECT start AS x FROM spans WHERE thread = 0 ORDER BY start LIMIT 1))
 *               AS "min(start)", ...
 *               where all of the WHERE is exact for a scan, which then ends with the first row. Numbers of rows that
 *               began in a time are of start_sums. (A scalar subquery does
 *               not tell its table how few rows it wants.)
 *
 * EXPLAIN QUERY PLAN shows which. Whatever is not understood, to the last token, is left as it is.
 */
#include "sql/span_sums.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TOKENS_MOST = 200, ITEMS_MOST = 32 };

enum kind { END, WORD, QUOTED, NUMBER, STRING, SIGN };
struct token {
  enum kind kind;
  const char *at;
  size_t length;
};

/* A part of the statement: tokens from .. to - 1. */
struct part {
  size_t from, to;
};

struct item {
  struct part all; /* with the alias */
  struct part value;
  const struct token *alias; /* NULL: none */
  bool has_sum;
};

struct statement {
  struct ct_sql *sql;
  const char *text;
  struct token tokens[TOKENS_MOST + 1];
  size_t count;
  size_t select; /* that token */
  bool is_distinct;
  struct item items[ITEMS_MOST];
  size_t item_count;
  size_t source; /* that token */
  struct part where, group, having, order, rest;
  const char *table; /* what is asked in place of spans */
  bool few;          /* functions are asked for by name or number */
};

/* ---- tokens ---- */

static bool
is_word_char(char c, bool first)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* Behind what is in quotes, which are doubled in it; NULL: it does not end. */
static const char *
after_quotes(const char *at)
{
  char quote = *at++;
  for (; *at != '\0'; at++) {
    if (*at == quote && *++at != quote) {
      return at;
    }
  }
  return NULL;
}

/* The next one; its length 0: none of those that are known here. */
static struct token
next_token(const char *at)
{
  static const char *const signs[] = {"<=", ">=", "<>", "!=", "==", "||"};
  struct token token = {SIGN, at, 0};
  const char *end = at;
  if (*at == '\'' || *at == '"') {
    token.kind = *at == '"' ? QUOTED : STRING;
    end = after_quotes(at);
    token.length = end != NULL ? (size_t)(end - at) : 0;
    return token;
  }
  if (is_word_char(*at, true)) {
    token.kind = WORD;
    while (is_word_char(*end, false)) {
      end++;
    }
  } else if (*at >= '0' && *at <= '9') {
    token.kind = NUMBER;
    end += strspn(at, "0123456789");
    end += *end == '.' ? 1 + strspn(end + 1, "0123456789") : 0;
    if (is_word_char(*end, false)) {
      return token;
    }
  } else {
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]) && end == at; i++) {
      end += strncmp(at, signs[i], 2) == 0 ? 2 : 0;
    }
    bool is_comment = strncmp(at, "--", 2) == 0 || strncmp(at, "/*", 2) == 0;
    end += end == at && !is_comment && *at != '\0' && strchr("(),*+-/%<>=", *at) != NULL;
  }
  token.length = (size_t)(end - at);
  return token;
}

/* Up to the end of the statement; false: there is something in it that is not known here. */
static bool
tokenize(struct statement *s, size_t *length)
{
  const char *at = s->text;
  for (;;) {
    at += strspn(at, " \t\r\n");
    if (*at == '\0' || *at == ';') {
      s->tokens[s->count] = (struct token){END, at, 0};
      *length = (size_t)(at - s->text) + (*at == ';');
      return true;
    }
    struct token token = next_token(at);
    if (token.length == 0 || s->count == TOKENS_MOST) {
      return false;
    }
    s->tokens[s->count++] = token;
    at += token.length;
  }
}

/* Whether the token is this word, or a column's name in quotes; of a sign: this one. */
static bool
is(const struct token *token, const char *word)
{
  size_t quotes = token->kind == QUOTED;
  size_t length = strlen(word);
  return token->kind != END && token->kind != STRING && token->length == length + 2 * quotes &&
         strncasecmp(token->at + quotes, word, length) == 0;
}

static bool
is_one_of(const struct token *token, const char *const *words)
{
  for (; *words != NULL; words++) {
    if (is(token, *words)) {
      return true;
    }
  }
  return false;
}

static bool
is_keyword(const struct token *token, const char *word)
{
  return token->kind == WORD && is(token, word);
}

/* ---- parts ---- */

/* Where a part ends: at the first of these words that is not in parentheses. */
static size_t
end_of(const struct statement *s, size_t at, const char *const *words)
{
  for (int depth = 0; at < s->count; at++) {
    depth += is(&s->tokens[at], "(") - is(&s->tokens[at], ")");
    if (depth == 0 && s->tokens[at].kind != QUOTED && is_one_of(&s->tokens[at], words)) {
      break;
    }
  }
  return at;
}

static bool
split_items(struct statement *s, size_t at)
{
  static const char *const ends[] = {",", "FROM", NULL};
  for (;; at++) {
    size_t end = end_of(s, at, ends);
    if (end == at || end == s->count || s->item_count == ITEMS_MOST) {
      return false;
    }
    struct item *item = &s->items[s->item_count++];
    *item = (struct item){.all = {at, end}, .value = {at, end}};
    if (end - at > 2 && is_keyword(&s->tokens[end - 2], "AS")) {
      item->value.to = end - 2;
      item->alias = &s->tokens[end - 1];
      if (item->alias->kind != WORD && item->alias->kind != QUOTED) {
        return false;
      }
    }
    at = end;
    if (!is(&s->tokens[end], ",")) {
      s->source = end + 1;
      return end + 1 < s->count;
    }
  }
}

static size_t
split_part(const struct statement *s, size_t at, const char *word, bool has_by, struct part *part)
{
  static const char *const ends[] = {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", NULL};
  if (at >= s->count || !is_keyword(&s->tokens[at], word) || (has_by && !is_keyword(&s->tokens[at + 1], "BY"))) {
    return at;
  }
  part->from = at + 1 + has_by;
  part->to = end_of(s, part->from, ends);
  return part->to;
}

/* False: it is no SELECT of one table. */
static bool
split(struct statement *s)
{
  size_t at = 0;
  if (is_keyword(&s->tokens[0], "EXPLAIN") && is_keyword(&s->tokens[1], "QUERY") && s->count > 4) {
    at = 3;
  }
  s->select = at;
  if (!is_keyword(&s->tokens[at++], "SELECT")) {
    return false;
  }
  s->is_distinct = is_keyword(&s->tokens[at], "DISTINCT");
  if (!split_items(s, at + s->is_distinct)) {
    return false;
  }
  at = split_part(s, s->source + 1, "WHERE", false, &s->where);
  at = split_part(s, at, "GROUP", true, &s->group);
  at = split_part(s, at, "HAVING", false, &s->having);
  at = split_part(s, at, "ORDER", true, &s->order);
  s->rest = (struct part){at, s->count};
  return at == s->count || is_keyword(&s->tokens[at], "LIMIT");
}

static bool
is_empty(struct part part)
{
  return part.from >= part.to;
}

/* ---- sums ---- */

enum { OF_FUNCTIONS = 1, OF_THREADS = 2 };
static const char *const by_function[] = {"function", "function_id", "module", "process", NULL};
static const char *const by_thread[] = {"thread", "tid", "process", NULL};
static const char *const all_columns[] = {
    "id",  "parent_id", "thread", "tid", "process", "function", "function_id", "module", "caller", "start",
    "end", "duration",  "self",   "off", "depth",   "reason",   "stack",       "calls",  "flags",  NULL};
static const char *const words[] = {"AND",   "OR",      "NOT",    "LIKE",    "GLOB",   "IN",    "IS",
                                    "NULL",  "BETWEEN", "ESCAPE", "ASC",     "DESC",   "NULLS", "LAST",
                                    "FIRST", "OFFSET",  "LIMIT",  "COLLATE", "NOCASE", NULL};
static const char *const scalars[] = {"duration_text", "demangle", "round", "lower", "upper",
                                      "length",        "substr",   "abs",   NULL};

/* A call of an aggregate with one column. */
static const char of_rows[] = "coalesce(sum(of_rows), 0)";
static const struct sum {
  const char *call, *column, *text;
  unsigned tables;
  const char *read; /* in place of text, where few functions are asked for */
} sums[] = {
    {"count", "*", of_rows, OF_FUNCTIONS | OF_THREADS, NULL},
    {"count", "function", of_rows, OF_FUNCTIONS | OF_THREADS, NULL},
    {"count", "start", of_rows, OF_FUNCTIONS | OF_THREADS, NULL},
    {"count", "thread", of_rows, OF_FUNCTIONS | OF_THREADS, NULL},
    {"count", "duration", "coalesce(sum(of_timed), 0)", OF_FUNCTIONS | OF_THREADS, NULL},
    {"sum", "calls", "sum(of_calls)", OF_FUNCTIONS | OF_THREADS, NULL},
    {"max", "duration", "max(of_longest)", OF_FUNCTIONS | OF_THREADS, NULL},
    {"min", "duration", "min(of_shortest)", OF_FUNCTIONS | OF_THREADS, NULL},
    {"sum", "duration", "sum(of_durations)", OF_FUNCTIONS | OF_THREADS, "sum(of_durations_read)"},
    {"sum", "self", "sum(of_selves)", OF_FUNCTIONS | OF_THREADS, "sum(of_selves_read)"},
    {"avg", "duration", "(CAST(sum(of_durations) AS REAL) / sum(of_timed))", OF_FUNCTIONS | OF_THREADS,
     "(CAST(sum(of_durations_read) AS REAL) / sum(of_timed))"},
    {"avg", "self", "(CAST(sum(of_selves) AS REAL) / sum(of_timed))", OF_FUNCTIONS | OF_THREADS,
     "(CAST(sum(of_selves_read) AS REAL) / sum(of_timed))"},
    {"min", "depth", "min(of_least_depth)", OF_THREADS, NULL},
    {"max", "depth", "max(of_most_depth)", OF_THREADS, NULL},
};
enum { SUM_TOKENS = 4 };

/* The one that begins at the token; NULL: none does. */
static const struct sum *
sum_at(const struct statement *s, size_t at, size_t to)
{
  const struct token *t = &s->tokens[at];
  for (size_t i = 0; at + SUM_TOKENS <= to && i < sizeof(sums) / sizeof(sums[0]); i++) {
    if (is_keyword(t, sums[i].call) && is(&t[1], "(") && is(&t[2], sums[i].column) && is(&t[3], ")")) {
      return &sums[i];
    }
  }
  return NULL;
}

struct usage {
  unsigned tables;  /* that have all that is used */
  unsigned columns; /* of all_columns, a bit each: used outside of sums */
  size_t sums;
};

static int
column_at(const struct token *token)
{
  for (int i = 0; all_columns[i] != NULL; i++) {
    if (is(token, all_columns[i])) {
      return i;
    }
  }
  return -1;
}

static bool
is_alias(const struct statement *s, const struct token *token)
{
  for (size_t i = 0; i < s->item_count; i++) {
    const struct token *alias = s->items[i].alias;
    if (alias != NULL && alias->kind == token->kind && alias->length == token->length &&
        strncasecmp(alias->at, token->at, token->length) == 0) {
      return true;
    }
  }
  return false;
}

/* A term of ORDER BY is the alias before it is a column; within an expression, and elsewhere, it is the column. */
static bool
is_whole_term(const struct statement *s, size_t at)
{
  static const char *const after[] = {",", "ASC", "DESC", "NULLS", "LIMIT", NULL};
  bool begins = at == s->order.from || (at > s->order.from && is(&s->tokens[at - 1], ","));
  return begins && at < s->order.to && (at + 1 == s->order.to || is_one_of(&s->tokens[at + 1], after));
}

/* Of a name, or of a function's call. False: it is not known here. */
static bool
use_word(const struct statement *s, size_t at, struct usage *usage)
{
  const struct token *token = &s->tokens[at];
  int column = column_at(token);
  if (is_alias(s, token) && (column < 0 || is_whole_term(s, at))) {
    return true;
  }
  if (column >= 0) {
    usage->columns |= 1u << column;
    usage->tables &=
        (is_one_of(token, by_function) ? OF_FUNCTIONS : 0u) | (is_one_of(token, by_thread) ? OF_THREADS : 0u);
    return true;
  }
  bool is_call = is(&s->tokens[at + 1], "(");
  return token->kind == WORD && (is_one_of(token, words) ? true : is_call && is_one_of(token, scalars));
}

static bool
use(const struct statement *s, struct part part, bool may_sum, struct usage *usage)
{
  for (size_t at = part.from; at < part.to; at++) {
    const struct sum *sum = may_sum ? sum_at(s, at, part.to) : NULL;
    const struct token *token = &s->tokens[at];
    if (sum != NULL) {
      usage->tables &= sum->tables;
      usage->sums++;
      at += SUM_TOKENS - 1;
    } else if ((token->kind == WORD || token->kind == QUOTED) && !use_word(s, at, usage)) {
      return false;
    }
  }
  return true;
}

/* Columns that are the same in all rows of a group: those that it is grouped by, by name or by an item's number. */
static bool
use_groups(const struct statement *s, struct usage *usage)
{
  for (size_t at = s->group.from; at < s->group.to; at++) {
    const struct token *token = &s->tokens[at];
    if (token->kind != NUMBER) {
      continue;
    }
    unsigned long number = strtoul(token->at, NULL, 10);
    bool is_term =
        (at == s->group.from || is(&s->tokens[at - 1], ",")) && (at + 1 == s->group.to || is(&s->tokens[at + 1], ","));
    if (!is_term || number == 0 || number > s->item_count || !use(s, s->items[number - 1].value, false, usage)) {
      return false;
    }
  }
  return use(s, s->group, false, usage);
}

static bool
uses_id(unsigned columns)
{
  static const struct token function_id = {WORD, "function_id", 11};
  return (columns >> column_at(&function_id) & 1) != 0;
}

static bool
are_grouped(unsigned used, unsigned grouped)
{
  static const struct token thread = {WORD, "thread", 6};
  return (used & ~grouped) == 0 || uses_id(grouped) || (grouped >> column_at(&thread) & 1) != 0;
}

/* Whether functions are asked for one by one. */
static bool
asks_for_few(const struct statement *s)
{
  for (size_t at = s->where.from; at + 1 < s->where.to; at++) {
    if ((is(&s->tokens[at], "function") || is(&s->tokens[at], "function_id")) && is(&s->tokens[at + 1], "=")) {
      return true;
    }
  }
  return false;
}

/* The table that has all that is asked, in s->table; false: there is none. */
static bool
choose_table(struct statement *s)
{
  struct usage shown = {.tables = OF_FUNCTIONS | OF_THREADS}, grouped = shown, where = shown;
  for (size_t i = 0; i < s->item_count; i++) {
    size_t before = shown.sums;
    if (!use(s, s->items[i].value, true, &shown)) {
      return false;
    }
    s->items[i].has_sum = shown.sums != before;
  }
  if (!use(s, s->having, true, &shown) || !use(s, s->order, true, &shown) || !use(s, s->rest, false, &shown) ||
      !use(s, s->where, false, &where) || !use_groups(s, &grouped)) {
    return false;
  }
  bool is_grouped = !is_empty(s->group);
  if (shown.sums != 0 || is_grouped ? !are_grouped(shown.columns, is_grouped ? grouped.columns : 0) : !s->is_distinct) {
    return false;
  }
  unsigned tables = shown.tables & grouped.tables & where.tables;
  bool by_id = uses_id(shown.columns | grouped.columns | where.columns);
  s->table = tables & OF_FUNCTIONS ? "function_sums" : tables != 0 ? "thread_sums" : NULL;
  s->few = asks_for_few(s);
  return s->table != NULL && (!by_id || ct_sql_knows_all_functions(s->sql));
}

/* ---- writing ---- */

static void
put_space(const struct statement *s, sqlite3_str *out, size_t at)
{
  if (at > 0 && s->tokens[at].at > s->tokens[at - 1].at + s->tokens[at - 1].length) {
    sqlite3_str_appendchar(out, 1, ' ');
  }
}

static void
put_sums(const struct statement *s, sqlite3_str *out, struct part part)
{
  for (size_t at = part.from; at < part.to; at++) {
    const struct sum *sum = sum_at(s, at, part.to);
    put_space(s, out, at);
    if (sum != NULL) {
      sqlite3_str_appendall(out, s->few && sum->read != NULL && s->table[0] == 'f' ? sum->read : sum->text);
      at += SUM_TOKENS - 1;
    } else {
      sqlite3_str_append(out, s->tokens[at].at, (int)s->tokens[at].length);
    }
  }
}

/* The name that the column has without an alias: how it is written. */
static void
put_name(const struct statement *s, sqlite3_str *out, const struct item *item)
{
  const struct token *first = &s->tokens[item->value.from], *last = &s->tokens[item->value.to - 1];
  if (item->alias == NULL && item->has_sum) {
    sqlite3_str_appendf(out, " AS \"%.*w\"", (int)(last->at + last->length - first->at), first->at);
  }
}

static char *
write_sums(const struct statement *s)
{
  sqlite3_str *out = sqlite3_str_new(s->sql->db);
  size_t at = 0;
  for (size_t i = 0; i < s->item_count; i++) {
    put_sums(s, out, (struct part){at, s->items[i].all.to});
    put_name(s, out, &s->items[i]);
    at = s->items[i].all.to;
  }
  sqlite3_str_appendf(out, " FROM %s", s->table);
  put_sums(s, out, (struct part){s->source + 1, s->count});
  return sqlite3_str_finish(out);
}

/* ---- extremes ---- */

/* min and max of what a scan can be ordered by. */
static const struct extreme {
  const char *call, *column;
  bool is_last;
} extreme_calls[] = {
    {"min", "start", false}, {"max", "start", true},    {"min", "end", false},
    {"max", "end", true},    {"max", "duration", true},
};

static const struct extreme *
extreme_at(const struct statement *s, size_t at, size_t to)
{
  const struct token *t = &s->tokens[at];
  for (size_t i = 0; at + SUM_TOKENS <= to && i < sizeof(extreme_calls) / sizeof(extreme_calls[0]); i++) {
    if (is_keyword(t, extreme_calls[i].call) && is(&t[1], "(") && is(&t[2], extreme_calls[i].column) &&
        is(&t[3], ")")) {
      return &extreme_calls[i];
    }
  }
  return NULL;
}

/* A number, or some that are added, from *at on. */
static bool
pass_value(const struct statement *s, size_t *at, size_t to)
{
  for (;; ++*at) {
    *at += *at < to && is(&s->tokens[*at], "-");
    if (*at >= to || s->tokens[*at].kind != NUMBER) {
      return false;
    }
    ++*at;
    if (*at >= to || !(is(&s->tokens[*at], "+") || is(&s->tokens[*at], "-"))) {
      return true;
    }
  }
}

/* One condition that a scan fulfils exactly (pushed in spans.c). */
static bool
pass_condition(const struct statement *s, size_t *at, size_t to)
{
  static const char *const equal[] = {"id", "parent_id", "thread", "function_id", "depth", NULL};
  static const char *const bound[] = {"start", "duration", NULL};
  static const char *const signs[] = {"<", "<=", ">", ">=", NULL};
  const struct token *column = &s->tokens[*at], *sign = column + 1;
  if (*at + 2 >= to) {
    return false;
  }
  *at += 2;
  if (is(column, "function") && is(sign, "=") && s->tokens[*at].kind == STRING) {
    ++*at;
    return true;
  }
  if (is_one_of(column, bound) && is_keyword(sign, "BETWEEN")) {
    if (!pass_value(s, at, to) || *at >= to || !is_keyword(&s->tokens[*at], "AND")) {
      return false;
    }
    ++*at;
    return pass_value(s, at, to);
  }
  bool is_exact = (is_one_of(column, equal) && is(sign, "=")) || (is_one_of(column, bound) && is_one_of(sign, signs)) ||
                  (is(column, "end") && (is(sign, ">") || is(sign, ">=")));
  return is_exact && pass_value(s, at, to);
}

static bool
is_exact(const struct statement *s)
{
  for (size_t at = s->where.from; at < s->where.to; at++) {
    if (!pass_condition(s, &at, s->where.to) || (at < s->where.to && !is_keyword(&s->tokens[at], "AND"))) {
      return false;
    }
  }
  return true;
}

/* The WHERE is about when calls began, and on which thread they ran, and nothing else. */
static bool
is_about_starts(const struct statement *s)
{
  static const char *const known[] = {"start", "thread", "AND", "BETWEEN", NULL};
  bool has_start = false;
  for (size_t at = s->where.from; at < s->where.to; at++) {
    const struct token *token = &s->tokens[at];
    if ((token->kind == WORD || token->kind == QUOTED) && !is_one_of(token, known)) {
      return false;
    }
    has_start |= is(token, "start");
  }
  return has_start;
}

/* What is asked is extremes alone, or sums that have a table. */
static bool
are_extremes(struct statement *s)
{
  size_t found = 0;
  struct usage where = {.tables = OF_FUNCTIONS | OF_THREADS};
  bool has_sums = is(&s->tokens[s->source], "spans") && ct_sql_can_count(s->sql) && use(s, s->where, false, &where) &&
                  where.tables != 0 && !uses_id(where.columns);
  bool has_counts = is(&s->tokens[s->source], "spans") && ct_sql_can_count(s->sql) && is_about_starts(s);
  s->table = has_counts ? "start_sums" : where.tables & OF_FUNCTIONS ? "function_sums" : "thread_sums";
  s->few = asks_for_few(s);
  for (size_t i = 0; i < s->item_count; i++) {
    struct part part = s->items[i].value;
    for (size_t at = part.from; at < part.to; at++) {
      const struct extreme *extreme = extreme_at(s, at, part.to);
      const struct sum *sum = extreme == NULL && (has_sums || has_counts) ? sum_at(s, at, part.to) : NULL;
      bool is_count = has_counts && sum != NULL && sum->text == of_rows;
      bool fits =
          has_counts ? is_count : sum != NULL && (sum->tables & (s->table[0] == 'f' ? OF_FUNCTIONS : OF_THREADS)) != 0;
      bool is_word = s->tokens[at].kind == WORD || s->tokens[at].kind == QUOTED;
      if (extreme == NULL && !fits && is_word && !is_one_of(&s->tokens[at], scalars)) {
        return false;
      }
      found += extreme != NULL || is_count;
      s->items[i].has_sum |= extreme != NULL || fits;
      at += extreme != NULL || fits ? SUM_TOKENS - 1 : 0;
    }
    if (!s->items[i].has_sum) {
      return false;
    }
  }
  return found != 0 && (is_empty(s->where) || is_exact(s));
}

static void
put_where(const struct statement *s, sqlite3_str *out)
{
  if (!is_empty(s->where)) {
    const struct token *first = &s->tokens[s->where.from - 1], *last = &s->tokens[s->where.to - 1];
    sqlite3_str_appendf(out, " %.*s", (int)(last->at + last->length - first->at), first->at);
  }
}

static void
put_extremes(const struct statement *s, sqlite3_str *out, struct part part)
{
  const struct token *source = &s->tokens[s->source];
  for (size_t at = part.from; at < part.to; at++) {
    const struct extreme *extreme = extreme_at(s, at, part.to);
    const struct sum *sum = extreme == NULL ? sum_at(s, at, part.to) : NULL;
    put_space(s, out, at);
    if (extreme != NULL) {
      sqlite3_str_appendf(out, "(SELECT max(x) FROM (SELECT \"%s\" AS x FROM %.*s", extreme->column,
                          (int)source->length, source->at);
      put_where(s, out);
      sqlite3_str_appendf(out, " ORDER BY \"%s\"%s LIMIT 1))", extreme->column, extreme->is_last ? " DESC" : "");
    } else if (sum != NULL) {
      sqlite3_str_appendf(out, "(SELECT %s FROM %s",
                          s->few && sum->read != NULL && s->table[0] == 'f' ? sum->read : sum->text, s->table);
      put_where(s, out);
      sqlite3_str_appendchar(out, 1, ')');
    } else {
      sqlite3_str_append(out, s->tokens[at].at, (int)s->tokens[at].length);
    }
    at += extreme != NULL || sum != NULL ? SUM_TOKENS - 1 : 0;
  }
}

static char *
write_extremes(const struct statement *s)
{
  sqlite3_str *out = sqlite3_str_new(s->sql->db);
  size_t at = 0;
  for (size_t i = 0; i < s->item_count; i++) {
    put_extremes(s, out, (struct part){at, s->items[i].all.to});
    put_name(s, out, &s->items[i]);
    at = s->items[i].all.to;
  }
  return sqlite3_str_finish(out);
}

char *
ct_sql_answer(struct ct_sql *sql, const char *text, size_t *length)
{
  struct statement *s = calloc(1, sizeof(*s));
  char *answer = NULL;
  if (s == NULL) {
    return NULL;
  }
  s->sql = sql;
  s->text = text;
  if (tokenize(s, length) && split(s)) {
    bool is_spans = is_keyword(&s->tokens[s->source], "spans");
    bool is_plain = is_empty(s->group) && is_empty(s->having) && is_empty(s->order) && is_empty(s->rest) &&
                    !s->is_distinct && (is_spans || is_keyword(&s->tokens[s->source], "long_spans"));
    if (is_spans && ct_sql_can_count(sql) && choose_table(s)) {
      answer = write_sums(s);
    } else if (is_plain && are_extremes(s)) {
      answer = write_extremes(s);
    }
  }
  free(s);
  return answer;
}
