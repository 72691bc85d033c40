/* SPDX-License-Identifier: MIT */
/* A folder of a test program's own, where shell commands are run and files are put. */
#ifndef CT_TESTS_FOLDER_H
#define CT_TESTS_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

/* Runs a shell command in the folder. */
static inline int
shell(const char *fmt, ...)
{
  char command[4096];
  va_list ap;
  int used = snprintf(command, sizeof(command), "cd %s && { ", folder);
  va_start(ap, fmt);
  used += vsnprintf(command + used, sizeof(command) - (size_t)used, fmt, ap);
  va_end(ap);
  snprintf(command + used, sizeof(command) - (size_t)used, "; } >log 2>&1");
  return system(command);
}

/* Skips the test where a command fails, as it does without its program. */
#define NEED(...)                                                                                                      \
  do {                                                                                                                 \
    if (shell(__VA_ARGS__) != 0)                                                                                       \
      skip();                                                                                                          \
  } while (0)

/* Until the next call. */
static inline const char *
in_folder(const char *name)
{
  static char path[256];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  return path;
}

static inline void
put_file(const char *name, const void *bytes, size_t size)
{
  FILE *file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static inline void
put_text(const char *name, const char *text)
{
  put_file(name, text, strlen(text));
}

static inline int
make_folder(void **state)
{
  snprintf(folder, sizeof(folder), "/tmp/ct_test.XXXXXX");
  return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int
remove_folder(void **state)
{
  char command[128];
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

#endif
