/* SPDX-License-Identifier: MIT */
/* The threads of recordings of instructions that are asked: opened, their times, their names. */
#include "sql/steps_internal.h"

#include "base/error.h"
#include "steps/folder.h"

#include <stdlib.h>
#include <string.h>

static void
close_one(struct ct_sql_recorded *one)
{
  if (one != NULL) {
    ct_steps_recall_close(one->recall);
    ct_steps_index_close(one->index);
    ct_steps_names_free(one->names);
    ct_steps_reader_close(one->reader);
    free(one->path);
    free(one->named);
    free(one);
  }
}

static int
open_one(const char *path, struct ct_sql_recorded **out, struct ct_diag *diag)
{
  struct ct_sql_recorded *one = calloc(1, sizeof(*one));
  int code = one != NULL ? ct_steps_reader_open(path, &one->reader, diag) : CT_ENOMEM;
  if (code == 0) {
    one->path = strdup(path);
    one->names = ct_steps_names_create(one->reader);
    one->named = calloc(CT_SQL_NAMES, sizeof(*one->named));
    code = one->path != NULL && one->names != NULL && one->named != NULL ? 0 : CT_ENOMEM;
  }
  if (code != 0) {
    close_one(one);
    return code == CT_ENOMEM ? ct_fail(diag, code, "out of memory for the steps") : code;
  }
  const char *slash = strrchr(one->path, '/');
  one->file = slash != NULL ? slash + 1 : one->path;
  one->start_tsc = ct_steps_reader_head(one->reader)->tsc;
  *out = one;
  return 0;
}

/* All threads of a recording count from where the first one of them began, selected or not. */
static int
add_files(struct ct_sql_recorded **list, size_t *count, char **files, size_t file_count, uint32_t tid,
          struct ct_sql_followed *followed, struct ct_diag *diag)
{
  size_t first = *count;
  uint64_t start = UINT64_MAX;
  for (size_t i = 0; i < file_count; i++) {
    struct ct_sql_recorded *one = NULL;
    int code = open_one(files[i], &one, diag);
    if (code != 0) {
      return code;
    }
    one->followed = followed;
    start = one->start_tsc < start ? one->start_tsc : start;
    if (tid != 0 && ct_sql_recorded_tid(one) != tid) {
      close_one(one);
    } else {
      list[(*count)++] = one;
    }
  }
  for (size_t i = first; i < *count; i++) {
    list[i]->start_tsc = start;
  }
  return 0;
}

int
ct_sql_recorded_add(struct ct_sql_recorded ***list, size_t *count, const char *path, uint32_t tid,
                    struct ct_sql_followed *followed, struct ct_diag *diag)
{
  char **files;
  size_t file_count, before = *count;
  int code = ct_steps_folder_list(path, &files, &file_count, diag);
  if (code != 0) {
    return code;
  }
  struct ct_sql_recorded **grown = reallocarray(*list, *count + file_count, sizeof(*grown));
  *list = grown != NULL ? grown : *list;
  code = grown != NULL ? add_files(grown, count, files, file_count, tid, followed, diag)
                       : ct_fail(diag, CT_ENOMEM, "out of memory for the list of threads");
  free(files);
  return code == 0 && *count == before ? ct_fail(diag, CT_ERANGE, "%s has no thread %u", path, tid) : code;
}

void
ct_sql_followed_close(struct ct_sql_followed *followed)
{
  ct_steps_shadow_close(followed->shadow);
  *followed = (struct ct_sql_followed){0};
}

void
ct_sql_recorded_free(struct ct_sql_recorded **list, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    close_one(list[i]);
  }
  free(list);
}

bool
ct_sql_recorded_is(const char *path)
{
  return ct_steps_folder_is(path);
}

uint32_t
ct_sql_recorded_tid(const struct ct_sql_recorded *recorded)
{
  return (uint32_t)ct_steps_reader_head(recorded->reader)->tid;
}

size_t
ct_sql_recorded_blocks(const struct ct_sql_recorded *recorded)
{
  return ct_steps_reader_blocks(recorded->reader);
}

const char *
ct_sql_recorded_path(const struct ct_sql_recorded *recorded)
{
  return recorded->path;
}

const char *
ct_sql_recorded_damage(const struct ct_sql_recorded *recorded)
{
  return ct_steps_reader_damage(recorded->reader);
}

void
ct_sql_recorded_start(struct ct_sql_recorded *recorded, uint64_t tsc)
{
  recorded->start_tsc = tsc;
}

int64_t
ct_sql_recorded_time(const struct ct_sql_recorded *recorded, uint64_t tsc)
{
  double hz = (double)ct_steps_reader_head(recorded->reader)->tsc_hz;
  return hz == 0 ? 0 : (int64_t)((double)(int64_t)(tsc - recorded->start_tsc) * 1e9 / hz);
}

const struct ct_steps_name *
ct_sql_recorded_name(struct ct_sql_recorded *recorded, uint64_t step, uint64_t pc)
{
  size_t period = ct_steps_names_period(recorded->names, step) + 1;
  struct ct_sql_named *named = &recorded->named[(pc ^ pc >> 8) % CT_SQL_NAMES];
  if (named->pc != pc || named->period != period) {
    named->pc = pc;
    named->period = period;
    ct_steps_names_of(recorded->names, step, pc, &named->name);
  }
  return &named->name;
}
