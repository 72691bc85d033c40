/* SPDX-License-Identifier: MIT */
#include "stream/names.h"

#include "trace/format.h"

#include <string.h>

enum { DIGITS_MAX = 10 };

/* What a recording writes into the directory of a process, beside folders of threads. */
static const struct {
  const char *name;
  enum ct_stream_file_kind kind;
} files[] = {
    {CT_TRACE_MANIFEST, CT_STREAM_REPLACED},   {CT_TRACE_FUNCTIONS, CT_STREAM_APPENDED},
    {CT_TRACE_CAPTURES, CT_STREAM_APPENDED},   {CT_TRACE_CRASH, CT_STREAM_REPLACED},
    {CT_TRACE_STACKS, CT_STREAM_REPLACED},     {CT_TRACE_SOURCES, CT_STREAM_REPLACED},
    {CT_TRACE_PROTOTYPES, CT_STREAM_REPLACED},
};

bool
ct_stream_is_numbered(const char *name, size_t size, const char *prefix)
{
  size_t length = strlen(prefix);
  if (size <= length || size > length + DIGITS_MAX || memcmp(name, prefix, length) != 0) {
    return false;
  }
  for (size_t i = length; i < size; i++) {
    if (name[i] < '0' || name[i] > '9') {
      return false;
    }
  }
  return name[length] != '0' || size == length + 1;
}

static bool
is(const char *name, size_t size, const char *text)
{
  return strlen(text) == size && memcmp(name, text, size) == 0;
}

enum ct_stream_file_kind
ct_stream_kind(const char *name, size_t size)
{
  if (size == 0 || size >= CT_STREAM_NAME_BYTES) {
    return CT_STREAM_FOREIGN;
  }
  const char *slash = memchr(name, '/', size);
  if (slash != NULL && ct_stream_is_numbered(name, (size_t)(slash - name), CT_STREAM_PROCESS_DIR)) {
    size -= (size_t)(slash + 1 - name);
    name = slash + 1;
    slash = memchr(name, '/', size);
  }
  if (slash != NULL) {
    size_t folder = (size_t)(slash - name), rest = size - folder - 1;
    bool known = ct_stream_is_numbered(name, folder, CT_TRACE_THREAD_DIR) &&
                 (is(slash + 1, rest, CT_TRACE_INDEX) || is(slash + 1, rest, CT_TRACE_DETAIL));
    return known ? CT_STREAM_APPENDED : CT_STREAM_FOREIGN;
  }
  for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
    if (is(name, size, files[i].name)) {
      return files[i].kind;
    }
  }
  return CT_STREAM_FOREIGN;
}
