# Warnings that every target of the project is built with; ALNICO_WERROR makes them errors.
option(ALNICO_WERROR "Treat warnings as errors" OFF)

add_library(alnico_warnings INTERFACE)
target_compile_options(alnico_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wvla $<$<BOOL:${ALNICO_WERROR}>:-Werror>>)
