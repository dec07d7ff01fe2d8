/* Where NCCL's functions come from: the library that ALNICO_NCCL_LIBRARY names, its functions with a p
 * first; and what is said where it is not there or lacks one. A process loads NCCL once, so that each
 * case is a process of its own. */
#include "comm/backends/nccl/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Whether `check` holds in a process that has this library. */
static void require_with(const char *path, bool (*check)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("ALNICO_NCCL_LIBRARY", path, 1);
        bool right = check();
        if (!right)
            fprintf(stderr, "%s: version %d, detail '%s'\n", path, nccl_version(),
                    alnico_error_detail());
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool says(const char *text)
{
    return !nccl_library() && nccl_version() == 0 && strstr(alnico_error_detail(), text);
}

static bool is_whole(void)
{
    const struct nccl_library *library = nccl_library();
    return library && nccl_version() == 29901 && library->ncclAllReduce && library->ncclGroupEnd &&
           library->ncclCommWindowRegister && library == nccl_library();
}

static bool has_no_windows(void)
{
    const struct nccl_library *library = nccl_library();
    return library && library->ncclGroupEnd && !library->ncclCommWindowRegister &&
           !library->ncclCommWindowDeregister;
}

static bool lacks_a_function(void)
{
    return says("NCCL's library has no ncclGroupEnd");
}

static bool is_missing(void)
{
    return says("NCCL is not there: /nowhere/libnccl.so.2: ") &&
           strstr(alnico_error_detail(), "; ALNICO_NCCL_LIBRARY may name it");
}

static void the_named_library_is_loaded(void **state)
{
    (void)state;
    require_with(MADE_UP_WHOLE, is_whole);
}

static void an_older_library_has_no_windows(void **state)
{
    (void)state;
    require_with(MADE_UP_OLDER, has_no_windows);
}

static void a_library_without_a_function_is_refused(void **state)
{
    (void)state;
    require_with(MADE_UP_BROKEN, lacks_a_function);
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    require_with("/nowhere/libnccl.so.2", is_missing);
}

#ifdef DROPIN
static bool is_ours(void)
{
    return says("NCCL is not there: it is Alnico's own libnccl.so.2; ");
}

/* Its calls would come back to the backend. */
static void the_drop_in_is_not_nccl(void **state)
{
    (void)state;
    require_with(DROPIN, is_ours);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_named_library_is_loaded),
        cmocka_unit_test(an_older_library_has_no_windows),
        cmocka_unit_test(a_library_without_a_function_is_refused),
        cmocka_unit_test(a_missing_library_is_named),
#ifdef DROPIN
        cmocka_unit_test(the_drop_in_is_not_nccl),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
