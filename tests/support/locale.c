/* Linked into a test program: TEST_LOCALE is the locale that it runs in, as if it called setlocale
 * first; the C library's messages stay as tests know them. Exit status 77 where this machine does not
 * have it. */
#include <locale.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_locale(void)
{
    const char *name = getenv("TEST_LOCALE");
    if (name && !setlocale(LC_ALL, name))
        _Exit(77);
    setlocale(LC_MESSAGES, "C");
}
