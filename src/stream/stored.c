/* SPDX-License-Identifier: MIT */
/*
 * The receiver's files. A name is one of the closed set (names.h); the only folders made are process-N and thread_N,
 * and files are opened below the directory with no link followed (openat2), so whatever is in a frame, nothing outside
 * of the directory is touched.
 */
#include "stream/stored.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "trace/format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARK ".receiving" /* the stream's id in hexadecimal, while the trace is not whole */
enum { FILES_MAX = 1 << 20, PIECE_HEAD = 20, FILE_BYTES = 4096 /* that a file, or its folder, takes besides */ };

static int
by_name(const void *a, const void *b)
{
  return strcmp(((const struct stored_file *)a)->name, ((const struct stored_file *)b)->name);
}

/* NULL: out of memory, or there are too many. */
static struct stored_file *
file_of(struct stored *stored, const char *name, size_t size)
{
  struct stored_file wanted = {.kind = ct_stream_kind(name, size)};
  memcpy(wanted.name, name, size);
  void *found = tfind(&wanted, &stored->tree, by_name);
  if (found != NULL) {
    return *(struct stored_file **)found;
  }
  struct stored_file *file = stored->files < FILES_MAX ? malloc(sizeof(*file)) : NULL;
  if (file != NULL) {
    *file = wanted;
    if (tsearch(file, &stored->tree, by_name) == NULL) {
      free(file);
      return NULL;
    }
    stored->files++;
  }
  return file;
}

/* Nothing fits any more; files without a byte in them take room, too. */
static bool
is_full(const struct stored *stored, size_t more)
{
  uint64_t used = stored->bytes + stored->files * (uint64_t)FILE_BYTES;
  return stored->limit_bytes != 0 && (used > stored->limit_bytes || more > stored->limit_bytes - used);
}

static int
no_room(const struct stored *stored, struct ct_diag *diag)
{
  return ct_fail(diag, CT_ENOSPC, "the trace is larger than the limit of %" PRIu64 " bytes", stored->limit_bytes);
}

static int
open_below(const struct stored *stored, const char *name, int flags)
{
  struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK),
                         .mode = (flags & O_CREAT) != 0 ? 0600 : 0,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  return (int)syscall(SYS_openat2, stored->dir_fd, name, &how, sizeof(how));
}

/* For writing; makes the folders that its name has. */
static int
open_to_write(const struct stored *stored, const char *name, int flags)
{
  int fd = open_below(stored, name, O_WRONLY | O_CREAT | flags);
  if (fd >= 0 || errno != ENOENT) {
    return fd;
  }
  for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    char folder[CT_STREAM_NAME_BYTES];
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - name), name);
    if (mkdirat(stored->dir_fd, folder, 0700) != 0 && errno != EEXIST) {
      return -1;
    }
  }
  return open_below(stored, name, O_WRONLY | O_CREAT | flags);
}

static int
failed(const struct stored *stored, const char *name, int err, struct ct_diag *diag)
{
  bool full = err == ENOSPC || err == EDQUOT || err == EFBIG;
  return ct_fail(diag, full ? CT_ENOSPC : CT_EIO, "%s/%s: %s", stored->directory, name, strerror(err));
}

static int
write_all(int fd, const uint8_t *data, size_t size, uint64_t offset)
{
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, data + done, size - done, (off_t)(offset + done));
    if (n > 0) {
      done += (size_t)n;
    } else if (n == 0 || errno != EINTR) {
      return n == 0 ? EIO : errno;
    }
  }
  return 0;
}

/* ---- the directory as it is found ---- */

static int
sum_up(struct stored *stored, const char *name, struct ct_diag *diag)
{
  struct stored_file *file = file_of(stored, name, strlen(name));
  uint8_t *piece = malloc(CT_LINK_CHUNK);
  int fd = file != NULL && piece != NULL ? open_below(stored, name, O_RDONLY) : -1;
  struct stat status;
  int code = CT_OK;
  if (file == NULL || piece == NULL) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory");
  } else if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    code = ct_fail(diag, CT_EEXIST, "%s/%s is no file of a trace", stored->directory, name);
  } else {
    size_t n;
    while ((n = ct_read_at(fd, piece, CT_LINK_CHUNK, file->bytes)) > 0) {
      file->crc = ct_crc32c(file->crc, piece, n);
      file->bytes += n;
    }
    file->is_there = true;
    stored->bytes += file->bytes;
  }
  if (fd >= 0) {
    close(fd);
  }
  free(piece);
  return code;
}

/* All files of the trace in a folder, and in those below it. Whatever else is there stays untouched. */
static int
find_files(struct stored *stored, const char *prefix, struct ct_diag *diag)
{
  int fd = open_below(stored, prefix[0] != '\0' ? prefix : ".", O_RDONLY | O_DIRECTORY);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (dir == NULL) {
    int err = errno;
    if (fd >= 0) {
      close(fd);
    }
    return failed(stored, prefix, err, diag);
  }
  int code = CT_OK;
  struct dirent *entry;
  while (code == CT_OK && (entry = readdir(dir)) != NULL) {
    char name[CT_STREAM_NAME_BYTES];
    size_t size = strlen(entry->d_name);
    if (strlen(prefix) + size + 2 > sizeof(name)) {
      continue;
    }
    snprintf(name, sizeof(name), "%.*s%.*s", (int)strlen(prefix), prefix, (int)size, entry->d_name);
    if (ct_stream_kind(name, strlen(name)) != CT_STREAM_FOREIGN) {
      code = sum_up(stored, name, diag);
    } else if (ct_stream_is_numbered(entry->d_name, size, CT_TRACE_THREAD_DIR) ||
               (prefix[0] == '\0' && ct_stream_is_numbered(entry->d_name, size, CT_STREAM_PROCESS_DIR))) {
      memcpy(name + strlen(name), "/", 2);
      code = find_files(stored, name, diag);
    }
  }
  closedir(dir);
  return code;
}

static bool
read_mark(struct stored *stored)
{
  char text[2 * CT_LINK_ID_BYTES + 1] = "";
  int fd = open_below(stored, MARK, O_RDONLY);
  size_t n = fd >= 0 ? ct_read_at(fd, text, 2 * CT_LINK_ID_BYTES, 0) : 0;
  if (fd >= 0) {
    close(fd);
  }
  for (size_t i = 0; n == 2 * CT_LINK_ID_BYTES && i < CT_LINK_ID_BYTES; i++) {
    unsigned byte;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) {
      return false;
    }
    stored->id[i] = (uint8_t)byte;
  }
  return stored->has_id = n == 2 * CT_LINK_ID_BYTES;
}

static bool
is_empty(const char *directory)
{
  DIR *dir = opendir(directory);
  struct dirent *entry;
  bool empty = dir != NULL;
  while (empty && (entry = readdir(dir)) != NULL) {
    empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
  }
  if (dir != NULL) {
    closedir(dir);
  }
  return empty;
}

int
ct_stored_open(struct stored *stored, const char *directory, uint64_t limit_bytes, struct ct_diag *diag)
{
  *stored = (struct stored){.dir_fd = -1, .directory = directory, .limit_bytes = limit_bytes};
  if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
    return ct_fail(diag, CT_EIO, "%s: %s", directory, strerror(errno));
  }
  stored->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (stored->dir_fd < 0) {
    return ct_fail(diag, CT_EIO, "%s: %s", directory, strerror(errno));
  }
  if (flock(stored->dir_fd, LOCK_EX | LOCK_NB) != 0) {
    return ct_fail(diag, CT_EEXIST, "%s: %s", directory,
                   errno == EWOULDBLOCK ? "another contrail receives into it" : strerror(errno));
  }
  if (is_empty(directory)) {
    return CT_OK;
  }
  if (!read_mark(stored)) {
    return ct_fail(diag, CT_EEXIST, "%s has files already, and is no trace that was being received; give another name",
                   directory);
  }
  return find_files(stored, "", diag);
}

void
ct_stored_close(struct stored *stored)
{
  tdestroy(stored->tree, free);
  if (stored->dir_fd >= 0) {
    close(stored->dir_fd);
  }
}

int
ct_stored_claim(struct stored *stored, const uint8_t id[CT_LINK_ID_BYTES], struct ct_diag *diag)
{
  char text[2 * CT_LINK_ID_BYTES + 2];
  for (size_t i = 0; i < CT_LINK_ID_BYTES; i++) {
    snprintf(text + 2 * i, 4, "%02x\n", id[i]);
  }
  int fd = open_below(stored, MARK, O_WRONLY | O_CREAT | O_EXCL);
  int err = fd < 0 ? errno : write_all(fd, (const uint8_t *)text, sizeof(text) - 1, 0);
  if (fd >= 0) {
    close(fd);
  }
  if (err != 0) {
    return failed(stored, MARK, err, diag);
  }
  memcpy(stored->id, id, CT_LINK_ID_BYTES);
  stored->has_id = true;
  return CT_OK;
}

void
ct_stored_release(struct stored *stored)
{
  unlinkat(stored->dir_fd, MARK, 0);
}

/* ---- frames ---- */

/* A piece of a file, as DATA and WHOLE have it. */
struct piece {
  struct stored_file *file;
  uint64_t offset, total;
  const uint8_t *data;
  size_t size;
};

static int
take_piece(struct stored *stored, const struct ct_link_frame *frame, enum ct_stream_file_kind kind, struct piece *piece,
           struct ct_diag *diag)
{
  const uint8_t *data = ct_frame_payload(frame);
  uint32_t length = frame->bytes >= PIECE_HEAD ? ct_get32(data + 16) : 0;
  if (length == 0 || length > frame->bytes - PIECE_HEAD ||
      ct_stream_kind((const char *)data + PIECE_HEAD, length) != kind) {
    return ct_fail(diag, CT_EFORMAT, "a piece of no file of a trace");
  }
  piece->file = file_of(stored, (const char *)data + PIECE_HEAD, length);
  if (piece->file == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory, or more than %d files", FILES_MAX);
  }
  piece->offset = ct_get64(data);
  piece->total = ct_get64(data + 8);
  piece->data = data + PIECE_HEAD + length;
  piece->size = frame->bytes - PIECE_HEAD - length;
  return is_full(stored, piece->size) ? no_room(stored, diag) : CT_OK;
}

/* At the end of the file, or from its begin. */
static int
put_piece(struct stored *stored, const struct piece *given, struct ct_diag *diag)
{
  struct piece piece = *given;
  struct stored_file *file = piece.file;
  bool anew = piece.offset == 0;
  int fd = open_to_write(stored, file->name, anew ? O_TRUNC : 0);
  if (fd < 0) {
    return failed(stored, file->name, errno, diag);
  }
  if (anew) {
    stored->bytes -= file->bytes;
    file->bytes = file->crc = 0;
  }
  file->is_there = true;
  int err = write_all(fd, piece.data, piece.size, piece.offset);
  if (err == 0) {
    file->crc = ct_crc32c(file->crc, piece.data, piece.size);
    file->bytes += piece.size;
    stored->bytes += piece.size;
  } else {
    (void)!ftruncate(fd, (off_t)file->bytes); /* what is there is what we say is there */
  }
  close(fd);
  return err == 0 ? CT_OK : failed(stored, file->name, err, diag);
}

int
ct_stored_data(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag)
{
  struct piece piece;
  int code = take_piece(stored, frame, CT_STREAM_APPENDED, &piece, diag);
  if (code != CT_OK) {
    return code;
  }
  if (piece.offset != piece.file->bytes && piece.offset != 0) {
    return ct_fail(diag, CT_EFORMAT, "a piece of %s that does not follow what is there", piece.file->name);
  }
  return put_piece(stored, &piece, diag);
}

/* Whether the file has these bytes there. */
static bool
has_bytes(const struct stored *stored, const struct stored_file *file, uint64_t offset, const uint8_t *data,
          size_t size)
{
  uint8_t own[4096];
  int fd = open_below(stored, file->name, O_RDONLY);
  size_t done = 0;
  while (fd >= 0 && done < size) {
    size_t want = size - done < sizeof(own) ? size - done : sizeof(own);
    if (ct_read_at(fd, own, want, offset + done) != want || memcmp(own, data + done, want) != 0) {
      break;
    }
    done += want;
  }
  if (fd >= 0) {
    close(fd);
  }
  return fd >= 0 && done == size;
}

/* The file ends there from now on. */
static int
cut_back(struct stored *stored, struct stored_file *file, uint64_t bytes, struct ct_diag *diag)
{
  uint8_t own[4096];
  uint32_t crc = 0;
  int fd = open_below(stored, file->name, O_RDWR), err = fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ? errno : 0;
  for (uint64_t done = 0; err == 0 && done < bytes;) {
    size_t want = bytes - done < sizeof(own) ? (size_t)(bytes - done) : sizeof(own);
    size_t got = ct_read_at(fd, own, want, done);
    err = got == 0 ? EIO : 0;
    crc = ct_crc32c(crc, own, got);
    done += got;
  }
  if (fd >= 0) {
    close(fd);
  }
  if (err != 0) {
    return failed(stored, file->name, err, diag);
  }
  stored->bytes -= file->bytes - bytes;
  file->bytes = bytes;
  file->crc = crc;
  return CT_OK;
}

int
ct_stored_data_again(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag)
{
  struct piece piece;
  int code = take_piece(stored, frame, CT_STREAM_APPENDED, &piece, diag);
  if (code != CT_OK) {
    return code;
  }
  struct stored_file *file = piece.file;
  if (piece.offset > file->bytes) {
    return ct_fail(diag, CT_ERANGE, "a piece of %s that does not follow what is there", file->name);
  }
  uint64_t there = file->bytes - piece.offset;
  size_t twice = there < piece.size ? (size_t)there : piece.size;
  if (twice != 0 && !has_bytes(stored, file, piece.offset, piece.data, twice)) {
    code = cut_back(stored, file, piece.offset, diag);
    return code == CT_OK ? put_piece(stored, &piece, diag) : code;
  }
  piece.offset += twice;
  piece.data += twice;
  piece.size -= twice;
  return piece.size != 0 || !file->is_there ? put_piece(stored, &piece, diag) : CT_OK;
}

int
ct_stored_whole(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag)
{
  struct piece piece;
  char beside[CT_STREAM_NAME_BYTES + 8];
  int code = take_piece(stored, frame, CT_STREAM_REPLACED, &piece, diag);
  if (code != CT_OK) {
    return code;
  }
  struct stored_file *file = piece.file;
  if (piece.offset == 0) {
    stored->bytes -= file->staged;
    file->staged = file->staged_crc = 0;
  }
  if (piece.offset != file->staged || piece.offset > piece.total || piece.size > piece.total - piece.offset) {
    return ct_fail(diag, CT_EFORMAT, "a piece of %s that does not follow what is there", file->name);
  }
  snprintf(beside, sizeof(beside), "%s.tmp", file->name);
  int fd = open_to_write(stored, beside, piece.offset == 0 ? O_TRUNC : 0);
  int err = fd < 0 ? errno : write_all(fd, piece.data, piece.size, piece.offset);
  if (fd >= 0) {
    close(fd);
  }
  if (err != 0) {
    return failed(stored, beside, err, diag);
  }
  file->staged_crc = ct_crc32c(file->staged_crc, piece.data, piece.size);
  file->staged += piece.size;
  stored->bytes += piece.size;
  if (file->staged == piece.total) {
    if (renameat(stored->dir_fd, beside, stored->dir_fd, file->name) != 0) {
      return failed(stored, file->name, errno, diag);
    }
    stored->bytes -= file->bytes;
    file->bytes = file->staged;
    file->crc = file->staged_crc;
    file->staged = file->staged_crc = 0;
    file->is_there = true;
  }
  return CT_OK;
}

int
ct_stored_check(struct stored *stored, const struct ct_link_frame *frame, struct ct_diag *diag)
{
  const uint8_t *data = ct_frame_payload(frame);
  size_t size = frame->bytes > 12 ? frame->bytes - 12 : 0;
  if (ct_stream_kind((const char *)data + 12, size) == CT_STREAM_FOREIGN) {
    return ct_fail(diag, CT_EFORMAT, "a checksum of no file of a trace");
  }
  struct stored_file *file = file_of(stored, (const char *)data + 12, size);
  if (file == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory, or more than %d files", FILES_MAX);
  }
  if (is_full(stored, 0)) {
    return no_room(stored, diag);
  }
  if (ct_get64(data) == 0 && !file->is_there && file->kind == CT_STREAM_APPENDED) {
    int fd = open_to_write(stored, file->name, 0); /* an empty file has no piece */
    if (fd < 0) {
      return failed(stored, file->name, errno, diag);
    }
    close(fd);
    file->is_there = true;
  }
  file->due_bytes = ct_get64(data);
  file->due_crc = ct_get32(data + 8);
  file->is_due = true;
  return CT_OK;
}

struct each {
  bool (*call)(void *context, struct stored_file *file);
  void *context;
  bool good;
};

static void
visit_file(const void *node, VISIT visit, void *context)
{
  struct each *each = context;
  if ((visit == postorder || visit == leaf) && each->good) {
    each->good = each->call(each->context, *(struct stored_file *const *)node);
  }
}

bool
ct_stored_each(struct stored *stored, bool (*call)(void *context, struct stored_file *file), void *context)
{
  struct each each = {call, context, true};
  twalk_r(stored->tree, visit_file, &each);
  return each.good;
}

static bool
begin_file(void *context, struct stored_file *file)
{
  struct stored *stored = context;
  stored->bytes -= file->staged;
  file->staged = file->staged_crc = 0;
  file->is_due = false;
  return true;
}

void
ct_stored_begin(struct stored *stored)
{
  ct_stored_each(stored, begin_file, stored);
}

void
ct_stored_remove(struct stored *stored, struct stored_file *file)
{
  unlinkat(stored->dir_fd, file->name, 0);
  stored->bytes -= file->bytes;
  file->bytes = file->crc = 0;
  file->is_there = false;
}
