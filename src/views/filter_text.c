/* SPDX-License-Identifier: MIT */
/* The texts of filters (see <contrail/filter.h>): durations, moments, reasons, types, depths, traces with a piece. */
#include <contrail/filter.h>

#include "base/json.h"
#include "trace/batch.h"

#include <contrail/span.h>
#include <contrail/text.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { LIST_CHARS = 400, WORD_CHARS = 32 };
#define SECOND_NS UINT64_C(1000000000)
#define TIME_MAX  (1000000000 * SECOND_NS) /* from the begin of a recording: thirty years */

/* ---- numbers ---- */

/* The digits at *at, least to most of them, as a number; false: there are fewer, or more. */
static bool
take_digits(const char **at, size_t least, size_t most, uint64_t *number)
{
  size_t count = strspn(*at, "0123456789");
  if (count < least || count > most) {
    return false;
  }
  *number = 0;
  for (size_t i = 0; i < count; i++) {
    *number = *number * 10 + (uint64_t)((*at)[i] - '0');
  }
  *at += count;
  return true;
}

/* ".25", if there is one, in 10^-9. More digits are passed over. False: a point without digits. */
static bool
take_fraction(const char **at, uint32_t *nano)
{
  *nano = 0;
  if (**at != '.') {
    return true;
  }
  const char *digits = *at + 1;
  size_t count = strspn(digits, "0123456789");
  for (size_t i = 0; i < 9; i++) {
    *nano = *nano * 10 + (i < count ? (uint32_t)(digits[i] - '0') : 0);
  }
  *at = digits + count;
  return count != 0;
}

/* "1.5ms" in nanoseconds; without a unit in units of bare_ns, if that is not 0. False: it is no such thing. */
static bool
take_duration(const char *text, uint64_t bare_ns, uint64_t *ns)
{
  static const struct {
    const char *name;
    uint64_t ns;
  } units[] = {{"ns", 1},
               {"us", 1000},
               {"ms", 1000000},
               {"s", SECOND_NS},
               {"m", 60 * SECOND_NS},
               {"h", 3600 * SECOND_NS},
               {"d", 86400 * SECOND_NS}};
  uint64_t whole;
  uint32_t nano;
  if (!take_digits(&text, 1, 15, &whole) || !take_fraction(&text, &nano)) {
    return false;
  }
  uint64_t unit = text[0] == '\0' ? bare_ns : 0;
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
    unit = strcmp(text, units[i].name) == 0 ? units[i].ns : unit;
  }
  unsigned __int128 product = ((unsigned __int128)whole * SECOND_NS + nano) * unit / SECOND_NS;
  if (unit == 0 || product > UINT64_MAX) {
    return false;
  }
  *ns = (uint64_t)product;
  return true;
}

int
ct_filter_parse_duration(const char *text, uint64_t *ns, struct ct_diag *diag)
{
  uint64_t duration;
  if (!take_duration(text, 0, &duration) || duration == 0) {
    return ct_fail(diag, CT_EINVAL, "'%.100s' is no duration: 1ms, 1.5us, 20ns, 3s", text);
  }
  *ns = duration;
  return CT_OK;
}

/* ---- moments ---- */

struct wall {
  struct tm tm; /* year, month and day only with has_date */
  uint32_t nano;
  bool has_date, is_utc;
};

/* "10:15", "10:15:30.5". */
static bool
take_clock(const char **at, struct wall *wall)
{
  uint64_t hour, minute, second = 0;
  if (!take_digits(at, 1, 2, &hour) || *(*at)++ != ':' || !take_digits(at, 2, 2, &minute)) {
    return false;
  }
  if (**at == ':') {
    ++*at;
    if (!take_digits(at, 2, 2, &second) || !take_fraction(at, &wall->nano)) {
      return false;
    }
  }
  wall->tm.tm_hour = (int)hour;
  wall->tm.tm_min = (int)minute;
  wall->tm.tm_sec = (int)second;
  return hour < 24 && minute < 60 && second < 60;
}

/* "2026-11-24". */
static bool
take_date(const char **at, struct wall *wall)
{
  uint64_t year, month, day;
  if (!take_digits(at, 4, 4, &year) || *(*at)++ != '-' || !take_digits(at, 2, 2, &month) || *(*at)++ != '-' ||
      !take_digits(at, 2, 2, &day)) {
    return false;
  }
  wall->has_date = true;
  wall->tm.tm_year = (int)year - 1900;
  wall->tm.tm_mon = (int)month - 1;
  wall->tm.tm_mday = (int)day;
  return year >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

/* A date with or without a time, or a time. */
static bool
take_wall(const char *text, struct wall *wall)
{
  *wall = (struct wall){.is_utc = false};
  if (strspn(text, "0123456789") == 4) {
    if (!take_date(&text, wall)) {
      return false;
    }
    if (text[0] == '\0') {
      return true;
    }
    if (text[0] != 'T' && text[0] != ' ') {
      return false;
    }
    text++;
  }
  if (!take_clock(&text, wall)) {
    return false;
  }
  if (wall->has_date && text[0] == 'Z') {
    wall->is_utc = true;
    text++;
  }
  return text[0] == '\0';
}

/* In nanoseconds since 1970; false: there is no such day. */
static bool
wall_ns(const struct wall *wall, int more_days, int64_t *ns)
{
  struct tm tm = wall->tm;
  tm.tm_mday += more_days;
  tm.tm_isdst = -1;
  time_t seconds = wall->is_utc ? timegm(&tm) : mktime(&tm);
  *ns = (int64_t)seconds * (int64_t)SECOND_NS + wall->nano;
  return seconds != (time_t)-1 && (more_days != 0 || tm.tm_mday == wall->tm.tm_mday);
}

/* The recording's begin by the clock on the wall; 0: the trace does not say. */
static int64_t
start_wall_ns(const struct ct_trace *trace)
{
  uint64_t start = ct_json_get(ct_trace_manifest(trace), "start_wall_ns");
  return start <= INT64_MAX ? (int64_t)start : 0;
}

/* How long after the recording's begin that was; less than 0: before. False: there is no such day. */
static bool
since_start(const struct ct_trace *trace, struct wall *wall, int64_t *ns)
{
  int64_t start = start_wall_ns(trace), then;
  if (!wall->has_date) {
    struct tm day;
    time_t seconds = (time_t)(start / (int64_t)SECOND_NS);
    if (localtime_r(&seconds, &day) == NULL) {
      return false;
    }
    wall->tm.tm_year = day.tm_year;
    wall->tm.tm_mon = day.tm_mon;
    wall->tm.tm_mday = day.tm_mday;
  }
  if (!wall_ns(wall, 0, &then)) {
    return false;
  }
  *ns = then - start;
  uint64_t end = ct_trace_ns(trace, ct_trace_end_tsc(trace)), begin = ct_trace_start_ns(trace);
  if (!wall->has_date && *ns < 0 && wall_ns(wall, 1, &then) && end > begin && (uint64_t)(then - start) <= end - begin) {
    *ns = then - start; /* the recording went on after midnight */
  }
  return true;
}

/* A moment by the clock of the trace. */
static int
parse_moment(const struct ct_trace *trace, const char *text, uint64_t *ns, struct ct_diag *diag)
{
  struct wall wall;
  uint64_t after, start = ct_trace_start_ns(trace);
  int64_t since;
  if (take_duration(text, SECOND_NS, &after) && after < TIME_MAX) {
    *ns = start + after;
    return CT_OK;
  }
  bool is_wall = take_wall(text, &wall);
  if (is_wall && start_wall_ns(trace) == 0) {
    return ct_fail(diag, CT_EINVAL, "'%.100s': the trace does not say what time it was; seconds from its begin do",
                   text);
  }
  if (!is_wall || !since_start(trace, &wall, &since)) {
    return ct_fail(diag, CT_EINVAL,
                   "'%.100s' is no time: 1.5 (seconds since the start of the recording), 1500ms, 2m, 10:15:30, "
                   "2026-11-24T10:15:30",
                   text);
  }
  uint64_t before = since < 0 ? (uint64_t)-since : 0;
  *ns = since >= 0 ? start + (uint64_t)since : before < start ? start - before : 0;
  return CT_OK;
}

int
ct_filter_parse_time(const struct ct_trace *trace, const char *text, uint64_t *tsc, struct ct_diag *diag)
{
  uint64_t ns;
  int code = parse_moment(trace, text, &ns, diag);
  if (code == CT_OK) {
    *tsc = ct_trace_tsc(trace, ns);
  }
  return code;
}

/* The first tick that is shown as that time or a later one: a time has some ticks, or a tick some of these. */
static uint64_t
first_tick(const struct ct_trace *trace, uint64_t ns)
{
  uint64_t tsc = ct_trace_tsc(trace, ns);
  for (int i = 0; i < 2 && tsc != UINT64_MAX && ct_trace_ns(trace, tsc) < ns; i++) {
    tsc++;
  }
  return tsc;
}

int
ct_filter_parse_piece(const struct ct_trace *trace, const char *from, const char *to, struct ct_filter *filter,
                      struct ct_diag *diag)
{
  uint64_t begin_ns = 0, end_ns = 0, begin = filter->from_tsc, end = filter->to_tsc;
  int code = from != NULL ? parse_moment(trace, from, &begin_ns, diag) : CT_OK;
  code = code == CT_OK && to != NULL ? parse_moment(trace, to, &end_ns, diag) : code;
  if (code != CT_OK) {
    return code;
  }
  if (from != NULL) {
    begin = first_tick(trace, begin_ns);
    begin += begin == 0; /* that would be none */
  }
  if (to != NULL) {
    end = ct_trace_tsc(trace, end_ns);
    end += end == 0;
    end = from != NULL && begin_ns <= end_ns && end < begin ? begin : end; /* there is no tick in between */
  }
  if (end != 0 && begin > end) {
    return ct_fail(diag, CT_ERANGE, "it ends before it begins");
  }
  filter->from_tsc = begin;
  filter->to_tsc = end;
  return CT_OK;
}

/* ---- lists of words ---- */

/* The word at *at, up to a comma, with blanks for '-', which *at is put after; false: it is empty or too long.
 */
static bool
take_word(const char **at, char word[WORD_CHARS])
{
  size_t length = strcspn(*at, ",");
  if (length == 0 || length >= WORD_CHARS) {
    return false;
  }
  for (size_t i = 0; i < length; i++) {
    word[i] = (*at)[i] == '-' ? ' ' : (*at)[i];
  }
  word[length] = '\0';
  *at += length;
  return true;
}

/* All words that there are, each once, for a message. */
static void
list_words(const char *(*name)(unsigned number), unsigned count, char list[LIST_CHARS])
{
  size_t length = 0;
  list[0] = '\0';
  for (unsigned i = 0; i < count && length < LIST_CHARS; i++) {
    unsigned same = 0;
    while (strcmp(name(same), name(i)) != 0) {
      same++;
    }
    if (same == i) {
      length += (size_t)snprintf(list + length, LIST_CHARS - length, "%s%s", i == 0 ? "" : ", ", name(i));
    }
  }
}

/*
 * The words of text, of those that `name` gives for 0 .. count - 1: the bits of their numbers. A word that several
 * numbers have is all of these.
 */
static int
parse_words(const char *text, const char *what, const char *(*name)(unsigned number), unsigned count, uint32_t *bits,
            struct ct_diag *diag)
{
  char word[WORD_CHARS], list[LIST_CHARS];
  uint32_t found = 0;
  const char *at = text;
  do {
    at += at != text;
    uint32_t here = 0;
    bool is_word = take_word(&at, word);
    for (unsigned i = 0; is_word && i < count; i++) {
      here |= strcmp(name(i), word) == 0 ? UINT32_C(1) << i : 0;
    }
    if (here == 0) {
      list_words(name, count, list);
      return ct_fail(diag, CT_EINVAL, "'%.60s' is no %s: %s", text, what, list);
    }
    found |= here;
  } while (*at == ',');
  *bits = found;
  return CT_OK;
}

static const char *
reason_name(unsigned number)
{
  return ct_span_end_text((enum ct_span_end)number);
}

int
ct_filter_parse_reasons(const char *text, uint32_t *reasons, struct ct_diag *diag)
{
  return parse_words(text, "end of a call", reason_name, CT_SPAN_ENDS, reasons, diag);
}

const char *
ct_filter_type_name(enum ct_filter_type type)
{
  static const char *const names[CT_FILTER_TYPES] = {"call", "point", "output", "switch", "lost", "crash"};
  for (unsigned i = 0; i < CT_FILTER_TYPES; i++) {
    if (type == 1u << i) {
      return names[i];
    }
  }
  return "?";
}

static const char *
type_name(unsigned number)
{
  return ct_filter_type_name((enum ct_filter_type)(1u << number));
}

int
ct_filter_parse_types(const char *text, uint32_t *types, struct ct_diag *diag)
{
  return parse_words(text, "type", type_name, CT_FILTER_TYPES, types, diag);
}

/* ---- depths ---- */

int
ct_filter_parse_depth(const char *text, struct ct_filter *filter, struct ct_diag *diag)
{
  const char *at = text;
  uint64_t first = 0, last = UINT32_MAX;
  bool has_first = take_digits(&at, 1, 9, &first);
  if (has_first && at[0] == '\0') {
    filter->levels = (uint32_t)first;
    return CT_OK;
  }
  bool is_range = strncmp(at, "..", 2) == 0;
  at += is_range ? 2 : 0;
  bool has_last = is_range && take_digits(&at, 1, 9, &last);
  if (!is_range || at[0] != '\0' || (!has_first && !has_last) || first > last) {
    return ct_fail(diag, CT_EINVAL, "'%.100s' is no depth: 3 (so many levels), 2..5, 2.., ..5 (0 is the outermost)",
                   text);
  }
  filter->has_depths = true;
  filter->first_depth = (uint32_t)first;
  filter->last_depth = (uint32_t)last;
  return CT_OK;
}

/* ---- a trace with a piece of it ---- */

static bool
is_directory(const char *path)
{
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* "window:3" */
static bool
take_window(const char *part, uint64_t *window)
{
  static const char word[] = "window:";
  if (strncmp(part, word, sizeof(word) - 1) != 0) {
    return false;
  }
  const char *at = part + sizeof(word) - 1;
  return take_digits(&at, 1, 9, window) && *at == '\0' && *window != 0;
}

/* What the last '@' or '#' of the name is followed by, cut off: a piece or a thread. */
static int
take_part(char *name, const char *text, struct ct_trace_form *form, struct ct_diag *diag)
{
  char *part = name;
  for (char *at = name; *at != '\0'; at++) {
    part = *at == '@' || *at == '#' ? at : part;
  }
  char kind = *part;
  *part++ = '\0';
  if (kind == '#') {
    const char *at = part;
    uint64_t tid;
    if (form->has_tid || !take_digits(&at, 1, 9, &tid) || *at != '\0') {
      return ct_fail(diag, CT_EINVAL, "%.200s: there is no such directory, and no thread is named so: DIR#TID", text);
    }
    form->has_tid = true;
    form->tid = (uint32_t)tid;
    return CT_OK;
  }
  char *to = strstr(part, "..");
  bool is_first = form->from == NULL && form->to == NULL && form->window == 0;
  if (is_first && to == NULL && take_window(part, &form->window)) {
    return CT_OK;
  }
  if (!is_first || to == NULL) {
    return ct_fail(diag, CT_EINVAL,
                   "%.200s: there is no such directory, and no piece is named so: DIR@FROM..TO, DIR@window:N", text);
  }
  *to = '\0';
  to += 2;
  form->from = part[0] != '\0' ? strdup(part) : NULL;
  form->to = to[0] != '\0' ? strdup(to) : NULL;
  return (part[0] != '\0' && form->from == NULL) || (to[0] != '\0' && form->to == NULL)
             ? ct_fail(diag, CT_ENOMEM, "out of memory")
             : CT_OK;
}

int
ct_trace_form_parse(const char *text, struct ct_trace_form *form, struct ct_diag *diag)
{
  struct ct_trace_form own = {.struct_size = sizeof(own), .directory = strdup(text)};
  if (own.directory == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  char *slash = strrchr(own.directory, '/'), *name = slash != NULL ? slash + 1 : own.directory;
  int code = CT_OK;
  while (code == CT_OK && strpbrk(name, "@#") != NULL && !is_directory(own.directory)) {
    code = take_part(name, text, &own, diag);
  }
  if (code != CT_OK) {
    ct_trace_form_free(&own);
    return code;
  }
  *form = own;
  return CT_OK;
}

void
ct_trace_form_free(struct ct_trace_form *form)
{
  free(form->directory);
  free(form->from);
  free(form->to);
  *form = (struct ct_trace_form){.struct_size = form->struct_size};
}
