# Thin over CMake. Every target that builds first installs what is missing, then configures and builds.
# Ubuntu 24.04's MPICH speaks PMIx only, and its mpiexec does not: every process would be alone.
DEFAULT_MPI := $(if $(shell grep -s '^VERSION_ID="24.04"' /etc/os-release),openmpi,mpich)
MPI ?= $(DEFAULT_MPI)
BUILD ?= build$(if $(filter-out $(DEFAULT_MPI),$(MPI)),-$(MPI))
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
OPTIONS ?=
MAKEFLAGS += --no-print-directory

# Debian keeps both MPIs apart by these names; elsewhere CMake finds mpicc in PATH.
mpi_options = $$(command -v mpicc.$(MPI) >/dev/null && command -v mpiexec.$(MPI) >/dev/null && \
	echo -DMPI_C_COMPILER=mpicc.$(MPI) -DMPIEXEC_EXECUTABLE=$$(command -v mpiexec.$(MPI)))

.PHONY: all run check studies install clean help

all:
	scripts/install-deps --mpi $(MPI)
	cmake -S . -B $(BUILD) $(mpi_options) -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(OPTIONS)
	cmake --build $(BUILD) --parallel $(JOBS)

run: all
	scripts/main-job $(BUILD)

check: all
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

# A study that lacks what it needs ends with 77.
studies: all
	mkdir -p $(BUILD)/studies
	for study in $(BUILD)/benchmarks/studies/study_*; do \
		[ -x $$study ] && [ ! -d $$study ] || continue; \
		to=$(BUILD)/studies/$${study##*/study_}; \
		$$study --json $$to.json --picture $$to.svg || [ $$? = 77 ] || exit 1; \
	done

install: all
	cmake --install $(BUILD)

clean:
	rm -rf build build-mpich build-openmpi

help:
	@echo 'make        build into $(BUILD)/'
	@echo 'make run    the main job: allreduce against MPI on 2 ranks, then a short training'
	@echo 'make check  all tests'
	@echo 'make studies  experiments of the field, small, into $(BUILD)/studies/'
	@echo 'make install PREFIX=/usr/local'
	@echo 'make clean'
	@echo
	@echo 'MPI=mpich|openmpi  JOBS=N  BUILD=DIR  OPTIONS="-DALNICO_TRAIN=OFF ..."'
