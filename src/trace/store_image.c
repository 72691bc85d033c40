/* SPDX-License-Identifier: MIT */
/*
 * A store whose recorder is dead: nothing in it is believed. It is read and not mapped, so that a file that is cut
 * meanwhile is no bus error.
 */
#include "trace/store.h"

#include "base/crc32c.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIT 32u

struct ct_store_image {
  int fd;
  uint64_t file_bytes; /* when it was opened: a header may say more */
  struct ct_store_header header;
  uint64_t position; /* of the next record */
  uint64_t sequence; /* expected there */
  uint64_t gaps;
};

static bool
header_ok(const struct ct_store_header *h, uint64_t file_bytes)
{
  return h->magic == CT_STORE_MAGIC && h->version == CT_STORE_VERSION &&
         h->header_crc == ct_crc32c(0, h, offsetof(struct ct_store_header, header_crc)) && h->capacity % UNIT == 0 &&
         h->capacity >= CT_STORE_BYTES_MIN / 2 && file_bytes >= CT_STORE_HEADER_BYTES &&
         h->capacity <= CT_STORE_BYTES_MAX && h->tail <= h->head && h->head - h->tail <= h->capacity &&
         h->tail % UNIT == 0 && h->head % UNIT == 0 && h->head < 1ull << 62 &&
         memchr(h->path, '\0', sizeof(h->path)) != NULL;
}

int
ct_store_open(int dir_fd, const char *name, struct ct_store_image **out, struct ct_diag *diag)
{
  struct stat file;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "cannot open %s: %s", name, strerror(errno));
  }
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid() || file.st_nlink != 1 ||
      (file.st_mode & 077) != 0) {
    close(fd);
    return ct_fail(diag, CT_EACCES, "%s is not a file of ours alone", name);
  }
  if (fcntl(fd, F_SETLK, &lock) != 0) {
    int err = errno;
    close(fd);
    return err == EACCES || err == EAGAIN ? ct_fail(diag, CT_EEXIST, "the recording of %s still goes on", name)
                                          : ct_fail(diag, ct_err_from_errno(err), "%s: %s", name, strerror(err));
  }
  struct ct_store_image *image = calloc(1, sizeof(*image));
  if (image == NULL) {
    close(fd);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  image->fd = fd;
  image->file_bytes = (uint64_t)file.st_size;
  if (ct_read_at(fd, &image->header, sizeof(image->header), 0) != sizeof(image->header) ||
      !header_ok(&image->header, (uint64_t)file.st_size)) {
    ct_store_close(image);
    return ct_fail(diag, CT_EFORMAT, "%s holds no events that could be recovered: its head is damaged", name);
  }
  image->position = image->header.tail;
  /* The recorder may have died between two words of the header: this one moves before the tail does. */
  image->sequence = image->header.first_sequence != 0 ? image->header.first_sequence - 1 : 0;
  *out = image;
  return CT_OK;
}

void
ct_store_close(struct ct_store_image *image)
{
  if (image != NULL) {
    close(image->fd);
    free(image);
  }
}

const struct ct_store_header *
ct_store_image_header(const struct ct_store_image *image)
{
  return &image->header;
}

uint64_t
ct_store_image_gaps(const struct ct_store_image *image)
{
  return image->gaps;
}

/* A whole record header at the position, whose record lies between it and the head, and before the end of the log. */
static bool
read_record(const struct ct_store_image *image, uint64_t position, struct ct_store_record *record)
{
  uint64_t capacity = image->header.capacity, at = position % capacity;
  if (image->header.head - position < sizeof(*record) || capacity - at < sizeof(*record) ||
      ct_read_at(image->fd, record, sizeof(*record), CT_STORE_HEADER_BYTES + at) != sizeof(*record)) {
    return false;
  }
  struct ct_store_record copy = *record;
  copy.crc = 0;
  return record->magic == CT_STORE_RECORD_MAGIC && record->crc == ct_crc32c(0, &copy, sizeof(copy)) &&
         record->record_bytes % UNIT == 0 && record->record_bytes >= sizeof(*record) &&
         record->record_bytes <= capacity - at && record->record_bytes <= image->header.head - position &&
         record->data_bytes <= record->record_bytes - sizeof(*record) && record->data_bytes <= CT_STORE_DATA_MAX &&
         memchr(record->name, '\0', sizeof(record->name)) != NULL && record->sequence >= image->sequence;
}

bool
ct_store_next(struct ct_store_image *image, struct ct_store_record *record, struct ct_store_buffer *buffer)
{
  uint64_t capacity = image->header.capacity;
  bool in_gap = false;
  while (image->position < image->header.head) {
    uint64_t rest = capacity - image->position % capacity;
    if (!in_gap && rest < sizeof(*record)) {
      image->position += rest;
      continue;
    }
    if (capacity - rest >=
        image->file_bytes - CT_STORE_HEADER_BYTES) { /* cut there: nothing to look for up to the end */
      image->gaps += !in_gap;
      in_gap = true;
      image->position += rest;
      continue;
    }
    if (!read_record(image, image->position, record)) {
      image->gaps += !in_gap;
      in_gap = true;
      image->position += UNIT;
      continue;
    }
    uint64_t at = image->position % capacity;
    image->position += record->record_bytes;
    in_gap = false;
    if (record->kind == CT_STORE_SKIP) {
      continue;
    }
    image->sequence = record->sequence + 1;
    uint8_t *data = buffer->capacity < record->data_bytes ? realloc(buffer->data, record->data_bytes) : buffer->data;
    if (data == NULL && record->data_bytes != 0) {
      return false;
    }
    buffer->capacity = buffer->capacity < record->data_bytes ? record->data_bytes : buffer->capacity;
    buffer->data = data;
    if (ct_read_at(image->fd, data, record->data_bytes, CT_STORE_HEADER_BYTES + at + sizeof(*record)) ==
        record->data_bytes) {
      return true;
    }
    image->gaps++;
  }
  return false;
}
