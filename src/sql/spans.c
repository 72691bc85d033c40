/* SPDX-License-Identifier: MIT */
/*
 * The table of spans: a scan of the index for each source. What of a WHERE can be asked of the index is (by the letters
 * of the plan); SQLite looks at every row again. ORDER BY duration DESC, start or end with a LIMIT is the index's too,
 * where all of the WHERE is exact there.
 */
#include "sql/spans_grouped.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const ct_sql_spans_columns =
    "id INTEGER, parent_id INTEGER, thread INTEGER, tid INTEGER, process INTEGER, function TEXT, function_id INTEGER, "
    "module TEXT, caller TEXT, start INTEGER, \"end\" INTEGER, duration INTEGER, self INTEGER, off INTEGER, depth "
    "INTEGER, reason TEXT, stack INTEGER, calls INTEGER, flags TEXT";

/* What a letter of the plan stands for, each an argument of xFilter. Exact: no row comes that SQLite would drop. */
static const struct {
  int column;
  unsigned char op;
  char letter;
  bool exact;
  double share; /* of the rows that are left, for SQLite's planner */
} pushed[] = {
    {C_ID, SQLITE_INDEX_CONSTRAINT_EQ, 'i', true, 1e-9},
    {C_PARENT, SQLITE_INDEX_CONSTRAINT_EQ, 'p', true, 1e-7},
    {C_THREAD, SQLITE_INDEX_CONSTRAINT_EQ, 't', true, 0.3},
    {C_FUNCTION, SQLITE_INDEX_CONSTRAINT_EQ, 'n', true, 0.01},
    {C_FUNCTION_ID, SQLITE_INDEX_CONSTRAINT_EQ, 'f', true, 0.01},
    {C_START, SQLITE_INDEX_CONSTRAINT_GE, 's', true, 0.3},
    {C_START, SQLITE_INDEX_CONSTRAINT_GT, 'v', true, 0.3},
    {C_START, SQLITE_INDEX_CONSTRAINT_LE, 'S', true, 0.3},
    {C_START, SQLITE_INDEX_CONSTRAINT_LT, 'V', true, 0.3},
    {C_END, SQLITE_INDEX_CONSTRAINT_GE, 'e', true, 0.3},
    {C_END, SQLITE_INDEX_CONSTRAINT_GT, 'w', true, 0.3},
    {C_DURATION, SQLITE_INDEX_CONSTRAINT_GE, 'd', true, 0.05},
    {C_DURATION, SQLITE_INDEX_CONSTRAINT_GT, 'g', true, 0.05},
    {C_DURATION, SQLITE_INDEX_CONSTRAINT_LE, 'D', true, 0.7},
    {C_DURATION, SQLITE_INDEX_CONSTRAINT_LT, 'G', true, 0.7},
    {C_DEPTH, SQLITE_INDEX_CONSTRAINT_EQ, 'l', true, 0.1},
    {C_DEPTH, SQLITE_INDEX_CONSTRAINT_GE, 'm', true, 0.5},
    {C_DEPTH, SQLITE_INDEX_CONSTRAINT_LE, 'M', true, 0.5},
    {C_FLAGS, SQLITE_INDEX_CONSTRAINT_LIKE, 'u', false, 1e-4},
};
enum { PUSHED = sizeof(pushed) / sizeof(pushed[0]), LONGEST_MOST = 400000 }; /* spans, of 112 bytes */
#define COUNTED_LETTER 'c'                                                   /* alone */
/* With a LIMIT, whose argument the letter has. */
static const struct {
  int column;
  bool is_descending;
  char letter;
  enum ct_scan_order order;
} orders[] = {
    {C_DURATION, true, 'L', CT_SCAN_LONGEST}, {C_START, false, 'A', CT_SCAN_FIRST_BEGUN},
    {C_START, true, 'Z', CT_SCAN_LAST_BEGUN}, {C_END, false, 'B', CT_SCAN_FIRST_ENDED},
    {C_END, true, 'Y', CT_SCAN_LAST_ENDED},
};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };
/* The plan's number: the columns that are used, a bit each, and above these the columns of the order, if the rows are
 * to be in one that is no scan's (spans_grouped.h): a number and 1 each, the first one lowest. */
#define KEY_SHIFT(n) (C_COUNT + 4 * (n))
static_assert(KEY_SHIFT(CT_SQL_KEYS) < 32, "the plan's number has them all");
static const int keys_by_number[] = {C_FUNCTION, C_FUNCTION_ID, C_MODULE};

/* Of one source, kept from one row of a join to the next. */
struct asked_functions {
  uint8_t *flags; /* a byte for each function, and one more */
  uint32_t *ids;  /* those whose byte is 1 */
  size_t count;
  const struct ct_sql_source *of;
};

/* Both ends are among them. */
struct bounds {
  int64_t from, to;
};
#define ANY ((struct bounds){INT64_MIN, INT64_MAX})

struct spans_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  struct ct_scan_filter filter;       /* but for what differs from source to source */
  struct bounds start, end, duration; /* ns */
  bool has_function;                  /* name, or function_id when it is NULL */
  char *name;
  int64_t function_id;
  int64_t thread;                     /* of the database; -1: any */
  struct ct_span_place place, parent; /* of the span, and of the one that it is in */
  bool is_empty;
  size_t source;
  struct ct_index_scan *scan;
  size_t scan_source; /* of that one */
  struct asked_functions functions;
  const struct ct_span *span;
  struct ct_span *merged; /* the longest of several sources, with where each is from */
  uint32_t *merged_source;
  size_t merged_count, merged_at;
  struct ct_sql_counting counting;
  struct ct_sql_grouping *grouping;
  uint32_t given_source;  /* of the span that it gave */
  uint8_t *const *wanted; /* of each source, the functions that the grouping asks for; NULL: all that the query does */
};

static int
spans_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  return ct_sql_connect(aux, ct_sql_spans_columns, sizeof(struct ct_sql_table), out);
}

static int
find_pushed(const struct sqlite3_index_constraint *constraint)
{
  for (int i = 0; i < PUSHED; i++) {
    if (pushed[i].column == constraint->iColumn && pushed[i].op == constraint->op) {
      return i;
    }
  }
  return -1;
}

/* One that the index has; -1: it is not in there. */
static int
find_order(const sqlite3_index_info *info)
{
  for (int i = 0; i < ORDERS && info->nOrderBy == 1; i++) {
    if (info->aOrderBy[0].iColumn == orders[i].column && (info->aOrderBy[0].desc != 0) == orders[i].is_descending) {
      return i;
    }
  }
  return -1;
}

/* A LIMIT of so many rows that they can be kept; more are sorted by SQLite, which has files for that. */
static bool
is_few(const struct ct_sql_table *table, sqlite3_index_info *info, int limit)
{
  sqlite3_value *value;
  return sqlite3_vtab_rhs_value(info, limit, &value) == SQLITE_OK && sqlite3_value_type(value) == SQLITE_INTEGER &&
         sqlite3_value_int64(value) >= 0 &&
         (uint64_t)sqlite3_value_int64(value) <= LONGEST_MOST / (table->sql->source_count + 1);
}

/* All rows, and nothing of them but their function, together or in the order of the names; or how many there are. */
static bool
is_counted(const struct ct_sql_table *table, const sqlite3_index_info *info)
{
  bool by_function = info->nOrderBy == 1 && info->aOrderBy[0].iColumn == C_FUNCTION && !info->aOrderBy[0].desc;
  uint64_t used = by_function ? 1u << C_FUNCTION | 1u << C_MODULE : 0;
  return info->nConstraint == 0 && (by_function || info->nOrderBy == 0) && (info->colUsed & ~used) == 0 &&
         ct_sql_can_count(table->sql);
}

/* The plan's number, with the order of the rows if they are to be grouped. */
static uint32_t
plan_number(const sqlite3_index_info *info)
{
  uint32_t number = (uint32_t)info->colUsed & ((1u << C_COUNT) - 1);
  if (info->nOrderBy < 1 || info->nOrderBy > CT_SQL_KEYS) {
    return number;
  }
  for (int i = 0; i < info->nOrderBy; i++) {
    uint32_t key = 0;
    while (key < sizeof(keys_by_number) / sizeof(keys_by_number[0]) &&
           info->aOrderBy[i].iColumn != keys_by_number[key]) {
      key++;
    }
    if (key == sizeof(keys_by_number) / sizeof(keys_by_number[0]) || info->aOrderBy[i].desc) {
      return (uint32_t)info->colUsed & ((1u << C_COUNT) - 1);
    }
    number |= (key + 1) << KEY_SHIFT(i);
  }
  return number;
}

static int
spans_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  char letters[PUSHED + 2];
  int count = 0, limit = -1;
  bool exact = true, has_offset = false;
  double rows = 1e8;
  for (int i = 0; i < info->nConstraint; i++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[i];
    if (constraint->op == SQLITE_INDEX_CONSTRAINT_LIMIT) {
      limit = constraint->usable ? i : -1;
      continue;
    }
    has_offset |= constraint->op == SQLITE_INDEX_CONSTRAINT_OFFSET;
    int at = constraint->usable && ct_sql_is_binary(info, i) ? find_pushed(constraint) : -1;
    if (at < 0 || memchr(letters, pushed[at].letter, (size_t)count) != NULL) {
      exact = exact && constraint->op == SQLITE_INDEX_CONSTRAINT_OFFSET;
      continue;
    }
    exact = exact && pushed[at].exact;
    letters[count++] = pushed[at].letter;
    info->aConstraintUsage[i].argvIndex = count;
    rows *= pushed[at].share;
  }
  /* A name and an id: the id is left to SQLite, which may then drop rows that a LIMIT has counted. */
  exact = exact && (memchr(letters, 'n', (size_t)count) == NULL || memchr(letters, 'f', (size_t)count) == NULL);
  int order = find_order(info);
  if (order >= 0 && exact && limit >= 0 && !has_offset && is_few((struct ct_sql_table *)base, info, limit)) {
    letters[count++] = orders[order].letter;
    info->aConstraintUsage[limit].argvIndex = count;
    info->orderByConsumed = 1;
    rows *= 1e-3;
  }
  if (is_counted((struct ct_sql_table *)base, info)) {
    letters[count++] = COUNTED_LETTER;
    info->orderByConsumed = 1;
    rows *= 0.1;
  }
  uint32_t number = plan_number(info);
  bool by_thread = info->nOrderBy == 1 && info->aOrderBy[0].iColumn == C_THREAD && !info->aOrderBy[0].desc;
  info->orderByConsumed |= by_thread; /* as scans come */
  if (!info->orderByConsumed && number >> C_COUNT != 0 && memchr(letters, 'i', (size_t)count) == NULL) {
    info->orderByConsumed = 1;
    info->idxNum = (int)number;
  }
  letters[count] = '\0';
  info->idxStr = sqlite3_mprintf("%s", letters);
  info->needToFreeIdxStr = 1;
  info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
  info->estimatedCost = rows < 1000 ? 1000 : rows;
  return info->idxStr != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static int
spans_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct spans_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  *out = &cursor->base;
  return SQLITE_OK;
}

static void
close_scan(struct spans_cursor *c)
{
  if (c->scan != NULL) {
    c->sql->sources[c->scan_source].pins--;
    c->sql->scans--;
  }
  ct_scan_close(c->scan);
  c->scan = NULL;
}

static void
forget_query(struct spans_cursor *c)
{
  close_scan(c);
  free(c->name);
  free(c->merged);
  free(c->merged_source);
  ct_sql_counting_end(&c->counting);
  ct_sql_grouping_end(c->grouping);
  sqlite3_vtab_cursor base = c->base;
  struct ct_sql *sql = c->sql;
  struct asked_functions functions = c->functions;
  *c = (struct spans_cursor){
      .base = base,
      .sql = sql,
      .functions = functions,
      .thread = -1,
      .filter = CT_SCAN_FILTER_ALL,
      .start = ANY,
      .end = ANY,
      .duration = ANY,
  };
}

static int
spans_close(sqlite3_vtab_cursor *base)
{
  struct spans_cursor *c = (struct spans_cursor *)base;
  forget_query(c);
  free(c->functions.flags);
  free(c->functions.ids);
  free(c);
  return SQLITE_OK;
}

/* ---- the query ---- */

/* Of LIKE 'unfinished%', as the view open_frames has it: those are in few places. */
static void
take_flags(struct spans_cursor *c, sqlite3_value *value)
{
  static const char word[] = "unfinished";
  const char *pattern = sqlite3_value_type(value) == SQLITE_TEXT ? (const char *)sqlite3_value_text(value) : NULL;
  c->filter.unfinished = pattern != NULL && strncasecmp(pattern, word, strlen(word)) == 0;
}

static void
take_order(struct spans_cursor *c, char letter, sqlite3_int64 limit)
{
  for (int i = 0; i < ORDERS; i++) {
    if (orders[i].letter == letter) {
      c->is_empty |= limit == 0;
      c->filter.longest = limit > 0 ? (uint64_t)limit : UINT64_MAX / 2;
      c->filter.order = orders[i].order;
    }
  }
}

static void
bound(struct spans_cursor *c, struct bounds *bounds, sqlite3_value *value, unsigned char op)
{
  bool is_upper = op == SQLITE_INDEX_CONSTRAINT_LE || op == SQLITE_INDEX_CONSTRAINT_LT;
  int64_t number;
  if (!ct_sql_bound(value, is_upper, op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_LT, &number)) {
    c->is_empty = true;
  } else if (is_upper) {
    bounds->to = number < bounds->to ? number : bounds->to;
  } else {
    bounds->from = number > bounds->from ? number : bounds->from;
  }
}

/* Of a bound of a column of numbers. False: it is none. */
static bool
take_bound(struct spans_cursor *c, char letter, sqlite3_value *value)
{
  struct bounds depth = {c->filter.least_depth, c->filter.most_depth};
  for (int i = 0; i < PUSHED; i++) {
    if (pushed[i].letter != letter || pushed[i].op == SQLITE_INDEX_CONSTRAINT_EQ) {
      continue;
    }
    struct bounds *bounds = pushed[i].column == C_START      ? &c->start
                            : pushed[i].column == C_END      ? &c->end
                            : pushed[i].column == C_DURATION ? &c->duration
                                                             : &depth;
    bound(c, bounds, value, pushed[i].op);
    c->is_empty |= bounds->from > bounds->to;
    c->filter.no_points |= bounds == &c->duration;
    if (bounds == &depth && depth.from <= depth.to) {
      c->filter.least_depth = (uint32_t)depth.from;
      c->filter.most_depth = (uint32_t)depth.to;
    }
    return true;
  }
  return false;
}

/* One argument of the plan. What no value of the column is equal to matches nothing. */
static void
take_argument(struct spans_cursor *c, char letter, sqlite3_value *value)
{
  int type = sqlite3_value_type(value);
  if (letter == 'n') {
    const char *name = type == SQLITE_TEXT ? (const char *)sqlite3_value_text(value) : NULL;
    c->has_function = true;
    c->name = name != NULL ? strdup(name) : NULL;
    c->is_empty |= c->name == NULL;
    return;
  }
  if (letter == 'u') {
    take_flags(c, value);
    return;
  }
  if (take_bound(c, letter, value)) {
    return;
  }
  int64_t number;
  if (!ct_sql_whole(value, &number)) {
    c->is_empty = true;
    return;
  }
  switch (letter) {
  case 'i':
  case 'p':
    *(letter == 'i' ? &c->filter.has_id : &c->filter.has_parent) = true;
    c->is_empty |= !ct_span_id_split((uint64_t)number, letter == 'i' ? &c->place : &c->parent);
    break;
  case 't':
    c->thread = number;
    c->is_empty |= number < 0;
    break;
  case 'f':
    c->has_function = true;
    c->function_id = number;
    break;
  case 'l':
    c->is_empty |= number < c->filter.least_depth || number > c->filter.most_depth;
    c->filter.least_depth = c->filter.most_depth = (uint32_t)number;
    break;
  default:
    take_order(c, letter, number);
    break;
  }
}

static const char *
name_of(struct ct_trace *trace, uint32_t id)
{
  const struct ct_trace_function *fn = ct_trace_function(trace, id);
  return fn != NULL ? fn->name : "";
}

static int
compare_names(const void *a, const void *b, void *trace)
{
  return strcmp(name_of(trace, *(const uint32_t *)a), name_of(trace, *(const uint32_t *)b));
}

static int
choose_one(struct spans_cursor *c, uint32_t id)
{
  if ((c->functions.count & (c->functions.count - 1)) == 0) { /* full: it doubles */
    size_t capacity = c->functions.count == 0 ? 1 : c->functions.count * 2;
    uint32_t *grown = reallocarray(c->functions.ids, capacity, sizeof(*grown));
    if (grown == NULL) {
      return SQLITE_NOMEM;
    }
    c->functions.ids = grown;
  }
  c->functions.ids[c->functions.count++] = id;
  c->functions.flags[id] = 1;
  return SQLITE_OK;
}

/* A name that is asked for once is looked for among all; a join asks for it with each row. */
static int
choose_by_name(struct spans_cursor *c, struct ct_sql_source *source, uint32_t count)
{
  enum { FEW = 3 };
  if (source->by_name == NULL && source->name_questions++ >= FEW) {
    source->by_name = malloc(((size_t)count + 1) * sizeof(*source->by_name));
    for (uint32_t i = 0; source->by_name != NULL && i < count; i++) {
      source->by_name[i] = i;
    }
    if (source->by_name != NULL && count != 0) {
      qsort_r(source->by_name, count, sizeof(*source->by_name), compare_names, source->trace);
    }
  }
  uint32_t low = 0, high = source->by_name != NULL ? count : 0;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (strcmp(name_of(source->trace, source->by_name[middle]), c->name) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (uint32_t i = low; i < count; i++) {
    uint32_t id = source->by_name != NULL ? source->by_name[i] : i;
    const struct ct_trace_function *fn = ct_trace_function(source->trace, id);
    if (fn != NULL && strcmp(fn->name, c->name) == 0 && choose_one(c, id) != SQLITE_OK) {
      return SQLITE_NOMEM;
    }
    if (source->by_name != NULL && strcmp(name_of(source->trace, id), c->name) != 0) {
      break;
    }
  }
  return SQLITE_OK;
}

/* The functions of the source that are asked for: functions.count of them. */
static int
choose_functions(struct spans_cursor *c, struct ct_sql_source *source)
{
  uint32_t count = ct_trace_function_count(source->trace);
  for (size_t i = 0; i < c->functions.count; i++) {
    c->functions.flags[c->functions.ids[i]] = 0;
  }
  c->functions.count = 0;
  if (c->functions.of != source) {
    free(c->functions.flags);
    c->functions.of = NULL;
    c->functions.flags = calloc((size_t)count + 1, 1);
    if (c->functions.flags == NULL) {
      return SQLITE_NOMEM;
    }
    c->functions.of = source;
  }
  if (c->name != NULL) {
    return choose_by_name(c, source, count);
  }
  bool is_there =
      c->function_id >= (int64_t)source->function_base && (uint64_t)c->function_id - source->function_base < count;
  return is_there ? choose_one(c, (uint32_t)((uint64_t)c->function_id - source->function_base)) : SQLITE_OK;
}

static bool
is_in(const struct ct_span_place *place, const struct ct_sql_source *source)
{
  return place->trace == source->number && place->process == source->process;
}

/* What the bounds are in the source's ticks. */
static void
set_bounds(const struct spans_cursor *c, const struct ct_sql_source *source, struct ct_scan_filter *filter)
{
  filter->start_from = c->start.from != INT64_MIN ? ct_sql_first_tsc(source, c->start.from) : 0;
  filter->end_from = c->end.from != INT64_MIN ? ct_sql_first_tsc(source, c->end.from) : 0;
  if (c->start.to != INT64_MAX) {
    uint64_t after = ct_sql_first_tsc(source, c->start.to + 1);
    filter->start_to = after - (after != 0);
    filter->start_from = after != 0 ? filter->start_from : UINT64_MAX; /* none */
  }
  filter->least_ticks = ct_sql_least_ticks(source, c->duration.from);
  filter->most_ticks =
      c->duration.to != INT64_MAX ? ct_sql_least_ticks(source, c->duration.to + 1) - 1 : filter->most_ticks;
}

/* Begins the scan of a source; *begun: there is something to look for in it. */
static int
begin_source(struct spans_cursor *c, bool *begun)
{
  struct ct_sql_source *source = &c->sql->sources[c->source];
  struct ct_scan_filter filter = c->filter;
  *begun = false;
  if ((filter.has_id && !is_in(&c->place, source)) || (filter.has_parent && !is_in(&c->parent, source)) ||
      (filter.has_id && filter.has_parent && c->place.thread != c->parent.thread)) {
    return SQLITE_OK;
  }
  filter.thread = filter.has_id ? c->place.thread : c->parent.thread;
  filter.ordinal = c->place.ordinal;
  filter.parent_ordinal = c->parent.ordinal;
  if (c->thread >= 0) {
    uint64_t thread = (uint64_t)c->thread - source->thread_base;
    if ((uint64_t)c->thread < source->thread_base || thread >= ct_trace_thread_count(source->trace) ||
        ((filter.has_id || filter.has_parent) && thread != filter.thread)) {
      return SQLITE_OK;
    }
    filter.has_thread = true;
    filter.thread = (uint32_t)thread;
  }
  if (c->has_function) {
    int code = choose_functions(c, source);
    if (code != SQLITE_OK || c->functions.count == 0) {
      return code;
    }
    filter.functions = c->functions.flags;
  }
  if (c->wanted != NULL) {
    filter.functions = c->wanted[c->source];
    if (filter.functions == NULL) {
      return SQLITE_OK;
    }
  }
  filter.threads = source->threads;
  set_bounds(c, source, &filter);
  struct ct_index *index = ct_sql_index(c->sql, source);
  if (c->sql->cache == NULL && (filter.has_id || filter.has_parent)) {
    c->sql->cache = ct_scan_cache_create(0); /* without it, it is only slower */
  }
  filter.cache = c->sql->cache;
  if (index == NULL || ct_scan_open(index, &filter, &c->scan, &c->sql->diag) != 0) {
    return ct_sql_table_failed(c->base.pVtab);
  }
  source->pins++;
  c->sql->scans++;
  c->scan_source = c->source;
  *begun = true;
  return SQLITE_OK;
}

/* The next span of this source or a later one. */
static int
advance(struct spans_cursor *c)
{
  c->span = NULL;
  while (c->source < c->sql->source_count) {
    bool begun = c->scan != NULL;
    if (!begun) {
      int code = begin_source(c, &begun);
      if (code != SQLITE_OK) {
        return code;
      }
    }
    if (begun) {
      int code = ct_scan_next(c->scan, &c->span);
      if (code != 0) {
        ct_fail(&c->sql->diag, code, "the trace or its index cannot be read: %s", ct_err_text(code));
        return ct_sql_table_failed(c->base.pVtab);
      }
      if (c->span != NULL) {
        return SQLITE_OK;
      }
      close_scan(c);
    }
    c->source++;
  }
  return SQLITE_OK;
}

struct found {
  struct ct_span span;
  uint32_t source;
  uint64_t key; /* the greater, the earlier it comes */
};

static int
compare_found(const void *a, const void *b)
{
  const struct found *x = a, *y = b;
  return (x->key < y->key) - (x->key > y->key);
}

/* In ns, as rows have them, since ticks of several sources are not the same. */
static uint64_t
found_key(const struct spans_cursor *c, const struct ct_sql_source *source)
{
  const struct ct_span *span = c->span;
  enum ct_scan_order order = c->filter.order;
  if (order == CT_SCAN_LONGEST) {
    return span->end == CT_SPAN_POINT ? 0 : ct_trace_ticks_ns(source->trace, span->duration_ticks) + 1;
  }
  bool by_begin = order == CT_SCAN_FIRST_BEGUN || order == CT_SCAN_LAST_BEGUN;
  bool is_last_first = order == CT_SCAN_LAST_BEGUN || order == CT_SCAN_LAST_ENDED;
  uint64_t time = (uint64_t)ct_sql_time(source, by_begin ? span->enter_tsc : span->end_tsc) ^ UINT64_C(1) << 63;
  return is_last_first ? time : ~time;
}

/* The first ones of several sources: those of each, together. */
static int
merge_sources(struct spans_cursor *c)
{
  struct found *list = NULL;
  size_t count = 0, capacity = 0;
  int code;
  while ((code = advance(c)) == SQLITE_OK && c->span != NULL) {
    if (count == capacity) {
      capacity = capacity == 0 ? 64 : capacity * 2;
      struct found *more = reallocarray(list, capacity, sizeof(*list));
      if (more == NULL) {
        free(list);
        return SQLITE_NOMEM;
      }
      list = more;
    }
    uint64_t key = found_key(c, &c->sql->sources[c->source]);
    list[count++] = (struct found){*c->span, (uint32_t)c->source, key};
  }
  if (count != 0) {
    qsort(list, count, sizeof(*list), compare_found);
  }
  c->merged = malloc((count + 1) * sizeof(*c->merged));
  c->merged_source = malloc((count + 1) * sizeof(*c->merged_source));
  code = c->merged == NULL || c->merged_source == NULL ? SQLITE_NOMEM : code;
  for (size_t i = 0; code == SQLITE_OK && i < count; i++) {
    c->merged[i] = list[i].span;
    c->merged_source[i] = list[i].source;
  }
  free(list);
  c->merged_count = count < c->filter.longest ? count : c->filter.longest;
  return code;
}

static void
step_merged(struct spans_cursor *c)
{
  c->span = c->merged_at < c->merged_count ? &c->merged[c->merged_at] : NULL;
  c->source = c->span != NULL ? c->merged_source[c->merged_at++] : c->sql->source_count;
}

static int
next_to_group(void *arg, const struct ct_span **span, uint32_t *source)
{
  struct spans_cursor *c = arg;
  int code = advance(c);
  *span = c->span;
  *source = (uint32_t)c->source;
  return code;
}

static void
begin_again(void *arg, uint8_t *const *functions)
{
  struct spans_cursor *c = arg;
  close_scan(c);
  c->source = 0;
  c->wanted = functions;
}

static int
step_grouped(struct spans_cursor *c)
{
  uint32_t source = 0;
  const struct ct_span *span;
  int code = ct_sql_grouping_next(c->grouping, &span, &source);
  c->span = code == SQLITE_OK ? span : NULL;
  c->given_source = source;
  return code;
}

static int
begin_grouped(struct spans_cursor *c, uint32_t plan)
{
  const struct ct_sql_span_stream stream = {next_to_group, begin_again, c};
  int keys[CT_SQL_KEYS], count = 0, code = SQLITE_OK;
  for (; count < CT_SQL_KEYS && (plan >> KEY_SHIFT(count) & 15) != 0; count++) {
    keys[count] = keys_by_number[(plan >> KEY_SHIFT(count) & 15) - 1];
  }
  c->grouping = ct_sql_grouping_begin(c->sql, &stream, plan, keys, count, &code);
  return code == SQLITE_OK ? step_grouped(c) : code;
}

static int
spans_filter(sqlite3_vtab_cursor *base, int plan, const char *letters, int argc, sqlite3_value **argv)
{
  struct spans_cursor *c = (struct spans_cursor *)base;
  forget_query(c);
  for (int i = 0; i < argc; i++) {
    take_argument(c, letters[i], argv[i]);
  }
  if (letters[0] == COUNTED_LETTER) {
    return ct_sql_counting_begin(&c->counting, c->sql) == 0 ? SQLITE_OK : ct_sql_table_failed(base->pVtab);
  }
  if (c->is_empty) {
    c->source = c->sql->source_count;
    return SQLITE_OK;
  }
  if (c->filter.longest != 0 && c->sql->source_count > 1) {
    int code = merge_sources(c);
    step_merged(c);
    return code;
  }
  return plan != 0 ? begin_grouped(c, (uint32_t)plan) : advance(c);
}

static int
spans_next(sqlite3_vtab_cursor *base)
{
  struct spans_cursor *c = (struct spans_cursor *)base;
  if (c->counting.is_on) {
    ct_sql_counting_next(&c->counting);
    return SQLITE_OK;
  }
  if (c->merged != NULL) {
    step_merged(c);
    return SQLITE_OK;
  }
  return c->grouping != NULL ? step_grouped(c) : advance(c);
}

static int
spans_eof(sqlite3_vtab_cursor *base)
{
  const struct spans_cursor *c = (const struct spans_cursor *)base;
  return c->counting.is_on ? c->counting.at == c->counting.count : c->span == NULL;
}

static int
spans_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  const struct spans_cursor *c = (const struct spans_cursor *)base;
  const struct ct_sql_source *source = &c->sql->sources[c->grouping != NULL ? c->given_source : c->source];
  const struct ct_span *s = c->span;
  if (c->counting.is_on) {
    ct_sql_counting_result(&c->counting, column == C_MODULE, out);
    return SQLITE_OK;
  }
  ct_sql_span_column(source, s, column, out);
  return SQLITE_OK;
}

static int
spans_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid)
{
  const struct spans_cursor *c = (const struct spans_cursor *)base;
  const struct ct_sql_source *source = &c->sql->sources[c->source];
  const struct ct_span *s = c->span;
  if (c->counting.is_on || c->grouping != NULL) {
    ct_fail(&c->sql->diag, CT_EINVAL,
            "spans have no rowid where they come by functions, or only these are asked for: ask for id");
    return ct_sql_table_failed(base->pVtab);
  }
  uint64_t id = ct_span_id_in(source->trace, s->thread, s->ordinal);
  *rowid = id != 0 ? (int64_t)id : ct_sql_row_number(source->thread_base + s->thread, s->end_tsc, s->depth);
  return SQLITE_OK;
}

CT_SQL_MODULE(spans);

int
ct_sql_spans_register(struct ct_sql *sql)
{
  return sqlite3_create_module(sql->db, "spans", &spans_module, sql) == SQLITE_OK ? 0 : CT_ENOMEM;
}
