/* SPDX-License-Identifier: MIT */
/* The list of calls that were recorded as instructions (itrace.tsv; docs/format.md): its whole lines that make sense.
 */
#include "trace/reader_internal.h"

#include "base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES_MAX = 256 << 20 };

static int
read_file(const struct ct_trace *trace, char **text, size_t *size)
{
  struct stat info;
  int fd = openat(trace->dir_fd, CT_TRACE_ITRACED, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return CT_ENOENT;
  }
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > BYTES_MAX) {
    close(fd);
    return CT_EFORMAT;
  }
  *text = malloc((size_t)info.st_size + 1);
  if (*text != NULL) {
    *size = ct_read_at(fd, *text, (size_t)info.st_size, 0);
    (*text)[*size] = '\0';
  }
  close(fd);
  return *text != NULL ? 0 : CT_ENOMEM;
}

static bool
parse(const char *line, struct ct_itraced_call *call)
{
  char outcome[16] = "", rest;
  *call = (struct ct_itraced_call){.tid = 0};
  if (sscanf(line, "%" SCNu32 "\t%" SCNu32 "\t%" SCNu64 "\t%" SCNu64 "\t%" SCNu64 "\t%15[a-z]%c", &call->tid, &call->fn,
             &call->tsc, &call->first_step, &call->steps, outcome, &rest) != 6) {
    return false;
  }
  call->outcome = strcmp(outcome, "returned") == 0 ? "returned"
                  : strcmp(outcome, "cut") == 0    ? "cut"
                  : strcmp(outcome, "ended") == 0  ? "ended"
                                                   : NULL;
  return call->outcome != NULL;
}

int
ct_trace_itraced(const struct ct_trace *trace, struct ct_itraced *out)
{
  struct ct_itraced list = {.count = 0};
  char *text = NULL, *end;
  size_t size = 0, capacity = 0;
  int code = read_file(trace, &text, &size);
  for (char *line = text; code == 0 && (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = '\0';
    if (list.count == capacity) {
      capacity = capacity == 0 ? 64 : 2 * capacity;
      struct ct_itraced_call *grown = reallocarray(list.calls, capacity, sizeof(*grown));
      if (grown == NULL) {
        code = CT_ENOMEM;
        break;
      }
      list.calls = grown;
    }
    list.count += parse(line, &list.calls[list.count]);
  }
  free(text);
  if (code != 0) {
    free(list.calls);
    return code;
  }
  *out = list;
  return 0;
}

void
ct_itraced_free(struct ct_itraced *list)
{
  free(list->calls);
  *list = (struct ct_itraced){.count = 0};
}
