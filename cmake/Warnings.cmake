# Warnings that every target of the project is built with; ALNICO_WERROR makes them errors.
option(ALNICO_WERROR "Treat warnings as errors" OFF)

add_library(alnico_warnings INTERFACE)
target_compile_options(alnico_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wvla $<$<BOOL:${ALNICO_WERROR}>:-Werror>>)
# nvcc passes what it leaves to the host's compiler through -Xcompiler; its own warnings are errors by another name.
target_compile_options(alnico_warnings INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-Xcompiler=-fno-exceptions,-fno-rtti>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ALNICO_WERROR}>>:-Xcompiler=-Werror;SHELL:--Werror all-warnings>")
