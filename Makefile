# The commands of the project. Everything else is in `cargo xtask`.
.PHONY: demo test hunt build install install-lib fmt lint clean

# Turns a folder (DEMO_FROM=..., or the host's documentation) into an image, checks it and looks at it.
demo:
	cargo run -q -p xtask -- demo

# Every check: formatting, tidy, lints, all tests. The last line counts them.
test:
	cargo run -q -p xtask -- test

# Searches for faults for this long, from fresh seeds; what is found lies in out/hunts.
MINUTES ?= 60
hunt:
	cargo hunt all --minutes $(MINUTES)

build:
	cargo build --release

# Below PREFIX: the binary, its manual pages and completions. UNDERSTUDY=1 also makes links for the names of
# mke2fs (docs/formatting.md); what has such a name already is kept, and the installation fails.
PREFIX ?= /usr/local
install: build
	install -D -m 755 "$${CARGO_TARGET_DIR:-target}/release/hectare" "$(DESTDIR)$(PREFIX)/bin/hectare"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1"
	"$(DESTDIR)$(PREFIX)/bin/hectare" manual "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -d "$(DESTDIR)$(PREFIX)/share/bash-completion/completions"
	install -d "$(DESTDIR)$(PREFIX)/share/zsh/site-functions"
	install -d "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	cd "$(DESTDIR)$(PREFIX)" && \
		bin/hectare completions bash > share/bash-completion/completions/hectare && \
		bin/hectare completions zsh > share/zsh/site-functions/_hectare && \
		bin/hectare completions fish > share/fish/vendor_completions.d/hectare.fish
ifeq ($(UNDERSTUDY),1)
	install -d "$(DESTDIR)$(PREFIX)/sbin"
	for name in mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4; do \
		link="$(DESTDIR)$(PREFIX)/sbin/$$name"; \
		[ "$$(readlink "$$link")" = ../bin/hectare ] || ln -s ../bin/hectare "$$link" || exit 1; \
	done
endif

# Below PREFIX: the library for C, as a shared and as a static one, its header and what pkg-config needs.
LIBDIR ?= $(PREFIX)/lib
install-lib:
	cargo rustc --release -p hectare-capi --lib --crate-type cdylib
	cargo rustc --release -p hectare-capi --lib --crate-type staticlib
	install -D -m 755 "$${CARGO_TARGET_DIR:-target}/release/libhectare_c.so" \
		"$(DESTDIR)$(LIBDIR)/libhectare.so.0"
	ln -sf libhectare.so.0 "$(DESTDIR)$(LIBDIR)/libhectare.so"
	install -D -m 644 "$${CARGO_TARGET_DIR:-target}/release/libhectare_c.a" "$(DESTDIR)$(LIBDIR)/libhectare.a"
	install -D -m 644 crates/bind/capi/include/hectare.h "$(DESTDIR)$(PREFIX)/include/hectare.h"
	install -d "$(DESTDIR)$(LIBDIR)/pkgconfig"
	sed -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(PREFIX)/include|' \
		-e "s|@VERSION@|$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)|" \
		crates/bind/capi/hectare.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/hectare.pc"

fmt:
	cargo fmt --all

lint:
	cargo run -q -p xtask -- lint

clean:
	cargo clean
	rm -rf out
