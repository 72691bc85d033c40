/* SPDX-License-Identifier: MIT */
/* See screen.h. */
#include "cli/screen.h"

#include <contrail/text.h>

#include <locale.h>
#include <ncurses.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

enum { WAIT_MS = 200 };

static SCREEN *terminal;

bool
ct_screen_is_possible(void)
{
  return isatty(STDOUT_FILENO) == 1 && isatty(STDIN_FILENO) == 1;
}

bool
ct_screen_open(void)
{
  setlocale(LC_CTYPE, "");
  terminal = newterm(NULL, stdout, stdin);
  if (terminal == NULL) {
    return false;
  }
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  set_escdelay(50);
  curs_set(0);
  return true;
}

void
ct_screen_close(void)
{
  endwin();
  delscreen(terminal);
  terminal = NULL;
}

void
ct_screen_fit(void)
{
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0 &&
      (size.ws_row != LINES || size.ws_col != COLS)) {
    resizeterm(size.ws_row, size.ws_col);
  }
}

/* Characters without a look of their own, that change the order or the joining of others. */
static bool
is_format(wchar_t c)
{
  return c == 0x061c || c == 0xfeff || c == 0x00ad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

int
ct_screen_text(int y, int x, int columns, const char *text)
{
  char copy[CT_SCREEN_TEXT_BYTES];
  wchar_t wide[CT_SCREEN_TEXT_BYTES];
  if (y < 0 || y >= LINES || x < 0 || x >= COLS || columns <= 0) {
    return 0;
  }
  snprintf(copy, sizeof(copy), "%s", text);
  ct_make_printable(copy);
  mbstate_t state = {0};
  size_t count = 0, left = strlen(copy);
  int used = 0;
  columns = columns < COLS - x ? columns : COLS - x;
  for (const char *p = copy; left != 0;) {
    wchar_t c;
    size_t n = mbrtowc(&c, p, left, &state);
    if (n == 0 || n > left) {
      c = L'?';
      n = 1;
      state = (mbstate_t){0};
    }
    int width = is_format(c) ? -1 : wcwidth(c);
    c = width < 0 ? L'?' : c;
    width = width < 0 ? 1 : width;
    if (used + width > columns) {
      break;
    }
    used += width;
    wide[count++] = c;
    p += n;
    left -= n;
  }
  mvaddnwstr(y, x, wide, (int)count);
  return used;
}

char *
ct_screen_name(char buf[CT_SCREEN_TEXT_BYTES], const char *name, bool is_short)
{
  snprintf(buf, CT_SCREEN_TEXT_BYTES, "%s", name);
  if (is_short) {
    ct_shorten_name(buf);
  }
  return buf;
}

void
ct_screen_line(int y, const char *format, ...)
{
  char text[CT_SCREEN_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  ct_screen_text(y, 0, COLS, text);
}

/* The end of the text without its last character. */
static size_t
without_last(const char *text, size_t length)
{
  while (length != 0 && ((unsigned char)text[--length] & 0xC0) == 0x80) {
  }
  return length;
}

/* One key; true: the line is done, or given up. */
static bool
edit(int key, char *out, size_t size, bool *given)
{
  size_t length = strlen(out);
  *given = key == '\n' || key == '\r' || key == KEY_ENTER;
  if (*given || key == CT_KEY_ESCAPE || key == 'C' - '@') {
    return true;
  }
  if (key == KEY_BACKSPACE || key == 127 || key == 8) {
    out[without_last(out, length)] = '\0';
  } else if (key == 'U' - '@') {
    out[0] = '\0';
  } else if (key >= ' ' && key < 256 && key != 127 && length + 1 < size) {
    out[length] = (char)key;
    out[length + 1] = '\0';
  }
  return false;
}

bool
ct_screen_ask(const char *question, char *out, size_t size)
{
  bool given = false;
  int key = ERR;
  raw(); /* Ctrl-C gives up the line, not the screen */
  timeout(WAIT_MS);
  do {
    ct_screen_fit();
    move(LINES - 1, 0);
    clrtoeol();
    ct_screen_line(LINES - 1, "%s%s_", question, out);
    refresh();
    key = getch();
  } while (!edit(key, out, size, &given));
  noraw();
  cbreak();
  return given;
}
