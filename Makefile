# hailfs: one non-recursive makefile.
#
#   make                    release build, programs in build/bin
#   make FLAVOUR=asan       debug, asan, tsan, cov, and minor and major, which
#                           are of tests: build/FLAVOUR/bin
#   make help               everything else
#
# Objects live in build/FLAVOUR/obj and are rebuilt when flags change.

FLAVOUR ?= release
PREFIX ?= /usr/local
DESTDIR ?=
# Make's own default, cc, may be any compiler; the warning set is gcc's.
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
DEPS_PREFIX ?= $(CURDIR)/.deps

ifeq ($(FLAVOUR),release)
BIN := build/bin
else
BIN := build/$(FLAVOUR)/bin
endif
OBJ := build/$(FLAVOUR)/obj
LIB := build/$(FLAVOUR)/lib
TST := build/$(FLAVOUR)/tests

ifneq ($(V),1)
Q := @
say = @printf '  %-5s %s\n' $(1) $(2)
endif

export PKG_CONFIG_PATH := $(DEPS_PREFIX)/lib/pkgconfig:$(PKG_CONFIG_PATH)

WARN := -Wall -Wextra -Wformat=2 -Wshadow -Wconversion -Wcast-align=strict \
	-Wcast-qual -Wwrite-strings -Wpointer-arith -Wstrict-prototypes \
	-Wmissing-prototypes -Wold-style-definition -Wredundant-decls -Wvla \
	-Walloca -Wundef -Wimplicit-fallthrough=5 -Wlogical-op \
	-Wduplicated-cond -Wduplicated-branches -Wnull-dereference
ifneq ($(filter debug asan tsan,$(FLAVOUR))$(CI),)
WARN += -Werror
endif

FLAGS_release := -O2 -g
FLAGS_debug := -O1 -g -DHAIL_DEBUG=1
FLAGS_asan := -O1 -g -DHAIL_DEBUG=1 -fsanitize=address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS_tsan := -O1 -g -DHAIL_DEBUG=1 -fsanitize=thread
FLAGS_cov := -O0 -g --coverage
# Programs of releases to come, for tests/integ/t_versions.sh.
FLAGS_minor := -O1 -g -DHAIL_NEXT_MINOR
FLAGS_major := -O1 -g -DHAIL_NEXT_MAJOR
# The optimiser's path warnings are wrong under sanitizers.
WARN_asan := -Wno-null-dereference -Wno-maybe-uninitialized
WARN_tsan := -Wno-null-dereference
WARN_cov :=

CFLAGS ?=
ALL_CFLAGS := -std=gnu11 -D_GNU_SOURCE -iquote . -fno-common \
	-fno-strict-aliasing -fstack-protector-strong -pthread $(WARN) \
	$(WARN_$(FLAVOUR)) $(FLAGS_$(FLAVOUR)) $(CFLAGS)
ALL_LDFLAGS := -pthread $(FLAGS_$(FLAVOUR)) $(LDFLAGS)

FUSE_THERE = $(shell PKG_CONFIG_PATH=$(PKG_CONFIG_PATH) pkg-config --atleast-version=3.18 fuse3 && echo yes)
FUSE_CFLAGS = $(if $(FUSE_THERE),,$(error no libfuse 3.18 or later: say \
	'make deps' as root, or where it is with DEPS_PREFIX=))$(shell PKG_CONFIG_PATH=$(PKG_CONFIG_PATH) pkg-config --cflags fuse3) -DFUSE_USE_VERSION=318
FUSE_LIBS = $(shell PKG_CONFIG_PATH=$(PKG_CONFIG_PATH) pkg-config --libs --static fuse3)

LIBS_common := -lisal -lxxhash -ljansson -lmicrohttpd -lssl -lcrypto -lm
LIBS_blockd := -luring -llmdb
LIBS_metad := -lraft -luv -llmdb
LIBS_logd := -lrdmacm -libverbs
LIBS_hailfs := -lrdmacm -libverbs

common_SRC := $(sort $(wildcard common/*.c))
blockd_SRC := $(sort $(wildcard blockd/*.c))
logd_SRC := $(sort $(wildcard logd/*.c))
metad_SRC := $(sort $(wildcard metad/*.c))
core_SRC := $(sort $(wildcard fuse/core/*.c))
fuse_SRC := $(sort $(wildcard fuse/*.c))
hailctl_SRC := $(sort $(wildcard tools/hailctl/*.c))
testlib_SRC := $(sort $(wildcard tests/lib/*.c))
unit_SRC := $(sort $(wildcard tests/unit/test_*.c))
sim_SRC := $(sort $(wildcard tests/sim/sim_*.c))
simlog_SRC := $(sort $(wildcard tests/sim/log_*.c))
simlib_SRC := $(filter-out $(sim_SRC) $(simlog_SRC),\
	$(sort $(wildcard tests/sim/*.c)))
fuzz_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
integ_SRC := $(sort $(wildcard tests/integ/*.c))
preload_SRC := $(sort $(wildcard tests/integ/preload/*.c))
bench_SRC := $(sort $(wildcard bench/*.c))
power_SRC := $(sort $(wildcard tests/power/*.c))
vm_SRC := $(sort $(wildcard tests/vm/*.c))

objs = $(patsubst %.c,$(OBJ)/%.o,$(1))
not_main = $(filter-out %/main.c,$(1))

PROGRAMS := $(if $(fuse_SRC),$(BIN)/hailfs) \
	$(if $(filter %/main.c,$(blockd_SRC)),$(BIN)/hail-blockd) \
	$(if $(filter %/main.c,$(logd_SRC)),$(BIN)/hail-logd) \
	$(if $(filter %/main.c,$(metad_SRC)),$(BIN)/hail-metad) \
	$(if $(hailctl_SRC),$(BIN)/hailctl)
UNIT := $(patsubst tests/unit/%.c,$(TST)/unit/%,$(unit_SRC))
SIM := $(patsubst tests/sim/%.c,$(TST)/sim/%,$(sim_SRC))
FUZZ := $(patsubst tests/fuzz/%.c,$(TST)/fuzz/%,$(fuzz_SRC))
INTEG := $(patsubst tests/integ/%.c,$(TST)/integ/%,$(integ_SRC)) \
	$(TST)/integ/posix/posix \
	$(patsubst tests/integ/%.c,$(TST)/integ/%.so,$(preload_SRC))
BENCH := $(patsubst bench/%.c,$(TST)/bench/%,$(bench_SRC))
POWER := $(patsubst tests/power/%.c,$(TST)/power/%,$(power_SRC))
VM := $(patsubst tests/vm/%.c,$(TST)/vm/%,$(vm_SRC))

.PHONY: all
all: $(PROGRAMS)
.PHONY: tests
tests: $(UNIT) $(SIM) $(FUZZ) $(INTEG) $(BENCH) $(POWER) $(VM)

# ---- objects ----
$(OBJ)/flags: FORCE
	@mkdir -p $(OBJ)
	@echo '$(CC) $(ALL_CFLAGS) $(DEPS_PREFIX)' | cmp -s - $@ || \
		echo '$(CC) $(ALL_CFLAGS) $(DEPS_PREFIX)' > $@
.PHONY: FORCE
FORCE:

$(call objs,$(fuse_SRC)): EXTRA_CFLAGS = $(FUSE_CFLAGS)
$(OBJ)/bench/nullfs.o $(OBJ)/tests/power/recfs.o: EXTRA_CFLAGS = $(FUSE_CFLAGS)

$(OBJ)/%.o: %.c $(OBJ)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<

# ---- libraries ----
define library
$(LIB)/lib$(1).a: $(call objs,$(call not_main,$(2)))
	$$(call say,AR,$$@)
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(eval $(call library,common,$(common_SRC)))
$(eval $(call library,blockd,$(blockd_SRC)))
$(eval $(call library,logd,$(logd_SRC)))
$(eval $(call library,metad,$(metad_SRC)))
$(eval $(call library,hailfs,$(core_SRC)))
$(eval $(call library,test,$(testlib_SRC)))

link = $(call say,LD,$@) ; mkdir -p $(@D) ; \
	$(CC) -o $@ $(1) $(ALL_LDFLAGS)

# ---- programs ----
$(BIN)/hail-blockd: $(OBJ)/blockd/main.o $(LIB)/libblockd.a $(LIB)/libcommon.a
	$(call link,$^ $(LIBS_blockd) $(LIBS_common))
$(BIN)/hail-logd: $(OBJ)/logd/main.o $(LIB)/liblogd.a $(LIB)/libcommon.a
	$(call link,$^ $(LIBS_logd) $(LIBS_common))
$(BIN)/hail-metad: $(OBJ)/metad/main.o $(LIB)/libmetad.a $(LIB)/libcommon.a
	$(call link,$^ $(LIBS_metad) $(LIBS_common))
$(BIN)/hailfs: $(call objs,$(fuse_SRC)) $(LIB)/libhailfs.a $(LIB)/libcommon.a
	$(call link,$^ $(FUSE_LIBS) $(LIBS_hailfs) $(LIBS_common))
$(BIN)/hailctl: $(call objs,$(hailctl_SRC)) $(LIB)/libhailfs.a $(LIB)/libcommon.a
	$(call link,$^ $(LIBS_hailfs) $(LIBS_common))

# ---- tests ----
TEST_LIBS := $(LIB)/libtest.a $(LIB)/libblockd.a $(LIB)/liblogd.a \
	$(LIB)/libmetad.a $(LIB)/libhailfs.a $(LIB)/libcommon.a
# tests/lib/fail_malloc.h
comma := ,
WRAP := $(patsubst %,-Wl$(comma)--wrap=%,malloc calloc realloc strdup strndup)
$(TST)/unit/test_options $(TST)/fuzz/fuzz_options: $(OBJ)/fuse/options.o
$(TST)/unit/%: $(OBJ)/tests/unit/%.o $(OBJ)/tests/lib/fail_malloc.o $(TEST_LIBS)
	$(call link,$(filter %.o,$^) $(filter %.a,$^) $(WRAP) -lcmocka \
		$(LIBS_blockd) $(LIBS_logd) $(LIBS_metad) $(LIBS_common))
$(TST)/sim/sim_cluster: $(call objs,$(simlib_SRC))
$(TST)/sim/sim_log: $(call objs,$(simlog_SRC))
$(TST)/sim/%: $(OBJ)/tests/sim/%.o $(TEST_LIBS)
	$(call link,$(filter %.o,$^) $(filter %.a,$^) $(LIBS_blockd) $(LIBS_logd) $(LIBS_metad) $(LIBS_common))
$(TST)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/lib/fuzz_main.o $(TEST_LIBS)
	$(call link,$^ $(LIBS_blockd) $(LIBS_logd) $(LIBS_metad) $(LIBS_common))
$(TST)/integ/posix/posix: $(call objs,$(sort $(wildcard tests/integ/posix/*.c)))
	$(call link,$^)
$(addprefix $(TST)/integ/,acked randops forbid cached_read \
	open_files late_release nomem_calls): $(TST)/integ/%: $(OBJ)/tests/integ/%.o
	$(call link,$^)
$(TST)/integ/preload/%.so: tests/integ/preload/%.c \
		$(wildcard tests/integ/preload/*.h) $(OBJ)/flags
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g $(WARN) -fPIC -shared -o $@ $<
$(TST)/integ/%: $(OBJ)/tests/integ/%.o $(TEST_LIBS)
	$(call link,$^ $(LIBS_hailfs) $(LIBS_common))
$(TST)/bench/nullfs: $(OBJ)/bench/nullfs.o
	$(call link,$^ $(FUSE_LIBS))
$(TST)/bench/%: $(OBJ)/bench/%.o $(TEST_LIBS)
	$(call link,$^ $(LIBS_hailfs) $(LIBS_common))
$(TST)/power/recfs: $(OBJ)/tests/power/recfs.o
	$(call link,$^ $(FUSE_LIBS))
$(TST)/power/%: $(OBJ)/tests/power/%.o
	$(call link,$^)
$(TST)/vm/tsc_khz: $(OBJ)/tests/vm/tsc_khz.o
	$(call link,$^)
# The libraries first: tests/lib has a fake of them.
$(TST)/vm/%: $(OBJ)/tests/vm/%.o $(TEST_LIBS)
	$(call link,$< $(LIBS_logd) $(TEST_LIBS) $(LIBS_logd) $(LIBS_common))

.SECONDARY:
-include $(shell find build/$(FLAVOUR)/obj -name '*.d' 2>/dev/null)

# ---- checks ----
.PHONY: deps unit sim fuzz integ integ-programs check-rdma hdr-check tidy \
	man-check check check-long demo cov
deps:
	.ci/deps.sh $(DEPS_PREFIX)

unit: $(UNIT)
	tests/run.sh $(UNIT)
sim: $(SIM)
	tests/run.sh $(SIM)
fuzz: $(FUZZ)
	tests/run.sh $(FUZZ)
integ: all tests
	tests/integ/run.sh
integ-programs: $(INTEG)
# In a guest with soft-RoCE: this machine needs no RDMA.
check-rdma: all tests
	DEPS_PREFIX=$(DEPS_PREFIX) tests/integ/run.sh -d vm

HEADERS := $(sort $(wildcard common/*.h blockd/*.h logd/*.h metad/*.h fuse/*.h \
	fuse/core/*.h tools/hailctl/*.h tests/*/*.h \
	tests/integ/posix/*.h tests/integ/preload/*.h))
hdr-check: $(patsubst %.h,$(OBJ)/hdr/%.ok,$(HEADERS))
$(OBJ)/hdr/%.ok: %.h $(OBJ)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(FUSE_CFLAGS) -fsyntax-only -include $< \
		-x c /dev/null && touch $@
# A header's check is as old as the headers it includes.
$(patsubst %.h,$(OBJ)/hdr/%.ok,$(HEADERS)): $(HEADERS)

tidy:
	tests/tidy.sh
man-check: all
	tests/man.sh $(BIN)

# What tests/check.sh runs, it runs as make targets of this file.
check: deps
	tests/check.sh
check-long: deps
	tests/check.sh long
demo: deps
	$(MAKE) all
	bench/demo.sh

# Line coverage of the unit and simulation tests, by file.
cov:
	-$(MAKE) -k FLAVOUR=cov unit sim
	tests/cov.sh build/cov/obj

# ---- upkeep ----
.PHONY: format lint install clean help
FORMAT ?= clang-format-14
C_FILES := $(sort $(common_SRC) $(blockd_SRC) $(logd_SRC) $(metad_SRC) $(core_SRC) \
	$(fuse_SRC) $(hailctl_SRC) $(testlib_SRC) $(unit_SRC) $(sim_SRC) \
	$(simlib_SRC) $(simlog_SRC) $(fuzz_SRC) $(integ_SRC) $(preload_SRC) \
	$(bench_SRC) $(power_SRC) $(vm_SRC))
# make format FILES='common/wire.c': formats these, default all.
FILES ?= $(C_FILES) $(HEADERS)
format:
	$(FORMAT) -i $(FILES)

# Looks by tools that see other things than gcc; what is not installed is left
# out. Turned off are, beside matters of taste:
# - unix.Malloc: it follows neither reference counts nor intrusive lists (asan
#   runs of all tests do);
# - valist.Uninitialized: clang-tidy 14 reports each va_start in any but the
#   first file of a run;
# - implicit-widening: products of counts bounded by common/limits.h;
# - sizeof-expression, not-null-terminated-result: arrays of pointers, and
#   names with a length, are meant.
LINT_FILES ?= $(filter-out tests/% bench/%,$(C_FILES))
TIDY_CHECKS := -*,bugprone-*,clang-analyzer-*,$\
	-bugprone-easily-swappable-parameters,$\
	-bugprone-reserved-identifier,$\
	-bugprone-assignment-in-if-condition,$\
	-bugprone-implicit-widening-of-multiplication-result,$\
	-bugprone-sizeof-expression,-bugprone-macro-parentheses,$\
	-bugprone-not-null-terminated-result,$\
	-clang-analyzer-unix.Malloc,-clang-analyzer-valist.Uninitialized,$\
	-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
lint:
	$(Q)command -v cppcheck >/dev/null || { echo 'no cppcheck'; exit 0; }; \
	cppcheck --quiet --std=c11 --enable=warning,portability \
		--inline-suppr --suppress=missingIncludeSystem \
		-D'json_object_foreach(o,k,v)=for(k="",v=o;v;v=NULL)' \
		--error-exitcode=1 -j 2 -D_GNU_SOURCE -I. $(LINT_FILES)
	$(Q)tidy=$$(command -v clang-tidy || command -v clang-tidy-14) || \
		{ echo 'no clang-tidy'; exit 0; }; \
	echo $(LINT_FILES) | xargs -n 8 -P $$(nproc) sh -c 'exec $$0 --quiet \
		--checks="$(TIDY_CHECKS)" --warnings-as-errors="*" "$$@" -- \
		-std=gnu11 -D_GNU_SOURCE -iquote . $(FUSE_CFLAGS)' $$tidy

# mount(8) looks for its helpers in /sbin alone, wherever the rest is; they are
# hailfs by other names. MOUNTDIR= leaves them out.
MOUNTDIR ?= /sbin
MANDIR := $(DESTDIR)$(PREFIX)/share/man
install: all
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
ifneq ($(MOUNTDIR),)
	install -d $(DESTDIR)$(MOUNTDIR)
	ln -sf $(PREFIX)/bin/hailfs $(DESTDIR)$(MOUNTDIR)/mount.hailfs
	ln -sf $(PREFIX)/bin/hailfs $(DESTDIR)$(MOUNTDIR)/mount.fuse.hailfs
endif
	set -e; for page in $(wildcard man/*.[1-8]); do \
		dir=$(MANDIR)/man$${page##*.}; \
		install -d $$dir; \
		install -m 644 $$page $$dir; \
	done

clean:
	rm -rf build

help:
	@echo 'make               programs, release build, in $(BIN)'
	@echo 'make deps          install packages, build libfuse, fetch a kernel (root)'
	@echo 'make demo          a cluster on this machine, compared'
	@echo 'make check         all quick tests; check-long: the others too'
	@echo 'make unit|sim|fuzz|integ|check-rdma|hdr-check|tidy|man-check'
	@echo 'make cov           line coverage of unit and simulation tests'
	@echo 'make format lint   clang-format in place; cppcheck, clang-tidy'
	@echo 'make install       DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) MOUNTDIR=$(MOUNTDIR)'
	@echo 'make clean'
	@echo 'FLAVOUR=release|debug|asan|tsan|cov  V=1  CC=  CFLAGS=  LDFLAGS='
