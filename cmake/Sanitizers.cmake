# Builds everything with sanitizers: ALNICO_SANITIZE=address,undefined or thread. The tests then run with
# the suppressions of tests/sanitizers, which name what MPI itself does.
set(ALNICO_SANITIZE "" CACHE STRING "Sanitizers as for gcc's -fsanitize, or empty")
option(ALNICO_FUZZ "Build the fuzz targets, with clang, ALNICO_SANITIZE and libFuzzer" OFF)
set(ALNICO_FUZZ_SECONDS 5 CACHE STRING "How long ctest lets each fuzz target look for new inputs")
set(sanitize_flags)
if(ALNICO_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "ALNICO_FUZZ=ON needs clang: use CC=clang or -DCMAKE_C_COMPILER=clang")
    endif()
    if(NOT ALNICO_SANITIZE)
        set(ALNICO_SANITIZE address,undefined)
    endif()
    # Counting edges keeps loops from being vectorised, which the reductions ask for.
    add_compile_options(-fsanitize=fuzzer-no-link -Wno-pass-failed)
endif()
if(ALNICO_SANITIZE)
    set(sanitize_flags -fsanitize=${ALNICO_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    add_compile_options(${sanitize_flags})
    add_link_options(${sanitize_flags})
endif()
