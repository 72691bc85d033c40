/* SPDX-License-Identifier: MIT */
/* See block_file.h. */
#include "trace/block_file.h"

#include "base/file.h"
#include "trace/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES_MAX = 65536 }; /* more than a recording makes; what a directory may hold is anything */

struct piece {
  int fd;
  uint32_t number;
  uint64_t bytes; /* when it was opened */
  uint64_t begin; /* of what it adds, in the whole */
};

struct ct_block_file {
  _Atomic uint32_t users; /* relaxed up; down acquire and release, so that the last one has seen what others did */
  uint32_t count;
  struct piece pieces[];
};

void
ct_block_file_name(char out[CT_BLOCK_FILE_NAME_BYTES], uint32_t thread, const char *name, uint32_t piece)
{
  const char *dot = strrchr(name, '.');
  int stem = dot != NULL ? (int)(dot - name) : (int)strlen(name);
  char folder[24] = "", number[16] = "";
  if (thread != CT_BLOCK_FILE_NO_THREAD) {
    snprintf(folder, sizeof(folder), "%s%" PRIu32 "/", CT_TRACE_THREAD_DIR, thread);
  }
  if (piece != 0) {
    snprintf(number, sizeof(number), "-%" PRIu32, piece);
  }
  snprintf(out, CT_BLOCK_FILE_NAME_BYTES, "%s%.*s%s%.8s", folder, stem < 16 ? stem : 16, name, number,
           dot != NULL ? dot : "");
}

/* O_NONBLOCK so that a FIFO in place of the file does not hold us up. */
static int
open_regular(int dir_fd, const char *name, uint64_t *bytes)
{
  struct stat status;
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    close(fd);
    errno = EINVAL;
    return -1;
  }
  if (fd >= 0) {
    *bytes = (uint64_t)status.st_size;
  }
  return fd;
}

/* The number in "index-7.ctb" for "index.ctb", written as the recorder does; 0: it is none. */
static uint32_t
number_in(const char *entry, const char *name)
{
  size_t stem = (size_t)(strrchr(name, '.') - name);
  if (strncmp(entry, name, stem) != 0 || entry[stem] != '-') {
    return 0;
  }
  const char *digits = entry + stem + 1;
  size_t length = strspn(digits, "0123456789");
  if (length == 0 || length > 10 || digits[0] == '0' || strcmp(digits + length, name + stem) != 0) {
    return 0;
  }
  unsigned long long number = strtoull(digits, NULL, 10);
  return number <= UINT32_MAX ? (uint32_t)number : 0;
}

static int
by_number(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The numbers of the pieces that there are, in their order. -1 and errno. */
static ssize_t
list_pieces(int dir_fd, uint32_t thread, const char *name, uint32_t **out)
{
  char folder[32] = ".";
  if (thread != CT_BLOCK_FILE_NO_THREAD) {
    snprintf(folder, sizeof(folder), "%s%" PRIu32, CT_TRACE_THREAD_DIR, thread);
  }
  int fd = openat(dir_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd < 0 ? NULL : fdopendir(fd);
  if (stream == NULL) {
    int err = errno;
    if (fd >= 0) {
      close(fd);
    }
    errno = err;
    return -1;
  }
  uint32_t *numbers = NULL, number;
  size_t count = 0;
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL && count < PIECES_MAX;) {
    if ((number = number_in(entry->d_name, name)) == 0) {
      continue;
    }
    if ((count & (count - 1)) == 0) {
      uint32_t *grown = reallocarray(numbers, count == 0 ? 1 : count * 2, sizeof(*numbers));
      if (grown == NULL) {
        break;
      }
      numbers = grown;
    }
    numbers[count++] = number;
  }
  closedir(stream);
  if (count != 0) {
    qsort(numbers, count, sizeof(*numbers), by_number);
  }
  *out = numbers;
  return (ssize_t)count;
}

static struct ct_block_file *
make(uint32_t count)
{
  struct ct_block_file *file = malloc(sizeof(*file) + count * sizeof(file->pieces[0]));
  if (file != NULL) {
    atomic_init(&file->users, 1);
    file->count = 0;
  }
  return file;
}

static void
add(struct ct_block_file *file, int fd, uint32_t number, uint64_t bytes)
{
  struct piece *piece = &file->pieces[file->count];
  *piece = (struct piece){.fd = fd, .number = number, .bytes = bytes};
  if (file->count != 0) {
    uint64_t before = piece[-1].bytes;
    uint64_t skipped = file->count == 1 || before < sizeof(struct ct_file_header) ? 0 : sizeof(struct ct_file_header);
    piece->begin = piece[-1].begin + before - skipped;
  }
  file->count++;
}

/* The oldest ones may go while we look; what has gone between others is missed by the numbers of its blocks. */
static struct ct_block_file *
open_pieces(int dir_fd, uint32_t thread, const char *name)
{
  char path[CT_BLOCK_FILE_NAME_BYTES];
  uint32_t *numbers = NULL;
  ssize_t count = list_pieces(dir_fd, thread, name, &numbers);
  if (count <= 0) {
    errno = count == 0 ? ENOENT : errno;
    return NULL;
  }
  struct ct_block_file *file = make((uint32_t)count);
  int err = file == NULL ? ENOMEM : 0;
  for (ssize_t i = 0; i < count && err == 0; i++) {
    uint64_t bytes = 0;
    ct_block_file_name(path, thread, name, numbers[i]);
    int fd = open_regular(dir_fd, path, &bytes);
    if (fd >= 0 && bytes >= sizeof(struct ct_file_header)) {
      add(file, fd, numbers[i], bytes);
    } else if (fd >= 0) {
      close(fd); /* it was just begun */
    } else if (errno != ENOENT) {
      err = errno;
    }
  }
  free(numbers);
  if (err == 0 && file->count == 0) {
    err = ENOENT;
  }
  if (err != 0) {
    ct_block_file_close(file);
    errno = err;
    return NULL;
  }
  return file;
}

struct ct_block_file *
ct_block_file_open(int dir_fd, uint32_t thread, const char *name)
{
  char path[CT_BLOCK_FILE_NAME_BYTES];
  uint64_t bytes = 0;
  ct_block_file_name(path, thread, name, 0);
  int fd = open_regular(dir_fd, path, &bytes);
  if (fd < 0) {
    return errno == ENOENT ? open_pieces(dir_fd, thread, name) : NULL;
  }
  struct ct_block_file *file = make(1);
  if (file == NULL) {
    close(fd);
    errno = ENOMEM;
    return NULL;
  }
  add(file, fd, 0, bytes);
  return file;
}

struct ct_block_file *
ct_block_file_share(struct ct_block_file *file)
{
  atomic_fetch_add_explicit(&file->users, 1, memory_order_relaxed);
  return file;
}

void
ct_block_file_close(struct ct_block_file *file)
{
  if (file == NULL || atomic_fetch_sub_explicit(&file->users, 1, memory_order_acq_rel) != 1) {
    return;
  }
  for (uint32_t i = 0; i < file->count; i++) {
    close(file->pieces[i].fd);
  }
  free(file);
}

/* Where in the file of the nth piece an offset of the whole lies. */
static uint64_t
inside(const struct ct_block_file *file, uint32_t n, uint64_t offset)
{
  return offset - file->pieces[n].begin + (n != 0 ? sizeof(struct ct_file_header) : 0);
}

uint64_t
ct_block_file_size(const struct ct_block_file *file)
{
  uint32_t last = file->count - 1;
  return file->pieces[last].begin + file->pieces[last].bytes - (last != 0 ? sizeof(struct ct_file_header) : 0);
}

uint64_t
ct_block_file_bytes(const struct ct_block_file *file)
{
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < file->count; i++) {
    bytes += file->pieces[i].bytes;
  }
  return bytes;
}

uint32_t
ct_block_file_pieces(const struct ct_block_file *file)
{
  return file->count;
}

uint32_t
ct_block_file_piece(const struct ct_block_file *file, uint32_t n, uint64_t *bytes)
{
  *bytes = file->pieces[n].bytes;
  return file->pieces[n].number;
}

uint64_t
ct_block_file_in_last(const struct ct_block_file *file, uint64_t offset)
{
  uint32_t last = file->count - 1;
  return offset >= file->pieces[last].begin ? inside(file, last, offset) : UINT64_MAX;
}

uint64_t
ct_block_file_next_piece(const struct ct_block_file *file, uint64_t offset)
{
  for (uint32_t n = 1; n < file->count; n++) {
    if (file->pieces[n].begin > offset) {
      return file->pieces[n].begin;
    }
  }
  return UINT64_MAX;
}

size_t
ct_block_file_read(const struct ct_block_file *file, void *data, size_t size, uint64_t offset)
{
  uint8_t *to = data;
  size_t done = 0;
  uint32_t n = file->count - 1;
  while (n > 0 && file->pieces[n].begin > offset) {
    n--;
  }
  for (; n < file->count && done < size; n++) {
    uint64_t at = inside(file, n, offset + done), wanted = size - done;
    if (n + 1 < file->count) {
      uint64_t rest = file->pieces[n + 1].begin - (offset + done);
      wanted = wanted < rest ? wanted : rest;
    }
    size_t got = ct_read_at(file->pieces[n].fd, to + done, (size_t)wanted, at);
    done += got;
    if (got < wanted) {
      break;
    }
  }
  return done;
}

bool
ct_block_file_reaches(const struct ct_block_file *file, uint64_t end)
{
  uint8_t last;
  return end == 0 || ct_block_file_read(file, &last, 1, end - 1) == 1;
}
