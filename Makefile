# The commands of the project. Everything else is in `cargo xtask`.
.PHONY: demo test build install fmt lint clean

# Turns a folder (DEMO_FROM=..., or the host's documentation) into an image, checks it and looks at it.
demo:
	cargo run -q --release -p xtask -- demo

# Every check: formatting, lints, tidy, all tests. The last line counts them.
# All is built at once: xtask alone would be built with fewer features, and half of it again for the tests.
test: export CARGO_TARGET_DIR ?= $(CURDIR)/target
test:
	cargo build --workspace --bin xtask --tests
	"$$CARGO_TARGET_DIR/debug/xtask" test

build:
	cargo build --release

# Below PREFIX. UNDERSTUDY=1 also makes links for the names of mke2fs (docs/formatting.md); what has such a
# name already is kept, and the installation fails.
PREFIX ?= /usr/local
install: build
	install -D -m 755 "$${CARGO_TARGET_DIR:-target}/release/hectare" "$(DESTDIR)$(PREFIX)/bin/hectare"
ifeq ($(UNDERSTUDY),1)
	install -d "$(DESTDIR)$(PREFIX)/sbin"
	for name in mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4; do \
		link="$(DESTDIR)$(PREFIX)/sbin/$$name"; \
		[ "$$(readlink "$$link")" = ../bin/hectare ] || ln -s ../bin/hectare "$$link" || exit 1; \
	done
endif

fmt:
	cargo fmt --all

lint:
	cargo clippy --workspace --all-targets -- -D warnings
	cargo run -q -p xtask -- tidy

clean:
	cargo clean
	rm -rf out
