/* SPDX-License-Identifier: MIT */
/* The table of blocks: what their headers say, read once for each trace. */
#include "sql/sql_internal.h"

#include <stdlib.h>
#include <string.h>

/* The blocks of a thread, after those of the threads before it. */
static int
add_thread(struct ct_sql_source *source, uint32_t thread)
{
  struct ct_block_info *list;
  size_t count;
  if (ct_trace_blocks(source->trace, thread, &list, &count) != 0) {
    return CT_ENOMEM;
  }
  struct ct_sql_block *grown = reallocarray(source->blocks, source->block_count + count + 1, sizeof(*grown));
  if (grown == NULL) {
    free(list);
    return CT_ENOMEM;
  }
  source->blocks = grown;
  for (size_t i = 0; i < count; i++) {
    source->blocks[source->block_count++] = (struct ct_sql_block){thread, list[i]};
  }
  free(list);
  return 0;
}

int64_t
ct_sql_count_blocks(struct ct_sql *sql, struct ct_sql_source *source)
{
  int code = 0;
  for (uint32_t i = 0; !source->has_blocks && i < ct_trace_thread_count(source->trace) && code == 0; i++) {
    code = ct_sql_has_thread(source, i) ? add_thread(source, i) : 0;
  }
  if (code != 0) {
    source->block_count = 0;
    ct_fail(&sql->diag, code, "out of memory for the list of blocks");
    return -1;
  }
  source->has_blocks = true;
  return (int64_t)source->block_count;
}

void
ct_sql_column_blocks(struct ct_sql *sql, struct ct_sql_source *source, uint64_t row, int column, sqlite3_context *out)
{
  (void)sql;
  const struct ct_sql_block *block = &source->blocks[row];
  const struct ct_block_info *info = &block->info;
  const struct ct_trace_thread *thread = ct_trace_thread(source->trace, block->thread);
  const uint64_t numbers[] = {0,
                              source->thread_base + block->thread,
                              thread->tid,
                              source->pid,
                              info->number,
                              info->first_event,
                              info->events,
                              info->lost,
                              (uint64_t)ct_sql_time(source, info->first_tsc),
                              (uint64_t)ct_sql_time(source, info->last_tsc),
                              info->bytes};
  if ((size_t)column < sizeof(numbers) / sizeof(numbers[0])) {
    sqlite3_result_int64(out, (sqlite3_int64)numbers[column]);
  } else {
    char name[CT_BLOCK_INFO_NAME_BYTES];
    ct_trace_block_name(source->trace, block->thread, info, name);
    sqlite3_result_text(out, name, -1, SQLITE_TRANSIENT);
  }
}
