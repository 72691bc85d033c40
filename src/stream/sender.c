/* SPDX-License-Identifier: MIT */
/*
 * The sender: a thread that follows a trace's directory and sends what is new in it.
 *
 * It goes round. In each round, for each process of the trace: it opens the manifest, looks how large the files are,
 * the table of functions last, and then sends the functions, the events up to the sizes seen, and the manifest that it
 * has opened. So the other end never has an event whose function it does not know, nor a manifest that lists what is
 * not there.
 *
 * What was sent is only offsets: after a cut the receiver says what it has (HAVE), and where the checksum of that much
 * of the file here is the same, sending goes on from there, else the file is sent anew. At the end each file is read
 * once more for its checksum; the receiver says which of its own differ, and these are sent anew, TRIES times.
 *
 * By way of a NATS server there may be any number of receivers (fanout.h): the same frames, published once.
 *
 * One way (fd:N) nobody answers: all is sent from the begin, and whoever reads it judges by the checksums.
 *
 * The directory has a file .sending, with the id of the stream, until all has arrived: ct_sender_resume goes on with
 * it.
 *
 * One lock guards what the thread shares with its owner: ending, abandoned, the connection's descriptor, the outcome.
 */
#include "stream/fanout.h"
#include "stream/link.h"
#include "stream/names.h"
#include "stream/sending.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/sized.h"
#include "base/worker.h"
#include "trace/format.h"
#include "trace/tree.h"

#include <contrail/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUND_MS = 20, RETRY_MS = 200, ASK_MS = 50, TRIES = 3 };
#define MARK ".sending"

static void
set_fd(struct ct_sender *sender, int fd)
{
  pthread_mutex_lock(&sender->lock);
  int old = sender->fd;
  sender->fd = fd;
  pthread_mutex_unlock(&sender->lock);
  if (old >= 0) {
    close(old);
  }
}

/* Takes an address's refusal for good: another attempt would be refused too. */
static void
refuse(struct ct_sender *sender, const struct ct_link_frame *frame)
{
  char text[256];
  snprintf(text, sizeof(text), "%.*s", (int)frame->bytes, (const char *)ct_frame_payload(frame));
  for (char *c = text; *c != '\0'; c++) {
    if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') {
      *c = '?';
    }
  }
  snprintf(sender->refusal, sizeof(sender->refusal), "%s: the receiver refuses: %s", sender->address, text);
}

/* The next frame of the receiver. False: the connection is of no use any more. */
static bool
receive(struct ct_sender *sender)
{
  int code = ct_frame_receive(sender->fd, &sender->frame, CT_LINK_PAYLOAD_MAX, CT_LINK_IDLE_MS);
  if (code == CT_OK && sender->frame.type == CT_FRAME_REFUSED) {
    refuse(sender, &sender->frame);
    return false;
  }
  return code == CT_OK;
}

/* A reader of a pipe may be slow, and is waited for: until the end of the recording, then for as long as was asked. */
static bool
put_one_way(struct ct_sender *sender)
{
  size_t done = 0, before;
  uint64_t moved_ns = ct_now_ns();
  for (;;) {
    before = done;
    int code = ct_frame_continue(sender->fd, &sender->frame, &done, RETRY_MS);
    if (code != CT_ETIMEOUT) {
      if (code != CT_OK && sender->refusal[0] == '\0') {
        snprintf(sender->refusal, sizeof(sender->refusal), "%s: nobody reads it any more", sender->address);
      }
      sender->moved_ns = ct_now_ns();
      return code == CT_OK;
    }
    moved_ns = done != before ? ct_now_ns() : moved_ns;
    pthread_mutex_lock(&sender->lock);
    bool is_enough = sender->is_abandoned || (sender->end_asked && ct_now_ns() - moved_ns > sender->patience_ns);
    pthread_mutex_unlock(&sender->lock);
    if (is_enough) {
      snprintf(sender->refusal, sizeof(sender->refusal), "%s: nothing was taken for some time", sender->address);
      return false;
    }
  }
}

bool
ct_sender_put(struct ct_sender *sender)
{
  sender->sent_ns = ct_now_ns();
  ct_prompt_turn(&sender->prompt);
  if (sender->is_one_way) {
    return put_one_way(sender);
  }
  if (sender->fanout != NULL) {
    return ct_fanout_put(sender);
  }
  if (ct_frame_send(sender->fd, &sender->frame)) {
    /* The kernel takes the first frame for a receiver that is stopped, each time anew. */
    if (sender->frame.type != CT_FRAME_HELLO && sender->frame.type != CT_FRAME_PING) {
      sender->moved_ns = ct_now_ns();
    }
    return true;
  }
  /* Why may have come before the connection ended. */
  if (ct_frame_receive(sender->fd, &sender->frame, CT_LINK_PAYLOAD_MAX, 0) == CT_OK &&
      sender->frame.type == CT_FRAME_REFUSED) {
    refuse(sender, &sender->frame);
  }
  return false;
}

bool
ct_sender_ping(struct ct_sender *sender, uint64_t after_ms)
{
  ct_prompt_turn(&sender->prompt);
  if (ct_now_ns() - sender->sent_ns < after_ms * 1000000ull) {
    return true;
  }
  ct_frame_begin(&sender->frame, CT_FRAME_PING);
  return ct_sender_put(sender);
}

/* What the receiver has of one file: where to go on. Whole files are simply sent again. */
static bool
take_have(struct ct_sender *sender)
{
  const uint8_t *data = ct_frame_payload(&sender->frame);
  size_t size = sender->frame.bytes - 12;
  if (sender->frame.bytes <= 12 || ct_stream_kind((const char *)data + 12, size) == CT_STREAM_FOREIGN) {
    return false;
  }
  struct sent_file *file = ct_sender_file(sender, (const char *)data + 12, size);
  if (file != NULL && file->kind == CT_STREAM_APPENDED) {
    file->claimed = ct_get64(data);
    file->claimed_crc = ct_get32(data + 8);
  }
  return file != NULL;
}

/* Makes a connection, says who we are, hears what is there already. */
static int
connect_once(struct ct_sender *sender, struct ct_diag *diag)
{
  int fd;
  if (sender->fanout != NULL) {
    return ct_fanout_connect(sender, diag);
  }
  int code = ct_address_connect(sender->address, &fd, diag);
  if (code != CT_OK) {
    return code;
  }
  set_fd(sender, fd);
  ct_sender_forget(sender);
  ct_frame_begin(&sender->frame, CT_FRAME_HELLO);
  ct_frame_add(&sender->frame, CT_LINK_MAGIC, 4);
  ct_frame_add32(&sender->frame, CT_LINK_VERSION);
  ct_frame_add(&sender->frame, sender->id, CT_LINK_ID_BYTES);
  ct_frame_add(&sender->frame, sender->token, strlen(sender->token));
  bool good = ct_sender_put(sender);
  while (good && !sender->is_one_way && (good = receive(sender)) && sender->frame.type != CT_FRAME_READY) {
    good = sender->frame.type == CT_FRAME_HAVE && take_have(sender);
  }
  if (!good) {
    set_fd(sender, -1);
    return sender->refusal[0] != '\0' ? ct_fail(diag, CT_EACCES, "%s", sender->refusal)
                                      : ct_fail(diag, CT_EIO, "%s: no answer of a receiver", sender->address);
  }
  sender->moved_ns = ct_now_ns();
  return CT_OK;
}

/*
 * Checksums of all files, and what the receiver makes of them. 1: it has all; 0: not yet; 2: not yet, and it could not
 * be otherwise; -1: the connection is lost.
 */
static int
confirm(struct ct_sender *sender)
{
  uint32_t count = 0;
  if (!ct_sender_check(sender, &count)) {
    return -1;
  }
  ct_frame_begin(&sender->frame, CT_FRAME_END);
  ct_frame_add32(&sender->frame, count);
  if (!ct_sender_put(sender)) {
    return -1;
  }
  if (sender->is_one_way) {
    return 1;
  }
  if (sender->fanout != NULL) {
    return ct_fanout_verdicts(sender);
  }
  while (receive(sender)) {
    const struct ct_link_frame *frame = &sender->frame;
    if (frame->type == CT_FRAME_VERDICT && frame->bytes == 4) {
      return ct_get32(ct_frame_payload(frame)) == 0;
    }
    if (frame->type != CT_FRAME_WRONG ||
        ct_stream_kind((const char *)ct_frame_payload(frame), frame->bytes) == CT_STREAM_FOREIGN) {
      return -1;
    }
    ct_sender_again(sender, (const char *)ct_frame_payload(frame), frame->bytes);
  }
  return -1;
}

static void
conclude(struct ct_sender *sender, int code, const char *text)
{
  sender->code = code;
  snprintf(sender->diag.text, sizeof(sender->diag.text), "%s", text);
}

static bool
is_connected(const struct ct_sender *sender)
{
  return sender->fanout != NULL ? ct_fanout_is_connected(sender->fanout) : sender->fd >= 0;
}

/* What is said when patience has come to its end. */
static void
give_up(struct ct_sender *sender)
{
  size_t confirmed = 0, all = 0;
  if (sender->fanout != NULL) {
    ct_fanout_count(sender->fanout, &confirmed, &all);
  }
  if (all > 0) {
    ct_fail(&sender->diag, CT_ETIMEOUT,
            "%s: %zu of %zu receivers have confirmed it, and the others said nothing for %.0f s", sender->address,
            confirmed, all, sender->patience_ns / 1e9);
  } else {
    ct_fail(&sender->diag, CT_ETIMEOUT, "%s: %s for %.0f s, at least %" PRIu64 " bytes are not confirmed",
            sender->address, sender->fanout != NULL || !is_connected(sender) ? "no receiver" : "nothing was taken",
            sender->patience_ns / 1e9, ct_sender_missing(sender));
  }
  sender->code = CT_ETIMEOUT;
}

/* After the end of the recording: whether it is over, well or not. */
static bool
is_over(struct ct_sender *sender)
{
  if (sender->refusal[0] != '\0') {
    conclude(sender, CT_EACCES, sender->refusal);
    return true;
  }
  if (sender->is_ending && ct_now_ns() - sender->moved_ns > sender->patience_ns) {
    give_up(sender);
    return true;
  }
  return false;
}

static struct timespec
in_ms(uint64_t ms)
{
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  uint64_t ns = (uint64_t)until.tv_nsec + ms * 1000000;
  until.tv_sec += (time_t)(ns / 1000000000);
  until.tv_nsec = (long)(ns % 1000000000);
  return until;
}

/* Waits for the next round, or for the end. */
static void
rest(struct ct_sender *sender, uint64_t ms)
{
  struct timespec until = in_ms(ms);
  pthread_mutex_lock(&sender->lock);
  bool was_ending = sender->is_ending;
  while (!sender->is_abandoned && (was_ending || !sender->end_asked) &&
         pthread_cond_clockwait(&sender->changed, &sender->lock, CLOCK_MONOTONIC, &until) == 0) {
  }
  if (!was_ending && sender->end_asked) {
    sender->is_ending = true;
    sender->moved_ns = ct_now_ns();
  }
  pthread_mutex_unlock(&sender->lock);
}

bool
ct_sender_is_abandoned(struct ct_sender *sender)
{
  pthread_mutex_lock(&sender->lock);
  bool abandoned = sender->is_abandoned;
  pthread_mutex_unlock(&sender->lock);
  return abandoned;
}

/* The connection is lost: whatever was on its way may not have arrived, HAVE says. */
static void
lose(struct ct_sender *sender)
{
  sender->cuts++;
  if (sender->fanout != NULL) {
    ct_fanout_disconnect(sender->fanout);
    return;
  }
  if (!sender->is_one_way && sender->refusal[0] == '\0' &&
      ct_frame_receive(sender->fd, &sender->frame, CT_LINK_PAYLOAD_MAX, 0) == CT_OK &&
      sender->frame.type == CT_FRAME_REFUSED) {
    refuse(sender, &sender->frame);
  }
  set_fd(sender, -1);
}

static void *
follow_main(void *context)
{
  struct ct_sender *sender = context;
  ct_prompt_begin(&sender->prompt);
  for (int tries = 0; !ct_sender_is_abandoned(sender) && !is_over(sender);) {
    if (!is_connected(sender) && connect_once(sender, NULL) != CT_OK) {
      rest(sender, RETRY_MS);
      continue;
    }
    bool is_last = sender->is_ending; /* the recording had ended before this round began */
    uint64_t begin = ct_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if ((sender->fanout != NULL && !ct_fanout_answer(sender)) || !ct_sender_round(sender) ||
        !ct_sender_ping(sender, CT_LINK_PING_MS)) {
      lose(sender);
      continue;
    }
    if (ct_fanout_is_asked(sender->fanout)) {
      continue;
    }
    if (!is_last) {
      /* What it waited for in between, a processor or the receiver, is no work. */
      uint64_t worked = (ct_clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / 1000000;
      rest(sender, worked > ROUND_MS ? worked : ROUND_MS);
      continue;
    }
    int verdict = confirm(sender);
    if (verdict == 1) {
      break;
    }
    if (verdict < 0) {
      lose(sender);
    } else if (verdict == 0 && ++tries == TRIES) {
      conclude(sender, CT_EFORMAT, "the files at the receiver differ from those here, although they were sent anew");
      break;
    }
  }
  pthread_mutex_lock(&sender->lock);
  sender->is_done = true;
  pthread_cond_broadcast(&sender->changed);
  pthread_mutex_unlock(&sender->lock);
  return NULL;
}

/* Of the stream whose sender has not come to its end, if there was one; else a new one. */
static int
take_id(struct ct_sender *sender, const char *directory, struct ct_diag *diag)
{
  char text[2 * CT_LINK_ID_BYTES + 1] = "";
  int dir_fd = directory != NULL ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  int fd = dir_fd >= 0 ? openat(dir_fd, MARK, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
  bool is_whole = fd >= 0 && ct_read_at(fd, text, sizeof(text) - 1, 0) == sizeof(text) - 1;
  for (size_t i = 0; i < CT_LINK_ID_BYTES && is_whole; i++) {
    unsigned byte;
    is_whole = sscanf(text + 2 * i, "%2x", &byte) == 1;
    sender->id[i] = (uint8_t)byte;
  }
  if (fd >= 0) {
    close(fd);
  }
  if (dir_fd >= 0) {
    close(dir_fd);
  }
  if (!is_whole && getrandom(sender->id, sizeof(sender->id), 0) != sizeof(sender->id)) {
    return ct_fail(diag, CT_EIO, "no random numbers: %s", strerror(errno));
  }
  return CT_OK;
}

/* A trace that nobody writes any more. */
static int
check_directory(const char *directory, struct ct_diag *diag)
{
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    int err = errno;
    return ct_fail(diag, ct_err_from_errno(err), "%s: %s", directory, strerror(err));
  }
  int code = CT_OK;
  if (faccessat(fd, CT_TRACE_MANIFEST, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    code = ct_fail(diag, CT_EFORMAT, "%s is no trace: it has no " CT_TRACE_MANIFEST, directory);
  } else if (ct_trace_is_held(fd)) {
    code = ct_fail(diag, CT_EEXIST, "%s is being recorded: send it when that is over", directory);
  }
  close(fd);
  return code;
}

static int
connect_for(const char *address, const char *token, const char *directory, struct ct_sender **sender,
            struct ct_diag *diag)
{
  bool is_tcp;
  int code = ct_address_check(address, &is_tcp, diag);
  if (code != CT_OK) {
    return code;
  }
  if (is_tcp && token == NULL) {
    return ct_fail(diag, CT_EINVAL, "%s needs a token", address);
  }
  struct ct_sender *made = calloc(1, sizeof(*made));
  if (made == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  made->fd = made->dir_fd = -1;
  made->chunk = CT_LINK_CHUNK;
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  made->address = strdup(address);
  made->token = strdup(token != NULL ? token : "");
  if (made->address == NULL || made->token == NULL || !ct_frame_create(&made->frame)) {
    code = ct_fail(diag, CT_ENOMEM, "out of memory");
  } else if (strlen(made->token) > CT_LINK_TOKEN_MAX) {
    code = ct_fail(diag, CT_EINVAL, "a token has at most %d bytes", CT_LINK_TOKEN_MAX);
  } else {
    made->is_one_way = ct_address_is_one_way(address);
    code = take_id(made, directory, diag);
    code = code == CT_OK && ct_address_is_broker(address) ? ct_fanout_create(&made->fanout, diag) : code;
    code = code == CT_OK ? connect_once(made, diag) : code;
  }
  if (code != CT_OK) {
    ct_sender_destroy(made);
    return code;
  }
  *sender = made;
  return CT_OK;
}

int
ct_sender_connect(const char *address, const char *token, struct ct_sender **sender, struct ct_diag *diag)
{
  return connect_for(address, token, NULL, sender, diag);
}

int
ct_sender_resume(const char *address, const char *token, const char *directory, struct ct_sender **sender,
                 struct ct_diag *diag)
{
  int code = check_directory(directory, diag);
  return code == CT_OK ? connect_for(address, token, directory, sender, diag) : code;
}

/* What a later sender needs, should this one be killed. Without it that one begins anew. */
static void
put_mark(const struct ct_sender *sender)
{
  char text[2 * CT_LINK_ID_BYTES + 2];
  for (size_t i = 0; i < CT_LINK_ID_BYTES; i++) {
    snprintf(text + 2 * i, 3, "%02x", sender->id[i]);
  }
  unlinkat(sender->dir_fd, MARK, 0);
  int fd = openat(sender->dir_fd, MARK, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0) {
    text[sizeof(text) - 2] = '\n';
    if (write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1) {
      unlinkat(sender->dir_fd, MARK, 0);
    }
    close(fd);
  }
}

int
ct_sender_follow(struct ct_sender *sender, const char *directory, struct ct_diag *diag)
{
  sigset_t all, old;
  sender->dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (sender->dir_fd < 0) {
    int err = errno;
    return ct_fail(diag, ct_err_from_errno(err), "%s: %s", directory, strerror(err));
  }
  if (!sender->is_one_way) {
    put_mark(sender);
  }
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  sender->has_thread = ct_worker_create(&sender->thread, NULL, follow_main, sender) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return sender->has_thread ? CT_OK : ct_fail(diag, CT_ENOMEM, "cannot start a thread that sends");
}

static void
join(struct ct_sender *sender)
{
  if (sender->has_thread) {
    pthread_join(sender->thread, NULL);
    sender->has_thread = false;
  }
}

/* Stops the thread wherever it is; under the lock. */
static void
abandon(struct ct_sender *sender)
{
  sender->is_abandoned = true;
  if (sender->fd >= 0) {
    shutdown(sender->fd, SHUT_RDWR);
  }
  pthread_cond_broadcast(&sender->changed);
}

/* Till the thread has ended, well or not, or its owner has had enough: true. */
static bool
wait_for_thread(struct ct_sender *sender, bool (*enough)(void *arg), void *arg)
{
  bool is_enough = false;
  pthread_mutex_lock(&sender->lock);
  while (!sender->is_done && !is_enough) {
    struct timespec until = in_ms(ASK_MS);
    pthread_cond_clockwait(&sender->changed, &sender->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&sender->lock);
    is_enough = enough != NULL && enough(arg);
    pthread_mutex_lock(&sender->lock);
  }
  is_enough = is_enough && !sender->is_done;
  if (is_enough) {
    abandon(sender);
  }
  pthread_mutex_unlock(&sender->lock);
  return is_enough;
}

static void
conclude_interrupted(struct ct_sender *sender)
{
  size_t confirmed, all;
  if (sender->fanout != NULL) {
    ct_fanout_count(sender->fanout, &confirmed, &all);
    sender->code = ct_fail(&sender->diag, CT_EIO, "%s: interrupted, %zu of %zu receivers have confirmed it",
                           sender->address, confirmed, all);
  } else {
    sender->code = ct_fail(&sender->diag, CT_EIO, "%s: interrupted, at least %" PRIu64 " bytes are not confirmed",
                           sender->address, ct_sender_missing(sender));
  }
}

int
ct_sender_finish(struct ct_sender *sender, double patience_s, bool (*enough)(void *arg), void *arg,
                 struct ct_stream_summary *summary, struct ct_diag *diag)
{
  bool followed = sender->has_thread;
  pthread_mutex_lock(&sender->lock);
  sender->patience_ns = (uint64_t)(patience_s * 1e9);
  sender->end_asked = true;
  pthread_cond_broadcast(&sender->changed);
  pthread_mutex_unlock(&sender->lock);
  bool interrupted = followed && wait_for_thread(sender, enough, arg);
  join(sender);
  if (interrupted) {
    conclude_interrupted(sender);
  }
  struct ct_stream_summary own = {.struct_size = sizeof(own), .cuts = sender->cuts};
  size_t all;
  if (sender->fanout != NULL) {
    ct_fanout_count(sender->fanout, &own.receivers, &all);
  }
  int code = followed ? sender->code : ct_fail(diag, CT_EINVAL, "nothing was followed");
  if (followed && code != CT_OK) {
    ct_fail(diag, code, "%s", sender->diag.text);
  }
  if (code == CT_OK && !sender->is_one_way) {
    unlinkat(sender->dir_fd, MARK, 0);
  }
  ct_sender_sums(sender, &own);
  ct_sender_destroy(sender);
  if (summary != NULL) {
    int given = ct_sized_give(summary, &own, sizeof(own), code == CT_OK ? diag : NULL);
    code = code != CT_OK ? code : given;
  }
  return code;
}

/* A receiver that has all is not there any more; of many, one that has just come may be, and waits for another sender.
 */
static void
say_goodbye(struct ct_sender *sender)
{
  bool is_done = sender->is_done && sender->code == CT_OK;
  if (!is_connected(sender) || sender->is_one_way || (sender->fanout != NULL && is_done)) {
    return;
  }
  ct_frame_begin(&sender->frame, CT_FRAME_BYE);
  if (sender->fanout != NULL) {
    (void)ct_fanout_put(sender);
  } else {
    (void)ct_frame_send(sender->fd, &sender->frame);
  }
}

void
ct_sender_destroy(struct ct_sender *sender)
{
  if (sender == NULL) {
    return;
  }
  pthread_mutex_lock(&sender->lock);
  if (sender->has_thread) {
    abandon(sender);
  }
  pthread_mutex_unlock(&sender->lock);
  join(sender);
  say_goodbye(sender);
  set_fd(sender, -1);
  ct_fanout_destroy(sender->fanout);
  if (sender->dir_fd >= 0) {
    close(sender->dir_fd);
  }
  ct_sender_free_files(sender);
  ct_frame_destroy(&sender->frame);
  pthread_cond_destroy(&sender->changed);
  pthread_mutex_destroy(&sender->lock);
  free(sender->address);
  free(sender->token);
  free(sender);
}
