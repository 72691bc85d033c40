/* SPDX-License-Identifier: MIT */
/* See atf.h. */
#include "export/atf.h"

#include "base/crc32.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 64, FOOTER_BYTES = 64 };

static void
write_all(struct ct_atf_file *file, const void *data, size_t bytes)
{
  const char *at = data;
  while (bytes > 0 && file->error == 0) {
    ssize_t wrote = write(file->fd, at, bytes);
    if (wrote < 0 && errno != EINTR) {
      file->error = errno;
    }
    at += wrote > 0 ? wrote : 0;
    bytes -= wrote > 0 ? (size_t)wrote : 0;
  }
}

bool
ct_atf_file_create(struct ct_atf_file *file, int dir_fd, const char *name)
{
  static const uint8_t header[HEADER_BYTES];
  file->fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  file->error = 0;
  file->crc = 0;
  file->bytes = file->fill = 0;
  if (file->fd < 0) {
    return false;
  }
  write_all(file, header, sizeof(header));
  return true;
}

void
ct_atf_file_flush(struct ct_atf_file *file)
{
  file->crc = ct_crc32(file->crc, file->buffer, file->fill);
  write_all(file, file->buffer, file->fill);
  file->bytes += file->fill;
  file->fill = 0;
}

void
ct_atf_file_put(struct ct_atf_file *file, const void *data, size_t bytes)
{
  const uint8_t *at = data;
  while (bytes > 0) {
    size_t room = sizeof(file->buffer) - file->fill, part = bytes < room ? bytes : room;
    memcpy(file->buffer + file->fill, at, part);
    file->fill += part;
    at += part;
    bytes -= part;
    if (file->fill == sizeof(file->buffer)) {
      ct_atf_file_flush(file);
    }
  }
}

int
ct_atf_file_close(struct ct_atf_file *file, const void *header, const void *footer)
{
  if (file->fd < 0) {
    return 0;
  }
  ct_atf_file_flush(file);
  if (footer != NULL) {
    write_all(file, footer, FOOTER_BYTES);
  }
  if (header != NULL && file->error == 0 && pwrite(file->fd, header, HEADER_BYTES, 0) != HEADER_BYTES) {
    file->error = errno != 0 ? errno : EIO;
  }
  if (close(file->fd) != 0 && file->error == 0) {
    file->error = errno;
  }
  file->fd = -1;
  return file->error;
}
