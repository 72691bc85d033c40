/* SPDX-License-Identifier: MIT */
/*
 * contrail tui: the file that a function is written in. The trace says a path, which is of the machine that it was
 * compiled on: it is looked for there, in the working directory and in the folders of --sources, by all of it and then
 * by ever less of its begin. What is opened must be a file, and is read as far as TUI_SOURCE_BYTES.
 */
#include "cli/tui.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void
tui_source_free(struct tui_source *source)
{
  free(source->file);
  free(source->path);
  free(source->text);
  free(source->lines);
  *source = (struct tui_source){0};
}

/* Of a plain file; -1. */
static int
open_file(const char *path)
{
  struct stat about;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0 && (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))) {
    close(fd);
    errno = ENOENT;
    return -1;
  }
  return fd;
}

/* In a folder; without parts of its begin as well when is_cut. */
static int
find_in(const char *folder, const char *file, bool is_cut, char *path, size_t size)
{
  for (const char *rest = file; rest != NULL && *rest != '\0'; rest = strchr(rest, '/')) {
    rest += strspn(rest, "/");
    if (strncmp(rest, "../", 3) != 0 && snprintf(path, size, "%s/%s", folder, rest) < (int)size) {
      int fd = open_file(path);
      if (fd >= 0) {
        return fd;
      }
    }
    if (!is_cut) {
      break;
    }
  }
  return -1;
}

static int
find(const char *file, char *const *folders, size_t folder_count, char *path, size_t size)
{
  snprintf(path, size, "%s", file);
  int fd = file[0] == '/' ? open_file(path) : -1;
  for (size_t i = 0; fd < 0 && i < folder_count; i++) {
    fd = find_in(folders[i], file, true, path, size);
  }
  return fd >= 0 || file[0] == '/' ? fd : find_in(".", file, false, path, size);
}

/* The text's lines, of which each becomes a text of its own. */
static bool
cut_lines(struct tui_source *source, size_t length)
{
  size_t count = 1;
  for (size_t i = 0; i < length; i++) {
    count += source->text[i] == '\n';
    source->text[i] = source->text[i] == '\0' ? '?' : source->text[i];
  }
  source->lines = calloc(count, sizeof(*source->lines));
  if (source->lines == NULL) {
    return false;
  }
  for (char *at = source->text; at < source->text + length; at += strlen(at) + 1) {
    source->lines[source->count++] = at;
    char *end = strchr(at, '\n');
    if (end == NULL) {
      break;
    }
    *end = '\0';
  }
  return true;
}

static void
read_text(struct tui_source *source, int fd)
{
  struct stat about;
  size_t length = 0,
         size = fstat(fd, &about) == 0 && about.st_size < TUI_SOURCE_BYTES ? (size_t)about.st_size : TUI_SOURCE_BYTES;
  source->text = malloc(size + 1);
  while (source->text != NULL && length < size) {
    ssize_t n = read(fd, source->text + length, size - length);
    if (n <= 0 && !(n < 0 && errno == EINTR)) {
      break;
    }
    length += n > 0 ? (size_t)n : 0;
  }
  if (source->text != NULL) {
    source->text[length] = '\0';
  }
  if (source->text == NULL || !cut_lines(source, length)) {
    free(source->text);
    source->text = NULL;
    snprintf(source->said, sizeof(source->said), "out of memory");
  }
}

void
tui_source_take(struct tui_source *source, const char *file, char *const *folders, size_t folder_count)
{
  char path[PATH_MAX];
  if (source->file != NULL && file != NULL && strcmp(source->file, file) == 0) {
    return;
  }
  tui_source_free(source);
  if (file == NULL) {
    return;
  }
  source->file = strdup(file);
  int fd = source->file != NULL ? find(file, folders, folder_count, path, sizeof(path)) : -1;
  if (fd < 0) {
    snprintf(source->said, sizeof(source->said), "the file is not here; --sources DIR says where sources are");
    return;
  }
  source->path = strdup(path);
  read_text(source, fd);
  close(fd);
}
