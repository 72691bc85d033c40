/* SPDX-License-Identifier: MIT */
/*
 * The terminal as a screen (ncursesw), for contrail top and tui. All text goes through ct_screen_text: whatever bytes a
 * trace has, what reaches the terminal are characters that have a width; control characters and bytes that are none
 * become '?'.
 */
#ifndef CT_CLI_SCREEN_H
#define CT_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum { CT_SCREEN_TEXT_BYTES = 1024, CT_KEY_ESCAPE = 27 };

/* False: the terminal is not known, or is none; nothing was changed. */
bool ct_screen_open(void);
void ct_screen_close(void);
/* Both standard input and output are a terminal. */
bool ct_screen_is_possible(void);
/* Takes the terminal's size as it is now; before anything is drawn. */
void ct_screen_fit(void);
/* Text at (y, x), cut to so many columns; longer than CT_SCREEN_TEXT_BYTES it is cut, too. Columns that it took. */
int ct_screen_text(int y, int x, int columns, const char *text);
/* The name as it is shown: shortened, if it is to be; longer than CT_SCREEN_TEXT_BYTES it is cut. Returns buf. */
char *ct_screen_name(char buf[CT_SCREEN_TEXT_BYTES], const char *name, bool is_short);
/* A line that begins at the left edge. */
void ct_screen_line(int y, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line that the user types at the bottom of the screen, what there is in out first; false: given up, by Escape or
 * Ctrl-C. */
bool ct_screen_ask(const char *question, char *out, size_t size);

#endif
