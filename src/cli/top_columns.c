/* SPDX-License-Identifier: MIT */
/* The columns of contrail top before the function's name: as many as leave the name some room, the most useful first.
 */
#include "cli/top.h"

#include <contrail/text.h>

#include <inttypes.h>
#include <string.h>

enum column { LAST_CALLS, LAST_SELF, LAST_P99, CALLS, SELF, P99, OPEN, COLUMNS };
enum { NAME_LEAST = 28, LINE_END = 2 };

static const struct {
  const char *heading;
  unsigned width; /* with what parts it from the one before */
} columns[COLUMNS] = {
    [LAST_CALLS] = {"calls last", 12},
    [LAST_SELF] = {"self last", 11},
    [LAST_P99] = {"p99 last", 11},
    [CALLS] = {"calls", 16},
    [SELF] = {"self", 11},
    [P99] = {"p99", 11},
    [OPEN] = {"open", 8},
};
static const enum column by_use[COLUMNS] = {LAST_SELF, CALLS, LAST_CALLS, SELF, LAST_P99, P99, OPEN};
static const enum column sorted_by[CT_LIVE_SORTS] = {
    [CT_LIVE_LAST_SELF] = LAST_SELF, [CT_LIVE_LAST_CALLS] = LAST_CALLS, [CT_LIVE_LAST_P99] = LAST_P99,
    [CT_LIVE_SELF] = SELF,           [CT_LIVE_CALLS] = CALLS,           [CT_LIVE_P99] = P99,
    [CT_LIVE_NAME] = LAST_SELF,
};

unsigned
ct_top_columns(enum ct_live_sort sort, unsigned width)
{
  unsigned least = width / 2 < NAME_LEAST + LINE_END ? width / 2 : NAME_LEAST + LINE_END;
  unsigned selected = 0, left = width == 0 ? UINT32_MAX : width > least ? width - least : 0;
  for (int i = -1; i < COLUMNS; i++) {
    enum column column = i < 0 ? sorted_by[sort] : by_use[i];
    if ((selected & 1u << column) == 0 && columns[column].width <= left) {
      selected |= 1u << column;
      left -= columns[column].width;
    }
  }
  return selected;
}

static void
put(char *line, size_t size, unsigned width, const char *text)
{
  size_t used = strlen(line);
  snprintf(line + used, size - used, "%*s", (int)width, text);
}

void
ct_top_heading(unsigned selected, char line[CT_TOP_COLUMNS_BYTES])
{
  line[0] = '\0';
  for (int column = 0; column < COLUMNS; column++) {
    if ((selected & 1u << column) != 0) {
      put(line, CT_TOP_COLUMNS_BYTES, columns[column].width, columns[column].heading);
    }
  }
  put(line, CT_TOP_COLUMNS_BYTES, LINE_END, "");
}

void
ct_top_row(unsigned selected, const struct ct_live_row *row, bool last_is_known, char line[CT_TOP_COLUMNS_BYTES])
{
  char text[COLUMNS][CT_COUNT_CHARS + CT_DURATION_CHARS] = {"-", "-", "-", "", "", "-", ""};
  if (last_is_known) {
    ct_format_count(text[LAST_CALLS], row->last_calls);
    ct_format_duration(text[LAST_SELF], row->last_self_ns);
    if (row->has_last_p99) {
      ct_format_duration(text[LAST_P99], row->last_p99_ns);
    }
  }
  ct_format_count(text[CALLS], row->calls);
  strcat(text[CALLS], row->is_sampled ? "~" : " ");
  ct_format_duration(text[SELF], row->self_ns);
  if (row->has_p99) {
    ct_format_duration(text[P99], row->p99_ns);
  }
  snprintf(text[OPEN], sizeof(text[OPEN]), "%" PRIu64, row->open);
  line[0] = '\0';
  for (int column = 0; column < COLUMNS; column++) {
    if ((selected & 1u << column) != 0) {
      put(line, CT_TOP_COLUMNS_BYTES, columns[column].width, text[column]);
    }
  }
  put(line, CT_TOP_COLUMNS_BYTES, LINE_END, "");
}
