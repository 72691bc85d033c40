/* SPDX-License-Identifier: MIT */
/*
 * A receiver behind a NATS server (fanout.h). It follows while each message has the number after the one before, and
 * its pieces fit to what is there. Otherwise it is lost: it passes over all messages but the SYNC that names it, and
 * asks every CT_FANOUT_ASK_MS. All in the caller's thread.
 */
#include "stream/subscriber.h"

#include "stream/broker.h"
#include "stream/fanout.h"

#include "base/clock.h"
#include "base/prompt.h"
#include "base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TURN_MS = 100, RETRY_MS = 200 };

struct subscriber {
  const struct ct_receive_options *options;
  struct stored *stored;
  struct ct_stream_summary *summary;
  struct ct_broker *broker;
  uint8_t *message; /* to be sent */
  size_t message_bytes, most;
  struct ct_link_frame frame; /* the one that came: points into the message */
  uint64_t id;
  uint64_t run, number; /* of the last message that was followed */
  bool is_following, is_whole;
  bool was_served; /* a sender has answered, ever */
  bool is_foreign_said;
  uint64_t heard_ns; /* the sender, last */
  uint64_t asked_ns, acked_ns, acked;
  uint64_t met; /* the run that was asked at once */
  struct ct_prompt prompt;
  uint32_t checks;
};

static void note(const struct subscriber *subscriber, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
note(const struct subscriber *subscriber, const char *fmt, ...)
{
  char text[640];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  if (subscriber->options->note != NULL) {
    subscriber->options->note(subscriber->options->arg, text);
  }
}

/* The same for a receiver that is started again in its directory, so that it is not counted twice. */
static uint64_t
own_id(const struct stored *stored)
{
  char text[256] = "", boot[64] = "";
  struct stat status = {0};
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    boot[ct_read_at(fd, boot, sizeof(boot) - 1, 0)] = '\0';
    close(fd);
  }
  fstat(stored->dir_fd, &status);
  snprintf(text, sizeof(text), "%s %" PRIu64 " %" PRIu64, boot, (uint64_t)status.st_dev, (uint64_t)status.st_ino);
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (const char *c = text; *c != '\0'; c++) {
    hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
  }
  return hash;
}

/* ---- to the sender ---- */

static void
add(struct subscriber *subscriber, const void *data, size_t size)
{
  memcpy(subscriber->message + subscriber->message_bytes, data, size);
  subscriber->message_bytes += size;
}

static void
begin_message(struct subscriber *subscriber, enum ct_frame_type type)
{
  static const uint8_t nobody[CT_LINK_ID_BYTES];
  const uint32_t version = CT_FANOUT_VERSION;
  const uint8_t head[CT_LINK_HEADER_BYTES] = {[4] = (uint8_t)type};
  subscriber->message_bytes = 0;
  add(subscriber, CT_FANOUT_ASK_MAGIC, 4);
  add(subscriber, &version, 4);
  add(subscriber, subscriber->stored->has_id ? subscriber->stored->id : nobody, CT_LINK_ID_BYTES);
  add(subscriber, &subscriber->id, 8);
  add(subscriber, &subscriber->number, 8);
  add(subscriber, head, sizeof(head));
}

/* A connection that is lost shows at the next message. */
static void
send_message(struct subscriber *subscriber)
{
  uint32_t bytes = (uint32_t)(subscriber->message_bytes - CT_FANOUT_HEAD_BYTES - CT_LINK_HEADER_BYTES);
  memcpy(subscriber->message + CT_FANOUT_HEAD_BYTES, &bytes, 4);
  (void)ct_broker_put(subscriber->broker, subscriber->message, subscriber->message_bytes);
  subscriber->acked_ns = ct_now_ns();
  subscriber->acked = subscriber->number;
}

/* One file of what is there; those that do not fit into a message are sent from their begin. */
static bool
add_have(void *context, struct stored_file *file)
{
  struct subscriber *subscriber = context;
  const uint32_t length = (uint32_t)strlen(file->name);
  if (file->is_there && file->kind == CT_STREAM_APPENDED &&
      subscriber->message_bytes + 16 + length <= subscriber->most) {
    add(subscriber, &file->bytes, 8);
    add(subscriber, &file->crc, 4);
    add(subscriber, &length, 4);
    add(subscriber, file->name, length);
  }
  return true;
}

static void
ask(struct subscriber *subscriber)
{
  uint64_t now = ct_now_ns();
  if (now - subscriber->asked_ns < CT_FANOUT_ASK_MS * 1000000ull) {
    return;
  }
  begin_message(subscriber, CT_FRAME_ASK);
  ct_stored_each(subscriber->stored, add_have, subscriber);
  send_message(subscriber);
  subscriber->asked_ns = now;
}

static void
acknowledge(struct subscriber *subscriber)
{
  if (subscriber->number - subscriber->acked >= CT_FANOUT_ACK_EVERY ||
      ct_now_ns() - subscriber->acked_ns >= CT_FANOUT_ACK_MS * 1000000ull) {
    begin_message(subscriber, CT_FRAME_ACK);
    send_message(subscriber);
  }
}

/* ---- of the sender ---- */

static void
get_lost(struct subscriber *subscriber)
{
  subscriber->is_following = false;
  subscriber->asked_ns = 0;
}

struct verdict {
  struct subscriber *subscriber;
  uint32_t wrong;
};

static bool
judge_file(void *context, struct stored_file *file)
{
  struct verdict *verdict = context;
  struct subscriber *subscriber = verdict->subscriber;
  bool is_due = file->is_due;
  file->is_due = false;
  if (file->is_there && (!is_due || file->bytes != file->due_bytes || file->crc != file->due_crc)) {
    ct_stored_remove(subscriber->stored, file);
  }
  if (is_due && !file->is_there) {
    verdict->wrong++;
    begin_message(subscriber, CT_FRAME_WRONG);
    add(subscriber, file->name, strlen(file->name));
    send_message(subscriber);
  }
  return true;
}

/* END: all files are as the sender's, or those that are not are to be sent anew. */
static int
judge(struct subscriber *subscriber, struct ct_diag *diag)
{
  const struct ct_link_frame *frame = &subscriber->frame;
  if (frame->bytes != 4 || subscriber->checks == 0 || ct_get32(ct_frame_payload(frame)) != subscriber->checks) {
    return ct_fail(diag, CT_EFORMAT, "an end with another number of files than were named");
  }
  subscriber->checks = 0;
  struct verdict verdict = {.subscriber = subscriber};
  ct_stored_each(subscriber->stored, judge_file, &verdict);
  subscriber->is_whole = verdict.wrong == 0;
  begin_message(subscriber, CT_FRAME_VERDICT);
  add(subscriber, &verdict.wrong, 4);
  send_message(subscriber);
  return CT_OK;
}

static int
take_frame(struct subscriber *subscriber, struct ct_diag *diag)
{
  const struct ct_link_frame *frame = &subscriber->frame;
  switch (frame->type) {
  case CT_FRAME_DATA:
    return ct_stored_data_again(subscriber->stored, frame, diag);
  case CT_FRAME_WHOLE:
    return ct_stored_whole(subscriber->stored, frame, diag);
  case CT_FRAME_CHECK:
    subscriber->checks++;
    return ct_stored_check(subscriber->stored, frame, diag);
  case CT_FRAME_END:
    return judge(subscriber, diag);
  case CT_FRAME_SYNC: /* for others: checksums that were under way are not completed */
    subscriber->checks = 0;
    return CT_OK;
  case CT_FRAME_PING:
    return CT_OK;
  case CT_FRAME_BYE:
    return ct_fail(diag, CT_ESRCH, "the sender has given up, and the trace is not whole: %" PRIu64 " bytes are in %s",
                   subscriber->stored->bytes, subscriber->options->directory);
  default:
    return ct_fail(diag, CT_EFORMAT, "a frame of an unknown type");
  }
}

/* Whether it is a SYNC that was made for us. */
static bool
is_for_us(const struct subscriber *subscriber)
{
  const struct ct_link_frame *frame = &subscriber->frame;
  const uint8_t *data = ct_frame_payload(frame);
  uint32_t count = frame->type == CT_FRAME_SYNC && frame->bytes >= 4 ? ct_get32(data) : 0;
  if (count > (frame->bytes - 4) / 8) {
    return false;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (ct_get64(data + 4 + 8 * (size_t)i) == subscriber->id) {
      return true;
    }
  }
  return false;
}

/* From this message on nothing is missing. */
static int
begin_following(struct subscriber *subscriber, const uint8_t *head, struct ct_diag *diag)
{
  if (!subscriber->stored->has_id) {
    int code = ct_stored_claim(subscriber->stored, head + 8, diag);
    if (code != CT_OK) {
      return code;
    }
  }
  note(subscriber, subscriber->was_served ? "the sender has gone back to what is missing" : "a sender is there");
  ct_stored_begin(subscriber->stored);
  subscriber->was_served = subscriber->is_following = true;
  subscriber->checks = 0;
  subscriber->run = ct_get64(head + 24);
  subscriber->number = ct_get64(head + 32);
  return CT_OK;
}

/* Messages between the last one and this one, of the same sender; else 0. */
static void
note_missed(struct subscriber *subscriber, uint64_t run, uint64_t number)
{
  if (run == subscriber->run && number > subscriber->number) {
    uint64_t missed = number - subscriber->number - 1;
    subscriber->summary->missed += missed;
    note(subscriber, "%" PRIu64 " message%s did not arrive; what was in them is asked for again", missed,
         missed == 1 ? "" : "s");
  } else {
    note(subscriber, "another sender goes on with it; what is missing is asked for");
  }
}

/* A message whose head is one. An error is one that ends the receiving. */
static int
take_message(struct subscriber *subscriber, const uint8_t *head, struct ct_diag *diag)
{
  struct stored *stored = subscriber->stored;
  if (stored->has_id && memcmp(stored->id, head + 8, CT_LINK_ID_BYTES) != 0) {
    if (!subscriber->is_foreign_said) {
      note(subscriber, "another recording is sent to this subject, too, and is passed over");
    }
    subscriber->is_foreign_said = true;
    return CT_OK;
  }
  uint64_t run = ct_get64(head + 24), number = ct_get64(head + 32);
  if (stored->has_id) {
    subscriber->heard_ns = ct_now_ns();
  }
  if (!subscriber->is_following) {
    subscriber->heard_ns = ct_now_ns();
    if (run != subscriber->met) { /* what was asked before it came, nobody has heard */
      subscriber->met = run;
      subscriber->asked_ns = 0;
    }
    return is_for_us(subscriber) ? begin_following(subscriber, head, diag) : CT_OK;
  }
  if (run != subscriber->run || number != subscriber->number + 1) {
    if (run == subscriber->run && number <= subscriber->number) {
      return CT_OK; /* said twice, which no sender does */
    }
    note_missed(subscriber, run, number);
    get_lost(subscriber);
    return is_for_us(subscriber) ? begin_following(subscriber, head, diag) : CT_OK;
  }
  subscriber->number = number;
  int code = take_frame(subscriber, diag);
  if (code == CT_ERANGE || (code == CT_EFORMAT && subscriber->frame.type != CT_FRAME_BYE)) {
    note(subscriber, "%s; what is missing is asked for", diag->text);
    get_lost(subscriber);
    code = CT_OK;
  }
  return code;
}

/* Whether it is a message of a sender, with a frame of its size. */
static bool
is_message(struct subscriber *subscriber, const uint8_t *data, size_t size)
{
  const size_t heads = CT_FANOUT_HEAD_BYTES + CT_LINK_HEADER_BYTES;
  if (size < heads || size - heads > CT_LINK_PAYLOAD_MAX || memcmp(data, CT_FANOUT_MAGIC, 4) != 0 ||
      ct_get32(data + 4) != CT_FANOUT_VERSION || ct_get32(data + CT_FANOUT_HEAD_BYTES) != size - heads) {
    return false;
  }
  subscriber->frame.data = (uint8_t *)(uintptr_t)data + CT_FANOUT_HEAD_BYTES;
  subscriber->frame.type = data[CT_FANOUT_HEAD_BYTES + 4];
  subscriber->frame.bytes = (uint32_t)(size - heads);
  return true;
}

/* A sender that is silent has gone; one that has gone is waited for. */
static int
look_at_time(struct subscriber *subscriber, struct ct_diag *diag)
{
  if (!subscriber->stored->has_id || !subscriber->was_served) {
    return CT_OK;
  }
  double silent_s = (double)(ct_now_ns() - subscriber->heard_ns) / 1e9;
  if (subscriber->is_following && silent_s > CT_LINK_IDLE_MS / 1e3) {
    get_lost(subscriber);
    subscriber->summary->cuts++;
    note(subscriber, "nothing comes any more; waiting %.0f s for the sender to come back", subscriber->options->wait_s);
  }
  if (!subscriber->is_following && silent_s > subscriber->options->wait_s + CT_LINK_IDLE_MS / 1e3) {
    return ct_fail(diag, CT_ETIMEOUT,
                   "the sender has not come back for %.0f s, and the trace is not whole: %" PRIu64 " bytes are in %s",
                   subscriber->options->wait_s, subscriber->stored->bytes, subscriber->options->directory);
  }
  return CT_OK;
}

/* Over one connection to the server. CT_EIO with nothing in diag: it is lost. */
static int
follow(struct subscriber *subscriber, struct ct_diag *diag)
{
  int code = CT_OK;
  while (code == CT_OK && !subscriber->is_whole) {
    ct_prompt_turn(&subscriber->prompt);
    const uint8_t *data;
    size_t size;
    if (subscriber->is_following) {
      acknowledge(subscriber);
    } else {
      ask(subscriber);
    }
    code = ct_broker_next(subscriber->broker, TURN_MS, &data, &size);
    if (code == CT_EIO) {
      return ct_broker_is_refused(subscriber->broker, diag) ? CT_EACCES : CT_EIO;
    }
    if (code == CT_OK && is_message(subscriber, data, size)) {
      code = take_message(subscriber, data, diag);
    } else {
      code = ct_broker_is_refused(subscriber->broker, diag) ? CT_EACCES : CT_OK;
    }
    code = code == CT_OK ? look_at_time(subscriber, diag) : code;
  }
  return code;
}

static int
connect_again(struct subscriber *subscriber, struct ct_diag *diag)
{
  for (;;) {
    struct ct_diag unused = {""};
    int code = ct_broker_connect(subscriber->options->address, subscriber->options->token, CT_BROKER_RECEIVER,
                                 &subscriber->broker, &unused);
    if (code == CT_OK || code == CT_EACCES) {
      return code == CT_OK ? CT_OK : ct_fail(diag, code, "%s", unused.text);
    }
    code = look_at_time(subscriber, diag);
    if (code != CT_OK) {
      return code;
    }
    struct timespec pause = {0, RETRY_MS * 1000000};
    nanosleep(&pause, NULL);
  }
}

static int
receive_all(struct subscriber *subscriber, struct ct_diag *diag)
{
  int code = CT_OK;
  while (code == CT_OK && !subscriber->is_whole) {
    subscriber->most = ct_broker_most(subscriber->broker);
    subscriber->most = subscriber->most < CT_LINK_PAYLOAD_MAX ? subscriber->most : CT_LINK_PAYLOAD_MAX;
    diag->text[0] = '\0';
    code = follow(subscriber, diag);
    if (code == CT_EIO && diag->text[0] == '\0') {
      note(subscriber, "the connection to the server is lost; connecting again");
      subscriber->summary->cuts++;
      get_lost(subscriber);
      ct_broker_close(subscriber->broker);
      subscriber->broker = NULL;
      code = connect_again(subscriber, diag);
    }
  }
  return code;
}

int
ct_subscriber_receive(const struct ct_receive_options *options, struct stored *stored,
                      struct ct_stream_summary *summary, struct ct_diag *diag)
{
  struct subscriber subscriber = {
      .options = options, .stored = stored, .summary = summary, .id = own_id(stored), .heard_ns = ct_now_ns()};
  subscriber.message = malloc(CT_FANOUT_HEAD_BYTES + CT_LINK_HEADER_BYTES + CT_LINK_PAYLOAD_MAX);
  if (subscriber.message == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = ct_broker_connect(options->address, options->token, CT_BROKER_RECEIVER, &subscriber.broker, diag);
  if (code == CT_OK) {
    note(&subscriber, "waiting at %s", options->address);
    ct_prompt_begin(&subscriber.prompt);
    code = receive_all(&subscriber, diag);
    ct_prompt_end(&subscriber.prompt);
  }
  if (subscriber.is_whole) {
    ct_stored_release(stored);
  }
  ct_broker_close(subscriber.broker);
  free(subscriber.message);
  return code;
}
