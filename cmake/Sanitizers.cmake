# Builds everything with sanitizers: ALNICO_SANITIZE=address,undefined or thread. The tests then run with
# the suppressions of tests/sanitizers, which name what MPI itself does.
set(ALNICO_SANITIZE "" CACHE STRING "Sanitizers as for gcc's -fsanitize, or empty")
set(sanitize_flags)
if(ALNICO_SANITIZE)
    set(sanitize_flags -fsanitize=${ALNICO_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    add_compile_options(${sanitize_flags})
    add_link_options(${sanitize_flags})
endif()
