/* VECTORISED before a function compiles it once for each kind of vectors that machines have; the
 * loader takes the one that fits. Resolvers of clones run before a sanitizer's runtime is ready, so
 * sanitized builds have one. */
#ifndef ALNICO_BASE_VECTORISED_H
#define ALNICO_BASE_VECTORISED_H

#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__) &&          \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define VECTORISED
#endif

#endif
